"""Flash attention: exact attention tile by tile, with a running softmax, so that the S x S matrix never exists as a
whole.

For each tile of keys, with m the largest score so far, l the sum of e^(s − m) and o the weighted sum of values:

    m' = max(m, max s)    l' = e^(m − m') l + Σ e^(s − m')    o' = e^(m − m') o + e^(s − m') V    finally y = o / l

The backward pass recomputes the tiles from m and l instead of storing them. Dao et al. 2022, algorithm 1; Gaba 6.12.
This is the idea in PyTorch; the kernel that is also fast is scaled_dot_product_attention's.
"""

from math import sqrt
from typing import Any

import torch
from torch import Tensor

_KEYS_PER_TILE = 128


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, key_mask: Tensor | None = None, tile: int = _KEYS_PER_TILE
) -> Tensor:
    """softmax(Q Kᵀ / √d) V for (…, S, d), exactly; memory S · tile. `key_mask` (…, S) is False at keys to leave out."""
    out: Tensor = _FlashAttentionFunction.apply(q, k, v, key_mask, causal, tile)  # type: ignore[no-untyped-call]
    return out


class _FlashAttentionFunction(torch.autograd.Function):
    """P = e^(S − L), L = m + log l:  dV = Pᵀ dY,  dS = P ⊙ (dY Vᵀ − rowsum(dY ⊙ Y)),  dQ = dS K / √d,  dK = dSᵀ Q /
    √d."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, causal: bool, tile: int) -> Tensor:
        # not −∞: in a tile that is masked as a whole, −∞ − −∞ would be NaN
        m = q.new_full((*q.shape[:-1], 1), torch.finfo(q.dtype).min)
        l = torch.zeros_like(m)
        o = q.new_zeros(*q.shape[:-1], v.shape[-1])
        for j in range(0, k.shape[-2], tile):
            first_query = j if causal else 0                               # causal: earlier queries skip this tile
            s = tile_scores(q[..., first_query:, :], k[..., j : j + tile, :], causal, _mask_tile(key_mask, j, tile))
            m_, l_, o_ = (t[..., first_query:, :] for t in (m, l, o))      # views, updated in place
            new_max = torch.maximum(m_, s.amax(-1, keepdim=True))
            rescale, p = torch.exp(m_ - new_max), torch.exp(s - new_max)
            l_.mul_(rescale).add_(p.sum(-1, keepdim=True))
            o_.mul_(rescale).add_(p @ v[..., j : j + tile, :])
            m_.copy_(new_max)
        l.clamp_(min=torch.finfo(q.dtype).tiny)                      # a query without any key gets 0
        y = o / l
        ctx.save_for_backward(q, k, v, key_mask, y, m + l.log())
        ctx.causal, ctx.tile = causal, tile
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        q, k, v, key_mask, y, big_l = ctx.saved_tensors
        dy = grads[0]
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        row_sums = (dy * y).sum(-1, keepdim=True)
        scale = 1 / sqrt(q.shape[-1])
        for j in range(0, k.shape[-2], ctx.tile):
            first_query, tile_keys = j if ctx.causal else 0, slice(j, j + ctx.tile)
            q_, dy_ = q[..., first_query:, :], dy[..., first_query:, :]
            p = torch.exp(
                tile_scores(q_, k[..., tile_keys, :], ctx.causal, _mask_tile(key_mask, j, ctx.tile))
                - big_l[..., first_query:, :]
            )
            ds = p * (dy_ @ v[..., tile_keys, :].mT - row_sums[..., first_query:, :]) * scale
            dv[..., tile_keys, :] = p.mT @ dy_
            dk[..., tile_keys, :] = ds.mT @ q_
            dq[..., first_query:, :] += ds @ k[..., tile_keys, :]
        return dq, dk, dv, None, None, None


def _mask_tile(key_mask: Tensor | None, j: int, tile: int) -> Tensor | None:
    return None if key_mask is None else key_mask[..., None, j : j + tile]


def tile_scores(q: Tensor, k: Tensor, causal: bool, key_mask: Tensor | None) -> Tensor:
    """Q Kᵀ / √d; in a causal tile the first query and the first key have the same position."""
    s = q @ k.mT / sqrt(q.shape[-1])
    if key_mask is not None:
        s = s.masked_fill(~key_mask, -torch.inf)
    if not causal:
        return s
    i, j = torch.arange(s.shape[-2], device=s.device), torch.arange(s.shape[-1], device=s.device)
    return s.masked_fill(j > i[:, None], -torch.inf)
