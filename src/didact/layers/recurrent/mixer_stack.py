"""Stacks of Mamba or xLSTM blocks: residual blocks with a recurrent state, used as recurrent layers are."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from didact.errors import look_up
from didact.layers.recurrent.cells import Gates, State
from didact.layers.recurrent.mamba import Mamba
from didact.layers.recurrent.xlstm import MLSTM, SLSTM


def _default_num_heads(dim: int) -> int:
    """Four where the width allows, as in the paper."""
    return next(num_heads for num_heads in (4, 2, 1) if dim % num_heads == 0)


MIXERS: dict[str, Callable[[int], Any]] = {
    "mamba": Mamba,
    "slstm": lambda dim: SLSTM(dim, num_heads=_default_num_heads(dim)),
    "mlstm": lambda dim: MLSTM(dim, num_heads=_default_num_heads(dim)),
}


class SequenceMixerStack(nn.Module):
    """u = W x,  u ← u + mix(LN u) in each layer,  y = LN u.

    Gu & Dao 2023, figure 3; Beck et al. 2024, figure 1; Gaba 5.10.
    """

    def __init__(self, cell: str, input_size: int, hidden_size: int, *, num_layers: int = 1, dropout: float = 0.0):
        super().__init__()
        make = look_up("cell", cell, MIXERS)
        self.cell, self.hidden_size, self.num_layers = cell, hidden_size, num_layers
        self.widen = nn.Linear(input_size, hidden_size)
        self.mixers = nn.ModuleList(make(hidden_size) for _ in range(num_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden_size) for _ in range(num_layers))
        # dropout between layers, as in recurrent ones
        self.norm, self.dropout = nn.LayerNorm(hidden_size), nn.Dropout(dropout if num_layers > 1 else 0.0)

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """(B, T, D) -> (B, T, H), and the new state, each part of it (layers, B, …)."""
        u, state, new_states = self.widen(x), self.initial_state(len(x)) if state is None else state, []
        for layer, (mixer, norm) in enumerate(self.blocks):
            y, new_state = mixer.forward_from_state(norm(u), tuple(part[layer] for part in state))
            u = u + (self.dropout(y) if layer < self.num_layers - 1 else y)
            new_states.append(new_state)
        return self.norm(u), tuple(torch.stack(parts) for parts in zip(*new_states, strict=True))

    @property
    def blocks(self) -> list[tuple[Any, nn.Module]]:
        return list(zip(self.mixers, self.norms, strict=True))

    def initial_state(self, batch_size: int) -> State:
        """The state before the first token."""
        states: list[State] = [mixer.initial_state(batch_size) for mixer, _ in self.blocks]
        return tuple(torch.stack(part) for part in zip(*states, strict=True))

    def forward_with_gates(self, x: Tensor) -> tuple[Tensor, list[Gates]]:
        """The output, and the gates of each layer over time, (B, T, …). Without dropout."""
        return self(x)[0], [
            mixer.compute_gates(mixer_input)
            for (mixer, _), mixer_input in zip(self.blocks, self.mixer_inputs(x), strict=True)
        ]

    def mixer_inputs(self, x: Tensor) -> list[Tensor]:
        """The input of each layer's mixer, (B, T, H)."""
        u, inputs = self.widen(x), []
        for mixer, norm in self.blocks:
            inputs.append(norm(u))
            u = u + mixer(inputs[-1])
        return inputs
