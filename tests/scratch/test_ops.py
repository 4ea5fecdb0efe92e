"""Every operation against PyTorch in float64: value, gradient, second derivative, over drawn shapes."""

from typing import Any

import numpy as np
import pytest
import torch
from both_engines import agree, arrays, broadcastable, few, full_shapes, shapes
from hypothesis import given
from hypothesis import strategies as st

from didact import scratch
from didact.scratch import Tensor

UNARY: dict[str, tuple[Any, Any, float, float]] = {
    "neg": (lambda x: -x, torch.neg, -2, 2),
    "abs": (lambda x: abs(x), torch.abs, -2, 2),
    "exp": (Tensor.exp, torch.exp, -2, 2),
    "expm1": (scratch.expm1, torch.expm1, -2, 2),
    "log": (Tensor.log, torch.log, 0.1, 3),
    "log1p": (scratch.log1p, torch.log1p, -0.5, 3),
    "sqrt": (Tensor.sqrt, torch.sqrt, 0.1, 3),
    "square": (Tensor.square, torch.square, -2, 2),
    "sin": (Tensor.sin, torch.sin, -4, 4),
    "cos": (Tensor.cos, torch.cos, -4, 4),
    "tanh": (Tensor.tanh, torch.tanh, -3, 3),
    "sigmoid": (Tensor.sigmoid, torch.sigmoid, -30, 30),
    "softplus": (scratch.softplus, torch.nn.functional.softplus, -30, 19),  # PyTorch rounds to x above 20
    "erf": (scratch.erf, torch.erf, -7, 7),
    "relu": (Tensor.relu, torch.relu, -2, 2),
    "clip": (lambda x: x.clip(-0.5, 1.0), lambda x: x.clamp(-0.5, 1.0), -2, 2),
    "clip below": (lambda x: x.clip(high=0.5), lambda x: x.clamp(max=0.5), -2, 2),
    "cube": (lambda x: x**3, lambda x: x**3, -2, 2),
    "inverse": (lambda x: x**-1.0, lambda x: x**-1.0, 0.2, 2),
    "power of two": (lambda x: 2.0**x, lambda x: 2.0**x, -2, 2),
    "one over": (lambda x: 1 / x, lambda x: 1 / x, 0.2, 2),
    "one minus": (lambda x: 1 - x * 3, lambda x: 1 - x * 3, -2, 2),
}
BINARY: dict[str, tuple[Any, Any]] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "div": (lambda a, b: a / b, lambda a, b: a / b),
    "pow": (lambda a, b: a**b, lambda a, b: a**b),
    "maximum": (scratch.maximum, torch.maximum),
    "minimum": (scratch.minimum, torch.minimum),
}


@pytest.mark.parametrize("name", UNARY)
@few
@given(st.data())
def test_unary(name, data):
    ours, theirs, low, high = UNARY[name]
    agree(ours, theirs, data.draw(arrays(shapes, low, high)))


@pytest.mark.parametrize("name", BINARY)
@few
@given(st.data())
def test_binary_broadcasts_in_every_position(name, data):
    a, b = data.draw(broadcastable())
    agree(*BINARY[name], data.draw(arrays(a, 0.2, 2)), data.draw(arrays(b, 0.2, 2)))


def test_the_edges_where_formulas_break():
    zeros, edge = np.zeros(3), np.array([-800.0, 0.0, 800.0])
    agree(lambda x: x**2, lambda x: x**2, zeros)
    agree(lambda x: x**0, lambda x: x**0, zeros, second=False)
    agree(lambda a, b: a**b, lambda a, b: a**b, zeros, np.array([1.0, 2.0, 3.0]), second=False)
    agree(Tensor.sigmoid, torch.sigmoid, edge)
    agree(Tensor.relu, torch.relu, edge)
    agree(lambda x: abs(x), torch.abs, zeros)
    agree(scratch.maximum, torch.maximum, np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, 0.0]))  # equal: half to each
    agree(lambda x: x.softmax(0), lambda x: x.softmax(0), edge)
    agree(lambda x: x.log_softmax(0), lambda x: x.log_softmax(0), edge)
    agree(lambda x: x.logsumexp(0), lambda x: x.logsumexp(0), edge)
    hidden = np.array([[0.3, -np.inf, 1.0], [0.1, 0.2, -np.inf]])  # masked scores
    agree(lambda x: x.logsumexp(1), lambda x: x.logsumexp(1), hidden, second=False)
    agree(lambda x: x.softmax(1), lambda x: x.softmax(1), hidden)


REDUCTIONS: dict[str, tuple[Any, Any]] = {
    "sum": (Tensor.sum, torch.sum),
    "mean": (Tensor.mean, torch.mean),
    "amax": (Tensor.amax, torch.amax),
    "amin": (Tensor.amin, torch.amin),
    "logsumexp": (Tensor.logsumexp, torch.logsumexp),
    "var": (lambda x, a, keepdims: x.var(a, 0, keepdims), lambda x, a, keepdim: x.var(a, correction=0, keepdim=keepdim)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@few
@given(st.data())
def test_reductions_over_any_axes(name, data):
    ours, theirs = REDUCTIONS[name]
    x = data.draw(arrays(shapes if name == "sum" else full_shapes))
    axes = data.draw(st.lists(st.integers(-x.ndim, x.ndim - 1), unique_by=lambda a: a % x.ndim, min_size=1)) if x.ndim else [-1]
    keep = data.draw(st.booleans())
    agree(lambda t: ours(t, tuple(axes), keepdims=keep), lambda t: theirs(t, axes, keepdim=keep), x)


@few
@given(st.data())
def test_spread_and_whole_reductions(data):
    x = data.draw(arrays(st.sampled_from([(2,), (3, 5), (2, 1, 3)])))
    agree(lambda t: t.var(), lambda t: t.var(), x)
    agree(lambda t: t.std(-1) if t.shape[-1] > 1 else t.sum(), lambda t: t.std(-1) if t.shape[-1] > 1 else t.sum(), x)
    agree(lambda t: t.mean(), lambda t: t.mean(), x)
    agree(lambda t: t.max(), lambda t: t.max(), x)
    agree(lambda t: t.min(), lambda t: t.min(), x)


@few
@given(st.data())
def test_along_one_axis(data):
    x = data.draw(arrays(full_shapes))
    a = data.draw(st.integers(-x.ndim, x.ndim - 1))
    keep = data.draw(st.booleans())
    agree(lambda t: t.max(a, keep), lambda t: t.max(a, keep).values, x)
    agree(lambda t: t.min(a, keep), lambda t: t.min(a, keep).values, x)
    agree(lambda t: t.cumsum(a), lambda t: t.cumsum(a), x)
    agree(lambda t: t.softmax(a), lambda t: t.softmax(a), x)
    agree(lambda t: t.log_softmax(a), lambda t: t.log_softmax(a), x)


def test_ties_follow_pytorch():
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    agree(lambda t: t.max(1), lambda t: t.max(1).values, x)   # the first takes it all
    agree(lambda t: t.min(1), lambda t: t.min(1).values, x)
    agree(lambda t: t.amax(1), lambda t: t.amax(1), x)        # shared evenly
    agree(lambda t: t.max(), lambda t: t.max(), x)
    assert scratch.tensor(x).argmax(1).data.tolist() == torch.tensor(x).argmax(1).tolist()


def test_empty_reductions_and_products():
    agree(lambda t: t.sum(0), lambda t: t.sum(0), np.zeros((0, 3)))
    agree(lambda t: t.softmax(1), lambda t: t.softmax(1), np.zeros((0, 3)))
    agree(lambda t: t.logsumexp(1), lambda t: t.logsumexp(1), np.zeros((0, 3)))
    agree(lambda a, b: a @ b, lambda a, b: a @ b, np.zeros((2, 0)), np.zeros((0, 3)))
    assert np.isnan(Tensor(np.zeros((0,))).mean().data)
    assert np.isnan(torch.zeros(0).mean().item())


@few
@given(st.data())
def test_shapes_and_views(data):
    x = data.draw(arrays(full_shapes))
    order = data.draw(st.permutations(range(x.ndim)))
    a, b = data.draw(st.integers(-x.ndim, x.ndim - 1)), data.draw(st.integers(-x.ndim, x.ndim - 1))
    agree(lambda t: t.permute(*order), lambda t: t.permute(*order), x)
    agree(lambda t: t.permute(*order).reshape(-1, 1), lambda t: t.permute(*order).reshape(-1, 1), x)
    agree(lambda t: t.transpose(a, b), lambda t: t.transpose(a, b), x)
    agree(lambda t: t.T, lambda t: t.permute(*range(x.ndim)[::-1]), x)
    agree(lambda t: t.flatten(min(a % x.ndim, b % x.ndim)), lambda t: t.flatten(min(a % x.ndim, b % x.ndim)), x)
    agree(lambda t: t.squeeze(a), lambda t: t.squeeze(a), x)
    agree(lambda t: t.squeeze(), lambda t: t.squeeze(), x)
    agree(lambda t: t.unsqueeze(a), lambda t: t.unsqueeze(a), x)
    agree(lambda t: t.broadcast_to(4, *t.shape), lambda t: t.broadcast_to(4, *t.shape), x)
    agree(lambda t: t[:, None].broadcast_to(*t.shape[:1], 3, *t.shape[1:]), lambda t: t[:, None].expand(-1, 3, *t.shape[1:]), x)


INDICES = [
    0, -1, slice(1, 3), slice(None, None, 2), (Ellipsis, 0), (slice(None), None, 1), (slice(0, 0),), [2, 0, 2], np.array([[0, 1], [1, 1]]),
    (slice(None), [1, 0, 1, 1]), ([0, 2], [1, 1]), (0, [2, 2], slice(None)), ([0, 1], slice(None), [1, 3]), np.array([True, False, True]),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing(index):
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    agree(lambda t: t[index], lambda t: t[index], x)
    agree(lambda t: t[index] * t[index], lambda t: t[index] * t[index], np.asfortranarray(x))


def test_indexing_by_tensors_and_by_a_mask():
    x = np.random.default_rng(0).normal(size=(3, 4))
    agree(lambda t: t[scratch.tensor([2, 0])], lambda t: t[torch.tensor([2, 0])], x)
    agree(lambda t: t[t > 0], lambda t: t[t > 0], x)
    agree(lambda t: scratch.masked_fill(t, t > 0, 7.0), lambda t: t.masked_fill(t > 0, 7.0), x)


@few
@given(st.data())
def test_gather(data):
    x = data.draw(arrays(full_shapes))
    a = data.draw(st.integers(-x.ndim, x.ndim - 1))
    size = [data.draw(st.integers(0, n)) for n in x.shape]
    size[a] = data.draw(st.integers(0, 4))
    index = np.random.default_rng(0).integers(0, x.shape[a], size)
    agree(lambda t: t.gather(a, index), lambda t: t.gather(a, torch.from_numpy(index)), x)


@few
@given(st.data())
def test_joining_and_splitting(data):
    shape = data.draw(full_shapes)
    a = data.draw(st.integers(-len(shape), len(shape) - 1))
    others = [tuple(data.draw(st.integers(0, 3)) if i == a % len(shape) else n for i, n in enumerate(shape)) for _ in range(2)]
    x, y, z = (data.draw(arrays(s)) for s in (shape, *others))
    agree(lambda *t: scratch.concatenate(t, a), lambda *t: torch.cat(t, a), x, y, z)
    agree(lambda *t: scratch.stack(t, a), lambda *t: torch.stack(t, a), x, x[::-1], x * 2)
    agree(lambda t: t.split(2, a)[-1], lambda t: t.split(2, a)[-1], x)
    n = shape[a]
    agree(lambda t: t.split([n - 1, 1], a)[0], lambda t: t.split([n - 1, 1], a)[0], x)


@few
@given(st.data())
def test_pad_and_where(data):
    x = data.draw(arrays(shapes))
    widths = [data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in x.shape]
    flat = [w for pair in widths[::-1] for w in pair]
    agree(lambda t: scratch.pad(t, widths, 0.5), lambda t: torch.nn.functional.pad(t, flat, value=0.5) if flat else t * 1, x)
    c, a, b = data.draw(broadcastable(3))
    condition = np.random.default_rng(0).random(c) < 0.5
    ours, theirs = (lambda p, q: scratch.where(condition, p, q)), (lambda p, q: torch.where(torch.from_numpy(np.asarray(condition)), p, q))
    agree(ours, theirs, data.draw(arrays(a)), data.draw(arrays(b)))


@few
@given(st.data())
def test_matmul_broadcasts_its_batch(data):
    left, right = data.draw(broadcastable(base=st.lists(st.sampled_from([1, 2, 3, 0]), max_size=2).map(tuple)))
    n, k, m = (data.draw(st.sampled_from([1, 2, 3, 5, 0])) for _ in range(3))
    a, b = data.draw(arrays((*left, n, k))), data.draw(arrays((*right, k, m)))
    agree(lambda p, q: p @ q, lambda p, q: p @ q, a, b)


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((3,), (3, 2)),
                                     ((4, 3), (3,)), ((3,), (2, 3, 5)), ((2, 4, 3), (3,)), ((5, 2, 4, 3), (3, 1))])
def test_matmul_with_vectors_and_shared_weights(shapes):
    rng = np.random.default_rng(0)
    agree(lambda p, q: p @ q, lambda p, q: p @ q, *[rng.normal(size=s) for s in shapes])


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 5)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("ij->ji", [(2, 3)]), ("ij->", [(2, 3)]),
        ("ij->j", [(2, 3)]),
        ("i,j->ij", [(2,), (3,)]), ("ij,ij->", [(2, 3), (2, 3)]), ("i,i", [(3,), (3,)]), ("ij,jk", [(2, 3), (3, 4)]), ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]), ("iij,j->i", [(3, 3, 2), (2,)]), ("bthd,bshd->bhts", [(2, 3, 2, 5), (2, 4, 2, 5)]),
        ("ij,kl->il", [(2, 3), (4, 5)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]), ("...i->...", [(2, 3)]), ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ij,j->ij", [(2, 1), (3,)]), ("bi,bj,bk->ijk", [(2, 3), (2, 1), (2, 4)]), ("ij,jk->ik", [(2, 0), (0, 5)]), ("ba->ab", [(2, 3)]),
        ("...,...", [(2, 3), (3,)]), ("i,ij,j->", [(1,), (4, 3), (3,)]), ("ij,jk->k", [(2, 3), (3, 4)]),
    ],
)  # fmt: skip
def test_einsum(text, shapes):
    rng = np.random.default_rng(0)
    agree(lambda *t: scratch.einsum(text, *t), lambda *t: torch.einsum(text, *t), *[rng.normal(size=s) for s in shapes])


def test_types_are_kept():
    x = scratch.tensor(np.array([[1, 2, 4], [3, 1, 1]], np.float32), requires_grad=True)
    for y in (x * 2, 2.0 * x, x + np.float64(1), x**2, x**0.5, x / 3, 1 / x, x.mean(), x.var(), x.sigmoid(), scratch.erf(x), x.clip(0, 0.5),
              scratch.softplus(x), x.logsumexp(1), x.softmax(1), scratch.where(x > 0, x, 0.0), scratch.maximum(x, 0.0), x.amax(0), x @ x.T,
              scratch.einsum("ij->j", x), x.masked_fill(x > 2, -np.inf), -abs(x), x.std(1),
              scratch.pad(x, [(1, 1), (0, 0)]), x.cumsum(0)):  # fmt: skip
        assert y.dtype == np.float32, y
        (g,) = scratch.grad(y.sum(), x)
        assert g.dtype == np.float32, y
    mixed = (x * scratch.tensor(np.ones(3))).sum()
    mixed.backward()
    assert mixed.dtype == np.float64
    assert x.grad is not None
    assert x.grad.dtype == np.float32
    assert (np.ones(3) * x).dtype == np.float64  # an array on the left is ours to multiply
    assert isinstance(np.ones(3) * x, Tensor)
