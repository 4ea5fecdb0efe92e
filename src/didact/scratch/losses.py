"""Losses, each with the gradient that starts the backward pass (Gaba 1.3, Groudiev 3.2, Lhotte 4.5).

Targets are constants. The mean is over all elements or labels, as in PyTorch; Groudiev and Van Schependom sum the
squared error over the dimensions of an output, which is d times that.
"""

from typing import Any

import numpy as np

from didact.scratch.autograd.ops import sigmoid
from didact.scratch.autograd.tensor import Array, Grads, ScratchError, Tensor, record_op


def cross_entropy(
    logits: Tensor,
    target: Any,
    *,
    weight: Any = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """L = −log softmax(z)_y, the negative log-likelihood of class y;  dz = p − y.

    Classes lie on axis 1 of (N, K, …) as in PyTorch; the target is an index for each label or a distribution of the
    shape of the logits. `weight` weights the classes (the mean is then over the weights), labels equal to
    `ignore_index` are left out, and `label_smoothing` mixes the target with the uniform distribution: (1 − α) y + α/K
    (Gaba eq. 3.34).
    """
    z = logits if logits.ndim < 3 else logits.permute(0, *range(2, logits.ndim), 1)       # (N, …, K)
    target_array, classes = np.asarray(target), z.shape[-1]
    w = np.ones(classes, z.dtype) if weight is None else np.asarray(weight, z.dtype)
    if target_array.dtype.kind == "f":
        if target_array.shape != logits.shape:
            raise ScratchError(
                f"cross_entropy: probabilities of shape {target_array.shape} for logits of shape {logits.shape}"
            )
        q = target_array if target_array.ndim < 3 else np.moveaxis(target_array, 1, -1)
        labels = float(z.size // max(classes, 1))
    else:
        counted = _valid_labels("cross_entropy", target_array, z, ignore_index)
        index = np.where(counted, target_array, 0)
        q = np.zeros(z.shape, z.dtype)
        np.put_along_axis(q, index[..., None], counted[..., None].astype(z.dtype), -1)
        labels = float((w[index] * counted).sum())
    if label_smoothing:
        q = (1 - label_smoothing) * q + label_smoothing / classes * q.sum(-1, keepdims=True)
    return _reduce(_softmax_cross_entropy(z, (q * w).astype(z.dtype, copy=False)), reduction, labels)


def _softmax_cross_entropy(z: Tensor, q: Array) -> Tensor:
    """L = −Σ_c q_c log p_c with p = softmax(z), on the last axis;  dz = p Σq − q, which for one label is p − y.

    Gaba 2.2.1 multiplies by σ′(z), which holds for activations of one variable and not for softmax. Fused, no
    exponential overflows (the largest is e⁰) and no logarithm sees 0: log p = z − m − log Σ e^(z − m), m = max z.
    """
    shifted = z.data - z.data.max(-1, keepdims=True, initial=-np.inf)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    terms = np.zeros_like(q)
    np.multiply(q, log_p, out=terms, where=q != 0)  # 0 · log 0 = 0: a class excluded by a logit of −∞

    def vjp(dy: Tensor) -> Grads:
        return ((z.softmax(-1) * q.sum(-1, keepdims=True) - q) * dy.unsqueeze(-1),)  # cheaper to recompute than to save

    return record_op("cross_entropy", -terms.sum(-1), (z,), vjp, saved=(z,))


def nll_loss(
    log_p: Tensor, target: Any, *, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """L = −log p_y, for a network that ends in log_softmax;  d log p = −1 at y.

    With log_softmax before it, this is cross_entropy.
    """
    rows = log_p if log_p.ndim < 3 else log_p.permute(0, *range(2, log_p.ndim), 1)
    index = np.asarray(target)
    counted = _valid_labels("nll_loss", index, rows, ignore_index)
    index = np.where(counted, index, 0)
    w = counted * (np.ones(rows.shape[-1], rows.dtype) if weight is None else np.asarray(weight, rows.dtype))[index]
    target_log_p = rows.gather(rows.ndim - 1, index[..., None]).squeeze(-1)
    return _reduce(target_log_p * -w.astype(rows.dtype, copy=False), reduction, float(w.sum()))


def _valid_labels(name: str, index: Array, rows: Tensor, ignore_index: int) -> Array:
    """Mask of the labels that count; a label that is no class is refused."""
    if index.dtype.kind not in "iu" or index.shape != rows.shape[:-1]:
        raise ScratchError(
            f"{name}: labels of shape {index.shape} ({index.dtype}) for scores of shape {rows.shape}, classes last"
        )
    counted: Array = index != ignore_index
    if (counted & ((index < 0) | (index >= rows.shape[-1]))).any():
        raise ScratchError(f"{name}: a label outside 0…{rows.shape[-1] - 1}")
    return counted


def mse_loss(x: Tensor, target: Any, *, reduction: str = "mean") -> Tensor:
    """L = (x − y)²;  dx = 2 (x − y)."""
    d = _difference("mse_loss", x, target)
    return _reduce(
        record_op("mse_loss", d.data * d.data, (d,), lambda dy: (dy * d * 2.0,), saved=(d,)), reduction, d.size
    )


def l1_loss(x: Tensor, target: Any, *, reduction: str = "mean") -> Tensor:
    """L = |x − y|;  dx = sign(x − y), 0 where they are equal."""
    d = _difference("l1_loss", x, target)
    return _reduce(d.abs(), reduction, d.size)


def huber_loss(x: Tensor, target: Any, *, delta: float = 1.0, reduction: str = "mean") -> Tensor:
    """L = ½ d² for |d| ≤ δ, else δ (|d| − ½ δ), d = x − y;  dx = d clipped to ±δ."""
    d = _difference("huber_loss", x, target)
    size = np.abs(d.data)
    value = np.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta)).astype(d.dtype, copy=False)
    return _reduce(
        record_op("huber_loss", value, (d,), lambda dy: (dy * d.clip(-delta, delta),), saved=(d,)), reduction, d.size
    )


def bce_with_logits(z: Tensor, target: Any, *, pos_weight: Any = 1.0, reduction: str = "mean") -> Tensor:
    """L = −[w y log σ(z) + (1 − y) log(1 − σ(z))];  dz = σ(z) − y for w = 1.

    From the logit, log σ(z) = −log(1 + e⁻ᶻ) never meets log 0. In z alone:

        L = (1 − y) z + l · log(1 + e⁻ᶻ),    l = 1 + (w − 1) y
    """
    y = _target_array("bce_with_logits", z, target)
    l = (1 + (np.asarray(pos_weight, z.dtype) - 1) * y).astype(z.dtype, copy=False)
    value = (1 - y) * z.data + l * np.logaddexp(0, -z.data).astype(z.dtype, copy=False)

    def vjp(dy: Tensor) -> Grads:
        return (dy * ((1 - y) - l * sigmoid(-z)),)

    return _reduce(record_op("bce_with_logits", value, (z,), vjp, saved=(z,)), reduction, z.size)


def _target_array(name: str, x: Tensor, target: Any) -> Array:
    """The target as an array of the input's shape.

    Shapes that would broadcast are refused: (N, 1) against (N,) gives N² differences (Lhotte 2.4).
    """
    y = np.asarray(target, x.dtype)
    if y.shape != x.shape:
        raise ScratchError(f"{name}: a target of shape {y.shape} for an input of shape {x.shape}")
    return y


def _difference(name: str, x: Tensor, target: Any) -> Tensor:
    return x - Tensor(_target_array(name, x, target))


def _reduce(losses: Tensor, reduction: str, count: float) -> Tensor:
    if reduction == "none":
        return losses
    if reduction not in ("mean", "sum"):
        raise ScratchError(f"reduction is 'mean', 'sum' or 'none', got {reduction!r}")
    if reduction == "sum":
        return losses.sum()
    if not count:  # every label ignored: the mean is NaN and the gradient 0, as in PyTorch
        return losses.sum() * 0.0 + np.nan
    return losses.sum() / count
