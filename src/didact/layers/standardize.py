"""Standardization inside the model: its statistics are saved with the weights, and inputs stay raw."""

import torch
from torch import Tensor, nn


class Standardize(nn.Module):
    """Standardization: y = (x - mean) / std, as one multiply-add y = scale x + shift.  Gaba 1.6 (G1.20).

    It runs in each step. Its rounding error is as large as that of storing x in float32.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, mean: Tensor, std: Tensor):
        super().__init__()
        mean, std = mean.detach().double(), std.detach().double()
        self.register_buffer("scale", (1 / std).float())
        self.register_buffer("shift", (-mean / std).float())

    @classmethod
    def or_identity(cls, mean: Tensor | None, std: Tensor | None) -> nn.Module:
        """The layer for these statistics; nn.Identity where either is missing."""
        return nn.Identity() if mean is None or std is None else cls(mean, std)

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.shift, x, self.scale)
