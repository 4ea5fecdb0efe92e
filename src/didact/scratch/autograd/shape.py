"""Operations that move values without changing them: views, indexing, concatenation.

A linear map that copies x to y sends each gradient back to where its value came from: the adjoint of reading is adding
(`getitem` and `scatter` are each other's derivative). Reshape (where NumPy can), transpose, slicing and broadcast_to
return views: they share memory with their input, and its version counter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from didact.scratch.autograd import ops
from didact.scratch.autograd.tensor import Array, Axis, ScratchError, Tensor, record_op


def _sizes(sizes: Any) -> tuple[int, ...]:
    """reshape(2, 3) and reshape((2, 3)) are the same."""
    if len(sizes) == 1 and not isinstance(sizes[0], (int, np.integer)):
        sizes = sizes[0]
    return tuple(int(n) for n in sizes)


def _view(name: str, value: Array, x: Tensor, vjp: Any) -> Tensor:
    return record_op(name, value, (x,), vjp, view_of=x)


def reshape(x: Tensor, *sizes: Any) -> Tensor:
    """The same values in row-major order under another shape;  dx = dy in the old shape."""
    target = _sizes(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple) else sizes)
    try:
        value = x.data.reshape(target)
    except ValueError:
        raise ScratchError(f"reshape: shape {x.shape} has {x.size} values, they do not fill {target}") from None
    shared, source = x if np.may_share_memory(value, x.data) else None, x.shape
    return record_op("reshape", value, (x,), lambda dy: (reshape(dy, source),), view_of=shared)


def flatten(x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    """The axes from start to end become one."""
    first, last = _axis("flatten", x, start), _axis("flatten", x, end)
    if x.ndim == 0:
        return reshape(x, (1,))
    if first > last:
        raise ScratchError(f"flatten: axis {start} comes after axis {end} in shape {x.shape}")
    middle = int(np.prod(x.shape[first : last + 1]))
    return reshape(x, (*x.shape[:first], middle, *x.shape[last + 1 :]))


def permute(x: Tensor, *axes: Any) -> Tensor:
    """y[i_σ(1) … i_σ(n)] = x[i_1 … i_n];  dx is dy under the inverse permutation."""
    order = _sizes(axes[0] if len(axes) == 1 and isinstance(axes[0], tuple) else axes)
    order = tuple(_axis("permute", x, a) for a in order)
    if sorted(order) != list(range(x.ndim)):
        raise ScratchError(f"permute: axes {order} are not a permutation of the {x.ndim} axes of shape {x.shape}")
    return _view("permute", x.data.transpose(order), x, lambda dy: (permute(dy, tuple(np.argsort(order))),))


def transpose(x: Tensor, a: int, b: int) -> Tensor:
    """Swap axes a and b; the derivative swaps them back."""
    i, j = _axis("transpose", x, a), _axis("transpose", x, b)
    return _view("transpose", x.data.swapaxes(i, j) if x.ndim else x.data[()], x, lambda dy: (transpose(dy, i, j),))


def squeeze(x: Tensor, axis: Axis = None) -> Tensor:
    """Drop axes of size 1 (an axis of another size stays, as in PyTorch)."""
    requested = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    dropped = {_axis("squeeze", x, a) for a in requested}
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if n != 1 or i not in dropped))


def unsqueeze(x: Tensor, axis: int) -> Tensor:
    """A new axis of size 1."""
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise ScratchError(f"unsqueeze: axis {axis} does not exist in a shape of {x.ndim + 1} axes")
    at = axis % (x.ndim + 1)
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def broadcast_to(x: Tensor, *sizes: Any) -> Tensor:
    """Values repeated along new or stretched axes, without a copy; dx sums over the repetitions."""
    target, source = _sizes(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple) else sizes), x.shape
    try:
        value = np.broadcast_to(x.data, target)
    except ValueError:
        raise ScratchError(f"broadcast_to: shape {x.shape} does not broadcast to {target}") from None
    return _view("broadcast_to", value, x, lambda dy: (ops.unbroadcast(dy, source),))


def plain_index(index: Any) -> Any:
    """An index with arrays in place of tensors and lists."""
    if isinstance(index, tuple):
        return tuple(plain_index(i) for i in index)
    if isinstance(index, Tensor):
        index = index.data
    elif isinstance(index, list):
        index = np.asarray(index, dtype=None if index else int)
    if isinstance(index, np.ndarray) and index.dtype.kind not in "iub":
        raise ScratchError(f"index: needs integers or booleans, got {index.dtype}")
    return index


def getitem(x: Tensor, index: Any) -> Tensor:
    """y = x[index];  dx is zero except for dx[index] += dy."""
    i = plain_index(index)
    try:
        value = x.data[i]
    except (IndexError, TypeError) as e:
        raise ScratchError(f"index: {e}, in a tensor of shape {x.shape}") from None
    source = x.shape
    return record_op("index", value, (x,), lambda dy: (scatter(dy, i, source),), view_of=x if _is_basic(i) else None)


def scatter(y: Tensor, index: Any, target: tuple[int, ...]) -> Tensor:
    """x = 0, x[index] += y (an index that occurs twice adds twice);  dy = dx[index]."""
    value = np.zeros(target, y.dtype)
    if _is_basic(index):
        value[index] = y.data
    else:
        np.add.at(value, index, y.data)
    return record_op("scatter", value, (y,), lambda dx: (getitem(dx, index),))


def _is_basic(index: Any) -> bool:
    """Integers and slices touch each value at most once, and give views."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        i is None or i is Ellipsis or (isinstance(i, (slice, int, np.integer)) and not isinstance(i, bool))
        for i in parts
    )


def gather(x: Tensor, axis: int, index: Any) -> Tensor:
    """y[i, j, k] = x[i, index[i, j, k], k] for axis 1 of three; `index` may be smaller than x along the other axes."""
    at = _axis("gather", x, axis)
    i = plain_index(index)
    fits = i.ndim == x.ndim and all(m <= n for d, (m, n) in enumerate(zip(i.shape, x.shape, strict=True)) if d != at)
    if not fits:
        raise ScratchError(f"gather: an index of shape {i.shape} does not fit shape {x.shape} along axis {axis}")
    grid: list[Array] = list(np.ix_(*[np.arange(n) for n in i.shape]))
    grid[at] = i
    return getitem(x, tuple(grid))


def concatenate(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors joined along an axis; each receives its own part of dy."""
    xs = _one_type("concatenate", tensors)
    at = _axis("concatenate", xs[0], axis)
    for x in xs[1:]:
        if x.ndim != xs[0].ndim or x.shape[:at] + x.shape[at + 1 :] != xs[0].shape[:at] + xs[0].shape[at + 1 :]:
            raise ScratchError(f"concatenate: shapes {xs[0].shape} and {x.shape} differ in more than axis {axis}")
    ends = np.cumsum([x.shape[at] for x in xs]).tolist()
    stretches = [(*(slice(None),) * at, slice(start, end)) for start, end in pairwise([0, *ends])]
    return record_op(
        "concatenate", np.concatenate([x.data for x in xs], at), xs, lambda dy: tuple(dy[s] for s in stretches)
    )


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors of one shape stacked along a new axis."""
    xs = _one_type("stack", tensors)
    for x in xs[1:]:
        if x.shape != xs[0].shape:
            raise ScratchError(f"stack: shapes {xs[0].shape} and {x.shape} differ")
    if not -xs[0].ndim - 1 <= axis <= xs[0].ndim:
        raise ScratchError(f"stack: axis {axis} does not exist in a shape of {xs[0].ndim + 1} axes")
    before = (slice(None),) * (axis % (xs[0].ndim + 1))
    value, number = np.stack([x.data for x in xs], axis), len(xs)
    return record_op("stack", value, xs, lambda dy: tuple(dy[(*before, i)] for i in range(number)))


def split(x: Tensor, size: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Pieces of `size` (the last may be smaller), or of several sizes, as views."""
    at = _axis("split", x, axis)
    n = x.shape[at]
    sizes = [min(size, n - i) for i in range(0, n, size)] if isinstance(size, int) else list(size)
    if sum(sizes) != n:
        raise ScratchError(f"split: sizes {tuple(sizes)} do not add up to the {n} of axis {axis}, shape {x.shape}")
    before = (slice(None),) * at
    ends = np.cumsum(sizes).tolist()
    return [x[(*before, slice(end - m, end))] for m, end in zip(sizes, ends, strict=True)]


def pad(x: Tensor, widths: Sequence[tuple[int, int]], fill: float = 0.0) -> Tensor:
    """(before, after) for every axis, the first axis first (PyTorch: the last);  dx = dy without the border."""
    if len(widths) != x.ndim:
        raise ScratchError(f"pad: needs {x.ndim} pairs of widths for shape {x.shape}, got {len(widths)}")
    inside = tuple(slice(before, before + n) for (before, _), n in zip(widths, x.shape, strict=True))
    value = np.full([n + sum(w) for n, w in zip(x.shape, widths, strict=True)], fill, x.dtype)
    value[inside] = x.data
    return record_op("pad", value, (x,), lambda dy: (dy[inside],))


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """y = a where the condition holds, else b; each receives dy where it was chosen."""
    c = np.asarray(condition.data if isinstance(condition, Tensor) else condition, bool)
    a, b = ops.broadcast_pair("where", a, b)
    try:
        value = np.where(c, a.data, b.data)
    except ValueError:
        raise ScratchError(f"where: shapes {c.shape}, {a.shape} and {b.shape} do not broadcast") from None
    return record_op(
        "where", value, (a, b), ops.vjp_broadcast(a, b, lambda dy: where(c, dy, 0.0), lambda dy: where(c, 0.0, dy))
    )


def masked_fill(x: Tensor, mask: Any, value: float) -> Tensor:
    """x with `value` wherever the mask is true."""
    return where(mask, value, x)


def _axis(name: str, x: Tensor, axis: int) -> int:
    n = max(x.ndim, 1)
    if not -n <= axis < n:
        raise ScratchError(f"{name}: axis {axis} does not exist in shape {x.shape}")
    return int(axis) % n


def _one_type(name: str, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    xs = [ops.as_tensor(x) for x in tensors]
    if not xs:
        raise ScratchError(f"{name}: needs at least one tensor")
    common = np.result_type(*[x.dtype for x in xs])
    return tuple(ops.cast(x, common) for x in xs)
