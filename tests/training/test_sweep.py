"""A sweep is found again by what it was asked, and not where its data have changed."""

from pathlib import Path

import pytest

from didact import recipes
from didact.training.sweeps.sweep import sweep_name


@pytest.mark.parametrize(
    ("axes", "options"),
    [
        ({"dropout": (0.0, 0.5)}, {"data": "own"}),
        ({"data": ("iris", "own")}, {}),
        ({"dropout": (0.0, 0.5)}, {"data": "own/a/1.txt"}),
    ],
)
def test_sweep_name_changes_with_the_data(tmp_path, monkeypatch, axes, options):
    monkeypatch.chdir(tmp_path)
    Path("own/a").mkdir(parents=True)
    Path("own/a/1.txt").write_text("one")

    def compute_name():
        return sweep_name(recipes.mlp, axes, 1, 0, options)

    before = compute_name()
    assert compute_name() == before
    Path("own/a/1.txt").write_text("another")
    assert compute_name() != before


def test_sweep_name_changes_when_a_file_is_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own").mkdir()
    for k in range(2):
        Path(f"own/{k}.txt").write_text("one")
    before = sweep_name(recipes.mlp, {}, 1, 0, {"data": "own"})
    Path("own/1.txt").unlink()
    assert sweep_name(recipes.mlp, {}, 1, 0, {"data": "own"}) != before
