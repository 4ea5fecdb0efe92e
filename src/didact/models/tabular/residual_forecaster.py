"""Linear forecasters with a network on top that learns what the linear path leaves over.

    window -> Σ_j w_j (W_j z_j + b_j)                          z_j: a part of the window, normalized in its own way
    window -> normalization -> z -> f(z) -> scale given back   f: an MLP, or recurrent layers

A linear path beside a network: LSTNet (Lai et al. 2018, arXiv:1703.07015), TiDE (Das et al. 2023, arXiv:2304.08424).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.recurrent.recurrent import Init, Recurrent
from didact.layers.window_normalization import Normalization, normalize_window
from didact.models.tabular.linear_forecaster import LinearEnsemble
from didact.registry import register_model


class _MLPResidual(nn.Module):
    """f(z) = W_3 g(W_2 g(W_1 z)) of the flattened window."""

    def __init__(self, window: int, channels: int, hidden_size: int, num_layers: int, dropout: float):
        super().__init__()
        sizes = [window * channels, *[hidden_size] * num_layers]
        self.layers = nn.Sequential(
            *(
                layer
                for n_in, n_out in pairwise(sizes)
                for layer in (nn.Linear(n_in, n_out), nn.GELU(), nn.Dropout(dropout))
            )
        )

    def forward(self, z: Tensor) -> Tensor:                 # (B, T, C) -> (B, D)
        h: Tensor = self.layers(z.flatten(1))
        return h


class _RecurrentResidual(nn.Module):
    """f(z) = W h_T of recurrent layers that read the window."""

    def __init__(
        self, cell: str, channels: int, hidden_size: int, num_layers: int, dropout: float, init: Init
    ):
        super().__init__()
        self.reader = Recurrent(cell, channels, hidden_size, num_layers=num_layers, dropout=dropout, init=init)
        self.dropout = nn.Dropout(dropout)

    def forward(self, z: Tensor) -> Tensor:
        h: Tensor = self.dropout(self.reader(z)[0][:, -1])
        return h


@register_model("mlp_forecaster", network="mlp")
@register_model("linear_lstm_forecaster", network="lstm")
class ResidualForecaster(nn.Module):
    """x̂ = Σ_j w_j x̂_j + σ f(z): (B, T, C) -> (B, n)."""

    def __init__(
        self,
        *,
        window: int,
        horizon: int,
        channels: int = 1,
        normalization: Normalization = "last",
        period: int = 1,
        members: Sequence[tuple[int, Normalization]] = (),
        network: str = "mlp",
        hidden_size: int = 64,
        num_layers: int = 2,
        dropout: float = 0.0,
        init: Init = "orthogonal",
    ):
        super().__init__()
        self.horizon, self.normalization, self.period = horizon, normalization, period
        self.linear = LinearEnsemble(
            members or [(window, normalization)], horizon=horizon, channels=channels, period=period
        )
        self.residual: nn.Module = (
            _MLPResidual(window, channels, hidden_size, num_layers, dropout)
            if network == "mlp"
            else _RecurrentResidual(network, channels, hidden_size, num_layers, dropout, init)
        )
        self.head = nn.Linear(hidden_size, horizon)
        # root mean squares in training, of the normalized windows and of what the linear path leaves over: f reads and
        # answers numbers of about 1, whatever the series
        self.register_buffer("input_scale", torch.ones(()))
        self.register_buffer("output_scale", torch.ones(()))
        self.input_scale: Tensor
        self.output_scale: Tensor

    def forward(self, x: Tensor) -> Tensor:
        normalized = normalize_window(x, self.horizon, self.normalization, self.period)
        f: Tensor = self.head(self.residual(normalized.z / self.input_scale))
        linear: Tensor = self.linear(x)
        return linear + normalized.scale * self.output_scale * f

    @property
    def reader(self) -> Recurrent | None:
        """The recurrent layers, if there are any."""
        return self.residual.reader if isinstance(self.residual, _RecurrentResidual) else None

    @torch.no_grad()
    def start_from_linear(self, x: Tensor, y: Tensor) -> None:
        """Begin with f = 0, in the units of these windows and of what the linear path leaves over."""
        self.head.weight.zero_()
        self.head.bias.zero_()
        normalized = normalize_window(x, self.horizon, self.normalization, self.period)
        residuals = (y - self.linear(x)) / normalized.scale
        self.input_scale.copy_(normalized.z.square().mean().sqrt().clamp(min=1e-6))
        self.output_scale.copy_(residuals.square().mean().sqrt().clamp(min=1e-6))

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        keywords = {
            "window": 9,
            "horizon": 3,
            "channels": 2,
            "hidden_size": 6,
            "num_layers": 1,
            "members": [(9, "last"), (5, "none")],
        }
        return keywords, torch.randn(batch_size, 9, 2)
