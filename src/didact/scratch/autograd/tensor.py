"""Tensors that record how they were made, so that reverse mode can walk back (Gaba 2.3, Fleuret 3.4, Lhotte 2.2).

Every operation does two things: it computes its value with NumPy, and it *records* its vector-Jacobian product

    y = f(x_1 … x_n),        vjp(dy) = (dyᵀ ∂y/∂x_1, …, dyᵀ ∂y/∂x_n)

beside the slots of the tensors it came from. The graph is what Python ran, so an `if` or a loop needs no special care.
`engine.py` walks the graph backwards; it alone adds gradients up.

The graph holds no values of its own: y = relu(x Wᵀ) needs y for its derivative and never x Wᵀ, which is freed as soon
as Python drops it. A value lives while the caller holds it or a vjp will read it.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
Axis = int | tuple[int, ...] | None
Grads = tuple["Tensor | None", ...]


class ScratchError(ValueError):
    """A mistake of the caller, in one line."""


class _Mode(threading.local):
    recording = True
    keeping = False


_mode = _Mode()
_clock = itertools.count()


@contextmanager
def recording(on: bool) -> Iterator[None]:
    """Switch recording on or off inside."""
    before, _mode.recording = _mode.recording, on
    try:
        yield
    finally:
        _mode.recording = before


def no_grad() -> AbstractContextManager[None]:
    """Inside `with no_grad():` values are computed and nothing is recorded."""
    return recording(False)


def is_recording() -> bool:
    return _mode.recording


@contextmanager
def keep_values() -> Iterator[None]:
    """Operations recorded inside keep all their values as long as the result lives: for the pictures of `graph.py`."""
    before, _mode.keeping = _mode.keeping, True
    try:
        yield
    finally:
        _mode.keeping = before


class first_order:
    """Wraps a vjp that works on plain arrays (array -> arrays or None): fast, but it cannot be differentiated again."""

    __slots__ = ("vjp",)

    def __init__(self, vjp: Callable[[Array], tuple[Array | None, ...]]):
        self.vjp = vjp

    def __call__(self, dy: Tensor) -> Grads:
        return tuple(None if g is None else Tensor(g) for g in self.vjp(dy.data))


def vjp_each(*derivatives: tuple[Tensor, Callable[[Tensor], Tensor]]) -> Callable[[Tensor], Grads]:
    """A vjp from one derivative for each input.

    A derivative that is not required is dropped at once, with the values that it would read.
    """
    wanted = [d if x.requires_grad else None for x, d in derivatives]
    return lambda dy: tuple([None if d is None else d(dy) for d in wanted])


def factors_to_save(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """What a product saves: the derivative by one factor reads the other."""
    return (b, a) if a.requires_grad and b.requires_grad else (b,) if a.requires_grad else (a,)


class GraphSlot:
    """A place in the graph, without its value: the operation behind it, its shape, a weak reference to its tensor."""

    __slots__ = ("node", "shape", "tensor")

    def __init__(self, x: Tensor):
        self.node, self.shape, self.tensor = x.node, x.data.shape, weakref.ref(x)

    @property
    def requires_grad(self) -> bool:
        return self.node is not None or ((x := self.tensor()) is not None and x.requires_grad)


class Node:
    """One executed operation: the slots of its inputs, its vjp, and the version of every value that the vjp will read.

    `own` is the result itself, outside the graph: a node that held its tensor, which holds the node, would be a cycle
    that only the garbage collector frees. `alive` is not read, only kept alive: leaves, whose `.grad` will be filled,
    and all inputs under `keep_values`.
    """

    __slots__ = ("alive", "inputs", "name", "order", "own", "saved", "vjp")

    def __init__(
        self,
        name: str,
        inputs: tuple[Tensor, ...],
        vjp: Callable[..., Grads],
        saved: tuple[Tensor, ...],
        own: Tensor | None,
    ):
        self.name, self.own = name, own
        self.inputs = tuple([x._slot or x.slot for x in inputs])
        self.saved = [(s, s._versions[0]) for s in saved]
        self.alive = inputs if _mode.keeping else [x for x in inputs if x.requires_grad and x.node is None]
        self.vjp: Callable[..., Grads] | None = vjp  # None after `free`
        self.order = next(_clock)  # inputs exist before outputs: descending order is a topological order

    def free(self) -> None:
        self.vjp, self.inputs, self.saved, self.alive, self.own = None, (), [], (), None


def record_op(
    name: str,
    value: Array,
    inputs: tuple[Tensor, ...],
    vjp: Callable[..., Grads],
    saved: tuple[Tensor, ...] = (),
    *,
    own: bool = False,
    view_of: Tensor | None = None,
) -> Tensor:
    """The value as a tensor with its place in the graph, if any input requires a gradient.

    `vjp(dy)` returns one gradient for each input, or None. It is written with tensor operations, so that it can be
    differentiated again, and it returns dy, a view of dy or new values, never an array that it keeps. What it captures
    stays alive until backward, so it captures what it reads and nothing else (a shape, not the tensor). `saved` are the
    tensors that it reads: their versions are checked before it runs. With `own=True` it is called as `vjp(dy, y)`: eˣ
    is its own derivative. `view_of` is the tensor whose memory the value shares.
    """
    y = Tensor(value)
    if view_of is not None:
        y._versions = view_of._versions
    if _mode.recording:
        for x in inputs:
            if x.requires_grad:
                y.node = Node(name, inputs, vjp, saved, y.detach() if own else None)
                y.requires_grad = True
                break
    return y


class Tensor:
    """An n-dimensional array with `.grad`; methods have PyTorch's names, with NumPy's `axis` and `keepdims`.

    In-place changes are counted by a version counter that views share: `add_`, `mul_`, `copy_`, `zero_` and `x[i] = v`.
    What is written into `x.data` directly is not counted.
    """

    __slots__ = ("__weakref__", "_slot", "_versions", "data", "grad", "label", "node", "requires_grad")
    __array_ufunc__ = None  # array * tensor calls our __rmul__

    def __init__(self, data: Any, requires_grad: bool = False):
        self.data: Array = data if type(data) is np.ndarray else np.asarray(data)
        self.grad: Array | None = None
        self.node: Node | None = None
        self.label = ""
        self._slot: GraphSlot | None = None
        self._versions = [0]
        self.requires_grad = requires_grad
        if requires_grad and self.data.dtype.kind != "f":
            raise ScratchError(f"only floating-point tensors can require a gradient, got {self.data.dtype}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def ndim(self) -> int:
        return self.data.ndim

    @property
    def size(self) -> int:
        return self.data.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def is_leaf(self) -> bool:
        return self.node is None

    @property
    def slot(self) -> GraphSlot:
        """Made on first use: most tensors of a backward pass never enter a graph."""
        if self._slot is None:
            self._slot = GraphSlot(self)
        return self._slot

    @property
    def version(self) -> int:
        return self._versions[0]

    @property
    def T(self) -> Tensor:
        return shape.permute(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Tensor:
        return shape.transpose(self, -1, -2)

    def __repr__(self) -> str:
        origin = f", from {self.node.name}" if self.node else ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({np.array2string(self.data, separator=', ', prefix='tensor(')}{origin})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as a leaf: a copy has a slot of its own."""
        return (
            Tensor,
            (self.data, self.requires_grad),
            (None, {"grad": self.grad, "label": self.label, "_versions": self._versions}),
        )

    def __len__(self) -> int:
        if not self.ndim:
            raise ScratchError("len: a tensor of shape () has no length")
        return len(self.data)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ScratchError(f"bool: one value is true or false, shape {self.shape} is neither")
        return bool(self.data.reshape(())[()])

    def __float__(self) -> float:
        return float(self.item())

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self.data, dtype=dtype) if copy else np.asarray(self.data, dtype=dtype)

    def numpy(self) -> Array:
        """The values themselves, not a copy."""
        return self.data

    def item(self) -> Any:
        if self.size != 1:
            raise ScratchError(f"item: needs exactly one value, got shape {self.shape}")
        return self.data.item()

    def detach(self) -> Tensor:
        """The same memory outside the graph (Groudiev 3.1 calls it a copy; it is not)."""
        y = Tensor(self.data)
        y._versions = self._versions
        return y

    def backward(self, gradient: Any = None, retain_graph: bool = False) -> None:
        """Adds d self / d leaf to the `.grad` of every leaf."""
        engine.backward(self, gradient, retain_graph)

    # in-place changes

    def _change(self, name: str, apply: Callable[[Array], Any], *others: Any) -> Tensor:
        if _mode.recording and (self.requires_grad or any(isinstance(o, Tensor) and o.requires_grad for o in others)):
            raise ScratchError(f"{name}: an in-place change cannot be differentiated; do it under no_grad()")
        if not self.data.flags.writeable:
            raise ScratchError(f"{name}: this tensor is a read-only view (of a broadcast)")
        try:
            apply(self.data)
        except (ValueError, IndexError, TypeError) as e:
            raise ScratchError(f"{name}: {e}, in a tensor of shape {self.shape}") from None
        self._versions[0] += 1
        return self

    def add_(self, other: Any, alpha: float = 1.0) -> Tensor:
        """In place: self += alpha · other."""
        o = _raw(other)
        return self._change(
            "add_", lambda d: np.add(d, o if alpha == 1.0 else alpha * o, out=d, casting="same_kind"), other
        )

    def mul_(self, other: Any) -> Tensor:
        o = _raw(other)
        return self._change("mul_", lambda d: np.multiply(d, o, out=d, casting="same_kind"), other)

    def copy_(self, other: Any) -> Tensor:
        o = _raw(other)
        return self._change("copy_", lambda d: np.copyto(d, o, casting="same_kind"), other)

    def zero_(self) -> Tensor:
        return self._change("zero_", lambda d: d.fill(0))

    def __setitem__(self, index: Any, value: Any) -> None:
        i, v = shape.plain_index(index), _raw(value)
        self._change("x[…] = v", lambda d: d.__setitem__(i, v), value)

    # elementwise operations (ops.py)

    def __add__(self, other: Any) -> Tensor:
        return ops.add(self, other)

    def __radd__(self, other: Any) -> Tensor:
        return ops.add(other, self)

    def __sub__(self, other: Any) -> Tensor:
        return ops.sub(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return ops.sub(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return ops.mul(self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return ops.mul(other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return ops.div(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return ops.div(other, self)

    def __pow__(self, other: Any) -> Tensor:
        return ops.pow(self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return ops.pow(other, self)

    def __neg__(self) -> Tensor:
        return ops.neg(self)

    def __abs__(self) -> Tensor:
        return ops.abs(self)

    def __lt__(self, other: Any) -> Tensor:
        return ops.compare("<", np.less, self, other)

    def __le__(self, other: Any) -> Tensor:
        return ops.compare("<=", np.less_equal, self, other)

    def __gt__(self, other: Any) -> Tensor:
        return ops.compare(">", np.greater, self, other)

    def __ge__(self, other: Any) -> Tensor:
        return ops.compare(">=", np.greater_equal, self, other)

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]  # elementwise, as in PyTorch
        return ops.compare("==", np.equal, self, other)

    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]
        return ops.compare("!=", np.not_equal, self, other)

    __hash__ = object.__hash__

    def astype(self, dtype: DTypeLike) -> Tensor:
        return ops.cast(self, dtype)

    def abs(self) -> Tensor:
        return ops.abs(self)

    def exp(self) -> Tensor:
        return ops.exp(self)

    def log(self) -> Tensor:
        return ops.log(self)

    def sqrt(self) -> Tensor:
        return ops.sqrt(self)

    def square(self) -> Tensor:
        return ops.square(self)

    def sin(self) -> Tensor:
        return ops.sin(self)

    def cos(self) -> Tensor:
        return ops.cos(self)

    def tanh(self) -> Tensor:
        return ops.tanh(self)

    def sigmoid(self) -> Tensor:
        return ops.sigmoid(self)

    def relu(self) -> Tensor:
        return ops.relu(self)

    def clip(self, low: float | None = None, high: float | None = None) -> Tensor:
        return ops.clip(self, low, high)

    # shapes and indexing (shape.py)

    def __getitem__(self, index: Any) -> Tensor:
        return shape.getitem(self, index)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def reshape(self, *sizes: Any) -> Tensor:
        return shape.reshape(self, sizes)

    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        return shape.flatten(self, start, end)

    def transpose(self, a: int, b: int) -> Tensor:
        """Swap two axes."""
        return shape.transpose(self, a, b)

    def permute(self, *axes: Any) -> Tensor:
        return shape.permute(self, axes)

    def squeeze(self, axis: Axis = None) -> Tensor:
        return shape.squeeze(self, axis)

    def unsqueeze(self, axis: int) -> Tensor:
        return shape.unsqueeze(self, axis)

    def broadcast_to(self, *sizes: Any) -> Tensor:
        return shape.broadcast_to(self, sizes)

    def gather(self, axis: int, index: Any) -> Tensor:
        return shape.gather(self, axis, index)

    def masked_fill(self, mask: Any, value: float) -> Tensor:
        return shape.masked_fill(self, mask, value)

    def split(self, size: int | Sequence[int], axis: int = 0) -> list[Tensor]:
        return shape.split(self, size, axis)

    # reductions (reduce.py)

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return reduce.sum(self, axis, keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return reduce.mean(self, axis, keepdims)

    def var(self, axis: Axis = None, correction: int = 1, keepdims: bool = False) -> Tensor:
        return reduce.var(self, axis, correction, keepdims)

    def std(self, axis: Axis = None, correction: int = 1, keepdims: bool = False) -> Tensor:
        return reduce.std(self, axis, correction, keepdims)

    def max(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        return reduce.max(self, axis, keepdims)

    def min(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        return reduce.min(self, axis, keepdims)

    def amax(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return reduce.amax(self, axis, keepdims)

    def amin(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return reduce.amin(self, axis, keepdims)

    def argmax(self, axis: int | None = None) -> Tensor:
        return Tensor(np.argmax(self.data, axis))

    def argmin(self, axis: int | None = None) -> Tensor:
        return Tensor(np.argmin(self.data, axis))

    def cumsum(self, axis: int) -> Tensor:
        return reduce.cumsum(self, axis)

    def logsumexp(self, axis: Axis, keepdims: bool = False) -> Tensor:
        return reduce.logsumexp(self, axis, keepdims)

    def softmax(self, axis: int) -> Tensor:
        return reduce.softmax(self, axis)

    def log_softmax(self, axis: int) -> Tensor:
        return reduce.log_softmax(self, axis)

    # matrix products (matmul.py)

    def __matmul__(self, other: Any) -> Tensor:
        return matmul.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return matmul.matmul(other, self)


def tensor(data: Any, requires_grad: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor with memory of its own.

    float32 and float64 stay what they are; a Python number becomes float64, as in NumPy.
    """
    return Tensor(np.array(_raw(data), dtype=dtype), requires_grad)


def _raw(x: Any) -> Any:
    return x.data if isinstance(x, Tensor) else x


from didact.scratch.autograd import engine, matmul, ops, reduce, shape  # noqa: E402  they import the names above
