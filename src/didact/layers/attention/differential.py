"""Differential attention: the difference of two attention maps, which cancels the noise that both share."""

from math import exp, sqrt

import torch
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.attention.multihead import add_causal_mask, softmax_weighted_sum


def differential_attention(
    q1: Tensor, k1: Tensor, q2: Tensor, k2: Tensor, v: Tensor, lam: Tensor | float, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A = softmax(Q1 K1ᵀ/√d) − λ softmax(Q2 K2ᵀ/√d), Y = A V; rows of A sum to 1 − λ.  Ye et al. 2024, eq. 1; Gaba eq.
    6.23.
    """
    y1, a1 = softmax_weighted_sum(q1 @ k1.mT / sqrt(q1.shape[-1]), v, mask)
    y2, a2 = softmax_weighted_sum(q2 @ k2.mT / sqrt(q2.shape[-1]), v, mask)
    return y1 - lam * y2, a1 - lam * a2


class DifferentialHeads:
    """head = (1 − λ₀) RMSNorm(A V), λ = exp(λ_q1·λ_k1) − exp(λ_q2·λ_k2) + λ₀, λ₀ = 0.8 − 0.6 e^(−0.3 depth).  Eqs. 2-3.
    """

    lambdas: Tensor        # λ_q1, λ_k1, λ_q2, λ_k2: (4, d)
    norm: nn.RMSNorm
    lambda_init: float

    @staticmethod
    def compute_lambda_init(depth: int) -> float:
        """λ₀ of a layer."""
        return 0.8 - 0.6 * exp(-0.3 * depth)

    @property
    def lam(self) -> Tensor:
        """The current value of λ."""
        q1, k1, q2, k2 = self.lambdas.unbind()
        return (q1 * k1).sum().exp() - (q2 * k2).sum().exp() + self.lambda_init

    def attend_with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Outputs of the heads, (B, heads, T, 2d), and the difference of their two maps, (B, heads, T, S).

        q and k hold both queries and keys of a head side by side.
        """
        (q1, q2), (k1, k2) = q.chunk(2, dim=-1), k.chunk(2, dim=-1)
        y, a = differential_attention(q1, k1, q2, k2, v, self.lam, mask)
        # in mixed precision: in the data type of the norm's gain
        return (1 - self.lambda_init) * self.norm(y.to(self.lambdas.dtype)), a


class DifferentialAttention(DifferentialHeads, nn.Module):
    """Y = [head_1 … head_h] W_O.  Eq. 3."""

    def __init__(self, dim: int, num_heads: int, *, depth: int = 0):
        super().__init__()
        if dim % (2 * num_heads):
            raise UsageError(f"dim must be a multiple of 2 num_heads={2 * num_heads}, got dim={dim}")
        self.num_heads, self.lambda_init = num_heads, self.compute_lambda_init(depth)
        d = dim // num_heads // 2       # width of each of the two queries and keys; values have 2d
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.lambdas = nn.Parameter(0.1 * torch.randn(4, d))
        self.norm = nn.RMSNorm(2 * d, eps=1e-5)

    def forward(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:   # (B, S, D)
        return self.forward_with_weights(x, mask, causal=causal)[0]

    def forward_with_weights(
        self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The output, and the difference of the two maps, (B, heads, S, S)."""
        q, k, v = (
            f(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        # (B, heads, S, 2d)
        y, a = self.attend_with_weights(q, k, v, add_causal_mask(mask, q, k) if causal else mask)
        return self.o_proj(y.transpose(1, 2).flatten(2)), a
