"""Gated PixelCNN (van den Oord et al. 2016): an image as a sentence of pixels, each told from those above and to its left.

    x -> depth x [vertical stack: rows above; horizontal stack: this row to the left, and what the vertical one says] -> levels

Two stacks, since masked squares alone leave a blind corner to the upper right.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.coder import Shape
from didact.layers.masked_conv import MaskedConv2d, gate, head, lowered
from didact.registry import register


class GatedBlock(nn.Module):
    """v' = gate(conv(v)), h' = h + W gate(conv(h) + U lowered(conv(v)) + label).  Fig. 2 of the paper."""

    def __init__(self, n_in: int, width: int, *, kernel: int, first: bool, classes: int):
        super().__init__()
        self.vertical = MaskedConv2d(n_in, 2 * width, (kernel, kernel), "rows")
        self.horizontal = MaskedConv2d(n_in, 2 * width, (1, kernel), "A" if first else "B")
        self.across, self.out = nn.Conv2d(2 * width, 2 * width, 1), nn.Conv2d(width, width, 1)
        self.label = nn.Embedding(classes, 2 * width) if classes else None
        self.first = first

    def forward(self, v: Tensor, h: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        up = self.vertical(v)
        left = self.horizontal(h) + self.across(lowered(up))
        if self.label is not None and y is not None:
            left = left + self.label(y)[:, :, None, None]
        out = self.out(gate(left))
        return gate(up), out if self.first else h + out            # the first may not see its own pixel, not even past the gate


@register("pixelcnn", width=32, depth=5)
class PixelCNN(nn.Module):
    """p(x) = Π_i p(x_i | x_<i).  Groudiev 9.2.4-9.2.5. Channels of a pixel are independent given the pixels before."""

    def __init__(self, *, shape: Shape, width: int, depth: int, outputs: int, kernel: int = 3, classes: int = 0):
        super().__init__()
        self.blocks = nn.ModuleList(
            GatedBlock(width if k else shape[0], width, kernel=kernel if k else max(5, kernel), first=not k, classes=classes)
            for k in range(depth)
        )
        self.head = head(width, outputs)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Centred pixels (B, C, H, W) -> `outputs` numbers for each, from those before it: (B, outputs, H, W)."""
        v = h = x
        for block in self.blocks:
            v, h = block(v, h, y)
        out: Tensor = self.head(F.relu(h))
        return out

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        return {"shape": (1, 5, 6), "width": 6, "depth": 3, "outputs": 4}, 2 * torch.rand(batch, 1, 5, 6) - 1
