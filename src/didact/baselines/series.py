"""Baselines of time series: the naive and the seasonal naive forecast, ridge regression on lags, exponential smoothing.

Makridakis et al. 2020, The M4 Competition; Hyndman & Athanasopoulos, Forecasting: Principles and Practice, 5.2 and 8.3.
All are scored on the same test windows as the run. What is fitted is fitted to the training part, and chosen by the
validation part, as the network is.
"""

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from didact.analysis.ridge import PENALTIES, RidgeRegression
from didact.baselines.core import Baseline
from didact.data.core import Batch, Data, TensorSplit
from didact.data.time_series import SeriesEncoder
from didact.data.time_series.windows import recover_test_series
from didact.objectives.forecasting import compute_forecast_metrics

_MAX_FEATURE_VALUES = 10_000_000        # windows times lags that ridge is fitted to; more windows are thinned out
_MAX_SMOOTHED_SERIES = 20               # exponential smoothing is fitted to one series after the other
_MAX_SMOOTHED_VALUES = 2_000            # the last ones of the training part
_MAX_ESTIMATED_PERIOD = 24              # above it the initial seasonal values are not estimated, which takes minutes
_MAX_SMOOTHED_PERIOD = 400
Values = NDArray[np.float64]


def fit_series_baselines(data: Data) -> Iterator[Baseline]:
    """The naive forecast, and with a period the seasonal one; ridge regression; exponential smoothing where
    statsmodels is installed."""
    encoder = data.encoder
    assert isinstance(encoder, SeriesEncoder)
    test = _read(data.test)
    m, period_text = encoder.period, f"the value one period of {encoder.period} before"

    def score(name: str, description: str, predict: Callable[[], Tensor]) -> Baseline:
        start = time.perf_counter()
        return Baseline(name, description, _score(test, encoder, predict()), time.perf_counter() - start)

    yield score("naive", "the last value of the window for every step", lambda: _predict_naive(test))
    if m > 1:
        yield score("seasonal naive", f"{period_text} each step", lambda: _predict_seasonal_naive(data, encoder, test))
    yield score(
        "ridge on lags",
        f"ridge regression on the {encoder.window} values of the window, its penalty chosen on the validation windows",
        lambda: _predict_ridge(data, encoder, test),
    )
    num_series = len(encoder.statistics)
    if importlib.util.find_spec("statsmodels") and num_series <= _MAX_SMOOTHED_SERIES:
        yield score(
            "exponential smoothing",
            "Holt-Winters of statsmodels: damped trend, additive or multiplicative season by AIC",
            lambda: _predict_smoothing(data, encoder, test),
        )


def _read(split: object) -> Batch:
    assert isinstance(split, TensorSplit)
    batch = {name: column.cpu() for name, column in split.columns.items()}
    return batch | {"y": batch["y"].reshape(len(batch["y"]), -1)}


def _score(test: Batch, encoder: SeriesEncoder, prediction: Tensor) -> dict[str, float]:
    """The metrics of a run."""
    y = test["y"]
    prediction = prediction.float()
    std = test["scale"][:, :1] if "scale" in test else next(iter(encoder.statistics.values())).std[0]
    loss = float(((prediction - y) / std).square().mean())
    return {"loss": loss} | compute_forecast_metrics(prediction, y, _predict_naive(test))


def _predict_naive(batch: Batch) -> Tensor:
    return batch["x"][:, -1:, 0].expand_as(batch["y"])


def _predict_seasonal_naive(data: Data, encoder: SeriesEncoder, test: Batch) -> Tensor:
    """x̂_{T+k} = x_{T+k−m}, with as many periods m as it takes to be at or before T; before the series began, x_T."""
    steps = torch.arange(encoder.horizon) % encoder.period - encoder.period
    rows = []
    for values, origins in _list_origins(data, encoder):
        index = origins[:, None] + steps
        rows.append(torch.where(index >= 0, values[index.clamp(min=0)], values[origins - 1][:, None]))
    return torch.cat(rows)


def _list_origins(data: Data, encoder: SeriesEncoder) -> Iterator[tuple[Tensor, Tensor]]:
    """For each series its values, and the index of the first target of each test window."""
    for segment in recover_test_series(data):
        first = max(segment.start, encoder.window)
        yield segment.values[:, 0].cpu(), torch.arange(first, len(segment.values) - encoder.horizon + 1)


def _predict_ridge(data: Data, encoder: SeriesEncoder, test: Batch) -> Tensor:
    """Direct multi-step ridge regression: a weight for each lag of every column, and each step ahead."""
    parts = [_standardize(batch, encoder) for batch in (_read(data.train), _read(data.validation), test)]
    (x, y), (validation_x, validation_y), (test_x, _) = parts
    step = -(-x.numel() // _MAX_FEATURE_VALUES)
    ridge = RidgeRegression(x[::step], y[::step])
    errors = [(ridge.predict(validation_x, p) - validation_y).square().mean() for p in PENALTIES]
    penalty = PENALTIES[int(torch.stack(errors).argmin())]
    location, scale = _get_statistics(test, encoder)
    return location[:, :1] + scale[:, :1] * ridge.predict(test_x, penalty)


def _standardize(batch: Batch, encoder: SeriesEncoder) -> tuple[Tensor, Tensor]:
    """Windows (N, T C) and targets (N, n), by the training statistics of each series."""
    location, scale = _get_statistics(batch, encoder)
    x = (batch["x"].double() - location[:, None]) / scale[:, None]
    return x.flatten(1), (batch["y"].double() - location[:, :1]) / scale[:, :1]


def _get_statistics(batch: Batch, encoder: SeriesEncoder) -> tuple[Tensor, Tensor]:
    if "location" in batch:
        return batch["location"].double(), batch["scale"].double()
    statistics = next(iter(encoder.statistics.values()))
    rows = len(batch["x"])
    return tuple(torch.tensor(v, dtype=torch.float64).expand(rows, -1) for v in (statistics.mean, statistics.std))  # type: ignore[return-value]


@dataclass(frozen=True)
class SmoothingModel:
    """Holt-Winters' parameters and initial states, as statsmodels estimates them."""

    alpha: float
    beta: float
    phi: float
    gamma: float
    level: float
    trend: float
    seasons: Values                 # the first period; empty without a season
    is_multiplicative: bool


def _predict_smoothing(data: Data, encoder: SeriesEncoder, test: Batch) -> Tensor:
    rows = []
    segments = list(recover_test_series(data))
    for segment, statistics in zip(segments, encoder.statistics.values(), strict=False):
        values = segment.values[:, 0].double().cpu().numpy()
        num_train = min(statistics.lengths[0], segment.start)
        model, start = fit_smoothing(values[:num_train], encoder.period)
        forecasts = smooth_series(model, values[start:], encoder.horizon)
        first = max(segment.start, encoder.window) - start
        rows.append(forecasts[first : len(values) - start - encoder.horizon + 1])
    return torch.from_numpy(np.concatenate(rows))


def fit_smoothing(values: Values, period: int) -> tuple[SmoothingModel, int]:
    """The model with the smallest AIC, and the index of the first value that it was fitted to."""
    from statsmodels.tsa.holtwinters import ExponentialSmoothing

    start = max(0, len(values) - max(_MAX_SMOOTHED_VALUES, 3 * period))
    values = values[start:]
    is_seasonal = 1 < period <= _MAX_SMOOTHED_PERIOD and len(values) >= 2 * period + 2
    seasonals = [None] if not is_seasonal else ["add", "mul"] if values.min() > 0.05 * values.mean() else ["add"]
    method = "estimated" if period <= _MAX_ESTIMATED_PERIOD or not is_seasonal else "heuristic"
    fits = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # of optimizations that did not converge
        for seasonal in seasonals:
            model = ExponentialSmoothing(
                values,
                trend="add",
                damped_trend=True,
                seasonal=seasonal,
                seasonal_periods=period if is_seasonal else None,
                initialization_method=method,
            )
            fit = model.fit()
            if np.isfinite(fit.sse):
                fits.append((fit.aic, seasonal, fit.params))
    _, seasonal, p = min(fits, key=lambda each: each[0])
    return (
        SmoothingModel(
            float(p["smoothing_level"]),
            float(p["smoothing_trend"]),
            float(p["damping_trend"]),
            float(p["smoothing_seasonal"]) if seasonal else 0.0,
            float(p["initial_level"]),
            float(p["initial_trend"]),
            np.asarray(p["initial_seasons"], dtype=float) if seasonal else np.zeros(0),
            seasonal == "mul",
        ),
        start,
    )


def smooth_series(model: SmoothingModel, values: Values, horizon: int) -> Values:
    """Forecasts (T + 1, n): row t is made from the first t values.

    l_t = α (x_t − s_{t−m}) + (1 − α)(l_{t−1} + φ b_{t−1}),  b_t = β (l_t − l_{t−1}) + (1 − β) φ b_{t−1},
    s_t = γ (x_t − l_{t−1} − φ b_{t−1}) + (1 − γ) s_{t−m},  x̂_{t+k} = l_t + (φ + … + φᵏ) b_t + s_{t+k−m};
    of a multiplicative season s divides and multiplies instead.
    """
    m = max(1, len(model.seasons))
    neutral = 1.0 if model.is_multiplicative else 0.0
    seasons = list(model.seasons) if len(model.seasons) else [neutral]
    level, trend, phi = model.level, model.trend, model.phi
    damping = np.cumsum(phi ** np.arange(1, horizon + 1))
    forecasts = np.empty((len(values) + 1, horizon))
    for t in range(len(values) + 1):
        ahead = np.array([seasons[(t + k) % m] for k in range(horizon)])
        trended = level + damping * trend
        forecasts[t] = trended * ahead if model.is_multiplicative else trended + ahead
        if t == len(values):
            break
        season, expected = seasons[t % m], level + phi * trend
        if model.is_multiplicative:
            new_level = model.alpha * values[t] / season + (1 - model.alpha) * expected
            new_season = model.gamma * values[t] / expected + (1 - model.gamma) * season
        else:
            new_level = model.alpha * (values[t] - season) + (1 - model.alpha) * expected
            new_season = model.gamma * (values[t] - expected) + (1 - model.gamma) * season
        trend = model.beta * (new_level - level) + (1 - model.beta) * phi * trend
        level = new_level
        if len(model.seasons):
            seasons[t % m] = new_season
    return forecasts

