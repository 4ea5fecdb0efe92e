"""Convolutions that do not look ahead: pixels come row by row, left to right, and each may depend on those before it alone.

The channels of a pixel may come in turn too, red before green before blue: then each feature belongs to one of the turns.
"""

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


def turn(n: int, turns: int, parts: int = 1) -> Tensor:
    """The turn to which each of n features belongs: 0, 1, …, 0, 1, …; alike in each of the parts that a gate takes them apart into."""
    return (torch.arange(n // parts) % turns).repeat(parts)


class MaskedConv2d(nn.Conv2d):
    """y = (W ⊙ M) * x, the size kept.  Groudiev 9.2.3-9.2.4.

    At the centre, features of a turn see those of the turns before it (A), and of their own (B). In one turn a pixel is one place.
    """

    mask: Tensor

    def __init__(self, n_in: int, n_out: int, kernel: tuple[int, int], sees: Sees, *, turns: int = 1, parts: int = 1):
        super().__init__(n_in, n_out, kernel, padding=(kernel[0] // 2, kernel[1] // 2))
        allowed = mask(kernel, sees).repeat(n_out, n_in, 1, 1)
        if sees != "rows":
            before, after = turn(n_in, turns), turn(n_out, turns, parts)[:, None]
            allowed[:, :, kernel[0] // 2, kernel[1] // 2] = (before < after if sees == "A" else before <= after).float()
        self.register_buffer("mask", allowed, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight * self.mask, self.bias, padding=self.padding)

    def place(self, window: Tensor) -> Tensor:
        """At one place, from what lies under the kernel: (B, n_in, *kernel) -> (B, n_out)."""
        return F.linear(window.flatten(1), (self.weight * self.mask).flatten(1), self.bias)


def gate(x: Tensor) -> Tensor:
    """tanh(a) σ(b), (a, b) = x.  Van den Oord et al. 2016 (gated), eq. 2."""
    a, b = x.chunk(2, dim=1)
    return a.tanh() * b.sigmoid()


def lowered(x: Tensor) -> Tensor:
    """One row down, so that a row is told of those above it alone."""
    return F.pad(x, (0, 0, 1, 0))[:, :, :-1]


class Head(nn.Sequential):
    """1×1 convolutions to what is said of each place: (B, width, H, W) -> (B, outputs, H, W); output k is of turn k mod `turns`."""

    def __init__(self, width: int, outputs: int, *, turns: int = 1):
        first, last = (MaskedConv2d(*sizes, (1, 1), "B", turns=turns) for sizes in ((width, 2 * width), (2 * width, outputs)))
        super().__init__(first, nn.ReLU(), last)
        self.turns = turns

    def place(self, h: Tensor, turn: int) -> Tensor:
        """What is said of one turn at one place: (B, width) -> (B, outputs / turns)."""
        found: Tensor = self[2].place(F.relu(self[0].place(h)))  # type: ignore[operator]
        return found[:, turn :: self.turns]
