"""Forecasts of a time series, judged in its own units beside the forecast that costs nothing: it stays as it is."""

import torch
from torch import Tensor

from didact.data.core import Batch
from didact.metrics.regression import mae, rmse
from didact.models.forecaster import Forecaster
from didact.objectives.core import Objective


class Forecast(Objective):
    """min of mean_k (x̂_{T+k} − x_{T+k})², k = 1 … horizon, in deviations of the training values.  Gaba Ex 5.3.

    With `forced` the network is told the true values before each one while it learns (teacher forcing); otherwise it goes on from its
    own, as it always does when it is judged.
    """

    watch = "rmse"

    def __init__(self, network: Forecaster, *, horizon: int, mean: float, std: float, forced: bool):
        super().__init__()
        self.network, self.horizon, self.mean, self.std, self.forced = network, horizon, mean, std, forced

    def scaled(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x, y = self.scaled(batch["x"][..., 0]), self.scaled(batch["y"])
        said = self.network.forced(x, y) if self.forced else self.network.free(x, self.horizon)
        return {"loss": (said.float() - y).square().mean()}

    def judge(self, batch: Batch) -> Batch:
        said, y = self.forecast(batch), batch["y"]
        naive = batch["x"][:, -1].expand_as(y)
        return {"loss": ((said - y) / self.std).square().mean(1), "predicted": said, "true": y, "naive": naive}

    def score(self, rows: Batch) -> dict[str, float]:
        """`skill`: the share of the naive forecast's squared error that is gone; of several days, the first and the last by themselves."""
        said, y, naive = rows["predicted"], rows["true"], rows["naive"]
        found = {"mae": mae(said, y), "rmse": rmse(said, y), "naive_mae": mae(naive, y), "naive_rmse": rmse(naive, y)}
        found["skill"] = 1 - (found["rmse"] / found["naive_rmse"]) ** 2
        if self.horizon > 1:
            for k in (1, self.horizon):
                found |= {f"mae_{k}_ahead": mae(said[:, k - 1], y[:, k - 1]), f"rmse_{k}_ahead": rmse(said[:, k - 1], y[:, k - 1])}
        return super().score(rows) | dict(zip(found, torch.stack(list(found.values())).tolist(), strict=True))

    def forecast(self, batch: Batch) -> Tensor:
        """The next `horizon` values, (B, horizon), in their own units."""
        said = self.network.free(self.scaled(batch["x"][..., 0]), self.horizon)
        return self.mean + self.std * said.float()
