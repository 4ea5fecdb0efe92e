"""Differential attention: the difference of two attention maps, in which noise that both share cancels."""

from math import exp, sqrt

import torch
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.attention import joined, weigh


def differential_attention(
    q1: Tensor, k1: Tensor, q2: Tensor, k2: Tensor, v: Tensor, lam: Tensor | float, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A = softmax(Q1 K1ᵀ/√d) − λ softmax(Q2 K2ᵀ/√d), Y = A V; rows of A sum to 1 − λ.  Ye et al. 2024, eq. 1; Gaba eq. 6.23."""
    y1, a1 = weigh(q1 @ k1.mT / sqrt(q1.shape[-1]), v, mask)
    y2, a2 = weigh(q2 @ k2.mT / sqrt(q2.shape[-1]), v, mask)
    return y1 - lam * y2, a1 - lam * a2


class DifferentialAttention(nn.Module):
    """Y = [(1 − λ₀) RMSNorm(head_i)] W_O, λ = exp(λ_q1·λ_k1) − exp(λ_q2·λ_k2) + λ₀, λ₀ = 0.8 − 0.6 e^(−0.3 depth).  Eqs. 2-3."""

    def __init__(self, dim: int, heads: int, *, depth: int = 0):
        super().__init__()
        if dim % (2 * heads):
            raise UsageError(f"dim must be a multiple of 2 heads={2 * heads}, got dim={dim}")
        self.heads, self.initial = heads, 0.8 - 0.6 * exp(-0.3 * depth)
        d = dim // heads // 2                                         # of each of the two queries and keys; values have 2d
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.lambdas = nn.Parameter(0.1 * torch.randn(4, d))          # λ_q1, λ_k1, λ_q2, λ_k2
        self.norm = nn.RMSNorm(2 * d, eps=1e-5)

    @property
    def lam(self) -> Tensor:
        """λ as it stands."""
        q1, k1, q2, k2 = self.lambdas.unbind()
        return (q1 * k1).sum().exp() - (q2 * k2).sum().exp() + self.initial

    def forward(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:   # (B, S, D)
        return self.look(x, mask, causal=causal)[0]

    def look(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> tuple[Tensor, Tensor]:
        """With the difference of the two maps, (B, heads, S, S)."""
        q, k = (f(x).unflatten(-1, (self.heads, 2, -1)).permute(3, 0, 2, 1, 4) for f in (self.q_proj, self.k_proj))
        v = self.v_proj(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)                        # (B, heads, S, 2d)
        y, a = differential_attention(q[0], k[0], q[1], k[1], v, self.lam, joined(mask, q[0], k[0]) if causal else mask)
        y = (1 - self.initial) * self.norm(y.to(x.dtype))             # mixed precision: as wide as its gain
        return self.o_proj(y.transpose(1, 2).flatten(2)), a
