"""Elementwise operations, each with its derivative beside it, and the gradient of broadcasting.

Where NumPy repeats a value along an axis, every copy receives its own gradient: the gradient of the one value is their
sum (`unbroadcast`). A derivative is written with the same operations, so it can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from didact.scratch.autograd import reduce, shape
from didact.scratch.autograd.special import erf_values
from didact.scratch.autograd.tensor import Array, Grads, ScratchError, Tensor, factors_to_save, record_op


def as_tensor(x: Any, like: Tensor | None = None) -> Tensor:
    """A number becomes a tensor of the other operand's dtype, so that 2.0 * x stays float32."""
    if isinstance(x, Tensor):
        return x
    if like is not None and isinstance(x, (bool, int, float)) and (like.dtype.kind == "f" or not isinstance(x, float)):
        return Tensor(np.asarray(x, like.dtype))
    return Tensor(x)


def broadcast_pair(name: str, a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors of one dtype, whose shapes broadcast."""
    if (
        isinstance(a, Tensor)
        and isinstance(b, Tensor)
        and a.data.dtype == b.data.dtype
        and a.data.shape == b.data.shape
    ):
        return a, b
    a, b = as_tensor(a, b if isinstance(b, Tensor) else None), as_tensor(b, a if isinstance(a, Tensor) else None)
    if a.dtype != b.dtype:
        common = np.result_type(a.dtype, b.dtype)
        a, b = cast(a, common), cast(b, common)
    if a.shape != b.shape and a.ndim and b.ndim:
        for m, n in zip(a.shape[::-1], b.shape[::-1], strict=False):
            if m != n and m != 1 and n != 1:
                raise ScratchError(f"{name}: shapes {a.shape} and {b.shape} do not broadcast")
    return a, b


def unbroadcast(dy: Tensor, target: tuple[int, ...]) -> Tensor:
    """The adjoint of broadcasting: sum over the axes that were added or stretched."""
    if dy.shape == target:
        return dy
    added = dy.ndim - len(target)
    stretched = tuple(added + i for i, n in enumerate(target) if n == 1 and dy.shape[added + i] != 1)
    return shape.reshape(reduce.sum(dy, tuple(range(added)) + stretched), target)


def cast(x: Tensor, dtype: DTypeLike) -> Tensor:
    """The same values as another dtype; the gradient is cast back."""
    target = np.dtype(dtype)
    if x.dtype == target:
        return x
    if target.kind != "f":
        return Tensor(x.data.astype(target))
    source = x.dtype
    return record_op("cast", x.data.astype(target), (x,), lambda dy: (cast(dy, source),))


def compare(name: str, holds: Callable[[Array, Array], Array], a: Any, b: Any) -> Tensor:
    """Elementwise comparison: booleans, nothing to differentiate."""
    a, b = broadcast_pair(name, a, b)
    return Tensor(holds(a.data, b.data))


def add(a: Any, b: Any) -> Tensor:
    """y = a + b;  da = dy,  db = dy."""
    a, b = broadcast_pair("add", a, b)
    return record_op("add", a.data + b.data, (a, b), vjp_broadcast(a, b, lambda dy: dy, lambda dy: dy))


def sub(a: Any, b: Any) -> Tensor:
    """y = a − b;  da = dy,  db = −dy."""
    a, b = broadcast_pair("sub", a, b)
    return record_op("sub", a.data - b.data, (a, b), vjp_broadcast(a, b, lambda dy: dy, lambda dy: -dy))


def mul(a: Any, b: Any) -> Tensor:
    """y = a · b;  da = dy · b,  db = dy · a."""
    a, b = broadcast_pair("mul", a, b)
    return record_op(
        "mul", a.data * b.data, (a, b), vjp_broadcast(a, b, lambda dy: dy * b, lambda dy: dy * a), factors_to_save(a, b)
    )


def div(a: Any, b: Any) -> Tensor:
    """y = a / b;  da = dy / b,  db = −dy · a / b²."""
    a, b = broadcast_pair("div", a, b)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = a.data / b.data
    return record_op(
        "div",
        value,
        (a, b),
        vjp_broadcast(a, b, lambda dy: dy / b, lambda dy: -dy * (a / b) / b),
        (a, b) if b.requires_grad else (b,),
    )


def pow(a: Any, b: Any) -> Tensor:
    """y = aᵇ;  da = dy · b · aᵇ⁻¹ (0 where b = 0),  db = dy · aᵇ · ln a (0 where a = 0 and b ≥ 0)."""
    x, n = broadcast_pair("pow", a, b)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = x.data**n.data

    def dx(dy: Tensor) -> Tensor:
        if not n.ndim and n.data == 2:  # the square, by far the most common power
            return dy * x * 2.0
        constant = n.data == 0  # x⁰: 0 · x⁻¹ would be NaN at x = 0
        return shape.where(constant, 0.0, dy * n * pow(x, shape.where(constant, 1.0, n - 1.0)))

    def dn(dy: Tensor) -> Tensor:
        still = (x.data == 0) & (n.data >= 0)
        return shape.where(still, 0.0, dy * pow(x, n) * log(shape.where(still, 1.0, x)))

    return record_op("pow", value, (x, n), vjp_broadcast(x, n, dx, dn), (x, n))


def maximum(a: Any, b: Any) -> Tensor:
    """y = max(a, b); the gradient goes to the larger, and half to each where they are equal (as in PyTorch)."""
    return _choose("maximum", np.maximum, np.greater, *broadcast_pair("maximum", a, b))


def minimum(a: Any, b: Any) -> Tensor:
    """y = min(a, b); ties as in `maximum`."""
    return _choose("minimum", np.minimum, np.less, *broadcast_pair("minimum", a, b))


def _choose(
    name: str, choose: Callable[[Array, Array], Array], wins: Callable[[Array, Array], Array], a: Tensor, b: Tensor
) -> Tensor:
    def share(dy: Tensor, x: Tensor, other: Tensor) -> Tensor:
        return dy * np.where(x.data == other.data, 0.5, wins(x.data, other.data)).astype(dy.dtype)

    vjp = vjp_broadcast(a, b, lambda dy: share(dy, a, b), lambda dy: share(dy, b, a))
    return record_op(name, choose(a.data, b.data), (a, b), vjp, (a, b))


def vjp_broadcast(
    a: Tensor, b: Tensor, da: Callable[[Tensor], Tensor], db: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Grads]:
    """The vjp of an operation that broadcasts; as in `vjp_each`, a derivative that is not required is dropped."""
    for_a, m = da if a.requires_grad else None, a.data.shape
    for_b, n = db if b.requires_grad else None, b.data.shape
    return lambda dy: (for_a and unbroadcast(for_a(dy), m), for_b and unbroadcast(for_b(dy), n))


def multiply_mask(x: Tensor, mask: Array) -> Tensor:
    """y = x · mask;  dx = dy · mask.

    A boolean mask takes a quarter of a float32's memory, and NumPy multiplies by it as it is.
    """
    return record_op("multiply_mask", x.data * mask, (x,), lambda dy: (multiply_mask(dy, mask),))


def neg(x: Tensor) -> Tensor:
    """y = −x;  dx = −dy."""
    return record_op("neg", -x.data, (x,), lambda dy: (-dy,))


def abs(x: Tensor) -> Tensor:
    """y = |x|;  dx = dy · sign x (0 at 0)."""
    return record_op("abs", np.abs(x.data), (x,), lambda dy: (dy * np.sign(x.data),), (x,))


def exp(x: Tensor) -> Tensor:
    """y = eˣ;  dx = dy · y."""
    return record_op("exp", np.exp(x.data), (x,), lambda dy, y: (dy * y,), own=True)


def expm1(x: Tensor) -> Tensor:
    """y = eˣ − 1, exact near 0;  dx = dy · (y + 1)."""
    return record_op("expm1", np.expm1(x.data), (x,), lambda dy, y: (dy * (y + 1.0),), own=True)


def log(x: Tensor) -> Tensor:
    """y = ln x;  dx = dy / x."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(x.data)
    return record_op("log", value, (x,), lambda dy: (dy / x,), (x,))


def log1p(x: Tensor) -> Tensor:
    """y = ln(1 + x), exact near 0;  dx = dy / (1 + x)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log1p(x.data)
    return record_op("log1p", value, (x,), lambda dy: (dy / (x + 1.0),), (x,))


def sqrt(x: Tensor) -> Tensor:
    """y = √x;  dx = dy / (2y)."""
    with np.errstate(invalid="ignore"):
        value = np.sqrt(x.data)
    return record_op("sqrt", value, (x,), lambda dy, y: (dy / (y * 2.0),), own=True)


def square(x: Tensor) -> Tensor:
    """y = x²;  dx = 2x · dy."""
    return record_op("square", x.data * x.data, (x,), lambda dy: (dy * x * 2.0,), (x,))


def sin(x: Tensor) -> Tensor:
    """y = sin x;  dx = dy · cos x."""
    return record_op("sin", np.sin(x.data), (x,), lambda dy: (dy * cos(x),), (x,))


def cos(x: Tensor) -> Tensor:
    """y = cos x;  dx = −dy · sin x."""
    return record_op("cos", np.cos(x.data), (x,), lambda dy: (-dy * sin(x),), (x,))


def tanh(x: Tensor) -> Tensor:
    """y = tanh x;  dx = dy · (1 − y²)."""
    return record_op("tanh", np.tanh(x.data), (x,), lambda dy, y: (dy * (1.0 - y * y),), own=True)


def sigmoid(x: Tensor) -> Tensor:
    """y = 1 / (1 + e⁻ˣ);  dx = dy · y(1 − y).  Gaba 1.1.2; the fused node of Groudiev 2.3.5."""
    # e^(−|x|) cannot overflow: σ(x) is 1/(1+e) for x ≥ 0 and e/(1+e) below
    e = np.exp(-np.abs(x.data))
    value = np.where(x.data >= 0, 1.0, e).astype(x.dtype, copy=False) / (1.0 + e)
    return record_op("sigmoid", value, (x,), lambda dy, y: (dy * y * (1.0 - y),), own=True)


def softplus(x: Tensor) -> Tensor:
    """y = ln(1 + eˣ);  dx = dy · σ(x)."""
    return record_op("softplus", np.logaddexp(x.data, x.dtype.type(0)), (x,), lambda dy: (dy * sigmoid(x),), (x,))


def erf(x: Tensor) -> Tensor:
    """y = 2/√π ∫₀ˣ e^(−t²) dt;  dx = dy · 2/√π · e^(−x²)."""
    return record_op("erf", erf_values(x.data), (x,), lambda dy: (dy * exp(-square(x)) * (2.0 / np.sqrt(np.pi)),), (x,))


def relu(x: Tensor) -> Tensor:
    """y = max(0, x);  dx = dy · [x > 0].  Fleuret 4.3; the derivative at 0 is taken as 0."""
    return record_op("relu", np.maximum(x.data, 0), (x,), lambda dy, y: (multiply_mask(dy, y.data > 0),), own=True)


def clip(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """y = min(max(x, low), high);  dx = dy · [low ≤ x ≤ high]."""
    if low is None and high is None:
        raise ScratchError("clip: give low, high or both")
    lo, hi = -np.inf if low is None else low, np.inf if high is None else high
    return record_op(
        "clip", np.clip(x.data, low, high), (x,), lambda dy: (multiply_mask(dy, (x.data >= lo) & (x.data <= hi)),), (x,)
    )
