"""`didact evaluate RUN --int8`."""

import json

import pytest

import didact
from didact.cli.main import main
from didact.registry import RECIPES

SIZES = {"num_layers": 1, "num_heads": 2, "embed_dim": 32}


@pytest.mark.parametrize(
    ("recipe", "arguments"),
    [
        ("mlp", {"epochs": 5}),
        ("text_transformer", {"steps": 40, **SIZES, "ffn_dim": 64, "max_length": 16, "lr": 3e-3}),
        ("gpt", {"data": "python_topics", "steps": 5, **SIZES, "context_length": 16, "num_experts": 4}),
        ("bert", {"steps": 5, **SIZES, "ffn_dim": 64, "context_length": 16}),
    ],
)
def test_int8_saves_memory_and_keeps_scores(recipe, arguments, workdir, capsys):
    run = didact.train(RECIPES[recipe], device="cpu", **arguments)
    assert main(["evaluate", str(run.folder), "--int8", "--device", "cpu", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    int8_result = result["int8"]
    assert result["test"] == pytest.approx(run.metadata["test"], rel=1e-4)
    assert int8_result["bytes_after"] < 0.4 * int8_result["bytes_before"] and 0 < int8_result["relative_error"] < 0.02
    assert int8_result["test"]["accuracy"] == pytest.approx(result["test"]["accuracy"], abs=0.02)
    assert (
        int8_result["test"]["loss"] == pytest.approx(result["test"]["loss"], rel=0.05)
        and int8_result["test"]["loss"] != result["test"]["loss"]
    )
    assert main(["evaluate", str(run.folder), "--int8", "--device", "cpu"]) == 0
    assert "test in int8" in capsys.readouterr().out


def test_int8_refuses_a_run_without_linear_layers(workdir, capsys):
    run = didact.train(RECIPES["scratch_mlp"], epochs=1)
    assert main(["evaluate", str(run.folder), "--int8"]) == 2
    assert "no linear layer" in capsys.readouterr().err
