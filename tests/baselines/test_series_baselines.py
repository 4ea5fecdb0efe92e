"""Baselines of time series: by hand, beside scikit-learn's ridge and statsmodels' exponential smoothing."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_absolute_error, root_mean_squared_error

import didact
from didact.analysis.ridge import PENALTIES
from didact.baselines import fit_baselines
from didact.baselines.series import fit_smoothing, smooth_series
from didact.data.load import load
from didact.data.time_series import build_series, with_horizon


def make_values(n=160, seed=0, level=20.0):
    t = np.arange(n)
    noise = np.random.default_rng(seed).normal(size=n)
    return (level + 0.1 * t) * (1 + 0.3 * np.sin(2 * np.pi * t / 12)) + noise


def fit_by_name(data):
    return {baseline.name: baseline for baseline in fit_baselines(data)}


@pytest.mark.parametrize("window", [5, 30])     # shorter and longer than a period
@pytest.mark.parametrize("horizon", [1, 14])
def test_naive_forecasts_by_hand(window, horizon):
    values = make_values().astype(np.float32)
    data = with_horizon(build_series("own", values.tolist(), "v"), window=window, horizon=horizon)
    assert data.encoder.period == 12
    baselines, first = fit_by_name(data), int(0.85 * 160)
    origins = range(first, 160 - horizon + 1)
    true = np.array([values[t : t + horizon] for t in origins])
    naive = np.array([[values[t - 1]] * horizon for t in origins])
    seasonal = np.array([[values[t + k - 12 * (k // 12 + 1)] for k in range(horizon)] for t in origins])
    for name, forecast in {"naive": naive, "seasonal naive": seasonal}.items():
        metrics = baselines[name].metrics
        assert metrics["rmse"] == pytest.approx(root_mean_squared_error(true.ravel(), forecast.ravel()), rel=1e-5)
        assert metrics["mae"] == pytest.approx(mean_absolute_error(true.ravel(), forecast.ravel()), rel=1e-5)
        assert metrics["naive_rmse"] == baselines["naive"].metrics["rmse"]
        if horizon > 1:
            assert metrics["rmse_14_ahead"] == pytest.approx(
                root_mean_squared_error(true[:, 13], forecast[:, 13]), rel=1e-5
            )
    assert baselines["naive"].metrics["skill"] == 0


def test_ridge_on_lags_is_scikit_learns():
    data = with_horizon(build_series("own", make_values(200).tolist(), "v"), window=13, horizon=3)
    x, y = (
        [data.split(part).columns[name].double().reshape(len(data.split(part)), -1).numpy() for part in (
            "train", "validation", "test"
        )]
        for name in "xy"
    )
    scores = []
    for penalty in PENALTIES:
        alpha = penalty * ((x[0] - x[0].mean(0)) ** 2).mean() * len(x[0])
        model = Ridge(alpha=alpha).fit(x[0], y[0])
        scores.append([root_mean_squared_error(y[k].ravel(), model.predict(x[k]).ravel()) for k in (1, 2)])
    assert fit_by_name(data)["ridge on lags"].metrics["rmse"] == pytest.approx(min(scores)[1], rel=1e-4)


def test_period_of_one_has_no_seasonal_naive_forecast():
    data = build_series("own", np.random.default_rng(0).normal(size=300).cumsum().tolist(), "v")
    assert {"naive", "ridge on lags"} <= set(fit_by_name(data)) and "seasonal naive" not in fit_by_name(data)


@pytest.mark.parametrize("kind", ["additive", "multiplicative", "none"])
def test_exponential_smoothing_is_statsmodels(kind):
    """One-step forecasts of the whole series, and those of many steps but the one that statsmodels takes from a season
    that is one value old: step m."""
    holtwinters = pytest.importorskip("statsmodels.tsa.holtwinters")
    t = np.arange(150)
    season = np.sin(2 * np.pi * t / 12)
    noise = np.random.default_rng(0).normal(size=150)
    values = {
        "additive": 50 + 10 * season + 0.05 * t + noise,
        "multiplicative": (20 + 0.5 * t) * (1 + 0.3 * season) + noise,
        "none": 20 + 0.3 * t + noise,
    }[kind]
    model, start = fit_smoothing(values[:120], 1 if kind == "none" else 12)
    assert start == 0 and model.is_multiplicative == (kind == "multiplicative")
    seasonal = {"additive": "add", "multiplicative": "mul", "none": None}[kind]
    reference = holtwinters.ExponentialSmoothing(
        values, trend="add", damped_trend=True, seasonal=seasonal, seasonal_periods=12 if seasonal else None,
        initialization_method="known", initial_level=model.level, initial_trend=model.trend,
        initial_seasonal=model.seasons if seasonal else None,
    ).fit(
        smoothing_level=model.alpha, smoothing_trend=model.beta, damping_trend=model.phi,
        smoothing_seasonal=model.gamma if seasonal else None, optimized=False,
    )
    forecasts = smooth_series(model, values, 20)
    np.testing.assert_allclose(forecasts[:-1, 0], reference.fittedvalues, rtol=1e-9)
    steps = np.arange(20) != 11
    np.testing.assert_allclose(forecasts[-1][steps], np.asarray(reference.forecast(20))[steps], rtol=1e-9)


def test_exponential_smoothing_is_scored_on_the_test_windows():
    pytest.importorskip("statsmodels")
    values = make_values(200)
    data = with_horizon(build_series("own", values.tolist(), "v"), window=13, horizon=2)
    model, _ = fit_smoothing(values.astype(np.float32)[:140].astype(float), 12)
    forecasts = smooth_series(model, values, 2)[170:199]
    true = np.stack([values[170:199], values[171:200]], axis=1)
    rmse = fit_by_name(data)["exponential smoothing"].metrics["rmse"]
    assert rmse == pytest.approx(root_mean_squared_error(true.ravel(), forecasts.ravel()), rel=1e-4)


def test_baselines_of_many_series_are_those_of_each(tmp_path):
    frames = [
        pd.DataFrame({"day": pd.date_range("2020-01-01", periods=n), "shop": name, "v": make_values(n, k)})
        for k, (name, n) in enumerate({"a": 100, "b": 140}.items())
    ]
    pd.concat(frames).to_csv(tmp_path / "many.csv", index=False)
    together = with_horizon(load(str(tmp_path / "many.csv"), accepts=("series",)), window=13, horizon=2)
    squares, counts = {"naive": 0.0, "seasonal naive": 0.0}, 0
    for frame in frames:
        alone = with_horizon(build_series("own", frame["v"].tolist(), "v"), window=13, horizon=2)
        counts += len(alone.test)
        for name in squares:
            squares[name] += fit_by_name(alone)[name].metrics["rmse"] ** 2 * len(alone.test)
    for name, total in squares.items():
        assert fit_by_name(together)[name].metrics["rmse"] == pytest.approx(np.sqrt(total / counts), rel=1e-4)
    assert np.isfinite(fit_by_name(together)["ridge on lags"].metrics["rmse"])


def test_run_of_a_series_has_its_baselines_in_the_report(workdir):
    pd.DataFrame({"v": make_values()}).to_csv("own.csv", index=False)
    run = didact.train("forecast", data="own.csv", horizon=2, steps=5, hidden_size=4)
    names = [baseline["name"] for baseline in run.metadata["baselines"]]
    assert names[:3] == ["naive", "seasonal naive", "ridge on lags"]
    assert all(set(baseline["metrics"]) == set(run.metadata["test"]) for baseline in run.metadata["baselines"])
    assert run.metadata["baselines"][0]["metrics"]["rmse"] == pytest.approx(run.metadata["test"]["naive_rmse"])
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert all(f">{name}<" in page for name in names)
    assert torch.isfinite(torch.tensor([b["metrics"]["rmse"] for b in run.metadata["baselines"]])).all()
