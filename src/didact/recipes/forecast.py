"""Time series: what comes next, from the days before."""

from typing import Annotated, Literal

from didact.data.core import Data
from didact.data.series import WINDOW, ahead
from didact.models.forecaster import Forecaster
from didact.objectives.forecasting import Forecast
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import OnlyWith, Range
from didact.recipes import arguments as a
from didact.recipes.recurrent import Cell, Hidden, Init, Layers
from didact.registry import recipe
from didact.train.experiment import Experiment


@recipe(
    data="waves", accepts=("series",), tasks=("regression",), chapter="recurrent networks", abilities=("forecast",),
    sources=("Gaba 5.6", "Gaba Ex 5.3", "Groudiev 5.2", "Van Schependom 6"), grid={"cell": ("rnn", "lstm", "gru"), "horizon": (1, 7)},
)
def forecast(
    data: Data, *,
    cell: Cell = "lstm", hidden: Hidden = 32, layers: Layers = 1, dropout: a.Dropout = 0.0, init: Init = "orthogonal",
    window: Annotated[int, Range(1), "past values that are read"] = WINDOW,
    horizon: Annotated[int, Range(1), "values that are forecast, each from the one before: 1, or 7 for a week of days"] = 1,
    teach: Annotated[
        Literal["forced", "own"], OnlyWith("horizon", above=1),
        "what it goes on from while it learns: the true values, or its own forecasts"
    ] = "forced",
    lr: a.Rate = 1e-2, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    epochs: a.Epochs = 15, batch: a.BatchSize = 32,
) -> Experiment:
    """Forecast a time series: --data temperatures (thirty days, then the next or --horizon 7), or a CSV of one's own.

    h_t = cell(x_t, h_{t−1}), x̂_{t+1} = x_t + w h_t + b; judged beside the naive forecast x̂_{t+k} = x_t. `skill` is the share of the
    naive forecast's squared error that is gone.
    """
    data = ahead(data, window=window, horizon=horizon)
    return Experiment(
        data=data,
        objective=Forecast(
            Forecaster(cell=cell, hidden=hidden, layers=layers, dropout=dropout, init=init),
            horizon=horizon, mean=data.target_mean, std=data.target_std, forced=teach == "forced",
        ),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, epochs=epochs, batch=batch,
    )
