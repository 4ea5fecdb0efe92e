"""Attention to few: a window, every s-th token, or the k that matter most. Equal to the explicit form under the same mask."""

from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from didact.layers.attention import attention
from didact.layers.masks import causal as causal_mask


def local_attention(
    q: Tensor, k: Tensor, v: Tensor, *, reach: int, causal: bool = False, there: Tensor | None = None
) -> Tensor:
    """softmax over |i − j| ≤ reach (and j ≤ i if causal), (…, S, d); memory S · 3 reach instead of S².  Gaba 6.12.

    Queries are cut into blocks of `reach`, which can only see their own and the two neighbouring blocks of keys. `there` (…, S) is False
    at keys that are not looked at, as padding.
    """
    n = q.shape[-2]
    reach = min(reach, n - 1)                  # further there is nobody: blocks would be padding
    w = max(1, reach)
    blocks = -(-n // w)
    spare = blocks * w - n
    q = F.pad(q, (0, 0, 0, spare)).unflatten(-2, (blocks, w))                               # (…, N, w, d)
    k, v = (F.pad(t, (0, 0, w, w + spare)).unfold(-2, 3 * w, w).mT for t in (k, v))         # (…, N, 3w, d)
    i = torch.arange(blocks * w, device=q.device).view(blocks, w, 1)
    j = torch.arange(-w, 2 * w, device=q.device) + w * torch.arange(blocks, device=q.device)[:, None, None]   # (N, 1, 3w)
    seen = ((i - j).abs() <= reach) & (j >= 0) & (j < n)
    if there is not None:
        seen = seen & F.pad(there, (w, w + spare)).unfold(-1, 3 * w, w)[..., None, :]       # (…, N, 1, 3w)
    y, _ = attention(q, k, v, seen & (j <= i) if causal else seen)
    return y.flatten(-3, -2)[..., :n, :]


def strided_attention(
    q: Tensor, k: Tensor, v: Tensor, *, stride: int, causal: bool = False, there: Tensor | None = None
) -> Tensor:
    """softmax over j ≡ i mod stride (and j ≤ i if causal), (…, S, d); memory S² / stride.  Child et al. 2019; Gaba 6.12."""
    n = q.shape[-2]
    stride = min(stride, n)                    # from there on each is alone
    rows = -(-n // stride)
    spare = rows * stride - n
    q, k, v = (F.pad(t, (0, 0, 0, spare)).unflatten(-2, (rows, stride)).transpose(-3, -2) for t in (q, k, v))   # (…, stride, rows, d)
    if there is None:
        there = torch.ones(n, dtype=torch.bool, device=q.device)
    seen = F.pad(there, (0, spare)).unflatten(-1, (rows, stride)).mT[..., None, :]            # (…, stride, 1, rows)
    y, _ = attention(q, k, v, seen & causal_mask(rows, device=q.device) if causal else seen)
    return y.transpose(-3, -2).flatten(-3, -2)[..., :n, :]


def topk_attention(q: Tensor, k: Tensor, v: Tensor, *, top: int, mask: Tensor | None = None) -> Tensor:
    """softmax over each query's `top` largest scores, (…, S, d).  Gaba 6.12. All scores are computed, few are weighed."""
    return attention(q, k, v, best(q, k, top, mask))[0]


def best(q: Tensor, k: Tensor, top: int, mask: Tensor | None = None) -> Tensor:
    """Who is among the `top` largest allowed scores of each query, (…, T, S)."""
    scores = q @ k.mT / sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    largest = scores.topk(min(top, k.shape[-2]), dim=-1)
    kept = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, largest.indices, True)     # ties: exactly `top` stay
    return kept if mask is None else kept & mask
