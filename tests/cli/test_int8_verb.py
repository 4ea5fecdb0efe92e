"""`didact evaluate RUN --int8`."""

import json

import pytest

import didact
from didact.cli.main import main
from didact.registry import RECIPES


@pytest.mark.parametrize(
    ("recipe", "arguments"),
    [
        ("mlp", {"epochs": 5}),
        ("text_transformer", {"steps": 40, "layers": 1, "heads": 2, "width": 32, "hidden": 64, "length": 16, "lr": 3e-3}),
        ("gpt", {"data": "python_topics", "steps": 5, "layers": 1, "heads": 2, "width": 32, "context": 16, "experts": 4}),
        ("bert", {"steps": 5, "layers": 1, "heads": 2, "width": 32, "hidden": 64, "context": 16}),
    ],
)
def test_eight_bits_save_most_and_cost_little(recipe, arguments, here, capsys):
    run = didact.train(RECIPES[recipe], device="cpu", **arguments)
    assert main(["evaluate", str(run.folder), "--int8", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    few = found["int8"]
    assert found["test"] == pytest.approx(run.facts["test"], rel=1e-4)
    assert few["after"] < 0.4 * few["before"] and 0 < few["error"] < 0.02
    assert few["test"]["accuracy"] == pytest.approx(found["test"]["accuracy"], abs=0.02)
    assert few["test"]["loss"] == pytest.approx(found["test"]["loss"], rel=0.05) and few["test"]["loss"] != found["test"]["loss"]
    assert main(["evaluate", str(run.folder), "--int8", "--device", "cpu"]) == 0
    assert "test in int8" in capsys.readouterr().out


def test_a_run_without_matrices_is_refused(here, capsys):
    run = didact.train(RECIPES["scratch_mlp"], epochs=1)
    assert main(["evaluate", str(run.folder), "--int8"]) == 2
    assert "no affine layer" in capsys.readouterr().err
