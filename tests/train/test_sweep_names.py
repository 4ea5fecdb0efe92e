"""A sweep is found again by what it was asked, and not where its data have changed."""

from pathlib import Path

import pytest

from didact import recipes
from didact.train.sweep import name_of


@pytest.mark.parametrize(("axes", "given"), [
    ({"dropout": (0.0, 0.5)}, {"data": "own"}), ({"data": ("iris", "own")}, {}), ({"dropout": (0.0, 0.5)}, {"data": "own/a/1.txt"}),
])
def test_data_that_changed_are_another_sweep(tmp_path, monkeypatch, axes, given):
    monkeypatch.chdir(tmp_path)
    Path("own/a").mkdir(parents=True)
    Path("own/a/1.txt").write_text("one")

    def name():
        return name_of(recipes.mlp, axes, 1, 0, given)

    before = name()
    assert name() == before
    Path("own/a/1.txt").write_text("another")
    assert name() != before


def test_a_folder_that_lost_a_file_is_another_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own").mkdir()
    for k in range(2):
        Path(f"own/{k}.txt").write_text("one")
    before = name_of(recipes.mlp, {}, 1, 0, {"data": "own"})
    Path("own/1.txt").unlink()
    assert name_of(recipes.mlp, {}, 1, 0, {"data": "own"}) != before
