"""Linear attention: a kernel feature map instead of the softmax, so that keys and values are summed once for all
queries.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_TOKENS = 64  # tokens between two stored prefix sums


def feature_map(x: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1, which is positive."""
    return F.elu(x) + 1


def linear_attention(q: Tensor, k: Tensor, v: Tensor, *, key_mask: Tensor | None = None) -> Tensor:
    """y_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j), (…, S, d), in time and memory S d².  Katharopoulos et al.
    2020.

    Gaba eq. 6.21 leaves the denominator out (mistake M35). It is another model than softmax attention, not a faster way
    to compute it. `key_mask` (…, S) is False at keys to leave out, such as padding.
    """
    q, k = feature_map(q), _mask_features(feature_map(k), key_mask)
    y = q @ (k.mT @ v)
    return safe_divide(y, q @ k.sum(-2)[..., None])


def _mask_features(k: Tensor, key_mask: Tensor | None) -> Tensor:
    """φ(k) = 0 at masked keys: they add to neither sum."""
    return k if key_mask is None else k * key_mask[..., None]


def causal_linear_attention(
    q: Tensor, k: Tensor, v: Tensor, *, chunk: int = CHUNK_TOKENS, key_mask: Tensor | None = None
) -> Tensor:
    """The same with sums over j ≤ i: prefix sums are stored every `chunk` tokens; inside a chunk the explicit form is
    used.
    """
    n = q.shape[-2]
    padding = -n % chunk
    q, k = feature_map(q), _mask_features(feature_map(k), key_mask)
    # a column of ones next to v: the same products sum the denominators, too
    v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
    q, k, v = (F.pad(t, (0, 0, 0, padding)).unflatten(-2, (-1, chunk)) for t in (q, k, v))     # (…, N, chunk, d)
    sums = k.mT @ v                                                                         # (…, N, d, d + 1)
    prefix_sums = sums.cumsum(-3) - sums
    y = (q @ prefix_sums + (q @ k.mT).tril() @ v).flatten(-3, -2)[..., :n, :]
    return safe_divide(y[..., :-1], y[..., -1:])


def safe_divide(y: Tensor, total: Tensor) -> Tensor:
    """y / total, and 0 where the total is 0."""
    return y / total.masked_fill(total == 0, 1)
