"""README and docs are true: every recipe and dataset is listed, every link and picture is there."""

import re
from pathlib import Path

import pytest

from didact.data.load import list_datasets
from didact.registry import RECIPES

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("src/didact/**/*.md")])


@pytest.mark.parametrize("page", ["README.md", "docs/recipes.md"])
def test_every_recipe_is_listed(page):
    text = (ROOT / page).read_text()
    shortened = {"scratch_manual", "scratch_rnn", "scratch_gpt"} if page == "README.md" else set()
    assert {name for name in RECIPES if f"`{name}`" not in text} <= shortened


def test_every_dataset_is_listed():
    text = (ROOT / "docs" / "recipes.md").read_text()
    assert {name for name in list_datasets() if f"`{name}`" not in text} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not missing
