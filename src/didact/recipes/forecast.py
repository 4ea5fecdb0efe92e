"""Time series forecasting."""

from typing import Annotated, Literal

from didact.data.core import Data
from didact.data.time_series import DEFAULT_WINDOW, with_horizon
from didact.models.tabular.forecaster import RNNForecaster
from didact.objectives.forecasting import ForecastObjective
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, OnlyWith, Range
from didact.recipes import _hyperparameters as a
from didact.recipes.rnn import Cell, HiddenSize, NumLayers, RecurrentInit
from didact.registry import recipe
from didact.training.experiment import Experiment


@recipe(
    data="waves",
    accepts=("series",),
    tasks=("regression",),
    chapter="recurrent networks",
    abilities=("forecast",),
    sources=("Gaba 5.6", "Gaba Ex 5.3", "Groudiev 5.2", "Van Schependom 6"),
    grid={"cell": ("rnn", "lstm", "gru"), "horizon": (1, 7)},
)
def forecast(
    data: Data,
    *,
    cell: Cell = "lstm",
    hidden_size: HiddenSize = 32,
    num_layers: NumLayers = 1,
    dropout: a.Dropout = 0.0,
    recurrent_init: RecurrentInit = "orthogonal",
    window: Annotated[int, Range(1), "input window: past values that are read", Aliases("lags")] = DEFAULT_WINDOW,
    horizon: Annotated[
        int, Range(1), "forecast horizon: number of steps ahead, each from the one before (7 for a week of days)"
    ] = 1,
    teacher_forcing: Annotated[
        Literal["forced", "own"],
        OnlyWith("horizon", above=1),
        "teacher forcing: train on the true previous values (forced), or on the model's own forecasts (own)",
    ] = "forced",
    lr: a.LearningRate = 1e-2,
    weight_decay: a.WeightDecay = 0.01,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    epochs: a.Epochs = 15,
    batch_size: a.BatchSize = 32,
) -> Experiment:
    """Time series forecasting with an RNN, LSTM or GRU.

    h_t = cell(x_t, h_{t−1}), x̂_{t+1} = x_t + w h_t + b, compared with the naive forecast x̂_{t+k} = x_t. `skill` is
    the fraction by which the naive forecast's squared error is reduced. --data temperatures predicts the day after
    thirty, or the next seven with --horizon 7; your own CSV file needs one column of numbers.
    """
    data = with_horizon(data, window=window, horizon=horizon)
    return Experiment(
        data=data,
        objective=ForecastObjective(
            RNNForecaster(
                cell=cell, hidden_size=hidden_size, num_layers=num_layers, dropout=dropout, init=recurrent_init
            ),
            horizon=horizon,
            mean=data.target_mean,
            std=data.target_std,
            teacher_forcing=teacher_forcing == "forced",
        ),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm,
        epochs=epochs,
        batch_size=batch_size,
    )
