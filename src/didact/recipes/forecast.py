"""Time series forecasting."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch
from torch import nn

from didact.data.core import Data, TensorSplit
from didact.data.time_series import DEFAULT_WINDOW, SeriesEncoder, with_horizon
from didact.errors import UsageError, suggest_nearest
from didact.layers.series_scaler import SeriesScaler
from didact.layers.window_normalization import NORMALIZATIONS, Normalization
from didact.models.tabular.forecaster import RNNForecaster
from didact.models.tabular.linear_forecaster import DLinearForecaster, LinearForecaster
from didact.models.tabular.residual_forecaster import ResidualForecaster
from didact.objectives.forecasting import ForecastObjective
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, OnlyWith, Range, VerbatimText
from didact.recipes import _hyperparameters as a
from didact.recipes._forecast_defaults import (
    choose_members,
    fit_linear_path,
    is_possible,
    list_windows,
    make_scaler,
    rank_linear_paths,
)
from didact.recipes.rnn import RecurrentInit
from didact.registry import recipe
from didact.training.experiment import BudgetNote, Experiment

_RECURRENT = ("rnn", "lstm", "gru")
_NETWORKS = ("mlp", *_RECURRENT)
_LINEAR = ("linear", "nlinear", "dlinear")
_STEPS = 1500           # of models that begin with a fitted linear path
_EVALUATIONS = 40
_FEW_WINDOWS = 1000


@recipe(
    data="waves",
    accepts=("series",),
    tasks=("regression",),
    chapter="recurrent networks",
    abilities=("forecast",),
    sources=("Gaba 5.6", "Gaba Ex 5.3", "Groudiev 5.2", "Van Schependom 6"),
    grid={"model": ("rnn", "lstm", "gru", "mlp"), "horizon": (1, 7)},
)
def forecast(
    data: Data,
    *,
    model: Annotated[
        Literal["mlp", "linear", "nlinear", "dlinear", "rnn", "lstm", "gru"],
        "mlp: linear forecaster plus an MLP; linear, nlinear, dlinear (Zeng et al. 2023); recurrent cell (RNN, LSTM, "
        "GRU), one step from the one before",
        Aliases("cell"),
    ] = "mlp",
    linear_path: Annotated[
        bool,
        OnlyWith("model", *_RECURRENT),
        "linear path: recurrent layers on top of a linear forecaster, for all steps at once",
    ] = False,
    hidden_size: Annotated[int, OnlyWith("model", *_NETWORKS), Range(1), "hidden size of each layer"] = 64,
    num_layers: Annotated[
        int, OnlyWith("model", *_NETWORKS), Range(1, 16), "number of hidden or recurrent layers", Aliases("layers")
    ] = 1,
    dropout: Annotated[
        float | None,
        OnlyWith("model", *_NETWORKS),
        Range(0, 0.95),
        "dropout probability (0.3 of an MLP, 0 of recurrent layers, if not given)",
    ] = None,
    recurrent_init: Annotated[RecurrentInit, OnlyWith("model", *_RECURRENT)] = "orthogonal",
    kernel_size: Annotated[
        int, OnlyWith("model", "dlinear"), Range(1), "kernel size of the moving average that is the trend"
    ] = 25,
    window: Annotated[
        int | None,
        Range(1),
        "input window: past values that are read (chosen by cross-validation if not given; 30 of recurrent layers)",
        Aliases("lags"),
    ] = None,
    horizon: Annotated[int, Range(1), "forecast horizon: number of steps ahead (7 for a week of days)"] = 1,
    period: Annotated[
        int | None,
        Range(1),
        "seasonal period in values: 12 of months, 1 for none (found by autocorrelation if not given)",
        Aliases("season_length"),
    ] = None,
    normalization: Annotated[
        Literal["none", "last", "revin", "seasonal", "seasonal_revin", "seasonal_last"] | None,
        "normalization of each window: subtract its last value (NLinear), or its mean and divide by its deviation "
        "(RevIN); seasonal: learn the error of the seasonal naive forecast (chosen by cross-validation if not given)",
    ] = None,
    linear_members: Annotated[
        tuple[str, ...],
        OnlyWith("model", *_NETWORKS),
        "members of the linear path: forecasters that are averaged, as 24:last,169:seasonal (chosen by "
        "cross-validation if not given)",
    ] = (),
    log_transform: Annotated[
        bool | None, "forecast logarithms, of positive values (chosen by cross-validation if not given)"
    ] = None,
    covariates: Annotated[
        tuple[str, ...],
        VerbatimText(),
        "covariates: other columns of numbers whose past values are read, or all",
    ] = (),
    teacher_forcing: Annotated[
        Literal["forced", "own"],
        OnlyWith("horizon", above=1),
        OnlyWith("model", *_RECURRENT),
        OnlyWith("linear_path", False),
        "teacher forcing: train on the true previous values (forced), or on the model's own forecasts (own)",
    ] = "forced",
    lr: a.OptionalLearningRate = None,
    weight_decay: Annotated[
        float | None,
        Range(0),
        "weight decay (0.1 of an MLP, 1 where it has few windows, 0.01 of other models, if not given)",
    ] = None,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Time series forecasting: linear with a network on top, or an RNN.

    x̂ = Σ_j w_j (W_j z_j + b_j) + f(z) of normalized windows z, W_j by ridge regression; or h_t = cell(x_t, h_{t−1}),
    x̂_{t+1} = x_t + w h_t + b. Compared with the naive forecast x̂_{t+k} = x_t: `skill` is the fraction by which its
    squared error is reduced. --data temperatures --model lstm predicts the day after thirty, or the next seven with
    --horizon 7; your own CSV file needs one column of numbers.
    """
    encoder = data.encoder
    if isinstance(encoder, SeriesEncoder):
        if period is not None:
            data = replace(data, encoder=replace(encoder, period=period))
        covariates = _check_covariates(data.name, encoder, covariates)
        if log_transform and not encoder.is_positive:
            raise UsageError(
                f"--log-transform needs positive values, but training values of {encoder.column!r} in {data.name!r} "
                "are not all; leave it out"
            )
    is_autoregressive = model in _RECURRENT and not linear_path
    if is_autoregressive:
        _check_autoregressive(normalization, covariates, linear_members)
        path = _LinearPath(window or _shorten_window(data), normalization, bool(log_transform))
    elif linear_members:
        path = _parse_members(linear_members, window, normalization, bool(log_transform))
    else:
        path = _choose_linear_path(data, model, horizon, window, normalization, log_transform, covariates)
    window, normalization, log_transform = path.window, path.normalization, path.log_transform
    data = with_horizon(data, window=window, horizon=horizon, covariates=covariates)
    encoder = data.encoder
    assert isinstance(encoder, SeriesEncoder)
    scaler = make_scaler(encoder, log_transform)
    dropout = (0.3 if model == "mlp" else 0.0) if dropout is None else dropout
    network: nn.Module
    if is_autoregressive:
        network = RNNForecaster(
            cell=model, hidden_size=hidden_size, num_layers=num_layers, dropout=dropout, init=recurrent_init
        )
    else:
        shape: dict[str, Any] = {
            "window": window,
            "horizon": horizon,
            "channels": data.shape[1],
            "normalization": normalization,
            "period": encoder.period,
        }
        if model != "dlinear" and model in _LINEAR:
            network = LinearForecaster(**shape)
        elif model == "dlinear":
            network = DLinearForecaster(**shape, kernel_size=kernel_size)
        else:
            network = ResidualForecaster(
                **shape, members=path.members, network=model, hidden_size=hidden_size, num_layers=num_layers,
                dropout=dropout, init=recurrent_init,
            )
            network.linear.requires_grad_(False)
    # few windows make few independent errors to stop by: a network that moves little stays near its linear path
    is_small = model == "mlp" and len(data.train) < _FEW_WINDOWS
    if weight_decay is None:
        weight_decay = 1.0 if is_small else 0.1 if model == "mlp" else 0.01
    experiment = Experiment(
        data=data,
        objective=ForecastObjective(
            network, horizon=horizon, scaler=scaler, teacher_forcing=is_autoregressive and teacher_forcing == "forced"
        ),
        optimizer=make_optimizer(
            "adamw",
            lr=lr or (1e-3 if model in _LINEAR or is_small else 1e-2),
            weight_decay=weight_decay,
        ),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm,
        resolved_arguments={
            "window": window,
            "normalization": normalization,
            "linear_members": tuple(f"{length}:{name}" for length, name in path.members),
            "log_transform": log_transform,
            "period": encoder.period,
            "covariates": covariates,
        },
        notes=path.notes,
    )
    if is_autoregressive:
        return replace(experiment, epochs=epochs or 15, batch_size=batch_size or 32)
    experiment = _set_budget(experiment, epochs, batch_size)
    return replace(experiment, initialize_weights=lambda context: _initialize(experiment, network, scaler))


def _set_budget(experiment: Experiment, epochs: int | None, batch_size: int | None) -> Experiment:
    """1,500 steps, evaluated forty times: the best weights may be those of the beginning."""
    num_examples = len(experiment.data.train)
    batch_size = batch_size or min(128, max(16, num_examples // 8))
    if epochs:
        return replace(experiment, epochs=epochs, batch_size=batch_size)
    note = BudgetNote(f"chosen from {num_examples:,} training windows: {_STEPS:,} steps in batches of {batch_size}")
    return replace(
        experiment,
        steps=_STEPS,
        batch_size=batch_size,
        evaluate_every=max(1, _STEPS // _EVALUATIONS),
        notes=(*experiment.notes, note),
    )


@torch.no_grad()
def _initialize(experiment: Experiment, network: nn.Module, scaler: SeriesScaler) -> tuple[str, ...]:
    """The linear path by ridge regression."""
    penalties = fit_linear_path(network, experiment.data, scaler)
    return (f"linear path: ridge regression with the penalty {penalties}, chosen by cross-validation",)


@dataclass(frozen=True)
class _LinearPath:
    """The longest window, its normalization, whether logarithms are forecast, and the members that are averaged."""

    window: int
    normalization: Normalization | None
    log_transform: bool
    members: tuple[tuple[int, Normalization], ...] = ()
    notes: tuple[str, ...] = ()


def _parse_members(
    texts: tuple[str, ...], window: int | None, normalization: Normalization | None, log_transform: bool
) -> _LinearPath:
    """24:last is a window of 24 values with the normalization `last`."""
    members = []
    for text in texts:
        length, _, name = text.partition(":")
        found = next((n for n in NORMALIZATIONS if n == name), None)
        if not length.isdecimal() or int(length) < 1 or found is None:
            raise UsageError(
                f"--linear-members expects a window and its normalization, as 24:last, got {text!r}; choose from "
                f"{', '.join(NORMALIZATIONS)}"
            )
        members.append((int(length), found))
    longest = max(length for length, _ in members)
    if window is not None and window < longest:
        raise UsageError(f"--window {window} is shorter than a member's of {longest}; leave it out")
    return _LinearPath(window or longest, normalization or members[0][1], log_transform, tuple(members))


def _choose_linear_path(
    data: Data,
    model: str,
    horizon: int,
    window: int | None,
    normalization: Normalization | None,
    log_transform: bool | None,
    covariates: tuple[str, ...],
) -> _LinearPath:
    """Window, normalization and logarithms; where not given, by cross-validation of the linear path."""
    encoder = data.encoder
    if model == "nlinear" and normalization not in (None, "last"):
        raise UsageError(
            f"--model nlinear subtracts the last value of each window, got --normalization {normalization}; choose "
            "--model linear"
        )
    fixed: dict[str, Normalization] = {"linear": "none", "nlinear": "last", "dlinear": "none"}
    normalization = normalization or fixed.get(model)
    if not isinstance(encoder, SeriesEncoder) or not isinstance(data.train, TensorSplit):
        return _LinearPath(window or DEFAULT_WINDOW, normalization or "last", bool(log_transform))
    if normalization and window and not is_possible(normalization, window, encoder.period):
        reason = f"the window is {window}" if encoder.period > 1 else "no period was found: give one with --period"
        raise UsageError(
            f"--normalization {normalization} needs a window of more than one period of {encoder.period} values, but "
            f"{reason}"
        )
    if window and normalization and log_transform is not None:
        return _LinearPath(window, normalization, log_transform)
    with torch.no_grad():
        choices = rank_linear_paths(
            data,
            horizon=horizon,
            windows=[window] if window else list_windows(data, encoder, horizon),
            normalizations=[normalization] if normalization else NORMALIZATIONS,
            log_transforms=[log_transform] if log_transform is not None else [False, True][: 1 + encoder.is_positive],
            covariates=covariates,
        )
    best = choices[0]
    chosen = [best] if model in _LINEAR else choose_members(choices)
    members = tuple((c.window, c.normalization) for c in chosen)
    members_text = ", ".join(f"window of {length} with normalization {name}" for length, name in members)
    note = f"chosen by cross-validation: {members_text}{'; logarithms' if best.log_transform else ''}"
    longest = max(length for length, _ in members)
    return _LinearPath(
        longest, best.normalization, best.log_transform, () if model in _LINEAR else members, (note,)
    )


def _shorten_window(data: Data) -> int:
    """Thirty values (Gaba Ex 5.3), less for a short series."""
    encoder = data.encoder
    if not isinstance(encoder, SeriesEncoder):
        return DEFAULT_WINDOW
    return min(DEFAULT_WINDOW, max(list_windows(data, encoder, 1)))


def _check_covariates(name: str, encoder: SeriesEncoder, covariates: tuple[str, ...]) -> tuple[str, ...]:
    """The names of other columns; "all" stands for each of them."""
    others = encoder.columns[1:]
    if covariates == ("all",) and "all" not in others:
        return others
    for column in covariates:
        if column == encoder.column:
            raise UsageError(f"--covariates {column} is the target, whose past values are read anyway; leave it out")
        if column not in others:
            nearest = suggest_nearest(column, others) if others else "it has no other column of numbers"
            raise UsageError(f"{name!r} has no covariate {column!r}; {nearest}")
    return covariates


def _check_autoregressive(
    normalization: str | None, covariates: tuple[str, ...], members: tuple[str, ...]
) -> None:
    """Refuse what a network that continues from its own forecasts cannot use."""
    if covariates:
        raise UsageError(
            "--covariates are for models that forecast all steps at once: the covariates of the next step are not "
            "known; add --linear-path, or choose --model mlp"
        )
    if normalization not in (None, "none") or members:
        given = f"--linear-members {','.join(members)}" if members else f"--normalization {normalization}"
        raise UsageError(
            f"{given} is for models with a linear path; add --linear-path, or choose --model "
            "mlp"
        )
