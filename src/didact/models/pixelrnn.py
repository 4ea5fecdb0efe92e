"""PixelRNN (van den Oord et al. 2016): an image told row by row by LSTMs, whose state carries what the rows above said.

    x -> masked 7×7 -> depth x [v + W RowLSTM(v)] -> levels

A pixel sees a triangle that opens upwards: r rows above it, r + 2 columns to its right.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.coder import Shape
from didact.layers.masked_conv import Head, MaskedConv2d
from didact.layers.row_lstm import RowLSTM, State
from didact.registry import register

FIRST = (7, 7)       # kernel of the first convolution
EDGE = FIRST[0] // 2


@register("pixelrnn", width=32, depth=2)
class PixelRNN(nn.Module):
    """p(x) = Π_i p(x_i | x_<i), h_r = f(h_(r−1), x_r).  Groudiev 9.2.3.

    In several `turns` the channels of a pixel come one after the other; in one they are told together, from the pixels before.
    """

    rows: Sequence[RowLSTM]
    out: Sequence[MaskedConv2d]

    def __init__(self, *, shape: Shape, width: int, depth: int, outputs: int, classes: int = 0, turns: int = 1):
        super().__init__()
        self.first = MaskedConv2d(shape[0], width, FIRST, "A", turns=turns)
        self.label = nn.Embedding(classes, width) if classes else None
        self.rows = nn.ModuleList(RowLSTM(width, width, turns=turns) for _ in range(depth))  # type: ignore[assignment]
        self.out = nn.ModuleList(MaskedConv2d(width, width, (1, 1), "B", turns=turns) for _ in range(depth))  # type: ignore[assignment]
        self.head = Head(width, outputs, turns=turns)
        self.turns, self.width = turns, width

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Centred pixels (B, C, H, W) -> `outputs` numbers for each, from those before it: (B, outputs, H, W)."""
        found: Tensor = self.head(F.relu(self.unrolled(x, y)[0]))
        return found

    def unrolled(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, list[State]]:
        """What the head reads, and how each LSTM stands after the last row."""
        v, states = self.first(x), []
        if self.label is not None and y is not None:
            v = v + self.label(y)[:, :, None, None]
        for rows, out in zip(self.rows, self.out, strict=True):
            h, state = rows.unrolled(v)
            v = v + out(h)
            states.append(state)
        return v, states

    def telling(self, x: Tensor, y: Tensor | None, known: int) -> Iterator[Tensor]:
        """The same, place by place and turn by turn, for whoever draws: the outputs of each, (B, outputs / turns), from row `known` on.

        After each, x must hold what was drawn there.
        """
        B, _, H, W = x.shape
        blank = x.new_zeros(B, self.width, W)
        states = self.unrolled(x[:, :, :known], y)[1] if known else [(blank, blank)] * len(self.rows)
        hint = self.label(y) if self.label is not None and y is not None else 0.0
        for i in range(known, H):
            seen = F.pad(x[:, :, max(0, i - EDGE) : i + 1], (EDGE, EDGE, max(0, EDGE - i), EDGE))    # the kernel's rows around row i
            above = [rows.state_to_state(h) for rows, (h, _) in zip(self.rows, states, strict=True)]
            lines = [F.pad(blank, (1, 1)) for _ in self.rows]
            after = [(blank.clone(), blank.clone()) for _ in self.rows]
            for j, t in product(range(W), range(self.turns)):
                seen[:, :, EDGE, EDGE:-EDGE] = x[:, :, i]                         # what was drawn since
                v = self.first.place(seen[..., j : j + FIRST[1]]) + hint
                for k, (rows, out) in enumerate(zip(self.rows, self.out, strict=True)):
                    lines[k][..., 1 + j] = v
                    gates = rows.input_to_state.place(lines[k][..., j : j + 3]) + above[k][..., j]
                    h, after[k][1][..., j] = rows.cell(gates, states[k][1][..., j])
                    after[k][0][..., j] = h
                    v = v + out.place(h)
                yield self.head.place(F.relu(v), t)
            states = after

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        return {"shape": (1, 5, 6), "width": 6, "depth": 2, "outputs": 4}, 2 * torch.rand(batch, 1, 5, 6) - 1
