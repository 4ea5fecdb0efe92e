"""Convolution and its transpose, in one, two or more dimensions: three sums over one trilinear form.

With s, d, P for stride, dilation and padding, a convolution layer computes

    y[n, o, p] = Σ_{c, k}  x[n, c, s·p + d·k − P] · w[o, c, k]

which is a cross-correlation: Groudiev 4.2.2 prints the kernel flipped, no library flips it. Pair y with a gradient g of
its shape,

    L = Σ_{n, o, p, c, k}  g[n, o, p] · x[n, c, s·p + d·k − P] · w[o, c, k]

and L is linear in each of g, x and w. Its derivative by one of them is a sum over the other two:

    conv_forward(x, w)      by g: the convolution

    conv_transpose(g, w)    by x: the transposed convolution

    correlate(x, g)         by w: x correlated with g

So the gradients of any of the three are the other two, and derivatives of every order are already here.

Every window becomes a column (im2col) and each sum one matrix product. In memory the arrays are (C, *size, N), batch
last, whatever their shape: a tap of the kernel then moves whole rows of the batch, several times faster than rows of
one image.
"""

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from didact.scratch.autograd.tensor import Array, ScratchError, Tensor, factors_to_save, record_op, vjp_each

Size = int | tuple[int, ...]


class Geometry(NamedTuple):
    """Where the taps of a kernel lie: tap k of window p reads the input at s·p + d·k − P."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @property
    def padded(self) -> tuple[int, ...]:
        return tuple(h + 2 * p for h, p in zip(self.size, self.padding, strict=True))

    @property
    def out(self) -> tuple[int, ...]:
        """⌊(H + 2P − d(K − 1) − 1) / s⌋ + 1.  Gaba eq. 4.2, with dilation."""
        axes = zip(self.padded, self.kernel, self.stride, self.dilation, strict=True)
        return tuple((h - d * (k - 1) - 1) // s + 1 for h, k, s, d in axes)

    @property
    def inside(self) -> tuple[slice, ...]:
        """The input within its padded frame."""
        return tuple(slice(p, p + h) for h, p in zip(self.size, self.padding, strict=True))

    def cells_under(self, tap: tuple[int, ...]) -> tuple[slice, ...]:
        """The cells of the padded input that lie under one tap, for all windows at once."""
        axes = zip(tap, self.out, self.stride, self.dilation, strict=True)
        return tuple(slice(d * k, d * k + s * (o - 1) + 1, s) for k, o, s, d in axes)


def per_axis(value: Size, axes: int) -> tuple[int, ...]:
    """3 -> (3, 3) for two axes."""
    return (value,) * axes if isinstance(value, int) else value


def _batch_last(x: Array) -> Array:
    """(N, C, *size) -> (C, *size, N)."""
    return x.transpose(*range(1, x.ndim), 0)


def _batch_first(x: Array) -> Array:
    """(C, *size, N) -> (N, C, *size), a view: the memory stays as it is."""
    return x.transpose(-1, *range(x.ndim - 1))


def _im2col(x: Array, geometry: Geometry) -> Array:
    """(N, C, *size) -> (G, C/G·K, P·N), every window a column: one strided view and one copy."""
    (n, c), x = x.shape[:2], _batch_last(x)
    if any(geometry.padding):
        frame = np.zeros((c, *geometry.padded, n), x.dtype)
        frame[:, *geometry.inside] = x
    else:
        frame = np.ascontiguousarray(x)
    channel, *pixel, image = frame.strides
    taps = [d * step for d, step in zip(geometry.dilation, pixel, strict=True)]
    windows = [s * step for s, step in zip(geometry.stride, pixel, strict=True)]
    view = as_strided(
        frame, (c, *geometry.kernel, *geometry.out, n), (channel, *taps, *windows, image), writeable=False
    )
    return view.reshape(geometry.groups, c // geometry.groups * prod(geometry.kernel), prod(geometry.out) * n)


def _col2im(cols: Array, n: int, geometry: Geometry) -> Array:
    """The transpose of `_im2col`: every column is added back to its window."""
    c = cols.shape[0] * cols.shape[1] // prod(geometry.kernel)
    taps = cols.reshape(c, *geometry.kernel, *geometry.out, n)
    frame = np.zeros((c, *geometry.padded, n), cols.dtype)
    for tap in np.ndindex(*geometry.kernel):
        frame[:, *geometry.cells_under(tap)] += taps[:, *tap]
    return _batch_first(frame[:, *geometry.inside])


def _output_columns(g: Array, geometry: Geometry) -> Array:
    """(N, O, *out) -> (G, O/G, P·N), the shape that multiplies the columns."""
    return _batch_last(g).reshape(geometry.groups, g.shape[1] // geometry.groups, prod(geometry.out) * g.shape[0])


def conv_forward(x: Tensor, w: Tensor, geometry: Geometry, name: str = "convolution") -> Tensor:
    """y = W · _im2col(x);  dx = conv_transpose(dy, w),  dw = correlate(x, dy)."""
    kernels = w.data.reshape(geometry.groups, w.shape[0] // geometry.groups, prod(w.shape[1:]))
    y = (kernels @ _im2col(x.data, geometry)).reshape(w.shape[0], *geometry.out, x.shape[0])
    vjp = vjp_each((x, lambda dy: conv_transpose(dy, w, geometry)), (w, lambda dy: correlate(x, dy, geometry)))
    return record_op(name, _batch_first(y), (x, w), vjp, saved=factors_to_save(x, w))


def conv_transpose(g: Tensor, w: Tensor, geometry: Geometry, name: str = "conv_transpose") -> Tensor:
    """x = _col2im(Wᵀ · g);  dg = conv_forward(dx, w),  dw = correlate(dx, g)."""
    kernels = w.data.reshape(geometry.groups, w.shape[0] // geometry.groups, prod(w.shape[1:]))
    x = _col2im(kernels.swapaxes(1, 2) @ _output_columns(g.data, geometry), g.shape[0], geometry)
    vjp = vjp_each((g, lambda dx: conv_forward(dx, w, geometry)), (w, lambda dx: correlate(dx, g, geometry)))
    return record_op(name, x, (g, w), vjp, saved=factors_to_save(g, w))


def correlate(x: Tensor, g: Tensor, geometry: Geometry) -> Tensor:
    """w = g · _im2col(x)ᵀ;  dx = conv_transpose(g, dw),  dg = conv_forward(x, dw)."""
    w = _output_columns(g.data, geometry) @ _im2col(x.data, geometry).swapaxes(1, 2)
    vjp = vjp_each((x, lambda dw: conv_transpose(g, dw, geometry)), (g, lambda dw: conv_forward(x, dw, geometry)))
    return record_op(
        "correlate",
        w.reshape(g.shape[1], x.shape[1] // geometry.groups, *geometry.kernel),
        (x, g),
        vjp,
        saved=factors_to_save(x, g),
    )


def _add_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    """One bias for each output channel (Groudiev 4.2.3 prints one for each position)."""
    return y if bias is None else y + bias.reshape(-1, *(1,) * (y.ndim - 2))


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution: y = w ⋆ x + b with x (N, C, *size), w (O, C/groups, *kernel)."""
    axes = weight.ndim - 2
    name = f"conv{axes}d"
    if x.ndim != weight.ndim or x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise ScratchError(f"{name}: an input of shape {x.shape} does not fit a weight of shape {weight.shape} with "
                           f"groups={groups}")
    geometry = Geometry(
        x.shape[2:], weight.shape[2:], per_axis(stride, axes), per_axis(padding, axes), per_axis(dilation, axes), groups
    )
    if min(geometry.out) < 1:
        raise ScratchError(f"{name}: the kernel {geometry.kernel} does not fit into the padded input {geometry.padded}")
    return _add_bias(conv_forward(x, weight, geometry, name), bias)


def convolution_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Transposed convolution: the gradient of a convolution by its input; x (N, C, *size), w (C, O/groups, *kernel).

    The output has the size that a convolution with the same settings maps to x's; `output_padding` picks one where the
    floor in that size allows several.
    """
    axes = weight.ndim - 2
    name = f"conv_transpose{axes}d"
    if x.ndim != weight.ndim or x.shape[1] != weight.shape[0] or weight.shape[0] % groups:
        raise ScratchError(
            f"{name}: an input of shape {x.shape} does not fit a weight of shape {weight.shape} with groups={groups}"
        )
    s, p, d, extra = (per_axis(value, axes) for value in (stride, padding, dilation, output_padding))
    if any(e >= max(a, b) for e, a, b in zip(extra, s, d, strict=True)):
        raise ScratchError(f"{name}: output_padding must be smaller than stride or dilation, got {extra}")
    size = tuple(
        (h - 1) * s[i] - 2 * p[i] + d[i] * (weight.shape[2 + i] - 1) + 1 + extra[i] for i, h in enumerate(x.shape[2:])
    )
    if min(size) < 1:
        raise ScratchError(f"{name}: padding {p} leaves nothing of the output, its size would be {size}")
    return _add_bias(conv_transpose(x, weight, Geometry(size, weight.shape[2:], s, p, d, groups), name), bias)


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """`convolution` over one axis."""
    return convolution(x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """`convolution` over two axes."""
    return convolution(x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)
