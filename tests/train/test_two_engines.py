"""Two engines, one network: equal where they should be, and loud where they are not."""

import json

import numpy as np
import pytest
import torch

from didact import scratch
from didact.cli.main import main
from didact.objectives.from_scratch import FromScratch
from didact.registry import RECIPES
from didact.train.compare import check_gradients, compare, scratch_objective

NAMES = ["scratch_manual", "scratch_mlp", "scratch_lenet", "scratch_rnn", "scratch_gpt"]


@pytest.mark.parametrize("name", NAMES)
def test_ten_steps_apart_by_rounding_alone(name):
    found = compare(RECIPES[name], {}, steps=10)
    assert found["equal"] and 0 < found["max_difference"] < 1e-9
    moved = [r for r in found["rows"] if "after" in r["what"]]
    assert len(moved) == len([r for r in found["rows"] if r["what"].startswith("gradient")]) > 3


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw"])
def test_every_rule_walks_the_same_path(optimizer):
    assert compare(RECIPES["scratch_mlp"], {"hidden": (8,)}, steps=10, optimizer=optimizer)["max_difference"] < 1e-9


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_every_cell(cell):
    assert compare(RECIPES["scratch_rnn"], {"cell": cell, "hidden": 9, "width": 5}, steps=3)["max_difference"] < 1e-9


def test_a_wrong_gradient_is_loud(monkeypatch, capsys):
    """ReLU with a slope of 1.001: the table is shown and the exit code says so."""
    right = scratch.Tensor.relu

    def wrong(x):
        return right(x) * 1.001

    monkeypatch.setattr(scratch.Tensor, "relu", wrong)
    assert main(["compare", "scratch_mlp", "--hidden", "8", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["equal"] is False and "the engines differ by" in err


def test_the_command(capsys):
    assert main(["compare", "scratch_mlp", "--hidden", "8", "--steps", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["max_difference"] < 1e-9 and found["steps"] == 3
    assert main(["compare", "scratch_mlp", "--hidden", "8", "--steps", "3"]) == 0
    assert "largest difference" in capsys.readouterr().out
    assert main(["compare", "mlp"]) == 2
    assert "has no network on the NumPy engine" in capsys.readouterr().err


def test_differences_agree_with_the_engine(monkeypatch):
    found = check_gradients(RECIPES["scratch_lenet"], samples=3)
    assert found["passed"] and found["max_difference"] < 1e-6
    right = scratch.Tensor.relu
    monkeypatch.setattr(scratch.Tensor, "relu", lambda x: right(x) + (x - x.detach()) * 0.01)  # the value is right, the slope is not
    assert not check_gradients(RECIPES["scratch_lenet"], samples=3)["passed"]


def test_the_loop_moves_the_engines_own_arrays():
    objective, experiment = scratch_objective(RECIPES["scratch_mlp"], {"hidden": (4,), "dtype": "float32"})
    assert isinstance(objective, FromScratch)
    for name, p in objective.engine.named_parameters():
        assert np.shares_memory(p.data, objective.get_parameter(name).detach().numpy())
    batch = experiment.data.train.batch(torch.arange(8))
    objective.loss(batch)["loss"].backward()
    twin = objective.twin()
    twin.load_state_dict({k: torch.from_numpy(v) for k, v in objective.engine.state_dict().items()})
    torch.nn.functional.cross_entropy(twin(batch["x"]), batch["y"]).backward()
    for name, p in twin.named_parameters():
        torch.testing.assert_close(objective.get_parameter(name).grad, p.grad)


def test_a_run_on_the_engine_resumes_and_is_used(here):
    import didact

    run = didact.train(RECIPES["scratch_mlp"], data="iris", hidden=(8,), epochs=3)
    assert didact.evaluate(run)["test"] == pytest.approx(run.facts["test"])
    names = didact.load("iris").names
    (found,) = didact.predict(run, [",".join(f"{n}=5" for n in names)])
    assert found["label"] in didact.load("iris").labels
