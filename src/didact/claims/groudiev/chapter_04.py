"""Groudiev, chapter 4: convolutional networks."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didact.analysis.receptive_field import SlidingWindow
from didact.claims.forms import Conditional, CorrectedClaim, Display, Equal, Exactly
from didact.claims.gaba import chapter_03 as gaba_3
from didact.claims.gaba import chapter_04 as gaba_4
from didact.claims.groudiev.chapter_03 import to_scratch
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.layers.autoencoder_blocks import dense_encoder
from didact.models.vision.lenet import LeNet5
from didact.scratch import modules, norm
from didact.scratch.convolution import conv2d, convolution_transpose
from didact.scratch.pooling import max_pool


def _cross_correlate(x: Tensor, k: Tensor) -> Any:
    """The convolution of didact's engine, of one image with one kernel."""
    return conv2d(to_scratch(x[None, None]), to_scratch(k[None, None])).data[0, 0]


@claim("CE33", Exactly((1024, 3072)))
def size_of_flattened_images() -> tuple[int, ...]:
    """inputs of the first layer of didact's dense encoder, for images of 32 × 32 and 32 × 32 × 3"""
    return tuple(dense_encoder((c, 32, 32), ())[0](torch.zeros(2, c, 32, 32)).shape[1] for c in (1, 3))


@claim(
    "CE34",
    Equal(),
    correction="the dot product with the patch is the cross-correlation; a convolution flips the kernel",
)
def convolution_and_dot_product() -> CorrectedClaim:
    """Σ x[i − m, j − n] k[m, n] over a 3 × 3 patch, against what didact's convolution layer computes; corrected:
    indices not flipped"""
    x, k = torch.randn(3, 3), torch.randn(3, 3)
    pairs = [(m, n) for m in range(3) for n in range(3)]
    flipped, unflipped = (
        sum(float(x[2 - m, 2 - n] * k[m, n]) for m, n in pairs),
        sum(float(x[m, n] * k[m, n]) for m, n in pairs),
    )
    return CorrectedClaim((flipped, _cross_correlate(x, k)), (unflipped, _cross_correlate(x, k)))


@claim("CE35", Equal())
def shape_of_a_convolution() -> Pair:
    """C′ × (H − K + 1) × (W − K + 1), against the output of didact's layer"""
    cases = [(3, 8, 12, 15, 5), (1, 2, 7, 7, 3), (4, 4, 9, 6, 1)]
    return [[c2, H - K + 1, W - K + 1] for _, c2, H, W, K in cases], [
        list(modules.Conv2d(c, c2, K)(to_scratch(torch.zeros(1, c, H, W))).shape[1:]) for c, c2, H, W, K in cases
    ]


@claim("CE36", Equal(), correction="one bias per kernel, the same at every position")
def biases_of_a_convolution() -> CorrectedClaim:
    """biases of didact's layer of 8 kernels 5 × 5: 8 times the positions of its output for a 12 × 12 image; corrected:
    8"""
    layer = modules.Conv2d(3, 8, 5, dtype=np.float64)
    assert layer.bias is not None
    num_outputs = layer(to_scratch(torch.zeros(1, 3, 12, 12))).size
    return CorrectedClaim((num_outputs, layer.bias.size), (8, layer.bias.size))


@claim("CE37", Equal())
def two_convolutions_as_one() -> Pair:
    """k₂ ∗ (k₁ ∗ x) by didact's engine, without padding, is one convolution with a 5 × 5 kernel, the full convolution
    of the two kernels, by didact's transposed one"""
    x, k1, k2 = torch.randn(1, 1, 9, 9), torch.randn(1, 1, 3, 3), torch.randn(1, 1, 3, 3)
    joint = convolution_transpose(to_scratch(k1), to_scratch(k2))
    return conv2d(conv2d(to_scratch(x), to_scratch(k1)), to_scratch(k2)).data, conv2d(to_scratch(x), joint).data


@claim("CE38", Equal())
def sizes_with_padding_and_stride() -> Pair:
    """(W − K + 2P)/S + 1, rounded down where S does not divide, as the course allows, and W for P = (K − 1)/2 and S =
    1, against didact's windows"""
    cases = [(W, K, (K - 1) // 2, S) for W in (11, 16, 21) for K in (1, 3, 5) for S in (1, 2, 3, 5)]
    stated = [math.floor((W - K + 2 * P) / S + 1) for W, K, P, S in cases] + [W for W, _, _, S in cases if S == 1]
    return stated, [
        SlidingWindow(K, S, P).output_size(W) for W, K, P, S in cases + [case for case in cases if case[3] == 1]
    ]


claim("CE39", Equal())(gaba_4.receptive_field_of_a_stack)


@claim("CE40", Equal())
def gaussian_kernel() -> Display:
    """1/16 [[1, 2, 1], [2, 4, 2], [1, 2, 1]] is exp(−(x² + y²)/2σ²) over its sum, σ² = 1/(2 ln 2), and two 2 × 2 mean
    filters, one after the other, by didact's convolution"""
    kernel = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
    x, σ2, box = torch.arange(-1.0, 2.0), 1 / (2 * math.log(2)), to_scratch(torch.full((1, 1, 2, 2), 0.25))
    G = (-(x[:, None] ** 2 + x**2) / (2 * σ2)).exp()
    G = G / G.sum()
    value = [kernel, kernel], [G, convolution_transpose(box, box).data]
    return Display(value, {"16 times the Gaussian": 16 * G, "its σ": math.sqrt(σ2)})


@claim("CE41", Equal())
def sobel() -> Pair:
    """S_x and S_xᵀ as printed, flipped as eq. 4.2.1 flips a kernel, by didact's convolution, which does not flip, on
    the plane 3x − 2y + 1: eight times its two derivatives, at every position"""
    S = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    y, x = torch.meshgrid(torch.arange(6.0), torch.arange(7.0), indexing="ij")
    plane = 3 * x - 2 * y + 1
    return [_cross_correlate(plane, k.flip(0, 1)) / 8 for k in (S, S.T)], [
        torch.full((4, 5), 3.0),
        torch.full((4, 5), -2.0),
    ]


@claim(
    "CE42", Equal(), condition="a shift after which each window has the same largest pixel"
)
def pooling_and_shifts() -> Conditional:
    """didact's 2 × 2 max pooling of a row of pixels and of the row shifted by one pixel: 9, 0, 5, 0; and 0, 9, 0, 0,
    where the 9 leaves its window, and 9, 8, 1, 0, where the 8 enters that of the 1"""
    def pool_row(*row: int) -> Any:
        return max_pool(to_scratch(torch.tensor([[[row, row]]]).double()), 2).data

    pooled, pooled_shifted = [pool_row(0, 9, 0, 0), pool_row(9, 8, 1, 0)], [pool_row(0, 0, 9, 0), pool_row(0, 9, 8, 1)]
    return Conditional((pool_row(9, 0, 5, 0), pool_row(0, 9, 0, 5)), (pooled, pooled_shifted))


@claim("CE43", Equal(), correction="the volume grows at first and then shrinks to a few hundred numbers")
def volume_of_lenet() -> Pair:
    """numbers in each feature map of LeNet-5 on a 32 × 32 image, against those of the image"""
    x, volumes = torch.zeros(1, 1, 32, 32), []
    for layer in LeNet5(size=(32, 32)).features:
        x = layer(x)
        volumes.append(x.numel())
    return volumes, [1024] * len(volumes)


@claim("CE44", Equal(), correction="γ = √(σ² + ε): with γ = σ the effect of ε remains")
def batch_norm_as_the_identity() -> CorrectedClaim:
    """γ = σ_B, β = μ_B gives x back from didact's batch norm; corrected: γ = √(σ_B² + ε)"""
    x, norm = torch.randn(10, 4), modules.BatchNorm1d(4, dtype=np.float64)
    μ, σ2 = x.mean(0), x.var(0, correction=0)

    def normalize(γ: Tensor) -> Any:
        norm.weight, norm.bias = to_scratch(γ), to_scratch(μ)
        return norm(to_scratch(x)).data

    return CorrectedClaim((normalize(σ2.sqrt()), x), (normalize((σ2 + norm.eps).sqrt()), x))


@claim("CE45", Equal(1e-6))
def fused_batch_norm() -> Pair:
    """a linear layer followed by batch norm at test time, against the one layer into which didact's engine folds
    them"""
    import numpy as np

    from didact.scratch.autograd.tensor import Tensor as Scratch
    from didact.scratch.modules import BatchNorm1d, Linear
    from didact.scratch.norm import fold_batch_norm

    random = np.random.default_rng(0)
    layer, norm = Linear(5, 4, rng=0), BatchNorm1d(4)
    for _ in range(3):
        norm(layer(Scratch(random.normal(size=(20, 5)).astype(np.float32))))
    norm.eval()
    x = Scratch(random.normal(size=(7, 5)).astype(np.float32))
    return fold_batch_norm(layer, norm)(x).data, norm(layer(x)).data


@claim("CE46", Equal())
def axes_of_the_norms() -> Pair:
    """(x − μ)/√(σ² + ε) with statistics 1 × C × 1 × 1, N × C × 1 × 1 and N × 1, against didact's batch, instance and
    layer norm"""
    x, v = torch.randn(3, 4, 5, 6), torch.randn(3, 7)

    def normalize(x: Tensor, axes: tuple[int, ...]) -> Tensor:
        return (x - x.mean(axes, keepdim=True)) / (x.var(axes, correction=0, keepdim=True) + 1e-5).sqrt()

    stated = [normalize(x, (0, 2, 3)), normalize(x, (2, 3)), normalize(v, (1,))]
    batch = norm.batch_norm(to_scratch(x), np.zeros(4), np.ones(4), training=True)
    return stated, [batch.data, norm.instance_norm(to_scratch(x)).data, norm.layer_norm(to_scratch(v), (7,)).data]


@claim(
    "CE47",
    Equal(),
    correction="layer norm normalizes all channels of an example together; instance norm normalizes each alone",
)
def instance_norm_as_layer_norm() -> CorrectedClaim:
    """didact's instance norm against its layer norm over C, H, W; corrected: its group norm with one group"""
    x = to_scratch(3 * torch.randn(2, 4, 5, 6) + torch.arange(4.0)[:, None, None])
    layer = norm.layer_norm(x, (4, 5, 6)).data
    return CorrectedClaim((norm.instance_norm(x).data, layer), (norm.group_norm(x, 1).data, layer))


@claim("CE48", Exactly((True, False)))
def dependence_on_the_batch() -> tuple[bool, ...]:
    """does the first example's output change with the rest of the batch: didact's batch norm, layer norm"""
    norms = modules.BatchNorm1d(5, dtype=np.float64), modules.LayerNorm(5, dtype=np.float64)
    return tuple(not gaba_3.is_output_unchanged(norm)[0] for norm in norms)
