"""Synchronized batch norm: mean and variance of the whole batch over all processes.

PyTorch's own SyncBatchNorm has no CPU path.
"""

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class _AllReduceSum(torch.autograd.Function):
    """s = Σ_p x_p over processes p. The loss of every process depends on s, so dx is the sum of all their ds."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, dtotal: Tensor) -> Any:
        total = dtotal.contiguous().clone()
        dist.all_reduce(total)
        return total


def convert_sync_batch_norm(module: nn.Module) -> None:
    """Make every batch norm inside use statistics over all processes in training."""
    for norm in module.modules():
        if isinstance(norm, _BatchNorm):
            norm.forward = partial(_sync_forward, norm)  # type: ignore[method-assign]


def _sync_forward(norm: _BatchNorm, x: Tensor) -> Tensor:
    """y = γ (x − μ) / √(σ² + ε) + β with μ, σ² over the rows (and positions) of every process.  Ioffe and Szegedy
    2015"""
    if not norm.training:
        return type(norm).forward(norm, x)
    axes = [0, *range(2, x.ndim)]
    shape = [1, -1] + [1] * (x.ndim - 2)
    x_float32 = x.float()
    count = x_float32.new_full((1,), x.numel() / x.shape[1])
    total: Tensor = _AllReduceSum.apply(torch.cat([x_float32.sum(axes), count]))  # type: ignore[no-untyped-call]
    n = total[-1].detach()
    mean = total[:-1] / n
    centered = x_float32 - mean.view(shape)
    variance: Tensor = _AllReduceSum.apply(centered.square().sum(axes)) / n  # type: ignore[no-untyped-call]
    _update_running_stats(norm, mean.detach(), variance.detach() * n / (n - 1))
    y = centered * (variance + norm.eps).rsqrt().view(shape)
    if norm.affine:
        y = y * norm.weight.view(shape) + norm.bias.view(shape)
    return y.to(x.dtype)


def _update_running_stats(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Update the running mean and (unbiased) variance that are used in evaluation."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked += 1
    momentum = norm.momentum if norm.momentum is not None else 1 / norm.num_batches_tracked
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), momentum)
    norm.running_var.lerp_(variance.to(norm.running_var.dtype), momentum)
