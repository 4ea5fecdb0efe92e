"""The four norms against PyTorch: gradients, second derivatives, running statistics, test mode, folding."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from both_engines import agree, arrays, close, few
from carried import carried
from hypothesis import given
from hypothesis import strategies as st

from didact.scratch import ScratchError, Tensor, grad, modules, tensor
from didact.scratch.normalise import batch_norm, fold, group_norm, instance_norm, layer_norm, standardise, standardise_batch

small = st.sampled_from([1, 2, 3, 5])
spatial = st.lists(small, max_size=2).map(tuple)


@few
@given(st.data(), small, small, spatial)
def test_batch_norm_in_training(data, n, c, size):
    if n * int(np.prod(size)) < 2:
        return
    x, w, b = data.draw(arrays((n, c, *size))), data.draw(arrays((c,))), data.draw(arrays((c,)))
    mine, other = (np.zeros(c), np.ones(c)), (torch.zeros(c).double(), torch.ones(c).double())
    agree(lambda x, w, b: batch_norm(x, *mine, w, b, training=True, momentum=0.3),
          lambda x, w, b: F.batch_norm(x, *other, w, b, training=True, momentum=0.3), x, w, b, tolerance=1e-8)
    for found, expected in zip(mine, other, strict=True):
        close("running statistics", found, expected)


@few
@given(st.data(), st.sampled_from([0, 1, 3]), small, spatial)
def test_batch_norm_at_test(data, n, c, size):
    x, w, b = data.draw(arrays((n, c, *size))), data.draw(arrays((c,))), data.draw(arrays((c,)))
    mean, var = data.draw(arrays((c,))), data.draw(arrays((c,), 0.1, 2.0))
    agree(lambda x, w, b: batch_norm(x, mean, var, w, b),
          lambda x, w, b: F.batch_norm(x, torch.tensor(mean), torch.tensor(var), w, b), x, w, b)


def test_the_six_gradients_are_the_short_form():
    """3.15-3.20 and what is left of dx̂ without its parts along 1 and x̂ are the same map."""
    rng = np.random.default_rng(0)
    x = tensor(rng.normal(size=(5, 3, 2)), requires_grad=True)
    dy, one, none = rng.normal(size=x.shape), Tensor(np.ones((3, 1))), Tensor(np.zeros((3, 1)))
    (six,), (short,) = grad(standardise_batch(x, one, none, 1e-5)[0], x, dy), grad(standardise(x, (0, 2), 1e-5), x, dy)
    np.testing.assert_allclose(six.data, short.data, atol=1e-12)


@few
@given(st.data(), st.lists(st.sampled_from([1, 2, 3, 0]), max_size=2).map(tuple), st.lists(small, min_size=1, max_size=2).map(tuple))
def test_layer_norm(data, batch, shape):
    x, w, b = data.draw(arrays((*batch, *shape))), data.draw(arrays(shape)), data.draw(arrays(shape))
    agree(lambda x, w, b: layer_norm(x, shape, w, b, eps=1e-2), lambda x, w, b: F.layer_norm(x, shape, w, b, eps=1e-2), x, w, b)


@few
@given(st.data(), small, st.sampled_from([1, 2, 3]), small, spatial)
def test_group_norm(data, n, groups, per_group, size):
    c = groups * per_group
    if n * per_group * int(np.prod(size)) < 2:  # PyTorch refuses a single value
        return
    x, w, b = data.draw(arrays((n, c, *size))), data.draw(arrays((c,))), data.draw(arrays((c,)))
    agree(lambda x, w, b: group_norm(x, groups, w, b, eps=1e-2), lambda x, w, b: F.group_norm(x, groups, w, b, eps=1e-2), x, w, b)


@few
@given(st.data(), small, small, st.tuples(small, small))
def test_instance_norm(data, n, c, size):
    x, w, b = data.draw(arrays((n, c, *size))), data.draw(arrays((c,))), data.draw(arrays((c,)))
    if size == (1, 1):
        with pytest.raises(ScratchError, match="more than one value"):
            instance_norm(Tensor(x))
        return
    agree(lambda x, w, b: instance_norm(x, w, b, eps=1e-2),
          lambda x, w, b: F.instance_norm(x, weight=w, bias=b, eps=1e-2), x, w, b)


def test_modules_carry_torchs_weights():
    rng = np.random.default_rng(0)
    x, kind, nn = rng.normal(size=(4, 6, 5, 3)), {"dtype": np.float64}, torch.nn
    carried(modules.BatchNorm2d(6, **kind), nn.BatchNorm2d(6), x)
    carried(modules.BatchNorm2d(6, momentum=0.4, affine=False, **kind), nn.BatchNorm2d(6, momentum=0.4, affine=False), x)
    carried(modules.BatchNorm1d(6, **kind), nn.BatchNorm1d(6), x[..., 0, 0])
    carried(modules.LayerNorm((5, 3), **kind), nn.LayerNorm((5, 3)), x)
    carried(modules.LayerNorm(3, affine=False), nn.LayerNorm(3, elementwise_affine=False), x)
    carried(modules.GroupNorm(3, 6, **kind), nn.GroupNorm(3, 6), x)
    carried(modules.InstanceNorm2d(6), nn.InstanceNorm2d(6), x)
    carried(modules.InstanceNorm2d(6, affine=True, **kind), nn.InstanceNorm2d(6, affine=True), x)


def test_running_statistics_over_batches_then_eval():
    rng = np.random.default_rng(0)
    ours, theirs = modules.BatchNorm2d(3, dtype=np.float64), torch.nn.BatchNorm2d(3).double()
    for _ in range(5):
        x = rng.normal(2, 3, size=(4, 3, 2, 5))
        ours(Tensor(x)), theirs(torch.from_numpy(x))
    assert ours.num_batches_tracked == 5
    carried(ours.eval(), theirs.eval(), x)
    np.testing.assert_allclose(ours.running_var, theirs.running_var.numpy(), rtol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_a_batch_norm_folds_into_the_layer_before_it(bias, affine):
    rng = np.random.default_rng(0)
    for layer, norm, shape in (
        (modules.Linear(4, 6, bias, rng=1, dtype=np.float64), modules.BatchNorm1d(6, affine=affine, dtype=np.float64), (8, 4)),
        (modules.Conv2d(4, 6, 3, groups=2, bias=bias, rng=1, dtype=np.float64), modules.BatchNorm2d(6, affine=affine, dtype=np.float64),
         (2, 4, 5, 6)),
    ):
        for _ in range(3):
            norm(layer(Tensor(rng.normal(1, 2, size=shape))))
        if affine:
            norm.weight.data[:], norm.bias.data[:] = rng.normal(size=(2, 6))
        norm.eval()
        x, before = Tensor(rng.normal(size=shape)), layer.weight.data.copy()
        np.testing.assert_allclose(fold(layer, norm)(x).data, norm(layer(x)).data, atol=1e-12)
        np.testing.assert_array_equal(layer.weight.data, before)


def test_what_does_not_fit_is_named():
    with pytest.raises(ScratchError, match=r"batch_norm.*\(2, 3\).*\(4,\)"):
        batch_norm(Tensor(np.ones((2, 3))), np.zeros(4), np.ones(4))
    with pytest.raises(ScratchError, match="more than one value"):
        modules.BatchNorm1d(3)(Tensor(np.ones((1, 3), np.float32)))
    with pytest.raises(ScratchError, match=r"layer_norm.*\(2, 3\).*\(4,\)"):
        layer_norm(Tensor(np.ones((2, 3))), (4,))
    with pytest.raises(ScratchError, match="2 groups do not divide"):
        group_norm(Tensor(np.ones((2, 3))), 2)
    with pytest.raises(ScratchError, match="transposed"):
        fold(modules.ConvTranspose2d(5, 5, 3), modules.BatchNorm2d(5))
    with pytest.raises(ScratchError, match="6 outputs"):
        fold(modules.Linear(2, 6), modules.BatchNorm1d(5))
