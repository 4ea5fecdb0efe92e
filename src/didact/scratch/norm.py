"""Batch, layer, instance and group normalization (Gaba 3.5-3.6, Groudiev 4.5): one formula, four sets of axes.

    x̂ = (x − μ) / √(σ² + ε),   y = γ x̂ + β,      μ and σ² (over m values, divided by m) for each

        channel                over batch and space     batch norm
        example                over features            layer norm
        example and channel    over space               instance norm
        example and group of channels                   group norm
"""

from copy import copy
from math import prod
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from didact.scratch.autograd.tensor import Array, Grads, ScratchError, Tensor, is_recording, record_op

if TYPE_CHECKING:
    from didact.scratch.modules import BatchNorm1d, BatchNorm2d, Conv1d, Conv2d, Linear

    Layer = TypeVar("Layer", bound=Linear | Conv1d | Conv2d)


def batch_norm(
    x: Tensor,
    running_mean: Array,
    running_var: Array,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Batch norm: statistics of the batch in training, which also updates the running ones; in eval mode those.

    In eval mode it is an affine map (Groudiev 4.5.2). `momentum` is the weight of the new value, and the running
    variance is the unbiased one, 1/(m − 1), as in PyTorch.
    """
    if x.ndim < 2 or x.shape[1] != len(running_mean):
        raise ScratchError(
            f"batch_norm: an input of shape {x.shape} does not fit statistics of shape {running_mean.shape}"
        )
    column = (1, -1, *(1,) * (x.ndim - 2))
    gamma = Tensor(np.ones_like(running_mean)) if weight is None else weight
    beta = Tensor(np.zeros_like(running_mean)) if bias is None else bias
    if not training:
        scale = gamma / Tensor(np.sqrt(running_var + running_var.dtype.type(eps)))
        shift = beta - Tensor(running_mean) * scale
        return x * scale.reshape(column) + shift.reshape(column)
    m = x.size // x.shape[1] if x.shape[1] else 0
    if m < 2:
        raise ScratchError(
            f"batch_norm: needs more than one value for each channel to train, got an input of shape {x.shape}"
        )
    y, mean, var = standardize_batch(x, gamma.reshape(column), beta.reshape(column), eps)
    running_mean += momentum * (mean.reshape(-1) - running_mean)
    running_var += momentum * (var.reshape(-1) * (m / (m - 1)) - running_var)
    return y


def standardize_batch(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> tuple[Tensor, Array, Array]:
    """y = γ x̂ + β, with the batch's μ and σ²; backward are equations 3.15-3.20 of Gaba, δ = dy."""
    axes = (0, *range(2, x.ndim))
    m = x.size // x.shape[1]
    mean = x.data.mean(axes, keepdims=True)
    centered = x.data - mean
    var = (centered * centered).mean(axes, keepdims=True)
    y = centered * (gamma.data / np.sqrt(var + eps)) + beta.data

    def vjp(delta: Tensor) -> Grads:
        if is_recording():  # a second derivative goes through μ and σ² too
            centered_x = x - x.mean(axes, keepdims=True)
            var_eps = centered_x.square().mean(axes, keepdims=True) + eps
        else:
            # subtracting again is cheaper than keeping the difference until backward
            centered_x, var_eps = Tensor(x.data - mean), Tensor(var + eps)
        root = var_eps.sqrt()
        x_hat = centered_x / root

        d_gamma = (delta * x_hat).sum(axes, keepdims=True)                                    # 3.15
        d_beta = delta.sum(axes, keepdims=True)                                               # 3.16
        d_x_hat = delta * gamma                                                               # 3.17
        d_var = (d_x_hat * centered_x).sum(axes, keepdims=True) * -0.5 * var_eps ** -1.5            # 3.18
        d_mean = d_x_hat.sum(axes, keepdims=True) * -1.0 / root  # 3.19; the path through σ² is Σ(x − μ) = 0
        dx = d_x_hat / root + d_var * 2.0 * centered_x / m + d_mean / m                             # 3.20
        return dx, d_gamma, d_beta

    return record_op("batch_norm", y, (x, gamma, beta), vjp, saved=(x, gamma)), mean, var


def standardize(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    """x̂ = (x − μ) r with r = 1/√(σ² + ε);  dx = r (dx̂ − mean(dx̂) − x̂ · mean(dx̂ x̂)).

    That is 3.17-3.20 with d_var and d_mean put in: what is left of dx̂ once its parts along 1 and along x̂ are taken
    out.
    """
    centered = x.data - x.data.mean(axes, keepdims=True)
    r = 1 / np.sqrt((centered * centered).mean(axes, keepdims=True) + eps)
    centered *= r

    def vjp(dy: Tensor, x_hat: Tensor) -> Grads:
        scale = (x.var(axes, correction=0, keepdims=True) + eps) ** -0.5 if is_recording() else Tensor(r)
        projection = (dy * x_hat).mean(axes, keepdims=True)
        return (scale * (dy - dy.mean(axes, keepdims=True) - x_hat * projection),)

    return record_op("standardize", centered, (x,), vjp, saved=(x,), own=True)


def layer_norm(
    x: Tensor, shape: tuple[int, ...], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Layer norm: statistics over the last axes, those of `shape`, for each example by itself.

    Nothing to remember: training and eval mode are the same.
    """
    if x.shape[x.ndim - len(shape):] != shape:
        raise ScratchError(f"layer_norm: an input of shape {x.shape} does not end in {shape}")
    y = standardize(x, tuple(range(-len(shape), 0)), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def group_norm(
    x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Group norm: statistics over space and the channels of a group.

    One group is the layer norm of (C, H, W); as many groups as channels, the instance norm.
    """
    if x.shape[1] % groups:
        raise ScratchError(f"group_norm: {groups} groups do not divide the channels of an input of shape {x.shape}")
    per_group = (x.shape[0], groups, x.shape[1] // groups * prod(x.shape[2:]))
    y = standardize(x.reshape(per_group), (2,), eps).reshape(x.shape)
    column = (-1, *(1,) * (x.ndim - 2))
    y = y if weight is None else y * weight.reshape(column)
    return y if bias is None else y + bias.reshape(column)


def instance_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Instance norm: statistics over space for each example and channel.

    Groudiev 4.5.5 calls it the layer norm of images, which it is not.
    """
    if prod(x.shape[2:]) < 2:
        raise ScratchError(f"instance_norm: needs more than one value in space, got an input of shape {x.shape}")
    return group_norm(x, x.shape[1], weight, bias, eps)


def fold_batch_norm(layer: "Layer", norm: "BatchNorm1d | BatchNorm2d") -> "Layer":
    """One layer that computes norm(layer(x)) in eval mode.  Groudiev 4.5.2.

        W′ = diag(γ/√(σ² + ε)) W,    b′ = γ (b − μ)/√(σ² + ε) + β
    """
    w, out = layer.weight.data, len(layer.weight.data)
    if hasattr(layer, "output_padding"):
        raise ScratchError(
            "fold_batch_norm: needs a linear or convolution layer; outputs of a transposed one lie on another axis"
        )
    if norm.running_mean.shape != (out,):
        raise ScratchError(
            f"fold_batch_norm: a layer with {out} outputs does not fit a batch norm of {len(norm.running_mean)}"
        )
    gamma = 1.0 if norm.weight is None else norm.weight.data
    beta = 0.0 if norm.bias is None else norm.bias.data
    scale = np.asarray(gamma / np.sqrt(norm.running_var + norm.eps), w.dtype)
    b = 0.0 if layer.bias is None else layer.bias.data
    folded = copy(layer)
    folded.weight = Tensor(w * scale.reshape(-1, *(1,) * (w.ndim - 1)), requires_grad=True)
    folded.bias = Tensor(np.asarray((b - norm.running_mean) * scale + beta, w.dtype), requires_grad=True)
    return folded
