"""Exact attention tile by tile: the softmax with running statistics, so that no S x S matrix is ever whole (Flash attention).

For each tile of keys, with m the largest score so far, l the sum of e^(s − m) and o the weighted sum of values:

    m' = max(m, max s)    l' = e^(m − m') l + Σ e^(s − m')    o' = e^(m − m') o + e^(s − m') V        y = o / l in the end

Backward computes the tiles again from m and l instead of keeping them. Dao et al. 2022, algorithm 1; Gaba 6.12. This is the idea in
PyTorch; the kernel that is also fast is scaled_dot_product_attention's.
"""

from math import sqrt
from typing import Any

import torch
from torch import Tensor

TILE = 128  # keys at once


def tiled_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, there: Tensor | None = None, tile: int = TILE
) -> Tensor:
    """softmax(Q Kᵀ / √d) V for (…, S, d), exactly; memory S · tile. `there` (…, S) is False at keys that are not looked at."""
    out: Tensor = Tiled.apply(q, k, v, there, causal, tile)  # type: ignore[no-untyped-call]
    return out


class Tiled(torch.autograd.Function):
    """P = e^(S − L), L = m + log l:  dV = Pᵀ dY,  dS = P ⊙ (dY Vᵀ − rowsum(dY ⊙ Y)),  dQ = dS K / √d,  dK = dSᵀ Q / √d."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None, causal: bool, tile: int) -> Tensor:
        m = q.new_full((*q.shape[:-1], 1), torch.finfo(q.dtype).min)  # not −∞: of a tile where nothing is there, −∞ − −∞ is no number
        l = torch.zeros_like(m)
        o = q.new_zeros(*q.shape[:-1], v.shape[-1])
        for j in range(0, k.shape[-2], tile):
            first = j if causal else 0                               # queries before this tile do not see it
            s = scores(q[..., first:, :], k[..., j : j + tile, :], causal, part(there, j, tile))
            m_, l_, o_ = (t[..., first:, :] for t in (m, l, o))      # views: what is written there stays
            top = torch.maximum(m_, s.amax(-1, keepdim=True))
            shrink, p = torch.exp(m_ - top), torch.exp(s - top)
            l_.mul_(shrink).add_(p.sum(-1, keepdim=True))
            o_.mul_(shrink).add_(p @ v[..., j : j + tile, :])
            m_.copy_(top)
        l.clamp_(min=torch.finfo(q.dtype).tiny)                      # who may look nowhere gets 0
        y = o / l
        ctx.save_for_backward(q, k, v, there, y, m + l.log())
        ctx.causal, ctx.tile = causal, tile
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        q, k, v, there, y, big_l = ctx.saved_tensors
        dy = grads[0]
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        rows = (dy * y).sum(-1, keepdim=True)
        scale = 1 / sqrt(q.shape[-1])
        for j in range(0, k.shape[-2], ctx.tile):
            first, keys = j if ctx.causal else 0, slice(j, j + ctx.tile)
            q_, dy_ = q[..., first:, :], dy[..., first:, :]
            p = torch.exp(scores(q_, k[..., keys, :], ctx.causal, part(there, j, ctx.tile)) - big_l[..., first:, :])
            ds = p * (dy_ @ v[..., keys, :].mT - rows[..., first:, :]) * scale
            dv[..., keys, :] = p.mT @ dy_
            dk[..., keys, :] = ds.mT @ q_
            dq[..., first:, :] += ds @ k[..., keys, :]
        return dq, dk, dv, None, None, None


def part(there: Tensor | None, j: int, tile: int) -> Tensor | None:
    return None if there is None else there[..., None, j : j + tile]


def scores(q: Tensor, k: Tensor, causal: bool, there: Tensor | None) -> Tensor:
    """Q Kᵀ / √d; in a causal tile the first query is as far along as the first key."""
    s = q @ k.mT / sqrt(q.shape[-1])
    if there is not None:
        s = s.masked_fill(~there, -torch.inf)
    if not causal:
        return s
    i, j = torch.arange(s.shape[-2], device=s.device), torch.arange(s.shape[-1], device=s.device)
    return s.masked_fill(j > i[:, None], -torch.inf)
