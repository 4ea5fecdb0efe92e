"""Convolutions that do not look ahead: pixels come row by row, left to right, and each may depend on those before it alone."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Sees = Literal["A", "B", "rows"]


def mask(kernel: tuple[int, int], sees: Sees) -> Tensor:
    """1 where a weight may be: A before the centre, B the centre too, rows all of this row and those above.  Van den Oord et al. 2016."""
    h, w = kernel
    order = torch.arange(h * w).view(h, w) - (h // 2 * w + w // 2)      # the centre is 0
    last = {"A": -1, "B": 0, "rows": w // 2}[sees]
    return (order <= last).float()


class MaskedConv2d(nn.Conv2d):
    """y = (W ⊙ M) * x, the size kept.  Groudiev 9.2.4. Channels of a pixel count as one place: A sees none of them, B all."""

    mask: Tensor

    def __init__(self, n_in: int, n_out: int, kernel: tuple[int, int], sees: Sees):
        super().__init__(n_in, n_out, kernel, padding=(kernel[0] // 2, kernel[1] // 2))
        self.register_buffer("mask", mask(kernel, sees), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight * self.mask, self.bias, padding=self.padding)


def gate(x: Tensor) -> Tensor:
    """tanh(a) σ(b), (a, b) = x.  Van den Oord et al. 2016 (gated), eq. 2."""
    a, b = x.chunk(2, dim=1)
    return a.tanh() * b.sigmoid()


def lowered(x: Tensor) -> Tensor:
    """One row down, so that a row is told of those above it alone."""
    return F.pad(x, (0, 0, 1, 0))[:, :, :-1]


def head(width: int, outputs: int) -> nn.Sequential:
    """1×1 convolutions to what is said of each place: (B, width, H, W) -> (B, outputs, H, W)."""
    return nn.Sequential(nn.Conv2d(width, 2 * width, 1), nn.ReLU(), nn.Conv2d(2 * width, outputs, 1))
