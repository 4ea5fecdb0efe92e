"""Sparse attention: a sliding window, every s-th token, or the k largest scores. Equal to full attention with that
mask.
"""

from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from didact.layers.attention.attention_masks import causal_mask
from didact.layers.attention.multihead import dot_product_attention


def local_attention(
    q: Tensor, k: Tensor, v: Tensor, *, radius: int, causal: bool = False, key_mask: Tensor | None = None
) -> Tensor:
    """Sliding-window attention: softmax over |i − j| ≤ radius (and j ≤ i if causal), (…, S, d); memory S · 3 radius,
    not S².

    Queries are cut into blocks of `radius`, which see only their own and the two neighboring blocks of keys. `key_mask`
    (…, S) is False at keys to leave out, such as padding.  Gaba 6.12.
    """
    n = q.shape[-2]
    radius = min(radius, n - 1)                  # there are no keys farther away: blocks would be padding
    w = max(1, radius)
    blocks = -(-n // w)
    padding = blocks * w - n
    q = F.pad(q, (0, 0, 0, padding)).unflatten(-2, (blocks, w))                               # (…, N, w, d)
    k, v = (F.pad(t, (0, 0, w, w + padding)).unfold(-2, 3 * w, w).mT for t in (k, v))         # (…, N, 3w, d)
    i = torch.arange(blocks * w, device=q.device).view(blocks, w, 1)
    # (N, 1, 3w)
    j = torch.arange(-w, 2 * w, device=q.device) + w * torch.arange(blocks, device=q.device)[:, None, None]
    visible = ((i - j).abs() <= radius) & (j >= 0) & (j < n)
    if key_mask is not None:
        visible = visible & F.pad(key_mask, (w, w + padding)).unfold(-1, 3 * w, w)[..., None, :]       # (…, N, 1, 3w)
    y, _ = dot_product_attention(q, k, v, visible & (j <= i) if causal else visible)
    return y.flatten(-3, -2)[..., :n, :]


def strided_attention(
    q: Tensor, k: Tensor, v: Tensor, *, stride: int, causal: bool = False, key_mask: Tensor | None = None
) -> Tensor:
    """Strided attention: softmax over j ≡ i mod stride (and j ≤ i if causal), (…, S, d); memory S² / stride.

    Child et al. 2019; Gaba 6.12.
    """
    n = q.shape[-2]
    stride = min(stride, n)                    # from n on, each token attends to itself alone
    rows = -(-n // stride)
    padding = rows * stride - n
    # (…, stride, rows, d)
    q, k, v = (F.pad(t, (0, 0, 0, padding)).unflatten(-2, (rows, stride)).transpose(-3, -2) for t in (q, k, v))
    if key_mask is None:
        key_mask = torch.ones(n, dtype=torch.bool, device=q.device)
    # (…, stride, 1, rows)
    visible = F.pad(key_mask, (0, padding)).unflatten(-1, (rows, stride)).mT[..., None, :]
    y, _ = dot_product_attention(q, k, v, visible & causal_mask(rows, device=q.device) if causal else visible)
    return y.transpose(-3, -2).flatten(-3, -2)[..., :n, :]


def topk_attention(q: Tensor, k: Tensor, v: Tensor, *, top_k: int, mask: Tensor | None = None) -> Tensor:
    """Top-k attention: softmax over each query's `top_k` largest scores, (…, S, d).  Gaba 6.12. All scores are
    computed.
    """
    return dot_product_attention(q, k, v, top_k_mask(q, k, top_k, mask))[0]


def top_k_mask(q: Tensor, k: Tensor, top_k: int, mask: Tensor | None = None) -> Tensor:
    """Which keys are among the `top_k` largest unmasked scores of each query, (…, T, S)."""
    scores = q @ k.mT / sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    largest = scores.topk(min(top_k, k.shape[-2]), dim=-1)
    # by index, not by threshold: with ties exactly top_k stay
    top_mask = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, largest.indices, True)
    return top_mask if mask is None else top_mask & mask
