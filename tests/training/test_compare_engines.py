"""Two engines, one network: equal where they should be, and loud where they are not."""

import json

import numpy as np
import pytest
import torch

from didact import scratch
from didact.cli.main import main
from didact.objectives.numpy_engine import NumpyEngineObjective
from didact.registry import RECIPES
from didact.training.compare_engines import build_scratch_objective, check_gradients, compare_engines

NAMES = ["scratch_manual", "scratch_mlp", "scratch_lenet", "scratch_rnn", "scratch_gpt"]


@pytest.mark.parametrize("name", NAMES)
def test_engines_agree_after_ten_steps(name):
    result = compare_engines(RECIPES[name], {}, steps=10)
    assert result["equal"] and 0 < result["max_difference"] < 1e-9
    updated_rows = [r for r in result["rows"] if "after" in r["name"]]
    assert len(updated_rows) == len([r for r in result["rows"] if r["name"].startswith("gradient")]) > 3


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw"])
def test_engines_agree_with_every_optimizer(optimizer):
    assert (
        compare_engines(RECIPES["scratch_mlp"], {"hidden": (8,)}, steps=10, optimizer=optimizer)["max_difference"]
        < 1e-9
    )


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_engines_agree_with_every_cell(cell):
    assert (
        compare_engines(RECIPES["scratch_rnn"], {"cell": cell, "hidden_size": 9, "embed_dim": 5}, steps=3)[
            "max_difference"
        ]
        < 1e-9
    )


def test_compare_verb_fails_on_a_wrong_gradient(monkeypatch, capsys):
    """ReLU with a slope of 1.001: the table is shown and the exit code says so."""
    original_relu = scratch.Tensor.relu

    def wrong_relu(x):
        return original_relu(x) * 1.001

    monkeypatch.setattr(scratch.Tensor, "relu", wrong_relu)
    assert main(["engines", "scratch_mlp", "--hidden", "8", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["equal"] is False and "the engines differ by" in err


def test_compare_verb_prints_the_largest_difference(capsys):
    assert main(["engines", "scratch_mlp", "--hidden", "8", "--steps", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["max_difference"] < 1e-9 and result["steps"] == 3
    assert main(["engines", "scratch_mlp", "--hidden", "8", "--steps", "3"]) == 0
    assert "largest difference" in capsys.readouterr().out
    assert main(["engines", "mlp"]) == 2
    assert "has no network on the NumPy engine" in capsys.readouterr().err


def test_check_gradients_finds_a_wrong_slope(monkeypatch):
    result = check_gradients(RECIPES["scratch_lenet"], samples=3)
    assert result["passed"] and result["max_difference"] < 1e-6
    original_relu = scratch.Tensor.relu
    # the value is right, the slope is not
    monkeypatch.setattr(scratch.Tensor, "relu", lambda x: original_relu(x) + (x - x.detach()) * 0.01)
    assert not check_gradients(RECIPES["scratch_lenet"], samples=3)["passed"]


def test_numpy_engine_objective_shares_its_arrays_with_torch():
    objective, experiment = build_scratch_objective(RECIPES["scratch_mlp"], {"hidden": (4,), "dtype": "float32"})
    assert isinstance(objective, NumpyEngineObjective)
    for name, p in objective.engine.named_parameters():
        assert np.shares_memory(p.data, objective.get_parameter(name).detach().numpy())
    batch = experiment.data.train.batch(torch.arange(8))
    objective.loss(batch)["loss"].backward()
    twin = objective.make_twin()
    twin.load_state_dict({k: torch.from_numpy(v) for k, v in objective.engine.state_dict().items()})
    torch.nn.functional.cross_entropy(twin(batch["x"]), batch["y"]).backward()
    for name, p in twin.named_parameters():
        torch.testing.assert_close(objective.get_parameter(name).grad, p.grad)


def test_scratch_run_is_evaluated_and_predicts(workdir):
    import didact

    run = didact.train(RECIPES["scratch_mlp"], data="iris", hidden=(8,), epochs=3)
    assert didact.evaluate(run)["test"] == pytest.approx(run.metadata["test"])
    names = didact.load("iris").feature_names
    (result,) = didact.predict(run, [",".join(f"{n}=5" for n in names)])
    assert result["label"] in didact.load("iris").class_names
