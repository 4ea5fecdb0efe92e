"""Forecasting of a time series, evaluated in its own units next to the naive forecast: the last value, repeated."""

import torch
from torch import Tensor

from didact.data.core import Batch
from didact.metrics.regression import mae, rmse
from didact.models.tabular.forecaster import RNNForecaster
from didact.objectives.base import Objective


class ForecastObjective(Objective):
    """min of mean_k (x̂_{T+k} − x_{T+k})², k = 1 … horizon, in training standard deviations.  Gaba Ex 5.3.

    With `teacher_forcing` the network is trained on the true previous values; otherwise it continues from its own
    predictions, as it always does in evaluation.
    """

    monitor = "rmse"

    def __init__(self, network: RNNForecaster, *, horizon: int, mean: float, std: float, teacher_forcing: bool):
        super().__init__()
        self.network, self.horizon, self.mean, self.std, self.teacher_forcing = (
            network,
            horizon,
            mean,
            std,
            teacher_forcing,
        )

    def standardize(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x, y = self.standardize(batch["x"][..., 0]), self.standardize(batch["y"])
        prediction = (
            self.network.predict_teacher_forced(x, y)
            if self.teacher_forcing
            else self.network.predict_autoregressive(x, self.horizon)
        )
        return {"loss": (prediction.float() - y).square().mean()}

    def evaluate_batch(self, batch: Batch) -> Batch:
        prediction, y = self.forecast(batch), batch["y"]
        naive = batch["x"][:, -1].expand_as(y)
        return {
            "loss": ((prediction - y) / self.std).square().mean(1),
            "predicted": prediction,
            "true": y,
            "naive": naive,
        }

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """`skill`: the fraction of the naive forecast's squared error that is removed; `…_k_ahead`: of step k alone."""
        prediction, y, naive = outputs["predicted"], outputs["true"], outputs["naive"]
        scores = {
            "mae": mae(prediction, y),
            "rmse": rmse(prediction, y),
            "naive_mae": mae(naive, y),
            "naive_rmse": rmse(naive, y),
        }
        scores["skill"] = 1 - (scores["rmse"] / scores["naive_rmse"]) ** 2
        if self.horizon > 1:
            for k in (1, self.horizon):
                scores |= {
                    f"mae_{k}_ahead": mae(prediction[:, k - 1], y[:, k - 1]),
                    f"rmse_{k}_ahead": rmse(prediction[:, k - 1], y[:, k - 1]),
                }
        return super().compute_metrics(outputs) | dict(
            zip(scores, torch.stack(list(scores.values())).tolist(), strict=True)
        )

    def forecast(self, batch: Batch) -> Tensor:
        """The next `horizon` values, (B, horizon), in their own units."""
        prediction = self.network.predict_autoregressive(self.standardize(batch["x"][..., 0]), self.horizon)
        return self.mean + self.std * prediction.float()
