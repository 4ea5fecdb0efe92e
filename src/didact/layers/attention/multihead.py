"""Multi-head attention, explicit and fused."""

from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.attention import attention_masks


def dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """A = softmax(Q Kᵀ / √d), Y = A V; returns Y and A.  Vaswani et al. 2017, eq. 1; Gaba 6.4, 7.2, Fleuret 4.8.

    Each query token takes a weighted mean of the values. `mask` is True where it may attend; a row without any True
    gives 0.
    """
    return softmax_weighted_sum(q @ k.mT / sqrt(q.shape[-1]), v, mask)


def softmax_weighted_sum(scores: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """A = softmax over the unmasked scores, Y = A V; returns Y and A: (…, T, S), (…, S, D) -> (…, T, D), (…, T, S)."""
    if mask is None:
        a = scores.softmax(dim=-1)                           # rows sum to one
    else:
        a = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).nan_to_num(0.0)   # a row of -inf alone is 0 / 0
    return a @ v, a


class MultiHeadAttention(nn.Module):
    """Multi-head attention: Y = [head_1 … head_h] W_O, head_i = attention(X W_Q, M W_K, M W_V), M = X (self-attention)
    or a `memory` (cross-attention).

    Vaswani et al. 2017, sec. 3.2.2. Names and shapes of the weights are nn.MultiheadAttention's.
    """

    def __init__(self, dim: int, num_heads: int, *, dropout: float = 0.0):
        super().__init__()
        if dim % num_heads:
            raise UsageError(f"dim must be a multiple of num_heads={num_heads}, got dim={dim}")
        self.num_heads, self.dropout = num_heads, dropout
        self.in_proj_weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(3 * dim, dim)))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * dim))
        self.out_proj = nn.Linear(dim, dim)
        nn.init.zeros_(self.out_proj.bias)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, memory: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """(B, T, D), memory (B, S, D) -> (B, T, D)."""
        return self.merge_heads(self._attend(*self.project_qkv(x, memory), mask, causal=causal))

    def forward_with_weights(
        self, x: Tensor, mask: Tensor | None = None, *, memory: Tensor | None = None, causal: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The output by the explicit form, and the attention weights of each head, (B, heads, T, S): a row per query.

        Weights are those before dropout, so that rows sum to one while training too (Gaba 6.9 keeps the others).
        """
        q, k, v = self.project_qkv(x, memory)
        y, a = self._attend_with_weights(q, k, v, add_causal_mask(mask, q, k) if causal else mask)
        return self.merge_heads(y), a

    def project_qkv(self, x: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, heads, T, d); keys and values (B, heads, S, d), d = D / heads."""
        if memory is None:
            # (B, T, 3, heads, d)
            qkv = F.linear(x, self.in_proj_weight, self.in_proj_bias).unflatten(-1, (3, self.num_heads, -1))
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()
            return q, k, v
        n = len(self.in_proj_bias) // 3                             # heads · d: less than D after pruning
        q = F.linear(x, self.in_proj_weight[:n], self.in_proj_bias[:n])
        q = q.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        kv = F.linear(memory, self.in_proj_weight[n:], self.in_proj_bias[n:]).unflatten(-1, (2, self.num_heads, -1))
        k, v = kv.permute(2, 0, 3, 1, 4).unbind()
        return q, k, v

    def merge_heads(self, y: Tensor) -> Tensor:
        out: Tensor = self.out_proj(y.transpose(1, 2).flatten(2))   # (B, heads, T, d) -> (B, T, D)
        return out

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
        return fused_attention(q, k, v, mask, causal=causal, dropout=self.dropout if self.training else 0.0)

    def _attend_with_weights(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return dot_product_attention(q, k, v, mask)


class CrossAttention(MultiHeadAttention):
    """Cross-attention: queries from one sequence, keys and values from another, the memory.  Gaba eq. 6.19, Fleuret
    5.3, Lhotte 8.2."""

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:   # type: ignore[override]
        return super().forward(x, mask, memory=memory)

    def forward_with_weights(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward_with_weights(x, mask, memory=memory)


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    enable_gqa: bool = False,
) -> Tensor:
    """PyTorch's fused kernel. It takes either a mask or causality: both together become one mask."""
    if causal and mask is not None:
        mask, causal = add_causal_mask(mask, q, k), False
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, causal, enable_gqa=enable_gqa)


def add_causal_mask(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor:
    """The mask combined with a causal one; queries are the last ones of the keys' positions."""
    causal = attention_masks.causal_mask(k.shape[-2], device=q.device)[-q.shape[-2] :]
    return causal if mask is None else mask & causal
