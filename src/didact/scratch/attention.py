"""Scaled dot-product attention and its heads (Gaba 6.4-6.5, Fleuret 4.8, Van Schependom 7.4)."""

from math import sqrt
from typing import Any

import numpy as np

from didact.scratch.autograd.tensor import Array, Grads, ScratchError, Tensor, is_recording, record_op
from didact.scratch.linear_layer import linear


def _additive_mask(mask: Any, shape: tuple[int, ...], causal: bool, dtype: Any) -> Array | None:
    """Mask and causality as one array to add to the scores: −∞ where a query must not attend."""
    bias = None
    if mask is not None:
        mask_array = np.asarray(mask)
        bias = (
            np.where(mask_array, 0, -np.inf).astype(dtype)
            if mask_array.dtype == bool
            else mask_array.astype(dtype, copy=False)
        )
    if causal:  # a query attends to itself and to what came before: lower-triangular with the diagonal
        future = np.triu(np.full(shape[-2:], -np.inf, dtype), 1)
        bias = future if bias is None else bias + future
    return bias


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Any = None, causal: bool = False) -> Tensor:
    """A = softmax(q kᵀ / √d + mask),  y = A v.  Gaba 6.9, d the dimension of one head's query.

        dv = Aᵀ dy,    dA = dy vᵀ,    dS = A ⊙ (dA − rowsum(dA ⊙ A)),    dq = dS k / √d,    dk = dSᵀ q / √d

    dS is the softmax's Jacobian diag(a) − a aᵀ applied to each row. The mask is PyTorch's: a boolean one is True where
    attention is allowed, a float one is added. A query that may attend to nothing gets 0.
    """
    if q.shape[-1] != k.shape[-1] or k.shape[:-1] != v.shape[:-1] or q.shape[:-2] != k.shape[:-2]:
        raise ScratchError(f"attention: queries {q.shape}, keys {k.shape} and values {v.shape} do not fit")
    scale = 1 / sqrt(q.shape[-1])
    scores = q.data @ k.data.swapaxes(-1, -2)
    scores *= scale
    bias = _additive_mask(mask, scores.shape, causal, scores.dtype)
    if bias is not None:
        scores = scores + bias
    a = _safe_softmax(scores)

    def vjp(dy: Tensor) -> Grads:
        weights = attention_weights(q, k, bias) if is_recording() else Tensor(a)
        dv = weights.mT @ dy
        da = dy @ v.mT
        ds = weights * (da - (da * weights).sum(-1, keepdims=True)) * scale
        return ds @ k, ds.mT @ q, dv

    return record_op("attention", a @ v.data, (q, k, v), vjp, saved=(q, k, v))


def attention_weights(q: Tensor, k: Tensor, bias: Array | None) -> Tensor:
    """The matrix A by itself, for attention maps and for second derivatives. dS as above."""
    scale = 1 / sqrt(q.shape[-1])
    scores = q.data @ k.data.swapaxes(-1, -2) * scale
    a = _safe_softmax(scores if bias is None else scores + bias)

    def vjp(da: Tensor, weights: Tensor) -> Grads:
        ds = weights * (da - (da * weights).sum(-1, keepdims=True)) * scale
        return ds @ k, ds.mT @ q

    return record_op("attention_weights", a, (q, k), vjp, saved=(q, k), own=True)


def _safe_softmax(scores: Array) -> Array:
    """e^(s − max s) / Σ, and 0 for a row of nothing but −∞."""
    row_max = scores.max(-1, keepdims=True, initial=-np.inf)
    row_max[row_max == -np.inf] = 0
    e: Array = np.exp(scores - row_max)
    total = e.sum(-1, keepdims=True)
    total[total == 0] = 1
    e /= total
    return e


def _split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(N, T, E) -> (N, heads, T, E/heads).

    Every head gets its own slice of the projection, not of the input (Groudiev 6.5.4).
    """
    n, t, e = x.shape
    return x.reshape(n, t, num_heads, e // num_heads).transpose(1, 2)


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    num_heads: int,
    in_weight: Tensor,
    in_bias: Tensor | None,
    out_weight: Tensor,
    out_bias: Tensor | None,
    mask: Any = None,
    causal: bool = False,
) -> Tensor:
    """y = [head_1 … head_h] W_Oᵀ + b_O,  head_i = attention(Q_i, K_i, V_i).  Gaba eq. 6.14.

    Queries, keys and values are projected from (N, T, E); `in_weight` stacks W_Q, W_K and W_V (3E, E), as in PyTorch.
    """
    e = query.shape[-1]
    q, k, v = (
        _split_heads(
            linear(x, in_weight[i * e : (i + 1) * e], None if in_bias is None else in_bias[i * e : (i + 1) * e]),
            num_heads,
        )
        for i, x in enumerate((query, key, value))
    )  # (N, heads, T, E/heads)
    y = attention(q, k, v, mask, causal)
    return linear(y.transpose(1, 2).reshape(query.shape), out_weight, out_bias)
