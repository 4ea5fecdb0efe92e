"""Forecasts: windows, teacher forcing, errors in the series' own units, one's own CSV."""

import json

import numpy as np
import pytest
import torch

import didact
from beside import has_public
from didact.cli.main import main
from didact.data.load import load
from didact.data.series import ahead, series
from didact.errors import UsageError
from didact.explain.memory import fading
from didact.explain.sequences import kept
from didact.models.forecaster import Forecaster
from didact.objectives.forecasting import Forecast
from didact.registry import RECIPES
from didact.train.session import evaluate, restored
from didact.train.use import predict


def test_windows_of_another_length_hold_the_same_series():
    whole = series("count", list(range(400)), "n")
    data = ahead(whole, window=5, horizon=3)
    batch = data.train.batch(torch.tensor([0, 7]))
    assert batch["x"][..., 0].tolist() == [[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]] and batch["y"].tolist() == [[5, 6, 7], [12, 13, 14]]
    assert len(data.train) == 280 - 5 - 3 + 1 and data.test.batch(torch.tensor([0]))["x"][0, 0, 0] == 340     # borders stay
    with pytest.raises(UsageError, match=r"has \d+ values, but a window takes 59 \+ 3; choose a smaller --window or --horizon"):
        ahead(whole, window=59, horizon=3)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_told_what_it_would_have_said_it_says_the_same(cell):
    network = Forecaster(cell=cell, hidden=5, layers=2)
    x = torch.randn(3, 8)
    free = network.free(x, 4)
    torch.testing.assert_close(network.forced(x, free), free)
    told = free + torch.tensor([0.0, 0.0, 1.0, 0.0])
    torch.testing.assert_close(network.forced(x, told)[:, :3], free[:, :3])      # the third is told only after it was asked for
    assert not torch.allclose(network.forced(x, told)[:, 3], free[:, 3])


def test_errors_are_those_of_numpy_in_the_units_of_the_series():
    torch.manual_seed(0)
    objective = Forecast(Forecaster(hidden=4), horizon=7, mean=11.0, std=4.0, forced=True)
    batch = {"x": 11 + 4 * torch.randn(20, 30, 1), "y": 11 + 4 * torch.randn(20, 7)}
    with torch.no_grad():
        rows = objective.judge(batch)
    found, said, y = objective.score(rows), rows["predicted"].double().numpy(), batch["y"].double().numpy()
    naive = np.repeat(batch["x"][:, -1].double().numpy(), 7, axis=1)
    assert found["mae"] == pytest.approx(np.abs(said - y).mean())
    assert found["rmse_7_ahead"] == pytest.approx(np.sqrt(((said - y)[:, 6] ** 2).mean()))
    assert found["naive_rmse"] == pytest.approx(np.sqrt(((naive - y) ** 2).mean()))
    assert found["skill"] == pytest.approx(1 - ((said - y) ** 2).mean() / ((naive - y) ** 2).mean())
    assert found["loss"] == pytest.approx(((said - y) ** 2).mean() / 16)


def test_a_series_of_ones_own(here):
    lines = [f"{10 + 3 * np.sin(2 * np.pi * t / 12):.4f}" for t in range(900)]
    (here / "own.csv").write_text("day,warmth\n" + "\n".join(f"{t},{v}" for t, v in enumerate(lines)) + "\n")
    run = didact.train(RECIPES["forecast"], data="own.csv", horizon=4, window=24, teach="own", epochs=8, batch=32, lr=1e-2, cell="gru")
    assert run.facts["test"]["skill"] > 0.95                                         # a sine holds no surprise
    assert evaluate(run)["test"]["rmse"] == pytest.approx(run.facts["test"]["rmse"], rel=1e-4)
    answer = predict(run, [",".join(lines[100:124])])[0]["warmth"]
    assert answer == pytest.approx([float(v) for v in lines[124:128]], abs=1.0)
    with pytest.raises(UsageError, match="a window is 24 values of 'warmth', got 3"):
        predict(run, ["1,2,3"])


def test_a_series_of_one_column(here, capsys):
    lines = [f"{10 + 3 * np.sin(2 * np.pi * t / 12):.4f}" for t in range(900)]
    (here / "own.csv").write_text("warmth\n" + "\n".join(lines) + "\n")
    run = didact.train(RECIPES["forecast"], data="own.csv", window=12, epochs=3, cell="gru", hidden=8)
    assert run.facts["test"]["skill"] > 0.5
    (here / "last.csv").write_text("warmth\n" + "\n".join(lines[:100]) + "\n")
    (said,) = predict(run, ["last.csv"])[0]["warmth"]
    assert [said] == predict(run, [",".join(lines[88:100])])[0]["warmth"]
    assert main(["predict", str(run.folder), "last.csv"]) == 0
    assert capsys.readouterr().out == f"last.csv:  warmth {said:.4f}\n"                # four decimals, not as many as a float has


def test_memories_of_forecasts_side_by_side(here, capsys):
    (here / "own.csv").write_text("warmth\n" + "\n".join(f"{np.sin(t):.4f}" for t in range(400)) + "\n")
    lstm, rnn = (didact.train(RECIPES["forecast"], data="own.csv", window=12, epochs=1, hidden=4, cell=cell) for cell in ("lstm", "rnn"))
    words = ["explain", str(lstm.folder), "--method", "memory", "--beside", str(rnn.folder)]
    assert main([*words, "--json"]) == 0
    norms = json.loads(capsys.readouterr().out)["explained"][1]["norms"]
    objective, _ = restored(rnn)
    found = [fading(objective.network.reader, (batch["x"][0] - objective.mean) / objective.std) for _, batch in kept(rnn)]
    torch.testing.assert_close(torch.tensor(norms), torch.stack(found).log().mean(0).exp())
    assert "values before the last" in (lstm.folder / "explanations" / "memory.html").read_text()


@pytest.mark.skipif(not has_public("temperatures"), reason="DIDACT_DATA holds no temperatures")
def test_temperatures_are_forecast_better_than_by_yesterday(here):
    run = didact.train(RECIPES["forecast"], data="temperatures", epochs=4)
    assert load("temperatures").target == "minimum"
    assert run.facts["test"]["mae"] < 1.85 and run.facts["test"]["naive_mae"] == pytest.approx(2.048, abs=0.01)    # measured 1.72
