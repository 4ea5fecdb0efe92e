"""Pooling: a window of each channel becomes one number (Gaba 4.3, Groudiev 4.3).

A pooling step reads the input once for each tap of its window, all windows at the same time. Which cell a window takes is decided
in the forward pass; from then on max pooling only copies: *pick* takes the chosen cells out, *place* puts values back there, and each is
the gradient of the other. Average pooling is the same pair with every tap chosen.
"""

from math import prod

import numpy as np

from didact.scratch.convolution import Geometry, Size, per_axis
from didact.scratch.tensor import Array, ScratchError, Tensor, record


def window(x: Tensor, kernel: Size, stride: Size | None, padding: Size, dilation: Size, name: str) -> Geometry:
    axes = x.ndim - 2
    kernel = per_axis(kernel, axes)
    at = Geometry(x.shape[2:], kernel, kernel if stride is None else per_axis(stride, axes), per_axis(padding, axes),
                  per_axis(dilation, axes))
    if any(2 * p > k for p, k in zip(at.padding, at.kernel, strict=True)):
        raise ScratchError(f"{name}: padding must be at most half of the kernel, got padding {at.padding}, kernel {at.kernel}")
    if min(at.out) < 1:
        raise ScratchError(f"{name}: the kernel {at.kernel} does not fit into the padded input {at.padded}")
    return at


def framed(x: Array, at: Geometry, value: float) -> Array:
    """x with a border of one value, in the memory order of x."""
    if not any(at.padding):
        return x
    frame = np.full_like(x, value, shape=(*x.shape[:2], *at.padded))
    frame[:, :, *at.inside] = x
    return frame


def pick(x: Tensor, taken: Array, at: Geometry) -> Tensor:
    """y = the taken cell of every window;  dx = place(dy)."""
    frame, y = framed(x.data, at, 0), np.zeros_like(taken, x.dtype)
    for t, tap in enumerate(np.ndindex(*at.kernel)):
        np.copyto(y, frame[:, :, *at.under(tap)], where=taken == t)
    return record("pick", y, (x,), lambda dy: (place(dy, taken, at),))


def place(y: Tensor, taken: Array, at: Geometry) -> Tensor:
    """x = every y at the cell its window took, windows that took the same cell added;  dy = pick(dx)."""
    frame = np.zeros_like(y.data, shape=(*y.shape[:2], *at.padded))
    for t, tap in enumerate(np.ndindex(*at.kernel)):
        frame[:, :, *at.under(tap)] += y.data * (taken == t)
    return record("place", frame[:, :, *at.inside], (y,), lambda dx: (pick(dx, taken, at),))


def max_pool(x: Tensor, kernel: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1) -> Tensor:
    """y = max over the window; dx = dy at the cell that held it, the first of equals (PyTorch's choice), 0 elsewhere."""
    at = window(x, kernel, stride, padding, dilation, "max_pool")
    frame = framed(x.data, at, -np.inf)
    taps = [frame[:, :, *at.under(tap)] for tap in np.ndindex(*at.kernel)]
    number = np.min_scalar_type(len(taps))
    y, taken = taps[0].copy("K"), np.zeros_like(taps[0], number)
    for t, tap in enumerate(taps[1:], 1):
        np.maximum(taken, (tap > y) * number.type(t), out=taken)
        np.maximum(y, tap, out=y)
    return record("max_pool", y, (x,), lambda dy: (place(dy, taken, at),))


def gather_mean(x: Tensor, share: Array, at: Geometry) -> Tensor:
    """y = share · Σ over the window;  dx = scatter_mean(dy)."""
    frame = framed(x.data, at, 0)
    taps = [frame[:, :, *at.under(tap)] for tap in np.ndindex(*at.kernel)]
    y = taps[0].copy("K")
    for tap in taps[1:]:
        y += tap
    y *= share
    return record("avg_pool", y, (x,), lambda dy: (scatter_mean(dy, share, at),))


def scatter_mean(y: Tensor, share: Array, at: Geometry) -> Tensor:
    """Every cell of a window gets its share of y;  dy = gather_mean(dx)."""
    frame, part = np.zeros_like(y.data, shape=(*y.shape[:2], *at.padded)), y.data * share
    for tap in np.ndindex(*at.kernel):
        frame[:, :, *at.under(tap)] += part
    return record("scatter_mean", frame[:, :, *at.inside], (y,), lambda dx: (gather_mean(dx, share, at),))


def avg_pool(x: Tensor, kernel: Size, stride: Size | None = None, padding: Size = 0, count_include_pad: bool = True) -> Tensor:
    """y = mean over the window, zeros of the border counted or not; dx = dy / K to each of its cells."""
    at = window(x, kernel, stride, padding, 1, "avg_pool")
    share = np.asarray(1 / prod(at.kernel), x.dtype)
    if any(at.padding) and not count_include_pad:
        inside = Tensor(np.ones((1, 1, *at.size), x.dtype))
        share = 1 / gather_mean(inside, np.ones((), x.dtype), at).data
    return gather_mean(x, share, at)
