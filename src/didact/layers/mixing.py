"""Mamba and xLSTM as readers: residual blocks upon each other, with a state to go on from, as recurrent layers have one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from didact.errors import pick
from didact.layers.cells import Gates, State
from didact.layers.mamba import Mamba
from didact.layers.xlstm import MLSTM, SLSTM


def heads_of(dim: int) -> int:
    """Four where the width allows, as in the paper."""
    return next(heads for heads in (4, 2, 1) if dim % heads == 0)


MIXERS: dict[str, Callable[[int], Any]] = {
    "mamba": Mamba,
    "slstm": lambda dim: SLSTM(dim, heads=heads_of(dim)),
    "mlstm": lambda dim: MLSTM(dim, heads=heads_of(dim)),
}


class Mixing(nn.Module):
    """u = W x,  u ← u + mix(LN u) layer upon layer,  y = LN u.  Gu & Dao 2023, figure 3; Beck et al. 2024, figure 1; Gaba 5.10."""

    def __init__(self, cell: str, inputs: int, hidden: int, *, layers: int = 1, dropout: float = 0.0):
        super().__init__()
        make = pick("cell", cell, MIXERS)
        self.cell, self.hidden, self.layers = cell, hidden, layers
        self.widen = nn.Linear(inputs, hidden)
        self.mixers = nn.ModuleList(make(hidden) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers))
        self.norm, self.dropout = nn.LayerNorm(hidden), nn.Dropout(dropout if layers > 1 else 0.0)   # between layers, as recurrent ones

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """(B, T, D) -> (B, T, H), and the state to go on from, each part of it (layers, B, …)."""
        u, state, after = self.widen(x), self.start(len(x)) if state is None else state, []
        for layer, (mixer, norm) in enumerate(self.blocks):
            y, then = mixer.after(norm(u), tuple(part[layer] for part in state))
            u = u + (self.dropout(y) if layer < self.layers - 1 else y)
            after.append(then)
        return self.norm(u), tuple(torch.stack(parts) for parts in zip(*after, strict=True))

    @property
    def blocks(self) -> list[tuple[Any, nn.Module]]:
        return list(zip(self.mixers, self.norms, strict=True))

    def start(self, rows: int) -> State:
        """The state before the first token."""
        parts: list[State] = [mixer.start(rows) for mixer, _ in self.blocks]
        return tuple(torch.stack(part) for part in zip(*parts, strict=True))

    def look(self, x: Tensor) -> tuple[Tensor, list[Gates]]:
        """The same with the gates of each layer over time, (B, T, …). Without dropout."""
        return self(x)[0], [mixer.watch(read) for (mixer, _), read in zip(self.blocks, self.heard(x), strict=True)]

    def heard(self, x: Tensor) -> list[Tensor]:
        """What each layer is given to mix, (B, T, H)."""
        u, given = self.widen(x), []
        for mixer, norm in self.blocks:
            given.append(norm(u))
            u = u + mixer(given[-1])
        return given
