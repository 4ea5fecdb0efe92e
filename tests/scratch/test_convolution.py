"""Convolution, transposed convolution and pooling against PyTorch: strides, paddings, dilations, groups."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from didact.scratch import ScratchError, Tensor, modules, tensor
from didact.scratch.convolution import conv1d, conv2d, convolution, convolution_transpose
from didact.scratch.pooling import avg_pool, max_pool
from helpers.module_comparison import assert_module_matches_torch
from helpers.op_comparison import assert_matches_torch, few_examples


@st.composite
def convolution_cases(draw: Any, axes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """x, w, b and settings such that at least one window fits."""
    draw_per_axis = lambda low, high: draw(st.tuples(*[st.integers(low, high)] * axes))  # noqa: E731
    kernel, stride, padding, dilation = (
        draw_per_axis(1, 3),
        draw_per_axis(1, 3),
        draw_per_axis(0, 2),
        draw_per_axis(1, 2),
    )
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    n, c, o = draw(st.sampled_from([1, 2, 3, 0])), groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    size = [
        max(1, d * (k - 1) + 1 - 2 * p) + draw(st.integers(0, 4))
        for k, p, d in zip(kernel, padding, dilation, strict=True)
    ]
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    x, w, b = rng.normal(size=(n, c, *size)), rng.normal(size=(o, c // groups, *kernel)), rng.normal(size=o)
    return x, w, b, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


@few_examples
@given(convolution_cases(2))
def test_conv2d_matches_torch(case):
    x, w, b, settings = case
    assert_matches_torch(
        lambda x, w, b: conv2d(x, w, b, **settings), lambda x, w, b: F.conv2d(x, w, b, **settings), x, w, b
    )


@few_examples
@given(convolution_cases(1))
def test_conv1d_matches_torch(case):
    x, w, b, settings = case
    assert_matches_torch(
        lambda x, w, b: conv1d(x, w, b, **settings), lambda x, w, b: F.conv1d(x, w, b, **settings), x, w, b
    )


@few_examples
@given(convolution_cases(2), st.booleans())
def test_conv_transpose2d_matches_torch(case, with_output_padding):
    """A sampled convolution run backwards: its output size is the input size of the transpose."""
    x, w, _, settings = case
    settings = settings | {"output_padding": tuple(int(with_output_padding and s > 1) for s in settings["stride"])}
    y = np.random.default_rng(0).normal(size=(x.shape[0], w.shape[0], 3, 2))
    b = np.random.default_rng(1).normal(size=w.shape[1] * settings["groups"])
    try:
        F.conv_transpose2d(*map(torch.from_numpy, (y, w, b)), **settings)
    except RuntimeError:  # the padding eats the whole output: both refuse
        with pytest.raises(ScratchError, match="conv_transpose2d"):
            convolution_transpose(Tensor(y), Tensor(w), Tensor(b), **settings)
        return
    assert_matches_torch(
        lambda *t: convolution_transpose(*t, **settings), lambda *t: F.conv_transpose2d(*t, **settings), y, w, b
    )


def test_convolution_handles_three_axes():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 2, 4, 5, 3)), rng.normal(size=(3, 2, 2, 3, 1))
    assert_matches_torch(lambda x, w: convolution(x, w, padding=1), lambda x, w: F.conv3d(x, w, padding=1), x, w)


def test_conv1d_does_not_flip_the_kernel():
    """Groudiev 4.2.2 defines convolution with a flip; layers compute the cross-correlation."""
    x, w = tensor(np.arange(5.0).reshape(1, 1, 5)), tensor(np.array([[[1.0, 0.0, -1.0]]]))
    np.testing.assert_array_equal(conv1d(x, w).data, [[[-2, -2, -2]]])


def test_conv2d_is_translation_equivariant():
    """Equivariance (Gaba's definition 4.1 says invariance)."""
    rng = np.random.default_rng(0)
    x, w = np.zeros((1, 2, 9, 9)), Tensor(rng.normal(size=(3, 2, 3, 3)))
    x[:, :, 2:6, 2:6] = rng.normal(size=(1, 2, 4, 4))
    y, shifted_output = (conv2d(Tensor(v), w, padding=1).data for v in (x, np.roll(x, (1, 2), (2, 3))))
    np.testing.assert_allclose(np.roll(y, (1, 2), (2, 3)), shifted_output, atol=1e-12)


@st.composite
def pooling_cases(draw: Any) -> tuple[np.ndarray, dict[str, Any]]:
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    stride = draw(st.none() | st.tuples(st.integers(1, 3), st.integers(1, 3)))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    n, c = draw(st.sampled_from([1, 2, 0])), draw(st.integers(1, 3))
    size = [k + draw(st.integers(0, 5)) for k in kernel]
    x = np.random.default_rng(draw(st.integers(0, 2**16))).normal(size=(n, c, *size))
    # rounded: many ties
    return np.round(x, draw(st.sampled_from([0, 8]))), {"kernel": kernel, "stride": stride, "padding": padding}


@few_examples
@given(pooling_cases(), st.integers(1, 2))
def test_max_pool_matches_torch(case, dilation):
    x, s = case
    if all(h + 2 * p >= dilation * (k - 1) + 1 for h, p, k in zip(x.shape[2:], s["padding"], s["kernel"], strict=True)):
        assert_matches_torch(lambda x: max_pool(x, **s, dilation=dilation),
              lambda x: F.max_pool2d(x, s["kernel"], s["stride"], s["padding"], dilation), x)


@few_examples
@given(pooling_cases(), st.booleans())
def test_avg_pool_matches_torch(case, count_include_pad):
    x, s = case
    assert_matches_torch(lambda x: avg_pool(x, **s, count_include_pad=count_include_pad),
          lambda x: F.avg_pool2d(x, s["kernel"], s["stride"], s["padding"], count_include_pad=count_include_pad), x)


def test_convolution_modules_match_torch_with_its_weights():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4, 9, 7))
    options, nn = {"dtype": np.float64}, torch.nn
    assert_module_matches_torch(
        modules.Conv2d(4, 6, (3, 2), 2, 1, 1, 2, **options), nn.Conv2d(4, 6, (3, 2), 2, 1, 1, 2), x
    )
    assert_module_matches_torch(
        modules.Conv1d(4, 6, 3, padding=1, bias=False, **options), nn.Conv1d(4, 6, 3, padding=1, bias=False), x[..., 0]
    )
    assert_module_matches_torch(
        modules.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2, **options), nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2), x
    )
    assert_module_matches_torch(modules.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, 2, 1), x)
    assert_module_matches_torch(modules.AvgPool2d(2), nn.AvgPool2d(2), x)


def test_convolution_and_pooling_keep_float32():
    net = modules.Sequential(
        modules.Conv2d(1, 2, 3, padding=1), modules.ReLU(), modules.MaxPool2d(2), modules.AvgPool2d(2)
    )
    x = tensor(np.ones((2, 1, 8, 8), np.float32), requires_grad=True)
    y = net(x)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == net[0].weight.grad.dtype == np.float32


def test_convolution_and_pooling_name_what_does_not_fit():
    x, w = Tensor(np.zeros((1, 3, 4, 4))), Tensor(np.zeros((2, 2, 3, 3)))
    with pytest.raises(ScratchError, match=r"conv2d.*\(1, 3, 4, 4\).*\(2, 2, 3, 3\)"):
        conv2d(x, w)
    with pytest.raises(ScratchError, match=r"kernel \(5, 5\) does not fit into the padded input \(4, 4\)"):
        conv2d(x, Tensor(np.zeros((2, 3, 5, 5))))
    with pytest.raises(ScratchError, match="half of the kernel"):
        max_pool(x, 2, padding=2)
    with pytest.raises(ScratchError, match=r"conv_transpose2d.*\(1, 3, 4, 4\).*\(2, 2, 3, 3\)"):
        convolution_transpose(x, w)
    with pytest.raises(ScratchError, match="groups=2"):
        modules.Conv2d(3, 4, 3, groups=2)
