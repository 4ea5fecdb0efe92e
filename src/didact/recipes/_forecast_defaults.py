"""What `forecast` chooses for a series: window, normalization, logarithms; and its linear path, fitted by ridge.

Every choice is that of the linear path with the smallest squared error in rolling-origin cross-validation: three
times it is fitted on the past and scored on what follows, the last time on the validation split (Hyndman &
Athanasopoulos, Forecasting: Principles and Practice, 5.10). No test value is seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low

import torch
from torch import Tensor

from didact.analysis.ridge import PENALTIES, RidgeRegression
from didact.data.core import Batch, Data, TensorSplit
from didact.data.time_series import DEFAULT_WINDOW, SeriesEncoder, with_horizon
from didact.layers.series_scaler import SeriesScaler
from didact.layers.window_normalization import NORMALIZATIONS, Normalization, get_min_window, normalize_window

MAX_WINDOW = 800
_FOLD_BORDERS = ((0.6, 0.8), (0.8, 1.0))    # of the training windows in the order of time
_MAX_FITTED, _MAX_SCORED = 2000, 500        # windows of a fold, evenly spaced
_MAX_FITTED_AT_END = 20_000


@dataclass(frozen=True)
class LinearPathChoice:
    """A window, its normalization, and the ridge penalty, with the mean squared error of the folds."""

    window: int
    normalization: Normalization
    log_transform: bool
    penalty: float
    mse: float


def list_windows(data: Data, encoder: SeriesEncoder, horizon: int) -> list[int]:
    """Candidates: twice the horizon, thirty values, some periods; never more than a third of the training part."""
    num_train = median_low(s.lengths[0] for s in encoder.statistics.values())
    num_train = min(num_train, len(data.train) + encoder.window)        # less where windows were left out
    longest = max(1, min(num_train // 3, MAX_WINDOW) - horizon)
    m = encoder.period
    candidates = [max(2 * horizon, 12), DEFAULT_WINDOW]
    if m > 1:
        candidates += [2 * m + 1, *([4 * m + 1] if m < 100 else []), *([7 * m + 1] if m <= 24 else [])]
    return sorted({min(window, longest) for window in candidates})


def choose_linear_path(
    data: Data,
    *,
    horizon: int,
    windows: Sequence[int],
    normalizations: Sequence[Normalization] = NORMALIZATIONS,
    log_transforms: Sequence[bool] = (False, True),
    covariates: Sequence[str] = (),
) -> LinearPathChoice:
    """The best of all combinations that the series allows."""
    choices = []
    for window in windows:
        cut = with_horizon(data, window=window, horizon=horizon, covariates=covariates)
        folds = list(_list_folds(cut))
        assert isinstance(cut.encoder, SeriesEncoder)
        allowed = [n for n in normalizations if is_possible(n, window, cut.encoder.period)] or ["last"]
        for log_transform in log_transforms:
            scaler = make_scaler(cut.encoder, log_transform)
            choices += [
                LinearPathChoice(window, n, log_transform, *_cross_validate(folds, scaler, n, cut.encoder.period))
                for n in allowed
            ]
    return min(choices, key=lambda choice: choice.mse)


def is_possible(normalization: str, window: int, period: int) -> bool:
    """Whether a window holds what a normalization needs; a season needs a period."""
    return get_min_window(normalization, period) <= window and (
        period > 1 or not normalization.startswith("seasonal")
    )


def make_scaler(encoder: SeriesEncoder, log_transform: bool) -> SeriesScaler:
    """Standardization by the training statistics of the series; of many, by those that come with each window."""
    statistics = next(iter(encoder.statistics.values()))
    return SeriesScaler(statistics.mean, statistics.std, log_transform=log_transform)


@dataclass(frozen=True)
class LinearPath:
    """The ridge regression of a whole training split: weight (n, T C), bias (n,), and the root mean squares of the
    features and of the residuals."""

    weight: Tensor
    bias: Tensor
    input_scale: float
    output_scale: float
    penalty: float


def fit_linear_path(data: Data, scaler: SeriesScaler, normalization: Normalization, period: int) -> LinearPath:
    """Fit the windows of the training split with the penalty that cross-validation chooses."""
    penalty, _ = _cross_validate(list(_list_folds(data)), scaler, normalization, period)
    assert isinstance(data.train, TensorSplit)
    rows = _thin_out(torch.arange(len(data.train)), _MAX_FITTED_AT_END)
    features, targets, _ = _make_regression(_take(data.train, rows), scaler, normalization, period)
    ridge = RidgeRegression(features, targets)
    weight, bias = ridge.get_weights(penalty)
    residuals = targets - ridge.predict(features, penalty)
    input_scale, output_scale = (max(1e-6, float(v.square().mean().sqrt())) for v in (features, residuals))
    return LinearPath(weight.float(), bias.float(), input_scale, output_scale, penalty)


def _cross_validate(
    folds: Sequence[tuple[Batch, Batch]], scaler: SeriesScaler, normalization: Normalization, period: int
) -> tuple[float, float]:
    """The penalty with the smallest mean squared error over the folds, in training standard deviations; and it."""
    errors = torch.zeros(len(PENALTIES), dtype=torch.float64)
    for fitted, scored in folds:
        ridge = RidgeRegression(*_make_regression(fitted, scaler, normalization, period)[:2])
        z = scaler.standardize_window(scored)
        normalized = normalize_window(z, scored["y"].shape[1], normalization, period)
        for k, penalty in enumerate(PENALTIES):
            forecast = scaler.restore(normalized.restore(ridge.predict(normalized.z.flatten(1), penalty)), scored)
            errors[k] += ((forecast - scored["y"]) / scaler.get_scale(scored)).square().mean() / len(folds)
    best = int(errors.nan_to_num(torch.inf).argmin())
    return PENALTIES[best], float(errors[best])


def _make_regression(
    batch: Batch, scaler: SeriesScaler, normalization: Normalization, period: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Features (N, T C), targets (N, n) and scale (N, 1) of the linear path."""
    z, y = scaler.standardize_window(batch), scaler.standardize(batch["y"], batch)
    normalized = normalize_window(z, y.shape[1], normalization, period)
    return normalized.z.flatten(1), (y - normalized.baseline) / normalized.scale, normalized.scale


def _list_folds(data: Data) -> Iterator[tuple[Batch, Batch]]:
    """Windows to fit on, and those that follow; the last time the training and the validation split."""
    train, validation = data.train, data.validation
    assert isinstance(train, TensorSplit) and isinstance(validation, TensorSplit)
    order = _order_by_time(train)
    n, horizon = len(order), train.columns["y"].shape[1]
    for start, end in _FOLD_BORDERS:
        # a window whose targets are scored must not be fitted
        fitted, scored = order[: int(start * n) - horizon + 1], order[int(start * n) : int(end * n)]
        if len(fitted) >= 8 and len(scored):
            yield _take(train, _thin_out(fitted, _MAX_FITTED)), _take(train, _thin_out(scored, _MAX_SCORED))
    yield (
        _take(train, _thin_out(order, _MAX_FITTED)),
        _take(validation, _thin_out(torch.arange(len(validation)), _MAX_SCORED)),
    )


def _order_by_time(split: TensorSplit) -> Tensor:
    """The windows in the order of time; of many series, by their place in their own."""
    rows = torch.arange(len(split))
    number = split.columns.get("series")
    if number is None:
        return rows
    number = number.cpu()
    counts = torch.bincount(number)
    first = counts.cumsum(0) - counts
    return ((rows - first[number]) / counts[number]).argsort(stable=True)


def _thin_out(rows: Tensor, most: int) -> Tensor:
    """At most so many of the rows, evenly spaced, the last one among them."""
    step = -(-len(rows) // most)
    return rows.flip(0)[::step].flip(0) if step > 1 else rows


def _take(split: TensorSplit, rows: Tensor) -> Batch:
    return {name: column.cpu()[rows] for name, column in split.columns.items()}
