"""Runs by their names: under the root that was given, as folders in what is kept, and from a process that knows no
recipe yet."""

import json
import subprocess
import sys

import pytest

import didact
from didact.errors import UsageError
from didact.registry import RECIPES

QUICK_OPTIONS = {"data": "digits", "steps": 2, "batch_size": 32}


@pytest.fixture(scope="module")
def two_roots(tmp_path_factory):
    """A run of cnn under each of two roots; the other one is the newest."""
    root = tmp_path_factory.mktemp("roots")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        own_run = didact.train(RECIPES["cnn"], **QUICK_OPTIONS, runs="mine", seed=1)
        didact.train(RECIPES["cnn"], **QUICK_OPTIONS, seed=2)
    return root, own_run


@pytest.mark.parametrize(
    ("name", "extra_options"), [("cnn", {}), ("transfer", {"mode": "features", "labels_per_class": 2})]
)
def test_run_name_is_looked_up_under_the_given_root(two_roots, monkeypatch, name, extra_options):
    root, own_run = two_roots
    monkeypatch.chdir(root)
    run = didact.train(RECIPES[name], **QUICK_OPTIONS, **extra_options, weights=own_run.folder.name, runs="mine")
    assert run.metadata["arguments"]["weights"] == str(own_run.folder)


def test_unknown_run_name_is_refused_with_its_root(two_roots, monkeypatch):
    monkeypatch.chdir(two_roots[0])
    with pytest.raises(UsageError, match="no run under elsewhere yet"):
        didact.train(RECIPES["vqvae_prior"], from_="latest", runs="elsewhere", steps=1)


def test_evaluate_works_in_a_fresh_process(two_roots, monkeypatch):
    root, own_run = two_roots
    monkeypatch.chdir(root)
    program = (
        "import didact, json; "
        f"print(json.dumps(didact.evaluate(didact.Run.open({str(own_run.folder)!r}))['validation']))"
    )
    stdout = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert json.loads(stdout)["loss"] == pytest.approx(own_run.metadata["validation"]["loss"], rel=1e-4)
