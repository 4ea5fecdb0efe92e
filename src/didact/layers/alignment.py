"""Alignment: a decoder asks which of the encoder's states matter now. Attention as it was before the Transformer."""

from typing import Literal

import torch
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.attention import weigh

Score = Literal["dot", "general", "concat"]


class Bahdanau(nn.Module):
    """e_tj = vᵀ tanh(W s_t + U h_j), α = softmax(e), c_t = Σ_j α_tj h_j.  Bahdanau et al. 2015; Gaba eq. 6.2-6.4, Groudiev 6.1.2.

    States s (B, T, D_s) ask memory h (B, S, D_h); `mask` (B, S) is True where h is no padding.  -> c (B, T, D_h), α (B, T, S)
    """

    def __init__(self, states: int, memory: int, *, width: int):
        super().__init__()
        self.w = nn.Linear(states, width, bias=False)
        self.u = nn.Linear(memory, width, bias=False)
        self.v = nn.Linear(width, 1, bias=False)

    def forward(self, s: Tensor, h: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        e = self.v(torch.tanh(self.w(s)[:, :, None] + self.u(h)[:, None]))[..., 0]     # (B, T, S)
        return weigh(e, h, None if mask is None else mask[:, None])


class Luong(nn.Module):
    """e_tj = s_t·h_j (dot), s_tᵀ W h_j (general) or vᵀ tanh(W [s_t; h_j]) (concat).  Luong et al. 2015; Gaba eq. 6.6-6.8.

    concat is Bahdanau's score with W and U side by side in one matrix.
    """

    def __init__(self, states: int, memory: int, *, score: Score = "general", width: int | None = None):
        super().__init__()
        if score == "dot" and states != memory:
            raise UsageError(f"the score 'dot' needs states as wide as the memory, got {states} and {memory}; choose 'general'")
        self.score = score
        if score == "general":
            self.w = nn.Linear(memory, states, bias=False)
        elif score == "concat":
            self.w = nn.Linear(states + memory, width or states, bias=False)
            self.v = nn.Linear(width or states, 1, bias=False)

    def forward(self, s: Tensor, h: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return weigh(self.scores(s, h), h, None if mask is None else mask[:, None])

    def scores(self, s: Tensor, h: Tensor) -> Tensor:
        """(B, T, D_s), (B, S, D_h) -> (B, T, S)"""
        if self.score == "concat":
            t, n = s.shape[1], h.shape[1]
            both = torch.cat([s[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, t, -1, -1)], dim=-1)
            e: Tensor = self.v(torch.tanh(self.w(both)))[..., 0]
        else:
            e = s @ (h if self.score == "dot" else self.w(h)).mT
        return e


def alignment(name: str, states: int, memory: int, *, width: int) -> nn.Module:
    """Bahdanau's or one of Luong's by its word."""
    if name == "bahdanau":
        return Bahdanau(states, memory, width=width)
    return Luong(states, memory, score=name, width=width)  # type: ignore[arg-type]
