"""The four norms against PyTorch: gradients, second derivatives, running statistics, eval mode, folding."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from didact.scratch import ScratchError, Tensor, grad, modules, tensor
from didact.scratch.norm import (
    batch_norm,
    fold_batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    standardize,
    standardize_batch,
)
from helpers.module_comparison import assert_module_matches_torch
from helpers.op_comparison import arrays, assert_close, assert_matches_torch, few_examples

small_sizes = st.sampled_from([1, 2, 3, 5])
spatial_shapes = st.lists(small_sizes, max_size=2).map(tuple)


@few_examples
@given(st.data(), small_sizes, small_sizes, spatial_shapes)
def test_batch_norm_in_training_matches_torch(data, n, c, size):
    if n * int(np.prod(size)) < 2:
        return
    x, w, b = data.draw(arrays((n, c, *size))), data.draw(arrays((c,))), data.draw(arrays((c,)))
    scratch_statistics, torch_statistics = (np.zeros(c), np.ones(c)), (torch.zeros(c).double(), torch.ones(c).double())
    assert_matches_torch(
        lambda x, w, b: batch_norm(x, *scratch_statistics, w, b, training=True, momentum=0.3),
        lambda x, w, b: F.batch_norm(x, *torch_statistics, w, b, training=True, momentum=0.3),
        x,
        w,
        b,
        tolerance=1e-8,
    )
    for actual, expected in zip(scratch_statistics, torch_statistics, strict=True):
        assert_close("running statistics", actual, expected)


@few_examples
@given(st.data(), st.sampled_from([0, 1, 3]), small_sizes, spatial_shapes)
def test_batch_norm_in_eval_matches_torch(data, n, c, size):
    x, w, b = data.draw(arrays((n, c, *size))), data.draw(arrays((c,))), data.draw(arrays((c,)))
    mean, var = data.draw(arrays((c,))), data.draw(arrays((c,), 0.1, 2.0))
    assert_matches_torch(lambda x, w, b: batch_norm(x, mean, var, w, b),
          lambda x, w, b: F.batch_norm(x, torch.tensor(mean), torch.tensor(var), w, b), x, w, b)


def test_batch_norm_six_equations_are_the_short_form():
    """Equations 3.15-3.20 and dx̂ without its parts along 1 and x̂ are the same map."""
    rng = np.random.default_rng(0)
    x = tensor(rng.normal(size=(5, 3, 2)), requires_grad=True)
    dy, scale, shift = rng.normal(size=x.shape), Tensor(np.ones((3, 1))), Tensor(np.zeros((3, 1)))
    (six_equations_grad,), (short_form_grad,) = (
        grad(standardize_batch(x, scale, shift, 1e-5)[0], x, dy),
        grad(standardize(x, (0, 2), 1e-5), x, dy),
    )
    np.testing.assert_allclose(six_equations_grad.data, short_form_grad.data, atol=1e-12)


@few_examples
@given(
    st.data(),
    st.lists(st.sampled_from([1, 2, 3, 0]), max_size=2).map(tuple),
    st.lists(small_sizes, min_size=1, max_size=2).map(tuple),
)
def test_layer_norm_matches_torch(data, batch, shape):
    x, w, b = data.draw(arrays((*batch, *shape))), data.draw(arrays(shape)), data.draw(arrays(shape))
    assert_matches_torch(
        lambda x, w, b: layer_norm(x, shape, w, b, eps=1e-2),
        lambda x, w, b: F.layer_norm(x, shape, w, b, eps=1e-2),
        x,
        w,
        b,
    )


@few_examples
@given(st.data(), small_sizes, st.sampled_from([1, 2, 3]), small_sizes, spatial_shapes)
def test_group_norm_matches_torch(data, n, groups, per_group, size):
    c = groups * per_group
    if n * per_group * int(np.prod(size)) < 2:  # PyTorch refuses a single value
        return
    x, w, b = data.draw(arrays((n, c, *size))), data.draw(arrays((c,))), data.draw(arrays((c,)))
    assert_matches_torch(
        lambda x, w, b: group_norm(x, groups, w, b, eps=1e-2),
        lambda x, w, b: F.group_norm(x, groups, w, b, eps=1e-2),
        x,
        w,
        b,
    )


@few_examples
@given(st.data(), small_sizes, small_sizes, st.tuples(small_sizes, small_sizes))
def test_instance_norm_matches_torch(data, n, c, size):
    x, w, b = data.draw(arrays((n, c, *size))), data.draw(arrays((c,))), data.draw(arrays((c,)))
    if size == (1, 1):
        with pytest.raises(ScratchError, match="more than one value"):
            instance_norm(Tensor(x))
        return
    assert_matches_torch(lambda x, w, b: instance_norm(x, w, b, eps=1e-2),
          lambda x, w, b: F.instance_norm(x, weight=w, bias=b, eps=1e-2), x, w, b)


def test_norm_modules_match_torch_with_its_weights():
    rng = np.random.default_rng(0)
    x, options, nn = rng.normal(size=(4, 6, 5, 3)), {"dtype": np.float64}, torch.nn
    assert_module_matches_torch(modules.BatchNorm2d(6, **options), nn.BatchNorm2d(6), x)
    assert_module_matches_torch(
        modules.BatchNorm2d(6, momentum=0.4, affine=False, **options), nn.BatchNorm2d(6, momentum=0.4, affine=False), x
    )
    assert_module_matches_torch(modules.BatchNorm1d(6, **options), nn.BatchNorm1d(6), x[..., 0, 0])
    assert_module_matches_torch(modules.LayerNorm((5, 3), **options), nn.LayerNorm((5, 3)), x)
    assert_module_matches_torch(modules.LayerNorm(3, affine=False), nn.LayerNorm(3, elementwise_affine=False), x)
    assert_module_matches_torch(modules.GroupNorm(3, 6, **options), nn.GroupNorm(3, 6), x)
    assert_module_matches_torch(modules.InstanceNorm2d(6), nn.InstanceNorm2d(6), x)
    assert_module_matches_torch(modules.InstanceNorm2d(6, affine=True, **options), nn.InstanceNorm2d(6, affine=True), x)


def test_batch_norm_running_statistics_match_torch():
    rng = np.random.default_rng(0)
    scratch_norm, torch_norm = modules.BatchNorm2d(3, dtype=np.float64), torch.nn.BatchNorm2d(3).double()
    for _ in range(5):
        x = rng.normal(2, 3, size=(4, 3, 2, 5))
        scratch_norm(Tensor(x)), torch_norm(torch.from_numpy(x))
    assert scratch_norm.num_batches_tracked == 5
    assert_module_matches_torch(scratch_norm.eval(), torch_norm.eval(), x)
    np.testing.assert_allclose(scratch_norm.running_var, torch_norm.running_var.numpy(), rtol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_fold_batch_norm_gives_the_same_outputs(bias, affine):
    rng = np.random.default_rng(0)
    for layer, norm, shape in (
        (
            modules.Linear(4, 6, bias, rng=1, dtype=np.float64),
            modules.BatchNorm1d(6, affine=affine, dtype=np.float64),
            (8, 4),
        ),
        (
            modules.Conv2d(4, 6, 3, groups=2, bias=bias, rng=1, dtype=np.float64),
            modules.BatchNorm2d(6, affine=affine, dtype=np.float64),
            (2, 4, 5, 6),
        ),
    ):
        for _ in range(3):
            norm(layer(Tensor(rng.normal(1, 2, size=shape))))
        if affine:
            norm.weight.data[:], norm.bias.data[:] = rng.normal(size=(2, 6))
        norm.eval()
        x, original_weight = Tensor(rng.normal(size=shape)), layer.weight.data.copy()
        np.testing.assert_allclose(fold_batch_norm(layer, norm)(x).data, norm(layer(x)).data, atol=1e-12)
        np.testing.assert_array_equal(layer.weight.data, original_weight)


def test_norms_name_what_does_not_fit():
    with pytest.raises(ScratchError, match=r"batch_norm.*\(2, 3\).*\(4,\)"):
        batch_norm(Tensor(np.ones((2, 3))), np.zeros(4), np.ones(4))
    with pytest.raises(ScratchError, match="more than one value"):
        modules.BatchNorm1d(3)(Tensor(np.ones((1, 3), np.float32)))
    with pytest.raises(ScratchError, match=r"layer_norm.*\(2, 3\).*\(4,\)"):
        layer_norm(Tensor(np.ones((2, 3))), (4,))
    with pytest.raises(ScratchError, match="2 groups do not divide"):
        group_norm(Tensor(np.ones((2, 3))), 2)
    with pytest.raises(ScratchError, match="transposed"):
        fold_batch_norm(modules.ConvTranspose2d(5, 5, 3), modules.BatchNorm2d(5))
    with pytest.raises(ScratchError, match="6 outputs"):
        fold_batch_norm(modules.Linear(2, 6), modules.BatchNorm1d(5))
