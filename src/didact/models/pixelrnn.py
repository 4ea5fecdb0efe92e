"""PixelRNN (van den Oord et al. 2016): an image told row by row by LSTMs, whose state carries what the rows above said.

    x -> masked 7×7 -> depth x [v + W RowLSTM(v)] -> levels

A pixel sees a triangle that opens upwards: r rows above it, r + 2 columns to its right.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.coder import Shape
from didact.layers.masked_conv import MaskedConv2d, head
from didact.layers.row_lstm import RowLSTM
from didact.registry import register

FIRST = (7, 7)  # kernel of the first convolution


@register("pixelrnn", width=32, depth=2)
class PixelRNN(nn.Module):
    """p(x) = Π_i p(x_i | x_<i), h_r = f(h_(r−1), x_r).  Groudiev 9.2.3. Channels of a pixel are independent given the pixels before."""

    def __init__(self, *, shape: Shape, width: int, depth: int, outputs: int, classes: int = 0):
        super().__init__()
        self.first = MaskedConv2d(shape[0], width, FIRST, "A")
        self.label = nn.Embedding(classes, width) if classes else None
        self.rows = nn.ModuleList(RowLSTM(width, width) for _ in range(depth))
        self.out = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(depth))
        self.head = head(width, outputs)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Centred pixels (B, C, H, W) -> `outputs` numbers for each, from those before it: (B, outputs, H, W)."""
        v = self.first(x)
        if self.label is not None and y is not None:
            v = v + self.label(y)[:, :, None, None]
        for rows, out in zip(self.rows, self.out, strict=True):
            v = v + out(rows(v))
        found: Tensor = self.head(F.relu(v))
        return found

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        return {"shape": (1, 5, 6), "width": 6, "depth": 2, "outputs": 4}, 2 * torch.rand(batch, 1, 5, 6) - 1
