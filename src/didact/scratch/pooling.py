"""Pooling: a window of each channel becomes one number (Gaba 4.3, Groudiev 4.3).

The input is read once for each tap of the window, all windows at the same time. Which cell a window takes is decided in
the forward pass; from then on max pooling only copies: `_take_cells` reads the chosen cells, `_scatter_cells` puts
values back there, and each is the gradient of the other. Average pooling is the same pair with every tap chosen.
"""

from math import prod

import numpy as np

from didact.scratch.autograd.tensor import Array, ScratchError, Tensor, record_op
from didact.scratch.convolution import Geometry, Size, per_axis


def _pooling_geometry(
    x: Tensor, kernel: Size, stride: Size | None, padding: Size, dilation: Size, name: str
) -> Geometry:
    axes = x.ndim - 2
    kernel = per_axis(kernel, axes)
    geometry = Geometry(
        x.shape[2:],
        kernel,
        kernel if stride is None else per_axis(stride, axes),
        per_axis(padding, axes),
        per_axis(dilation, axes),
    )
    if any(2 * p > k for p, k in zip(geometry.padding, geometry.kernel, strict=True)):
        raise ScratchError(
            f"{name}: padding must be at most half of the kernel, got padding {geometry.padding}, kernel "
            f"{geometry.kernel}"
        )
    if min(geometry.out) < 1:
        raise ScratchError(f"{name}: the kernel {geometry.kernel} does not fit into the padded input {geometry.padded}")
    return geometry


def _pad_constant(x: Array, geometry: Geometry, value: float) -> Array:
    """x with a border of one value, in the memory order of x."""
    if not any(geometry.padding):
        return x
    frame = np.full_like(x, value, shape=(*x.shape[:2], *geometry.padded))
    frame[:, :, *geometry.inside] = x
    return frame


def _take_cells(x: Tensor, chosen_tap: Array, geometry: Geometry) -> Tensor:
    """y = the chosen cell of every window;  dx = _scatter_cells(dy)."""
    frame, y = _pad_constant(x.data, geometry, 0), np.zeros_like(chosen_tap, x.dtype)
    for t, tap in enumerate(np.ndindex(*geometry.kernel)):
        np.copyto(y, frame[:, :, *geometry.cells_under(tap)], where=chosen_tap == t)
    return record_op("take_cells", y, (x,), lambda dy: (_scatter_cells(dy, chosen_tap, geometry),))


def _scatter_cells(y: Tensor, chosen_tap: Array, geometry: Geometry) -> Tensor:
    """x = every y at the cell its window took, added where windows took the same cell;  dy = _take_cells(dx)."""
    frame = np.zeros_like(y.data, shape=(*y.shape[:2], *geometry.padded))
    for t, tap in enumerate(np.ndindex(*geometry.kernel)):
        frame[:, :, *geometry.cells_under(tap)] += y.data * (chosen_tap == t)
    x = frame[:, :, *geometry.inside]
    return record_op("scatter_cells", x, (y,), lambda dx: (_take_cells(dx, chosen_tap, geometry),))


def max_pool(x: Tensor, kernel: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1) -> Tensor:
    """y = max over the window;  dx = dy at the cell that held it, 0 elsewhere.

    Of equal values the first one takes it, as in PyTorch.
    """
    geometry = _pooling_geometry(x, kernel, stride, padding, dilation, "max_pool")
    frame = _pad_constant(x.data, geometry, -np.inf)
    taps = [frame[:, :, *geometry.cells_under(tap)] for tap in np.ndindex(*geometry.kernel)]
    number = np.min_scalar_type(len(taps))
    y, chosen_tap = taps[0].copy("K"), np.zeros_like(taps[0], number)
    for t, tap in enumerate(taps[1:], 1):
        np.maximum(chosen_tap, (tap > y) * number.type(t), out=chosen_tap)
        np.maximum(y, tap, out=y)
    return record_op("max_pool", y, (x,), lambda dy: (_scatter_cells(dy, chosen_tap, geometry),))


def _gather_mean(x: Tensor, share: Array, geometry: Geometry) -> Tensor:
    """y = share · Σ over the window;  dx = _scatter_mean(dy)."""
    frame = _pad_constant(x.data, geometry, 0)
    taps = [frame[:, :, *geometry.cells_under(tap)] for tap in np.ndindex(*geometry.kernel)]
    y = taps[0].copy("K")
    for tap in taps[1:]:
        y += tap
    y *= share
    return record_op("avg_pool", y, (x,), lambda dy: (_scatter_mean(dy, share, geometry),))


def _scatter_mean(y: Tensor, share: Array, geometry: Geometry) -> Tensor:
    """Every cell of a window gets its share of y;  dy = _gather_mean(dx)."""
    frame, part = np.zeros_like(y.data, shape=(*y.shape[:2], *geometry.padded)), y.data * share
    for tap in np.ndindex(*geometry.kernel):
        frame[:, :, *geometry.cells_under(tap)] += part
    return record_op(
        "scatter_mean", frame[:, :, *geometry.inside], (y,), lambda dx: (_gather_mean(dx, share, geometry),)
    )


def avg_pool(
    x: Tensor, kernel: Size, stride: Size | None = None, padding: Size = 0, count_include_pad: bool = True
) -> Tensor:
    """y = mean over the window, zeros of the border counted or not;  dx = dy / K to each of its cells."""
    geometry = _pooling_geometry(x, kernel, stride, padding, 1, "avg_pool")
    share = np.asarray(1 / prod(geometry.kernel), x.dtype)
    if any(geometry.padding) and not count_include_pad:
        inside = Tensor(np.ones((1, 1, *geometry.size), x.dtype))
        share = 1 / _gather_mean(inside, np.ones((), x.dtype), geometry).data
    return _gather_mean(x, share, geometry)
