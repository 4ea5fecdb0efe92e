"""Every operation against PyTorch in float64: value, gradient, second derivative, over sampled shapes."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from didact import scratch
from didact.scratch import Tensor
from helpers.op_comparison import arrays, assert_matches_torch, broadcastable_shapes, few_examples, full_shapes, shapes

UNARY_OPS: dict[str, tuple[Any, Any, float, float]] = {
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
BINARY_OPS: dict[str, tuple[Any, Any]] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "div": (lambda a, b: a / b, lambda a, b: a / b),
    "pow": (lambda a, b: a**b, lambda a, b: a**b),
    "maximum": (scratch.maximum, torch.maximum),
    "minimum": (scratch.minimum, torch.minimum),
}


@pytest.mark.parametrize("name", UNARY_OPS)
@few_examples
@given(st.data())
def test_unary_ops_match_torch(name, data):
    scratch_function, torch_function, low, high = UNARY_OPS[name]
    assert_matches_torch(scratch_function, torch_function, data.draw(arrays(shapes, low, high)))


@pytest.mark.parametrize("name", BINARY_OPS)
@few_examples
@given(st.data())
def test_binary_ops_broadcast_in_every_position(name, data):
    a, b = data.draw(broadcastable_shapes())
    assert_matches_torch(*BINARY_OPS[name], data.draw(arrays(a, 0.2, 2)), data.draw(arrays(b, 0.2, 2)))


def test_ops_at_extreme_values():
    zeros, extremes = np.zeros(3), np.array([-800.0, 0.0, 800.0])
    assert_matches_torch(lambda x: x**2, lambda x: x**2, zeros)
    assert_matches_torch(lambda x: x**0, lambda x: x**0, zeros, check_second=False)
    assert_matches_torch(lambda a, b: a**b, lambda a, b: a**b, zeros, np.array([1.0, 2.0, 3.0]), check_second=False)
    assert_matches_torch(Tensor.sigmoid, torch.sigmoid, extremes)
    assert_matches_torch(Tensor.relu, torch.relu, extremes)
    assert_matches_torch(lambda x: abs(x), torch.abs, zeros)
    # equal: half to each
    assert_matches_torch(scratch.maximum, torch.maximum, np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, 0.0]))
    assert_matches_torch(lambda x: x.softmax(0), lambda x: x.softmax(0), extremes)
    assert_matches_torch(lambda x: x.log_softmax(0), lambda x: x.log_softmax(0), extremes)
    assert_matches_torch(lambda x: x.logsumexp(0), lambda x: x.logsumexp(0), extremes)
    masked_scores = np.array([[0.3, -np.inf, 1.0], [0.1, 0.2, -np.inf]])  # masked scores
    assert_matches_torch(lambda x: x.logsumexp(1), lambda x: x.logsumexp(1), masked_scores, check_second=False)
    assert_matches_torch(lambda x: x.softmax(1), lambda x: x.softmax(1), masked_scores)


REDUCTIONS: dict[str, tuple[Any, Any]] = {
    "sum": (Tensor.sum, torch.sum),
    "mean": (Tensor.mean, torch.mean),
    "amax": (Tensor.amax, torch.amax),
    "amin": (Tensor.amin, torch.amin),
    "logsumexp": (Tensor.logsumexp, torch.logsumexp),
    "var": (
        lambda x, a, keepdims: x.var(a, 0, keepdims),
        lambda x, a, keepdim: x.var(a, correction=0, keepdim=keepdim),
    ),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@few_examples
@given(st.data())
def test_reductions_over_any_axes(name, data):
    scratch_function, torch_function = REDUCTIONS[name]
    x = data.draw(arrays(shapes if name == "sum" else full_shapes))
    axes = (
        data.draw(st.lists(st.integers(-x.ndim, x.ndim - 1), unique_by=lambda a: a % x.ndim, min_size=1))
        if x.ndim
        else [-1]
    )
    keepdims = data.draw(st.booleans())
    assert_matches_torch(
        lambda t: scratch_function(t, tuple(axes), keepdims=keepdims),
        lambda t: torch_function(t, axes, keepdim=keepdims),
        x,
    )


@few_examples
@given(st.data())
def test_variance_and_full_reductions(data):
    x = data.draw(arrays(st.sampled_from([(2,), (3, 5), (2, 1, 3)])))
    assert_matches_torch(lambda t: t.var(), lambda t: t.var(), x)
    assert_matches_torch(
        lambda t: t.std(-1) if t.shape[-1] > 1 else t.sum(), lambda t: t.std(-1) if t.shape[-1] > 1 else t.sum(), x
    )
    assert_matches_torch(lambda t: t.mean(), lambda t: t.mean(), x)
    assert_matches_torch(lambda t: t.max(), lambda t: t.max(), x)
    assert_matches_torch(lambda t: t.min(), lambda t: t.min(), x)


@few_examples
@given(st.data())
def test_reductions_along_one_axis(data):
    x = data.draw(arrays(full_shapes))
    a = data.draw(st.integers(-x.ndim, x.ndim - 1))
    keepdims = data.draw(st.booleans())
    assert_matches_torch(lambda t: t.max(a, keepdims), lambda t: t.max(a, keepdims).values, x)
    assert_matches_torch(lambda t: t.min(a, keepdims), lambda t: t.min(a, keepdims).values, x)
    assert_matches_torch(lambda t: t.cumsum(a), lambda t: t.cumsum(a), x)
    assert_matches_torch(lambda t: t.softmax(a), lambda t: t.softmax(a), x)
    assert_matches_torch(lambda t: t.log_softmax(a), lambda t: t.log_softmax(a), x)


def test_ties_in_reductions_match_torch():
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    assert_matches_torch(lambda t: t.max(1), lambda t: t.max(1).values, x)   # the first gets the whole gradient
    assert_matches_torch(lambda t: t.min(1), lambda t: t.min(1).values, x)
    assert_matches_torch(lambda t: t.amax(1), lambda t: t.amax(1), x)        # shared evenly
    assert_matches_torch(lambda t: t.max(), lambda t: t.max(), x)
    assert scratch.tensor(x).argmax(1).data.tolist() == torch.tensor(x).argmax(1).tolist()


def test_empty_reductions_and_products():
    assert_matches_torch(lambda t: t.sum(0), lambda t: t.sum(0), np.zeros((0, 3)))
    assert_matches_torch(lambda t: t.softmax(1), lambda t: t.softmax(1), np.zeros((0, 3)))
    assert_matches_torch(lambda t: t.logsumexp(1), lambda t: t.logsumexp(1), np.zeros((0, 3)))
    assert_matches_torch(lambda a, b: a @ b, lambda a, b: a @ b, np.zeros((2, 0)), np.zeros((0, 3)))
    assert np.isnan(Tensor(np.zeros((0,))).mean().data)
    assert np.isnan(torch.zeros(0).mean().item())


@few_examples
@given(st.data())
def test_shapes_and_views(data):
    x = data.draw(arrays(full_shapes))
    order = data.draw(st.permutations(range(x.ndim)))
    a, b = data.draw(st.integers(-x.ndim, x.ndim - 1)), data.draw(st.integers(-x.ndim, x.ndim - 1))
    assert_matches_torch(lambda t: t.permute(*order), lambda t: t.permute(*order), x)
    assert_matches_torch(lambda t: t.permute(*order).reshape(-1, 1), lambda t: t.permute(*order).reshape(-1, 1), x)
    assert_matches_torch(lambda t: t.transpose(a, b), lambda t: t.transpose(a, b), x)
    assert_matches_torch(lambda t: t.T, lambda t: t.permute(*range(x.ndim)[::-1]), x)
    assert_matches_torch(
        lambda t: t.flatten(min(a % x.ndim, b % x.ndim)), lambda t: t.flatten(min(a % x.ndim, b % x.ndim)), x
    )
    assert_matches_torch(lambda t: t.squeeze(a), lambda t: t.squeeze(a), x)
    assert_matches_torch(lambda t: t.squeeze(), lambda t: t.squeeze(), x)
    assert_matches_torch(lambda t: t.unsqueeze(a), lambda t: t.unsqueeze(a), x)
    assert_matches_torch(lambda t: t.broadcast_to(4, *t.shape), lambda t: t.broadcast_to(4, *t.shape), x)
    assert_matches_torch(
        lambda t: t[:, None].broadcast_to(*t.shape[:1], 3, *t.shape[1:]),
        lambda t: t[:, None].expand(-1, 3, *t.shape[1:]),
        x,
    )


INDICES = [
    0, -1, slice(1, 3), slice(None, None, 2), (Ellipsis, 0), (slice(None), None, 1), (slice(0, 0),), [2, 0, 2],
    np.array([[0, 1], [1, 1]]),
    (slice(None), [1, 0, 1, 1]), ([0, 2], [1, 1]), (0, [2, 2], slice(None)), ([0, 1], slice(None), [1, 3]),
    np.array([True, False, True]),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing(index):
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    assert_matches_torch(lambda t: t[index], lambda t: t[index], x)
    assert_matches_torch(lambda t: t[index] * t[index], lambda t: t[index] * t[index], np.asfortranarray(x))


def test_indexing_by_tensors_and_by_a_mask():
    x = np.random.default_rng(0).normal(size=(3, 4))
    assert_matches_torch(lambda t: t[scratch.tensor([2, 0])], lambda t: t[torch.tensor([2, 0])], x)
    assert_matches_torch(lambda t: t[t > 0], lambda t: t[t > 0], x)
    assert_matches_torch(lambda t: scratch.masked_fill(t, t > 0, 7.0), lambda t: t.masked_fill(t > 0, 7.0), x)


@few_examples
@given(st.data())
def test_gather(data):
    x = data.draw(arrays(full_shapes))
    a = data.draw(st.integers(-x.ndim, x.ndim - 1))
    size = [data.draw(st.integers(0, n)) for n in x.shape]
    size[a] = data.draw(st.integers(0, 4))
    index = np.random.default_rng(0).integers(0, x.shape[a], size)
    assert_matches_torch(lambda t: t.gather(a, index), lambda t: t.gather(a, torch.from_numpy(index)), x)


@few_examples
@given(st.data())
def test_concatenate_stack_and_split(data):
    shape = data.draw(full_shapes)
    a = data.draw(st.integers(-len(shape), len(shape) - 1))
    other_shapes = [
        tuple(data.draw(st.integers(0, 3)) if i == a % len(shape) else n for i, n in enumerate(shape)) for _ in range(2)
    ]
    x, y, z = (data.draw(arrays(s)) for s in (shape, *other_shapes))
    assert_matches_torch(lambda *t: scratch.concatenate(t, a), lambda *t: torch.cat(t, a), x, y, z)
    assert_matches_torch(lambda *t: scratch.stack(t, a), lambda *t: torch.stack(t, a), x, x[::-1], x * 2)
    assert_matches_torch(lambda t: t.split(2, a)[-1], lambda t: t.split(2, a)[-1], x)
    n = shape[a]
    assert_matches_torch(lambda t: t.split([n - 1, 1], a)[0], lambda t: t.split([n - 1, 1], a)[0], x)


@few_examples
@given(st.data())
def test_pad_and_where(data):
    x = data.draw(arrays(shapes))
    widths = [data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in x.shape]
    flat_widths = [w for pair in widths[::-1] for w in pair]
    assert_matches_torch(
        lambda t: scratch.pad(t, widths, 0.5),
        lambda t: torch.nn.functional.pad(t, flat_widths, value=0.5) if flat_widths else t * 1,
        x,
    )
    c, a, b = data.draw(broadcastable_shapes(3))
    condition = np.random.default_rng(0).random(c) < 0.5
    scratch_function, torch_function = (
        (lambda p, q: scratch.where(condition, p, q)),
        (lambda p, q: torch.where(torch.from_numpy(np.asarray(condition)), p, q)),
    )
    assert_matches_torch(scratch_function, torch_function, data.draw(arrays(a)), data.draw(arrays(b)))


@few_examples
@given(st.data())
def test_matmul_broadcasts_its_batch(data):
    left, right = data.draw(broadcastable_shapes(base=st.lists(st.sampled_from([1, 2, 3, 0]), max_size=2).map(tuple)))
    n, k, m = (data.draw(st.sampled_from([1, 2, 3, 5, 0])) for _ in range(3))
    a, b = data.draw(arrays((*left, n, k))), data.draw(arrays((*right, k, m)))
    assert_matches_torch(lambda p, q: p @ q, lambda p, q: p @ q, a, b)


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((3,), (3, 2)),
                                     ((4, 3), (3,)), ((3,), (2, 3, 5)), ((2, 4, 3), (3,)), ((5, 2, 4, 3), (3, 1))])
def test_matmul_with_vectors_and_shared_weights(shapes):
    rng = np.random.default_rng(0)
    assert_matches_torch(lambda p, q: p @ q, lambda p, q: p @ q, *[rng.normal(size=s) for s in shapes])


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 5)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ij->j", [(2, 3)]),
        ("i,j->ij", [(2,), (3,)]), ("ij,ij->", [(2, 3), (2, 3)]), ("i,i", [(3,), (3,)]), ("ij,jk", [(2, 3), (3, 4)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]), ("iij,j->i", [(3, 3, 2), (2,)]), ("bthd,bshd->bhts", [(2, 3, 2, 5), (2, 4, 2, 5)]),
        ("ij,kl->il", [(2, 3), (4, 5)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]), ("...i->...", [(2, 3)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ij,j->ij", [(2, 1), (3,)]), ("bi,bj,bk->ijk", [(2, 3), (2, 1), (2, 4)]), ("ij,jk->ik", [(2, 0), (0, 5)]),
        ("ba->ab", [(2, 3)]),
        ("...,...", [(2, 3), (3,)]), ("i,ij,j->", [(1,), (4, 3), (3,)]), ("ij,jk->k", [(2, 3), (3, 4)]),
    ],
)  # fmt: skip
def test_einsum(text, shapes):
    rng = np.random.default_rng(0)
    assert_matches_torch(
        lambda *t: scratch.einsum(text, *t), lambda *t: torch.einsum(text, *t), *[rng.normal(size=s) for s in shapes]
    )


def test_ops_keep_float32():
    x = scratch.tensor(np.array([[1, 2, 4], [3, 1, 1]], np.float32), requires_grad=True)
    for y in (x * 2, 2.0 * x, x + np.float64(1), x**2, x**0.5, x / 3, 1 / x, x.mean(), x.var(), x.sigmoid(),
        scratch.erf(x), x.clip(0, 0.5),
              scratch.softplus(x), x.logsumexp(1), x.softmax(1), scratch.where(x > 0, x, 0.0), scratch.maximum(x, 0.0),
              x.amax(0), x @ x.T,
              scratch.einsum("ij->j", x), x.masked_fill(x > 2, -np.inf), -abs(x), x.std(1),
              scratch.pad(x, [(1, 1), (0, 0)]), x.cumsum(0)):  # fmt: skip
        assert y.dtype == np.float32, y
        (g,) = scratch.grad(y.sum(), x)
        assert g.dtype == np.float32, y
    mixed_sum = (x * scratch.tensor(np.ones(3))).sum()
    mixed_sum.backward()
    assert mixed_sum.dtype == np.float64
    assert x.grad is not None
    assert x.grad.dtype == np.float32
    assert (np.ones(3) * x).dtype == np.float64  # an array on the left leaves the product to us
    assert isinstance(np.ones(3) * x, Tensor)
