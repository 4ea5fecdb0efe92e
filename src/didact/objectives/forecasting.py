"""Forecasting of a time series, evaluated in its own units next to the naive forecast: the last value, repeated."""

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.layers.series_scaler import SeriesScaler
from didact.metrics.regression import mae, rmse
from didact.models.tabular.forecaster import RNNForecaster
from didact.objectives.base import Objective


class ForecastObjective(Objective):
    """min of mean_k (x̂_{T+k} − x_{T+k})², k = 1 … horizon, in training standard deviations.  Gaba Ex 5.3.

    A recurrent network predicts step by step: with `teacher_forcing` it is trained on the true previous values;
    otherwise it continues from its own predictions, as it always does in evaluation. Other networks are direct: they
    answer a window with all steps at once.
    """

    monitor = "rmse"

    def __init__(self, network: nn.Module, *, horizon: int, scaler: SeriesScaler, teacher_forcing: bool = True):
        super().__init__()
        self.network, self.horizon, self.scaler, self.teacher_forcing = network, horizon, scaler, teacher_forcing
        # of the first and the last step, in training variances; set from the validation split
        self.residual_variance: tuple[float, float] | None = None

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x, y = self.scaler.standardize_window(batch), self.scaler.standardize(batch["y"], batch)
        if self.teacher_forcing and isinstance(self.network, RNNForecaster):
            prediction = self.network.predict_teacher_forced(x[..., 0], y)
        else:
            prediction = self.predict_standardized(x)
        return {"loss": (prediction.float() - y).square().mean()}

    def predict_standardized(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, horizon)."""
        if isinstance(self.network, RNNForecaster):
            return self.network.predict_autoregressive(x[..., 0], self.horizon)
        prediction: Tensor = self.network(x)
        return prediction

    def evaluate_batch(self, batch: Batch) -> Batch:
        prediction, y = self.forecast(batch), batch["y"]
        naive = batch["x"][:, -1:, 0].expand_as(y)
        return {
            "loss": ((prediction - y) / self.scaler.get_scale(batch)).square().mean(1),
            "predicted": prediction,
            "true": y,
            "naive": naive,
        }

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """`skill`: the fraction of the naive forecast's squared error that is removed; `…_k_ahead`: of step k alone."""
        return super().compute_metrics(outputs) | compute_forecast_metrics(
            outputs["predicted"], outputs["true"], outputs["naive"]
        )

    def predict_std(self, batch: Batch) -> Tensor | None:
        """The standard deviation of the forecast's error, (B, horizon): between the first and the last step on a
        straight line in the variance, as that of a random walk grows.
        """
        if self.residual_variance is None:
            return None
        variance = torch.linspace(*self.residual_variance, self.horizon, device=batch["x"].device)
        return variance.sqrt() * self.scaler.get_scale(batch)

    def forecast(self, batch: Batch) -> Tensor:
        """The next `horizon` values, (B, horizon), in their own units."""
        return self.scaler.restore(self.predict_standardized(self.scaler.standardize_window(batch)).float(), batch)


def compute_forecast_metrics(prediction: Tensor, y: Tensor, naive: Tensor) -> dict[str, float]:
    """Errors of forecasts (N, horizon) and of the naive ones; where there are several steps, of the first and last."""
    scores = {
        "mae": mae(prediction, y),
        "rmse": rmse(prediction, y),
        "naive_mae": mae(naive, y),
        "naive_rmse": rmse(naive, y),
    }
    scores["skill"] = 1 - (scores["rmse"] / scores["naive_rmse"]) ** 2
    if (horizon := y.shape[1]) > 1:
        for k in (1, horizon):
            scores |= {
                f"mae_{k}_ahead": mae(prediction[:, k - 1], y[:, k - 1]),
                f"rmse_{k}_ahead": rmse(prediction[:, k - 1], y[:, k - 1]),
            }
    return dict(zip(scores, torch.stack(list(scores.values())).tolist(), strict=True))
