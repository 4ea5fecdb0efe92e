"""Runs by their names: under the root that was given, as folders in what is kept, and from a process that knows no recipe yet."""

import json
import subprocess
import sys

import pytest

import didact
from didact.errors import UsageError
from didact.registry import RECIPES

QUICK = {"data": "digits", "steps": 2, "batch": 32}


@pytest.fixture(scope="module")
def two_roots(tmp_path_factory):
    """A run of cnn under each of two roots; the other one is the newest."""
    root = tmp_path_factory.mktemp("roots")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        mine = didact.train(RECIPES["cnn"], **QUICK, runs="mine", seed=1)
        didact.train(RECIPES["cnn"], **QUICK, seed=2)
    return root, mine


@pytest.mark.parametrize(("name", "more"), [("cnn", {}), ("transfer", {"mode": "features", "labels": 2})])
def test_a_name_is_looked_for_where_runs_are_kept(two_roots, monkeypatch, name, more):
    root, mine = two_roots
    monkeypatch.chdir(root)
    run = didact.train(RECIPES[name], **QUICK, **more, weights=mine.folder.name, runs="mine")
    assert run.facts["arguments"]["weights"] == str(mine.folder)


def test_a_name_that_no_run_has_is_told_with_the_root(two_roots, monkeypatch):
    monkeypatch.chdir(two_roots[0])
    with pytest.raises(UsageError, match="no run under elsewhere yet"):
        didact.train(RECIPES["vqvae_prior"], from_="latest", runs="elsewhere", steps=1)


def test_a_process_that_has_trained_nothing(two_roots, monkeypatch):
    root, mine = two_roots
    monkeypatch.chdir(root)
    program = f"import didact, json; print(json.dumps(didact.evaluate(didact.Run.open({str(mine.folder)!r}))['validation']))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert json.loads(said)["loss"] == pytest.approx(mine.facts["validation"]["loss"], rel=1e-4)
