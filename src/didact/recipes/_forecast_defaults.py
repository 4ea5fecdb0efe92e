"""What `forecast` chooses for a series: windows, normalizations, logarithms; and its linear path, fitted by ridge.

Every candidate is scored by its squared error in rolling-origin cross-validation: three times it is fitted on the past
and scored on what follows, the last time on the validation split (Hyndman & Athanasopoulos, Forecasting: Principles
and Practice, 5.10). No test value is seen. The best ones are averaged, with the weight e^(−n/2) of their error e, as
if it were a likelihood (Akaike weights: Burnham & Anderson 2004): on a long series one alone, on a short one several.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

import torch
from torch import Tensor

from didact.analysis.ridge import PENALTIES, RidgeRegression
from didact.data.core import Batch, Data, TensorSplit
from didact.data.time_series import DEFAULT_WINDOW, SeriesEncoder, with_horizon
from didact.layers.series_scaler import SeriesScaler
from didact.layers.window_normalization import NORMALIZATIONS, Normalization, get_min_window, normalize_window
from didact.models.tabular.residual_forecaster import ResidualForecaster

MAX_WINDOW = 800
MAX_MEMBERS = 8
MIN_WEIGHT = 0.02
_FOLD_BORDERS = ((0.6, 0.8), (0.8, 1.0))    # of the training windows in the order of time
_MAX_FITTED, _MAX_SCORED = 2000, 500        # windows of a fold, evenly spaced
_MAX_FITTED_AT_END = 20_000


@dataclass(frozen=True)
class LinearPathChoice:
    """A window, its normalization, and the ridge penalty, with the mean squared error of the folds and the number of
    windows that were scored, overlapping ones in part."""

    window: int
    normalization: Normalization
    log_transform: bool
    penalty: float
    mse: float
    num_scored: float


def list_windows(data: Data, encoder: SeriesEncoder, horizon: int) -> list[int]:
    """Candidates: six values, twice the horizon, thirty, some periods; at most a third of the training part."""
    num_train = median_low(s.lengths[0] for s in encoder.statistics.values())
    num_train = min(num_train, len(data.train) + encoder.window)        # less where windows were left out
    longest = max(1, min(num_train // 3, MAX_WINDOW) - horizon)
    m = encoder.period
    candidates = [6, max(2 * horizon, 12), DEFAULT_WINDOW]
    if m > 1:
        candidates += [2 * m + 1, *([4 * m + 1] if m < 100 else []), *([7 * m + 1] if m <= 24 else [])]
    return sorted({min(window, longest) for window in candidates})


def rank_linear_paths(
    data: Data,
    *,
    horizon: int,
    windows: Sequence[int],
    normalizations: Sequence[Normalization] = NORMALIZATIONS,
    log_transforms: Sequence[bool] = (False, True),
    covariates: Sequence[str] = (),
) -> list[LinearPathChoice]:
    """All combinations that the series allows, the best one first."""
    choices = []
    for window in windows:
        cut = with_horizon(data, window=window, horizon=horizon, covariates=covariates)
        folds = list(_list_folds(cut))
        assert isinstance(cut.encoder, SeriesEncoder)
        allowed = [n for n in normalizations if is_possible(n, window, cut.encoder.period)] or ["last"]
        for log_transform in log_transforms:
            scaler = make_scaler(cut.encoder, log_transform)
            choices += [
                LinearPathChoice(
                    window,
                    n,
                    log_transform,
                    *_cross_validate(folds, scaler, n, cut.encoder.period),
                    _count_scored(folds),
                )
                for n in allowed
            ]
    return sorted(choices, key=lambda choice: choice.mse)


def choose_members(choices: Sequence[LinearPathChoice]) -> list[LinearPathChoice]:
    """The best choice and those beside it that an average would give some weight, all with logarithms or none."""
    same = [c for c in choices if c.log_transform == choices[0].log_transform]
    weights = compute_weights(torch.tensor([c.mse for c in same]), same[0].num_scored).tolist()
    return [c for c, weight in zip(same, weights, strict=True) if weight >= MIN_WEIGHT][:MAX_MEMBERS]


def compute_weights(mse: Tensor, num_scored: float) -> Tensor:
    """w_j ∝ (e_j / e_min)^(−n/2): the likelihoods of n normal errors with these variances."""
    return torch.softmax(-0.5 * num_scored * (mse / mse.min()).log(), dim=0)


def _count_scored(folds: Sequence[tuple[Batch, Batch]]) -> float:
    """Windows that are scored; those of many steps overlap, and count as one in so many."""
    return sum(len(scored["y"]) / scored["y"].shape[1] for _, scored in folds)


def is_possible(normalization: str, window: int, period: int) -> bool:
    """Whether a window holds what a normalization needs; a season needs a period."""
    return get_min_window(normalization, period) <= window and (
        period > 1 or not normalization.startswith("seasonal")
    )


def make_scaler(encoder: SeriesEncoder, log_transform: bool) -> SeriesScaler:
    """Standardization by the training statistics of the series; of many, by those that come with each window."""
    statistics = next(iter(encoder.statistics.values()))
    return SeriesScaler(statistics.mean, statistics.std, log_transform=log_transform)


def fit_linear_path(network: Any, data: Data, scaler: SeriesScaler) -> str:
    """Fit a linear forecaster, or each member of a linear path, by ridge regression with a cross-validated penalty.

    The windows are those of the training split. Returns the penalties as text.
    """
    assert isinstance(data.train, TensorSplit)
    folds = list(_list_folds(data))
    rows = _take(data.train, _thin_out(torch.arange(len(data.train)), _MAX_FITTED_AT_END))
    path = network.linear if isinstance(network, ResidualForecaster) else None
    members: list[tuple[int, Any]] = (
        list(zip(path.windows, path.members, strict=True)) if path else [(data.shape[0], network)]
    )
    errors, penalties = [], []
    for window, member in members:
        own_folds = [(_shorten(fitted, window), _shorten(scored, window)) for fitted, scored in folds]
        penalty, mse = _cross_validate(own_folds, scaler, member.normalization, member.period)
        features, targets = _make_regression(_shorten(rows, window), scaler, member.normalization, member.period)
        member.set_weights(*(v.float() for v in RidgeRegression(features, targets).get_weights(penalty)))
        errors.append(mse)
        penalties.append(f"{penalty:g}")
    if path is not None:
        path.weights.copy_(compute_weights(torch.tensor(errors), _count_scored(folds)))
        network.start_from_linear(scaler.standardize_window(rows), scaler.standardize(rows["y"], rows))
    return ", ".join(dict.fromkeys(penalties))


def _shorten(batch: Batch, window: int) -> Batch:
    return {**batch, "x": batch["x"][:, -window:]}


def _cross_validate(
    folds: Sequence[tuple[Batch, Batch]], scaler: SeriesScaler, normalization: Normalization, period: int
) -> tuple[float, float]:
    """The penalty with the smallest mean squared error over the folds, in training standard deviations; and it."""
    errors = torch.zeros(len(PENALTIES), dtype=torch.float64)
    for fitted, scored in folds:
        ridge = RidgeRegression(*_make_regression(fitted, scaler, normalization, period))
        z = scaler.standardize_window(scored)
        normalized = normalize_window(z, scored["y"].shape[1], normalization, period)
        for k, penalty in enumerate(PENALTIES):
            forecast = scaler.restore(normalized.restore(ridge.predict(normalized.z.flatten(1), penalty)), scored)
            errors[k] += ((forecast - scored["y"]) / scaler.get_scale(scored)).square().mean() / len(folds)
    best = int(errors.nan_to_num(torch.inf).argmin())
    return PENALTIES[best], float(errors[best])


def _make_regression(
    batch: Batch, scaler: SeriesScaler, normalization: Normalization, period: int
) -> tuple[Tensor, Tensor]:
    """Features (N, T C) and targets (N, n) of the linear path."""
    z, y = scaler.standardize_window(batch), scaler.standardize(batch["y"], batch)
    normalized = normalize_window(z, y.shape[1], normalization, period)
    return normalized.z.flatten(1), (y - normalized.baseline) / normalized.scale


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
