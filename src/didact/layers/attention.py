"""Attention: every token asks all others, and takes a weighted mean of their answers."""

from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError


def attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """A = softmax(Q Kᵀ / √d), Y = A V, and A to look at.  Vaswani et al. 2017, eq. 1; Gaba 7.2, Fleuret 4.8."""
    a = (q @ k.mT / sqrt(q.shape[-1])).softmax(dim=-1)       # (…, S, S), rows sum to one
    return a @ v, a


class SelfAttention(nn.Module):
    """Y = [head_1 … head_h] W_O, head_i = attention(X W_Q, X W_K, X W_V).  Names and shapes are nn.MultiheadAttention's."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        if dim % heads:
            raise UsageError(f"dim must be a multiple of heads={heads}, got dim={dim}")
        self.heads = heads
        self.in_proj_weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(3 * dim, dim)))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * dim))
        self.out_proj = nn.Linear(dim, dim)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, x: Tensor) -> Tensor:                  # (B, S, D)
        q, k, v = self.project(x)
        return self.join(F.scaled_dot_product_attention(q, k, v))

    def look(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same by the explicit form, with the weights of each head, (B, heads, S, S): row who asks, column who answers."""
        q, k, v = self.project(x)
        y, a = attention(q, k, v)
        return self.join(y), a

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, heads, S, D / heads)."""
        qkv = F.linear(x, self.in_proj_weight, self.in_proj_bias).unflatten(-1, (3, self.heads, -1))   # (B, S, 3, heads, d)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()
        return q, k, v

    def join(self, y: Tensor) -> Tensor:
        out: Tensor = self.out_proj(y.transpose(1, 2).flatten(2))   # (B, heads, S, d) -> (B, S, D)
        return out
