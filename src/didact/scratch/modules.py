"""Layers that own their parameters, named and shaped as in torch.nn: weights go from one engine to the other by name.

Each is thin: it samples its parameters (as PyTorch does: U(±1/√n_in)) and calls the function that holds the derivation.
`rng` is a generator or a seed, `dtype` float32 or float64. Recurrent layers and attention are in `sequence.py`.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import Any, ClassVar

import numpy as np

from didact.scratch import activation, convolution, pooling
from didact.scratch.autograd.tensor import ScratchError, Tensor
from didact.scratch.convolution import Size, per_axis
from didact.scratch.dropout import dropout
from didact.scratch.embedding import embedding
from didact.scratch.init import Rng, normal, uniform, zeros
from didact.scratch.linear_layer import linear
from didact.scratch.module import Module, Sequential, parameter
from didact.scratch.norm import batch_norm, group_norm, instance_norm, layer_norm
from didact.scratch.sequence import GRU, LSTM, RNN, MultiHeadAttention

__all__ = [
    "GELU", "GRU", "LSTM", "RNN", "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "Conv1d", "Conv2d", "ConvTranspose2d",
    "Dropout", "Embedding",
    "Flatten", "GroupNorm", "InstanceNorm2d", "LayerNorm", "LeakyReLU", "Linear", "MaxPool2d", "Module",
    "MultiHeadAttention", "ReLU",
    "Sequential", "Sigmoid", "Tanh",
]  # fmt: skip


class ReLU(Module):
    """y = max(0, x)."""
    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


class Tanh(Module):
    """y = tanh x."""
    def forward(self, x: Tensor) -> Tensor:
        return x.tanh()


class Sigmoid(Module):
    """y = 1/(1 + e⁻ˣ)."""
    def forward(self, x: Tensor) -> Tensor:
        return x.sigmoid()


class LeakyReLU(Module):
    """y = x for x > 0, else `slope` · x."""
    def __init__(self, slope: float = 0.01):
        super().__init__()
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return activation.leaky_relu(x, self.slope)


class GELU(Module):
    """y = x Φ(x); `approximate` is "none" or "tanh"."""

    def __init__(self, approximate: str = "none"):
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise ScratchError(f"GELU: approximate is 'none' or 'tanh', got {approximate!r}")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return activation.gelu(x) if self.approximate == "none" else activation.gelu_tanh(x)


class Flatten(Module):
    """(N, C, H, W) -> (N, C·H·W)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], prod(x.shape[1:]))


class Linear(Module):
    """y = x Wᵀ + b, W (out, in)."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, *, rng: Rng = None, dtype: Any = np.float32):
        super().__init__()
        rng, bound = np.random.default_rng(rng), 1 / sqrt(max(inputs, 1))
        self.weight = parameter(uniform((outputs, inputs), bound, rng, dtype))
        self.bias = parameter(uniform((outputs,), bound, rng, dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class _ConvNd(Module):
    """What Conv1d and Conv2d share; the number of axes is the only difference."""

    axes: ClassVar[int]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        rng: Rng = None,
        dtype: Any = np.float32,
    ):
        super().__init__()
        if inputs % groups or outputs % groups:
            raise ScratchError(f"groups={groups} must divide the channels, {inputs} in and {outputs} out")
        rng, shape = np.random.default_rng(rng), (outputs, inputs // groups, *per_axis(kernel, self.axes))
        bound = 1 / sqrt(max(prod(shape[1:]), 1))
        self.weight = parameter(uniform(shape, bound, rng, dtype))
        self.bias = parameter(uniform((outputs,), bound, rng, dtype)) if bias else None
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups

    def forward(self, x: Tensor) -> Tensor:
        return convolution.convolution(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )


class Conv1d(_ConvNd):
    axes = 1


class Conv2d(_ConvNd):
    axes = 2


class ConvTranspose2d(Module):
    """Transposed convolution; W (in, out/groups, kH, kW) is that of the convolution which maps the other way."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        *,
        rng: Rng = None,
        dtype: Any = np.float32,
    ):
        super().__init__()
        if inputs % groups or outputs % groups:
            raise ScratchError(f"groups={groups} must divide the channels, {inputs} in and {outputs} out")
        rng, shape = np.random.default_rng(rng), (inputs, outputs // groups, *per_axis(kernel, 2))
        bound = 1 / sqrt(max(prod(shape[1:]), 1))
        self.weight = parameter(uniform(shape, bound, rng, dtype))
        self.bias = parameter(uniform((outputs,), bound, rng, dtype)) if bias else None
        self.stride, self.padding, self.output_padding, self.groups, self.dilation = (
            stride,
            padding,
            output_padding,
            groups,
            dilation,
        )

    def forward(self, x: Tensor) -> Tensor:
        return convolution.convolution_transpose(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            output_padding=self.output_padding,
            dilation=self.dilation,
            groups=self.groups,
        )


class MaxPool2d(Module):
    """The maximum of every window."""
    def __init__(self, kernel: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1):
        super().__init__()
        self.kernel, self.stride, self.padding, self.dilation = kernel, stride, padding, dilation

    def forward(self, x: Tensor) -> Tensor:
        return pooling.max_pool(x, self.kernel, self.stride, self.padding, self.dilation)


class AvgPool2d(Module):
    """The mean of every window."""
    def __init__(self, kernel: Size, stride: Size | None = None, padding: Size = 0, count_include_pad: bool = True):
        super().__init__()
        self.kernel, self.stride, self.padding, self.count_include_pad = kernel, stride, padding, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        return pooling.avg_pool(x, self.kernel, self.stride, self.padding, self.count_include_pad)


class BatchNorm1d(Module):
    """Batch norm: statistics of the batch while training, running statistics in eval mode; for (N, C) and (N, C, T)."""

    def __init__(
        self, channels: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True, *, dtype: Any = np.float32
    ):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = parameter(np.ones(channels, dtype)) if affine else None
        self.bias = parameter(zeros((channels,), dtype)) if affine else None
        self.running_mean, self.running_var = zeros((channels,), dtype), np.ones(channels, dtype)
        self.num_batches_tracked = np.array(0)

    def forward(self, x: Tensor) -> Tensor:
        self.num_batches_tracked += self.training
        return batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, training=self.training,
                          momentum=self.momentum, eps=self.eps)


class BatchNorm2d(BatchNorm1d):
    """Batch norm of (N, C, H, W): the statistics of a channel are over batch, height and width."""


class LayerNorm(Module):
    """Layer norm over the last axes, those of `shape`."""
    def __init__(self, shape: Size, eps: float = 1e-5, affine: bool = True, *, dtype: Any = np.float32):
        super().__init__()
        self.shape, self.eps = per_axis(shape, 1), eps
        self.weight = parameter(np.ones(self.shape, dtype)) if affine else None
        self.bias = parameter(zeros(self.shape, dtype)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class GroupNorm(Module):
    """Group norm: statistics over space and the channels of a group."""
    def __init__(self, groups: int, channels: int, eps: float = 1e-5, affine: bool = True, *, dtype: Any = np.float32):
        super().__init__()
        self.groups, self.eps = groups, eps
        self.weight = parameter(np.ones(channels, dtype)) if affine else None
        self.bias = parameter(zeros((channels,), dtype)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return group_norm(x, self.groups, self.weight, self.bias, self.eps)


class InstanceNorm2d(Module):
    """Instance norm; without parameters by default, as in PyTorch."""

    def __init__(self, channels: int, eps: float = 1e-5, affine: bool = False, *, dtype: Any = np.float32):
        super().__init__()
        self.eps = eps
        self.weight = parameter(np.ones(channels, dtype)) if affine else None
        self.bias = parameter(zeros((channels,), dtype)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return instance_norm(x, self.weight, self.bias, self.eps)


class Dropout(Module):
    """Dropout with probability `p` while training, the identity in eval mode."""
    def __init__(self, p: float = 0.5, *, rng: Rng = None):
        super().__init__()
        self.p, self.rng = p, np.random.default_rng(rng)

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.rng, self.training)


class Embedding(Module):
    """A table of N(0, 1) rows; the row of `padding_idx` starts at 0 and stays there."""

    def __init__(
        self, tokens: int, width: int, padding_idx: int | None = None, *, rng: Rng = None, dtype: Any = np.float32
    ):
        super().__init__()
        table = normal((tokens, width), 1.0, rng, dtype)
        if padding_idx is not None:
            table[padding_idx] = 0
        self.weight, self.padding_idx = parameter(table), padding_idx

    def forward(self, ids: Any) -> Tensor:
        return embedding(ids, self.weight, self.padding_idx)
