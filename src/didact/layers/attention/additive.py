"""Alignment attention of encoder-decoders before the Transformer: Bahdanau's additive and Luong's multiplicative
scores.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.attention.multihead import softmax_weighted_sum

ScoreFunction = Literal["dot", "general", "concat"]


class BahdanauAttention(nn.Module):
    """e_tj = vᵀ tanh(W s_t + U h_j), α = softmax(e), c_t = Σ_j α_tj h_j.  Bahdanau et al. 2015; Gaba eq. 6.2-6.4,
    Groudiev 6.1.2.

    Queries: decoder states s (B, T, D_s); keys and values: encoder states h (B, S, D_h), the memory; `mask` (B, S) is
    False at padding.  -> context c (B, T, D_h), weights α (B, T, S)
    """

    def __init__(self, query_dim: int, memory_dim: int, *, attention_dim: int):
        super().__init__()
        self.w = nn.Linear(query_dim, attention_dim, bias=False)
        self.u = nn.Linear(memory_dim, attention_dim, bias=False)
        self.v = nn.Linear(attention_dim, 1, bias=False)

    def forward(self, s: Tensor, h: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        e = self.v(torch.tanh(self.w(s)[:, :, None] + self.u(h)[:, None]))[..., 0]     # (B, T, S)
        return softmax_weighted_sum(e, h, None if mask is None else mask[:, None])


class LuongAttention(nn.Module):
    """e_tj = s_t·h_j (dot), s_tᵀ W h_j (general) or vᵀ tanh(W [s_t; h_j]) (concat).  Luong et al. 2015; Gaba eq.
    6.6-6.8.

    concat is Bahdanau's score with W and U side by side in one matrix.
    """

    def __init__(
        self, query_dim: int, memory_dim: int, *, score: ScoreFunction = "general", attention_dim: int | None = None
    ):
        super().__init__()
        if score == "dot" and query_dim != memory_dim:
            raise UsageError(
                f"the score 'dot' needs queries as wide as the memory, got {query_dim} and {memory_dim}; choose "
                "'general'"
            )
        self.score = score
        if score == "general":
            self.w = nn.Linear(memory_dim, query_dim, bias=False)
        elif score == "concat":
            self.w = nn.Linear(query_dim + memory_dim, attention_dim or query_dim, bias=False)
            self.v = nn.Linear(attention_dim or query_dim, 1, bias=False)

    def forward(self, s: Tensor, h: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return softmax_weighted_sum(self.compute_scores(s, h), h, None if mask is None else mask[:, None])

    def compute_scores(self, s: Tensor, h: Tensor) -> Tensor:
        """(B, T, D_s), (B, S, D_h) -> (B, T, S)"""
        if self.score == "concat":
            t, n = s.shape[1], h.shape[1]
            pairs = torch.cat([s[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, t, -1, -1)], dim=-1)
            e: Tensor = self.v(torch.tanh(self.w(pairs)))[..., 0]
        else:
            e = s @ (h if self.score == "dot" else self.w(h)).mT
        return e


def make_alignment_attention(name: str, query_dim: int, memory_dim: int, *, attention_dim: int) -> nn.Module:
    """Bahdanau's attention, or Luong's with the score of that name."""
    if name == "bahdanau":
        return BahdanauAttention(query_dim, memory_dim, attention_dim=attention_dim)
    return LuongAttention(query_dim, memory_dim, score=name, attention_dim=attention_dim)  # type: ignore[arg-type]
