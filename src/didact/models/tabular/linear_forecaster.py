"""Linear forecaster of a time series, direct: every step ahead is a weighted sum of the past values.

    window -> normalization -> W z + b -> level and scale given back

Zeng et al. 2023, Are Transformers Effective for Time Series Forecasting? (arXiv:2205.13504): Linear, NLinear, DLinear.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.window_normalization import Normalization, normalize_window
from didact.registry import register_model


@register_model("linear_forecaster", normalization="none")
@register_model("nlinear_forecaster", normalization="last")
class LinearForecaster(nn.Module):
    """x̂ = W z + b of the normalized window z, all channels of it: (B, T, C) -> (B, n)."""

    def __init__(
        self, *, window: int, horizon: int, channels: int = 1, normalization: Normalization = "last", period: int = 1
    ):
        super().__init__()
        self.horizon, self.normalization, self.period = horizon, normalization, period
        self.linear = nn.Linear(window * channels, horizon)

    def forward(self, x: Tensor) -> Tensor:
        normalized = normalize_window(x, self.horizon, self.normalization, self.period)
        return normalized.restore(self.linear(normalized.z.flatten(1)))

    @torch.no_grad()
    def set_weights(self, weight: Tensor, bias: Tensor) -> None:
        """Begin with the solution of a linear regression."""
        self.linear.weight.copy_(weight)
        self.linear.bias.copy_(bias)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"window": 9, "horizon": 3, "channels": 2}, torch.randn(batch_size, 9, 2)


@register_model("dlinear_forecaster")
class DLinearForecaster(nn.Module):
    """x̂ = W_t t + W_s (z − t) + b; t is the moving average of z: DLinear's decomposition, eq. in section 4.1."""

    def __init__(
        self,
        *,
        window: int,
        horizon: int,
        channels: int = 1,
        normalization: Normalization = "none",
        period: int = 1,
        kernel_size: int = 25,
    ):
        super().__init__()
        self.horizon, self.normalization, self.period, self.kernel_size = horizon, normalization, period, kernel_size
        self.trend = nn.Linear(window * channels, horizon)
        self.seasonal = nn.Linear(window * channels, horizon, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        normalized = normalize_window(x, self.horizon, self.normalization, self.period)
        trend = compute_moving_average(normalized.z, self.kernel_size)
        return normalized.restore(self.trend(trend.flatten(1)) + self.seasonal((normalized.z - trend).flatten(1)))

    @torch.no_grad()
    def set_weights(self, weight: Tensor, bias: Tensor) -> None:
        """Both parts begin with the same weights: together they are that linear regression."""
        self.trend.weight.copy_(weight)
        self.seasonal.weight.copy_(weight)
        self.trend.bias.copy_(bias)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"window": 9, "horizon": 3, "channels": 2, "kernel_size": 5}, torch.randn(batch_size, 9, 2)


class LinearEnsemble(nn.Module):
    """x̂ = Σ_j w_j x̂_j of linear forecasters that read windows of different length, normalized in different ways."""

    def __init__(self, members: Sequence[tuple[int, Normalization]], *, horizon: int, channels: int, period: int):
        super().__init__()
        self.windows = [window for window, _ in members]
        self.members = nn.ModuleList(
            LinearForecaster(window=window, horizon=horizon, channels=channels, normalization=n, period=period)
            for window, n in members
        )
        self.register_buffer("weights", torch.full((len(members),), 1 / len(members)))
        self.weights: Tensor

    def forward(self, x: Tensor) -> Tensor:
        forecasts = [member(x[:, -window:]) for window, member in zip(self.windows, self.members, strict=True)]
        return torch.einsum("j,jbn->bn", self.weights, torch.stack(forecasts))


def compute_moving_average(x: Tensor, kernel_size: int) -> Tensor:
    """The mean of `kernel_size` values around each one, (B, T, C); beyond the ends the first and the last repeat."""
    before, after = (kernel_size - 1) // 2, kernel_size // 2
    padded = torch.cat([x[:, :1].repeat(1, before, 1), x, x[:, -1:].repeat(1, after, 1)], dim=1)
    return F.avg_pool1d(padded.transpose(1, 2), kernel_size, stride=1).transpose(1, 2)
