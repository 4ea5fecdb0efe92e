"""Reductions and what is built from them, down to a softmax that cannot overflow.

A reduction maps many values to one, so its derivative sends one gradient to many: broadcasting, the adjoint of the sum.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable

import numpy as np

from didact.scratch.autograd import ops, shape
from didact.scratch.autograd.tensor import Array, Axis, ScratchError, Tensor, record_op


def _normalize_axes(name: str, x: Tensor, axis: Axis) -> tuple[int, ...]:
    """The axes as non-negative numbers; None means all."""
    if axis is None:
        return tuple(range(x.ndim))
    requested = (axis,) if isinstance(axis, int) else tuple(axis)
    axes = tuple(shape._axis(name, x, a) for a in requested)
    if len(set(axes)) != len(axes):
        raise ScratchError(f"{name}: axis {axis} names an axis twice, shape {x.shape}")
    return axes if x.ndim else ()


def _keepdims_shape(x: Tensor, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the result with keepdims=True."""
    return tuple([1 if i in axes else n for i, n in enumerate(x.shape)])


def sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """y = Σ x;  dx = dy at every entry that was summed."""
    axes = _normalize_axes("sum", x, axis)
    keepdims_shape, full = _keepdims_shape(x, axes), x.shape
    value: Array = np.sum(x.data, axes, keepdims=keepdims)
    return record_op("sum", value, (x,), lambda dy: (shape.broadcast_to(shape.reshape(dy, keepdims_shape), full),))


def mean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """y = (1/n) Σ x;  dx = dy/n at every entry."""
    axes = _normalize_axes("mean", x, axis)
    keepdims_shape, full = _keepdims_shape(x, axes), x.shape
    n = math.prod(x.shape[a] for a in axes)
    scale = 1.0 / n if n else math.nan
    value: Array = np.sum(x.data, axes, keepdims=keepdims) * scale
    return record_op(
        "mean", value, (x,), lambda dy: (shape.broadcast_to(shape.reshape(dy * scale, keepdims_shape), full),)
    )


def var(x: Tensor, axis: Axis = None, correction: int = 1, keepdims: bool = False) -> Tensor:
    """y = Σ (x − mean x)² / (n − correction).

    Correction 1 is PyTorch's default and unbiased, 0 is what batch norm divides by.
    """
    n = math.prod(x.shape[a] for a in _normalize_axes("var", x, axis)) - correction
    centered = x - mean(x, axis, keepdims=True)
    return sum(ops.square(centered), axis, keepdims) * (1.0 / n if n > 0 else math.nan)


def std(x: Tensor, axis: Axis = None, correction: int = 1, keepdims: bool = False) -> Tensor:
    return ops.sqrt(var(x, axis, correction, keepdims))


def amax(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest value; equal ones share the gradient evenly (torch.amax, and torch.max without an axis)."""
    return _extreme("amax", np.maximum, x, axis, keepdims)


def amin(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest value; ties as in `amax`."""
    return _extreme("amin", np.minimum, x, axis, keepdims)


def _extreme(name: str, choose: np.ufunc, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    axes = _normalize_axes(name, x, axis)
    _not_empty(name, x, axes)
    keepdims_shape = _keepdims_shape(x, axes)
    value: Array = choose.reduce(x.data, axes, keepdims=True)

    def vjp(dy: Tensor) -> tuple[Tensor]:
        equal = (x.data == value).astype(x.dtype)
        share = equal / np.add.reduce(equal, axes, keepdims=True)
        return (shape.reshape(dy, keepdims_shape) * share,)

    return record_op(name, value if keepdims else np.squeeze(value, axes), (x,), vjp, (x,))


def max(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Along one axis, the values of torch.max(dim): the first of equal ones gets the whole gradient. Without, `amax`.

    PyTorch returns the indices as well; here `argmax` gives them.
    """
    return amax(x, None, keepdims) if axis is None else _first("max", np.argmax, x, axis, keepdims)


def min(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """As `max`."""
    return amin(x, None, keepdims) if axis is None else _first("min", np.argmin, x, axis, keepdims)


def _first(name: str, locate: Callable[[Array, int], Array], x: Tensor, axis: int, keepdims: bool) -> Tensor:
    at = shape._axis(name, x, axis)
    _not_empty(name, x, (at,))
    if not x.ndim:
        return amax(x)
    y = shape.gather(x, at, np.expand_dims(locate(x.data, at), at))
    return y if keepdims else shape.squeeze(y, at)


def _not_empty(name: str, x: Tensor, axes: tuple[int, ...]) -> None:
    if builtins.any(x.shape[a] == 0 for a in axes if x.ndim):
        raise ScratchError(f"{name}: shape {x.shape} has no values along axis {axes}")


def cumsum(x: Tensor, axis: int) -> Tensor:
    """y_i = Σ_{j≤i} x_j;  dx_j = Σ_{i≥j} dy_i, the same sum from the other end."""
    at = shape._axis("cumsum", x, axis)
    back = (slice(None),) * at + (slice(None, None, -1),)
    if not x.ndim:
        return sum(x)
    return record_op("cumsum", np.cumsum(x.data, at), (x,), lambda dy: (cumsum(dy[back], at)[back],))


def logsumexp(x: Tensor, axis: Axis, keepdims: bool = False) -> Tensor:
    """y = m + ln Σ e^(x − m) with m = max x: no exponent is positive, so nothing overflows;  dx = dy · e^(x − y)."""
    axes = _normalize_axes("logsumexp", x, axis)
    keepdims_shape = _keepdims_shape(x, axes)
    if x.size == 0:
        return ops.log(sum(ops.exp(x), axis, keepdims))
    m: Array = np.maximum.reduce(x.data, axes, keepdims=True)
    m = np.where(np.isfinite(m), m, x.dtype.type(0))  # −∞ everywhere: y = −∞, not −∞ + ∞
    with np.errstate(divide="ignore"):
        value = np.log(np.add.reduce(np.exp(x.data - m), axes, keepdims=True)) + m
    value = value.reshape(keepdims_shape) if keepdims else np.squeeze(value, axes)

    def vjp(dy: Tensor, y: Tensor) -> tuple[Tensor]:
        at = shape.reshape(y, keepdims_shape)
        return (shape.reshape(dy, keepdims_shape) * ops.exp(x - shape.where(np.isfinite(at.data), at, 0.0)),)

    return record_op("logsumexp", value, (x,), vjp, (x,), own=True)


def softmax(x: Tensor, axis: int) -> Tensor:
    """y = e^(x − max x) / Σ e^(x − max x);  dx = y · (dy − Σ dy·y).

    The Jacobian is full (Gaba 2.2.1 uses it as if diagonal).
    """
    at = shape._axis("softmax", x, axis)
    if not x.ndim:
        return softmax(shape.reshape(x, (1,)), 0).reshape(())
    value = x.data - np.maximum.reduce(x.data, at, keepdims=True) if x.size else x.data.copy()
    np.exp(value, out=value)
    value /= np.add.reduce(value, at, keepdims=True)
    return record_op("softmax", value, (x,), lambda dy, y: (y * (dy - sum(dy * y, at, keepdims=True)),), own=True)


def log_softmax(x: Tensor, axis: int) -> Tensor:
    """y = x − logsumexp x, shifted by the maximum (Groudiev 3.2.2);  dx = dy − e^y Σ dy."""
    at = shape._axis("log_softmax", x, axis)
    if not x.ndim:
        return log_softmax(shape.reshape(x, (1,)), 0).reshape(())
    value = x.data - np.maximum.reduce(x.data, at, keepdims=True) if x.size else x.data.copy()
    value -= np.log(np.add.reduce(np.exp(value), at, keepdims=True))
    return record_op(
        "log_softmax", value, (x,), lambda dy, y: (dy - ops.exp(y) * sum(dy, at, keepdims=True),), own=True
    )
