"""Gated PixelCNN (van den Oord et al. 2016): an image as a sentence of pixels, each told from those above and to its left.

    x -> depth x [vertical stack: rows above; horizontal stack: this row to the left, and what the vertical one says] -> levels

Two stacks, since masked squares alone leave a blind corner to the upper right.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.coder import Shape
from didact.layers.masked_conv import Head, MaskedConv2d, gate, lowered
from didact.registry import register


class GatedBlock(nn.Module):
    """v' = gate(conv(v)), h' = h + W gate(conv(h) + U lowered(conv(v)) + label).  Fig. 2 of the paper."""

    def __init__(self, n_in: int, width: int, *, kernel: int, first: bool, classes: int, turns: int = 1):
        super().__init__()
        self.vertical = MaskedConv2d(n_in, 2 * width, (kernel, kernel), "rows")
        self.horizontal = MaskedConv2d(n_in, 2 * width, (1, kernel), "A" if first else "B", turns=turns, parts=2)
        self.across, self.out = nn.Conv2d(2 * width, 2 * width, 1), MaskedConv2d(width, width, (1, 1), "B", turns=turns)
        self.label = nn.Embedding(classes, 2 * width) if classes else None
        self.first, self.side = first, kernel // 2

    def above(self, v: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        """v', and what each place is told from the rows above it and of its class."""
        up = self.vertical(v)
        told = self.across(lowered(up))
        if self.label is not None and y is not None:
            told = told + self.label(y)[:, :, None, None]
        return gate(up), told

    def forward(self, v: Tensor, h: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        v, told = self.above(v, y)
        out = self.out(gate(self.horizontal(h) + told))
        return v, out if self.first else h + out                   # the first may not see its own pixel, not even past the gate

    def place(self, h: Tensor, row: Tensor, j: int, told: Tensor) -> Tensor:
        """h' at column j, (B, width); `row` holds h of the columns before, and takes this one, with a margin at both sides."""
        row[..., self.side + j] = h
        out = self.out.place(gate(self.horizontal.place(row[..., j : j + 2 * self.side + 1]) + told))
        return out if self.first else h + out


@register("pixelcnn", width=32, depth=5)
class PixelCNN(nn.Module):
    """p(x) = Π_i p(x_i | x_<i).  Groudiev 9.2.4-9.2.5.

    In several `turns` the channels of a pixel come one after the other; in one they are told together, from the pixels before.
    """

    blocks: Sequence[GatedBlock]

    def __init__(self, *, shape: Shape, width: int, depth: int, outputs: int, kernel: int = 3, classes: int = 0, turns: int = 1):
        super().__init__()
        kernels = [kernel if k else max(5, kernel) for k in range(depth)]
        self.blocks = nn.ModuleList(  # type: ignore[assignment]
            GatedBlock(width if k else shape[0], width, kernel=side, first=not k, classes=classes, turns=turns)
            for k, side in enumerate(kernels)
        )
        self.head = Head(width, outputs, turns=turns)
        self.turns, self.reach = turns, sum(side // 2 for side in kernels)    # rows above the one above a place that it can see

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Centred pixels (B, C, H, W) -> `outputs` numbers for each, from those before it: (B, outputs, H, W)."""
        v = h = x
        for block in self.blocks:
            v, h = block(v, h, y)
        out: Tensor = self.head(F.relu(h))
        return out

    def telling(self, x: Tensor, y: Tensor | None, known: int) -> Iterator[Tensor]:
        """The same, place by place and turn by turn, for whoever draws: the outputs of each, (B, outputs / turns), from row `known` on.

        After each, x must hold what was drawn there. The vertical stack sees a row once, when those above are whole; the horizontal
        one sees a place a turn.
        """
        B, _, H, W = x.shape
        for i in range(known, H):
            v, told, rows, reach = x[:, :, : i + 1], [], [], self.reach
            for block in self.blocks:
                rows.append(x.new_zeros(B, v.shape[1], W + 2 * block.side))
                v, each = block.above(v[:, :, -2 - reach :], y)               # this row, the one above, and what those still to come reach
                told.append(each[:, :, -1])
                reach -= block.side
            for j, t in product(range(W), range(self.turns)):
                h = x[:, :, i, j]
                rows[0][..., self.blocks[0].side : self.blocks[0].side + W] = x[:, :, i]      # what was drawn since
                for block, row, each in zip(self.blocks, rows, told, strict=True):
                    h = block.place(h, row, j, each[..., j])
                yield self.head.place(F.relu(h), t)

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        return {"shape": (1, 5, 6), "width": 6, "depth": 3, "outputs": 4}, 2 * torch.rand(batch, 1, 5, 6) - 1
