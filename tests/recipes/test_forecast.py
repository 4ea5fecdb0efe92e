"""Forecasts: windows, teacher forcing, errors in the units of the series, CSV files."""

import json

import numpy as np
import pytest
import torch

import didact
from didact.cli.main import main
from didact.data.load import load
from didact.data.time_series import build_series, with_horizon
from didact.errors import UsageError
from didact.explain.gradient_memory import compute_gradient_decay
from didact.explain.sequences import load_worst_sequences
from didact.inference.evaluate import evaluate
from didact.inference.predict import predict
from didact.layers.series_scaler import SeriesScaler
from didact.models.tabular.forecaster import RNNForecaster
from didact.objectives.forecasting import ForecastObjective
from didact.registry import RECIPES
from didact.training.restore import load_model
from helpers.public_data import has_public_data


def test_window_and_horizon_keep_the_splits_of_the_series():
    full_series = build_series("count", list(range(400)), "n")
    data = with_horizon(full_series, window=5, horizon=3)
    batch = data.train.batch(torch.tensor([0, 7]))
    assert batch["x"][..., 0].tolist() == [[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]] and batch["y"].tolist() == [
        [5, 6, 7],
        [12, 13, 14],
    ]
    # borders stay
    assert len(data.train) == 280 - 5 - 3 + 1 and data.test.batch(torch.tensor([0]))["y"][0, 0] == 340
    with pytest.raises(
        UsageError, match=r"has 280 values, but a window takes 278 \+ 3; choose a smaller --window or --horizon"
    ):
        with_horizon(full_series, window=278, horizon=3)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_teacher_forcing_on_its_own_forecasts_equals_free_running(cell):
    network = RNNForecaster(cell=cell, hidden_size=5, num_layers=2)
    x = torch.randn(3, 8)
    free_forecast = network.predict_autoregressive(x, 4)
    torch.testing.assert_close(network.predict_teacher_forced(x, free_forecast), free_forecast)
    shifted_targets = free_forecast + torch.tensor([0.0, 0.0, 1.0, 0.0])
    # the third true value comes only after its forecast
    torch.testing.assert_close(network.predict_teacher_forced(x, shifted_targets)[:, :3], free_forecast[:, :3])
    assert not torch.allclose(network.predict_teacher_forced(x, shifted_targets)[:, 3], free_forecast[:, 3])


def test_forecast_metrics_equal_numpy():
    torch.manual_seed(0)
    objective = ForecastObjective(RNNForecaster(hidden_size=4), horizon=7, scaler=SeriesScaler([11.0], [4.0]))
    batch = {"x": 11 + 4 * torch.randn(20, 30, 1), "y": 11 + 4 * torch.randn(20, 7)}
    with torch.no_grad():
        rows = objective.evaluate_batch(batch)
    scores, predictions, y = (
        objective.compute_metrics(rows),
        rows["predicted"].double().numpy(),
        batch["y"].double().numpy(),
    )
    naive = np.repeat(batch["x"][:, -1].double().numpy(), 7, axis=1)
    assert scores["mae"] == pytest.approx(np.abs(predictions - y).mean())
    assert scores["rmse_7_ahead"] == pytest.approx(np.sqrt(((predictions - y)[:, 6] ** 2).mean()))
    assert scores["naive_rmse"] == pytest.approx(np.sqrt(((naive - y) ** 2).mean()))
    assert scores["skill"] == pytest.approx(1 - ((predictions - y) ** 2).mean() / ((naive - y) ** 2).mean())
    assert scores["loss"] == pytest.approx(((predictions - y) ** 2).mean() / 16)


def test_forecast_learns_a_sine_of_a_csv(workdir):
    lines = [f"{10 + 3 * np.sin(2 * np.pi * t / 12):.4f}" for t in range(900)]
    (workdir / "own.csv").write_text("day,warmth\n" + "\n".join(f"{t},{v}" for t, v in enumerate(lines)) + "\n")
    run = didact.train(
        RECIPES["forecast"],
        data="own.csv",
        horizon=4,
        window=24,
        teacher_forcing="own",
        epochs=8,
        batch_size=32,
        lr=1e-2,
        cell="gru",
    )
    assert run.metadata["test"]["skill"] > 0.95                                         # a sine holds no surprise
    assert evaluate(run)["test"]["rmse"] == pytest.approx(run.metadata["test"]["rmse"], rel=1e-4)
    prediction = predict(run, [",".join(lines[100:124])])[0]["warmth"]
    assert prediction == pytest.approx([float(v) for v in lines[124:128]], abs=1.0)
    with pytest.raises(UsageError, match="a window is 24 values of 'warmth', got 3"):
        predict(run, ["1,2,3"])


def test_forecast_learns_a_csv_of_one_column(workdir, capsys):
    lines = [f"{10 + 3 * np.sin(2 * np.pi * t / 12):.4f}" for t in range(900)]
    (workdir / "own.csv").write_text("warmth\n" + "\n".join(lines) + "\n")
    run = didact.train(RECIPES["forecast"], data="own.csv", window=12, epochs=3, cell="gru", hidden_size=8)
    assert run.metadata["test"]["skill"] > 0.5
    (workdir / "last.csv").write_text("warmth\n" + "\n".join(lines[:100]) + "\n")
    (next_value,) = predict(run, ["last.csv"])[0]["warmth"]
    assert [next_value] == predict(run, [",".join(lines[88:100])])[0]["warmth"]
    assert main(["predict", str(run.folder), "last.csv"]) == 0
    # four decimals, not as many as a float has
    error = 1.96 * run.metadata["validation"]["rmse"]
    low, high = next_value - error, next_value + error
    assert capsys.readouterr().out == f"last.csv:  warmth {next_value:.4f}  low {low:.4f}  high {high:.4f}\n"


def test_explain_compares_the_memories_of_forecasts(workdir, capsys):
    (workdir / "own.csv").write_text("warmth\n" + "\n".join(f"{np.sin(t):.4f}" for t in range(400)) + "\n")
    lstm, rnn = (
        didact.train(RECIPES["forecast"], data="own.csv", window=12, epochs=1, hidden_size=4, cell=cell)
        for cell in ("lstm", "rnn")
    )
    words = ["explain", str(lstm.folder), "--method", "memory", "--compare", str(rnn.folder)]
    assert main([*words, "--json"]) == 0
    norms = json.loads(capsys.readouterr().out)["explained"][1]["norms"]
    objective, _ = load_model(rnn)
    decays = [
        compute_gradient_decay(objective.network.reader, objective.scaler.standardize_window(batch)[0])
        for _, batch in load_worst_sequences(rnn)
    ]
    torch.testing.assert_close(torch.tensor(norms, dtype=torch.float64), torch.stack(decays).log().mean(0).exp())
    assert "values before the last" in (lstm.folder / "explanations" / "memory.html").read_text()


@pytest.mark.skipif(not has_public_data("temperatures"), reason="DIDACT_DATA holds no temperatures")
def test_forecast_of_temperatures_beats_persistence(workdir):
    run = didact.train(RECIPES["forecast"], data="temperatures", model="lstm", epochs=4)
    assert load("temperatures").target == "minimum"
    # measured 1.72
    assert run.metadata["test"]["mae"] < 1.85 and run.metadata["test"]["naive_mae"] == pytest.approx(2.036, abs=0.01)
