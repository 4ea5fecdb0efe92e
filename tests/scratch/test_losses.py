"""Losses against torch.nn.functional, with their second derivatives and at extreme values."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from didact.scratch import ScratchError, Tensor, grad, tensor
from didact.scratch.losses import bce_with_logits, cross_entropy, huber_loss, l1_loss, mse_loss, nll_loss
from helpers.op_comparison import arrays, assert_matches_torch, few_examples, full_shapes

small_sizes = st.sampled_from([1, 2, 3, 5])
reductions = st.sampled_from(["mean", "sum", "none"])


@few_examples
@given(
    st.data(),
    st.none() | small_sizes,
    small_sizes,
    st.lists(small_sizes, max_size=2),
    reductions,
    st.booleans(),
    st.sampled_from([0.0, 0.3]),
    st.booleans(),
)
def test_cross_entropy_of_labels(
    data, n, classes, spatial_shape, reduction, with_weights, smoothing, with_ignored_label
):
    shape = (classes,) if n is None else (n, classes, *spatial_shape)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    y = np.asarray(rng.integers(0, classes, () if n is None else (n, *spatial_shape)))
    if with_ignored_label and n is not None:
        y.reshape(-1)[0] = -100
    w = rng.uniform(0.5, 2, classes) if with_weights else None
    assert_matches_torch(
        lambda z: cross_entropy(z, y, weight=w, label_smoothing=smoothing, reduction=reduction),
        lambda z: F.cross_entropy(
            z,
            torch.from_numpy(y),
            None if w is None else torch.from_numpy(w),
            label_smoothing=smoothing,
            reduction=reduction,
        ),
        data.draw(arrays(shape)),
    )


@few_examples
@given(st.data(), small_sizes, small_sizes, st.lists(small_sizes, max_size=1), reductions, st.sampled_from([0.0, 0.3]))
def test_cross_entropy_of_distributions(data, n, classes, spatial_shape, reduction, smoothing):
    q, w = data.draw(arrays((n, classes, *spatial_shape), 0, 1)), np.linspace(1, 2, classes)
    q = q / q.sum(1, keepdims=True)
    assert_matches_torch(
        lambda z: cross_entropy(z, q, weight=w, label_smoothing=smoothing, reduction=reduction),
        lambda z: F.cross_entropy(
            z, torch.from_numpy(q), torch.from_numpy(w), label_smoothing=smoothing, reduction=reduction
        ),
        data.draw(arrays(q.shape)),
    )


def test_cross_entropy_gradient_is_p_minus_y():
    z = tensor(np.random.default_rng(0).normal(size=(4, 3)), requires_grad=True)
    y = np.array([0, 2, 1, 1])
    cross_entropy(z, y, reduction="sum").backward()
    p = np.exp(z.data) / np.exp(z.data).sum(1, keepdims=True)
    np.testing.assert_allclose(z.grad, p - np.eye(3)[y], atol=1e-12)


def test_cross_entropy_is_the_negative_log_likelihood():
    z, y = Tensor(np.random.default_rng(0).normal(size=(5, 4))), np.array([0, 3, 1, 1, 2])
    assert cross_entropy(z, y).item() == pytest.approx(nll_loss(z.log_softmax(1), y).item(), rel=1e-12)


def test_cross_entropy_is_finite_where_exp_overflows():
    z = tensor(np.array([[1000.0, -1000.0, 0.0], [0.0, -np.inf, 0.0]]), requires_grad=True)
    loss = cross_entropy(z, [1, 0], reduction="none")
    np.testing.assert_allclose(loss.data, [2000, np.log(2)])
    (g,) = grad(loss, z, np.ones(2))
    np.testing.assert_allclose(g.data, [[1, -1, 0], [-0.5, 0, 0.5]], atol=1e-12)


@few_examples
@given(st.data(), small_sizes, small_sizes, st.lists(small_sizes, max_size=2), reductions)
def test_nll_loss_matches_torch(data, n, classes, spatial_shape, reduction):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    y, w = rng.integers(0, classes, (n, *spatial_shape)), rng.uniform(0.5, 2, classes)
    if y.size > 1:
        y.reshape(-1)[0] = 1 if classes > 1 else -100
    assert_matches_torch(
        lambda z: nll_loss(z.log_softmax(1), y, weight=w, ignore_index=1 if classes > 1 else -100, reduction=reduction),
        lambda z: F.nll_loss(
            z.log_softmax(1),
            torch.from_numpy(y),
            torch.from_numpy(w),
            ignore_index=1 if classes > 1 else -100,
            reduction=reduction,
        ),
        data.draw(arrays((n, classes, *spatial_shape))),
    )


@few_examples
@given(st.data(), full_shapes, reductions)
def test_regression_losses_match_torch(data, shape, reduction):
    x, y = data.draw(arrays(shape)), data.draw(arrays(shape)).copy()
    t = torch.from_numpy(y)
    assert_matches_torch(
        lambda x: mse_loss(x, y, reduction=reduction), lambda x: F.mse_loss(x, t, reduction=reduction), x
    )
    assert_matches_torch(
        lambda x: l1_loss(x, y, reduction=reduction), lambda x: F.l1_loss(x, t, reduction=reduction), x
    )
    assert_matches_torch(
        lambda x: huber_loss(x, y, delta=0.7, reduction=reduction),
        lambda x: F.huber_loss(x, t, delta=0.7, reduction=reduction),
        x,
    )


@few_examples
@given(st.data(), full_shapes, reductions, st.sampled_from([1.0, 3.0]))
def test_binary_cross_entropy_matches_torch(data, shape, reduction, pos_weight):
    z, y = data.draw(arrays(shape, -40, 40)), data.draw(arrays(shape, 0, 1)).copy()
    assert_matches_torch(
        lambda z: bce_with_logits(z, y, pos_weight=pos_weight, reduction=reduction),
        lambda z: F.binary_cross_entropy_with_logits(
            z, torch.from_numpy(y), pos_weight=torch.tensor(pos_weight).double(), reduction=reduction
        ),
        z,
    )


def test_binary_cross_entropy_is_cross_entropy_of_two_classes():
    """Gaba 1.3.3: the logits 0 and z."""
    z, y = np.random.default_rng(0).normal(size=6), np.array([0, 1, 1, 0, 1, 0])
    two_class_loss = cross_entropy(Tensor(np.stack([0 * z, z], 1)), y)
    assert bce_with_logits(Tensor(z), y).item() == pytest.approx(two_class_loss.item(), rel=1e-12)


def test_loss_without_labels_is_nan_with_zero_gradient():
    """All labels ignored, or no labels at all: PyTorch's mean is NaN too, and its gradient 0."""
    z = tensor(np.ones((2, 3)), requires_grad=True)
    loss = cross_entropy(z, [-100, -100])
    loss.backward()
    assert np.isnan(loss.item())
    assert not z.grad.any()
    assert np.isnan(cross_entropy(Tensor(np.zeros((0, 3))), np.zeros(0, int)).item())
    assert cross_entropy(Tensor(np.zeros((0, 3))), np.zeros(0, int), reduction="sum").item() == 0
    assert np.isnan(mse_loss(Tensor(np.zeros(0)), np.zeros(0)).item())


def test_losses_keep_float32():
    z = tensor(np.ones((4, 3), np.float32), requires_grad=True)
    for loss in (
        cross_entropy(z, [0, 1, 2, 0]),
        cross_entropy(z, np.ones((4, 3)) / 3, label_smoothing=0.1),
        mse_loss(z, np.zeros((4, 3))),
        huber_loss(z, np.zeros((4, 3))),
        bce_with_logits(z, np.ones((4, 3))),
    ):
        (g,) = grad(loss, z)
        assert loss.dtype == g.dtype == np.float32


def test_losses_name_what_does_not_fit():
    z = Tensor(np.zeros((3, 4)))
    with pytest.raises(ScratchError, match=r"mse_loss.*\(3,\).*\(3, 1\)"):  # PyTorch broadcasts to (3, 3): Lhotte 2.4
        mse_loss(Tensor(np.zeros((3, 1))), np.zeros(3))
    with pytest.raises(ScratchError, match="a label outside 0…3"):
        cross_entropy(z, [0, 4, 1])
    with pytest.raises(ScratchError, match=r"labels of shape \(2,\)"):
        cross_entropy(z, [0, 1])
    with pytest.raises(ScratchError, match="probabilities of shape"):
        cross_entropy(z, np.zeros((3, 5)))
    with pytest.raises(ScratchError, match="'mean', 'sum' or 'none', got 'max'"):
        mse_loss(z, z, reduction="max")
