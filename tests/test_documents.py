"""README and docs are true: every recipe and dataset is listed, every link and picture is there."""

import ast
import re
from pathlib import Path

import pytest

import didact
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


def read_package_table():
    """Package or module -> its row in ARCHITECTURE.md, from the top."""
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("## The packages")[2].partition("## ")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name: row for row, cell in enumerate(first_cells) for name in re.findall(r"`(\w+)(?:/|\.py)`", cell)}


def test_imports_go_down_the_table_of_architecture():
    package, rows = Path(didact.__file__).parent, read_package_table()
    assert len(rows) > 20
    upward_imports = set()
    for path in package.rglob("*.py"):
        importer = path.relative_to(package).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("didact"):
                modules = [node.module] if node.module != "didact" else [f"didact.{a.name}" for a in node.names]
                for imported in (module.split(".")[1] for module in modules if "." in module):
                    if imported in rows and importer in rows and rows[imported] < rows[importer]:
                        upward_imports.add((importer, imported))
    assert upward_imports == set()
