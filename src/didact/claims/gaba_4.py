"""Gaba, chapter 4: convolutional networks."""

from functools import partial
from itertools import product

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact.claims.compare import Asked, Cases, Corrected, Exactly, Inside, Printed, Rising, Same
from didact.claims.core import claim
from didact.claims.tools import Pair, gradients, parameters
from didact.layers.geometry import Window, output_size, receptive_field, trace
from didact.layers.separable import SeparableConv2d
from didact.models.cifar import CNN, CIFAR10Net
from didact.registry import create


@claim("C4.1", Printed("1.5e8"))
def dense_layer_on_an_image() -> int:
    """224 · 224 · 3 · 1000 weights"""
    return 224 * 224 * 3 * 1000


@claim("C4.2", Exactly(1728))
def convolution_on_an_image() -> int:
    """3 · 3 · 3 · 64 weights, without biases"""
    return parameters(nn.Conv2d(3, 64, 3, bias=False))


@claim("C4.3", Same())
def output_sizes() -> Pair:
    """⌊(H − k + 2p)/s⌋ + 1, against the size that conv2d answers with, for 540 combinations"""
    cases = [c for c in product(range(5, 17), (1, 2, 3, 4, 5), (0, 1, 2), (1, 2, 3)) if c[0] - c[1] + 2 * c[2] >= 0]
    ours = [(H - k + 2 * p) // s + 1 for H, k, p, s in cases]
    return ours, [F.conv1d(torch.zeros(1, 1, H), torch.zeros(1, 1, k), stride=s, padding=p).shape[-1] for H, k, p, s in cases]


@claim("C4.4", Exactly(32))
def example_of_an_output_size() -> int:
    """H = 32, k = 5, p = 2, s = 1"""
    return Window(5, stride=1, padding=2).size(32)


@claim("C4.5", Same(), condition="odd kernels and stride 1; an even kernel adds a row")
def same_padding() -> Cases:
    """the output's size with p = ⌊k/2⌋ against the input's, for odd k and for even k"""
    odd, even = ([Window(k, padding=k // 2).size(32) for k in ks] for ks in ((1, 3, 5, 7), (2, 4, 6, 8)))
    return Cases((odd, [32] * 4), (even, [32] * 4))


@claim("C4.6", Same())
def convolution_of_many_channels() -> Pair:
    """Y[o,i,j] = b_o + Σ_c Σ_m Σ_n X[c,i+m,j+n] K[o,c,m,n], and C_out(C_in k_H k_W + 1) parameters, against nn.Conv2d"""
    conv, x = nn.Conv2d(3, 4, (2, 5)), torch.randn(3, 7, 9)
    K, b = conv.weight, conv.bias
    assert b is not None
    y = torch.stack([b[o] + (x[:, i : i + 2, j : j + 5] * K[o]).sum() for o, i, j in product(range(4), range(6), range(5))])
    return [y, 4 * (3 * 2 * 5 + 1)], [conv(x[None]), parameters(conv)]


@claim("C4.7", Same(), right="a convolution is equivariant: the output moves with the input; invariance needs pooling")
def translation() -> Corrected:
    """f(shift x) = f(x) for two convolutions; mended: f(shift x) = shift f(x)"""
    wrapped = partial(nn.Conv2d, kernel_size=3, padding=1, padding_mode="circular")  # no border, so that it cannot spoil the shift
    f = nn.Sequential(wrapped(1, 4), nn.ReLU(), wrapped(4, 2))
    x = torch.randn(1, 1, 8, 9)
    moved = f(x.roll((2, 3), (2, 3)))
    return Corrected((moved, f(x)), (moved, f(x).roll((2, 3), (2, 3))))


@claim("C4.8", Exactly((5, 7)))
def stacked_receptive_fields() -> tuple[int, ...]:
    """r = 1 + n(k − 1) for two and three convolutions 3 × 3"""
    return tuple(receptive_field([Window(3)] * n) for n in (2, 3))


@claim("C4.9", Exactly((27, 49)))
def stacked_parameters() -> tuple[int, ...]:
    """weights over C² of three convolutions 3 × 3 and of one 7 × 7, C = 16 channels"""
    stacks = [nn.Conv2d(16, 16, 3, bias=False) for _ in range(3)], [nn.Conv2d(16, 16, 7, bias=False)]
    return tuple(sum(map(parameters, convs)) // 16**2 for convs in stacks)


@claim("C4.10", Same())
def residual_sum() -> Pair:
    """x_L = x_l + Σ F_i(x_i) and ∂x_L/∂x_l = I + ∂ΣF_i/∂x_l, for five blocks without anything behind the sum"""
    blocks = [nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)) for _ in range(5)]

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        added = torch.zeros(6)
        for block in blocks:
            f = block(x)
            x, added = x + f, added + f
        return x, added

    x = torch.randn(6)
    x_L, added = run(x)
    whole, part = jacobian(run, x)
    return [x_L, whole], [x + added, torch.eye(6) + part]


@claim("C4.11", Inside(low=0, open=True), right="no guarantee: F(x) = −x cancels the identity; it only makes a vanishing gradient unlikely")
def gradient_never_vanishes() -> list[Tensor]:
    """‖∂L/∂x‖ through x + F(x), for a random F and for F(x) = −x"""
    x, found = torch.randn(5, requires_grad=True), []
    for F_ in (nn.Linear(5, 5), torch.neg):
        (g,) = gradients((x + F_(x)).square().sum() + (x + F_(x)).sum(), x)
        found.append(g.norm())
    return found


@claim("C4.12", Exactly(((64, 16, 16), (128, 8, 8), (256, 4, 4))))
def sizes_of_cifar10net() -> tuple[tuple[int, ...], ...]:
    """channels, height and width behind each of the three blocks"""
    net, x, found = CIFAR10Net().eval(), torch.zeros(1, 3, 32, 32), []
    for layer in net.features:
        x = layer(x)
        if isinstance(layer, nn.MaxPool2d):
            found.append(tuple(x.shape[1:]))
    return tuple(found)


COUNTED = "the page's own code gives the computed count"


@claim("C4.13", Exactly(952_202), right=COUNTED)
def parameters_of_cifar10net() -> int:
    """all weights, biases and batch-norm scales"""
    return parameters(CIFAR10Net())


@claim("C4.17", Inside(10, 100))
def fine_tuning_rates() -> list[float]:
    """the rates 1e-5 and 1e-4 of 4.7 against the 1e-3 of 4.6"""
    return [1e-3 / 1e-5, 1e-3 / 1e-4]


@claim("C4.18", Exactly(52_778), right=COUNTED)
def small_cnn() -> int:
    """kernel 3, 32 filters, 3 blocks"""
    return parameters(CNN(kernel=3, filters=32, blocks=3))


@claim("C4.19", Exactly(143_642), right=COUNTED)
def cnn_of_large_kernels() -> int:
    """kernel 5, 32 filters, 3 blocks"""
    return parameters(CNN(kernel=5, filters=32, blocks=3))


@claim("C4.20", Exactly(207_946), right=COUNTED)
def wide_cnn() -> int:
    """kernel 3, 64 filters, 3 blocks"""
    return parameters(CNN(kernel=3, filters=64, blocks=3))


@claim("C4.21", Exactly(218_410), right=COUNTED)
def deep_cnn() -> int:
    """kernel 3, 32 filters, 5 blocks"""
    return parameters(CNN(kernel=3, filters=32, blocks=5))


def share(c_in: int, c_out: int, k: int) -> float:
    """Weights, and products a pixel, of a separable convolution over those of a full one."""
    return parameters(SeparableConv2d(c_in, c_out, k, bias=False)) / parameters(nn.Conv2d(c_in, c_out, k, bias=False))


@claim("C4.24", Same())
def cost_of_a_separable_convolution() -> Pair:
    """(C_in k² + C_in C_out)/(C_in C_out k²) = 1/C_out + 1/k²"""
    cases = [(3, 8, 3), (16, 32, 5), (7, 11, 2)]
    return [share(*c) for c in cases], [1 / c_out + 1 / k**2 for _, c_out, k in cases]


@claim("C4.25", Inside(8, 9))
def saving_of_a_separable_convolution() -> float:
    """1/(1/256 + 1/9)"""
    return 1 / share(32, 256, 3)


@claim("C4.26", Printed("2"))
def compound_scaling() -> float:
    """α β² γ² for the values that Tan and Le (2019) found under this constraint: 1.2 for depth, 1.1 for width, 1.15 for resolution"""
    α, β, γ = 1.2, 1.1, 1.15
    return α * β**2 * γ**2


@claim("C4.27", Asked())
def sizes_of_exercise_4_1() -> tuple[tuple[int, ...], ...]:
    """channels, side and parameters behind each layer"""
    layers = [nn.Conv2d(3, 32, 5, padding=2), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, stride=2), nn.Conv2d(64, 128, 3, padding=1),
              nn.AdaptiveAvgPool2d(1)]
    x, found = torch.zeros(1, 3, 128, 128), []
    for layer in layers:
        x = layer(x)
        found.append((x.shape[1], x.shape[2], parameters(layer)))
    return tuple(found)


@claim("C4.28", Same())
def receptive_field_of_a_stack() -> Pair:
    """n(k − 1) + 1, against the pixels that have a gradient at one output of n convolutions"""
    cases = [(n, k) for n in (1, 2, 4) for k in (2, 3, 5)]
    seen = []
    for n, k in cases:
        x = torch.randn(1, 1, 40, requires_grad=True)
        y = x
        for _ in range(n):
            y = F.conv1d(y, torch.rand(1, 1, k))
        (g,) = gradients(y[0, 0, 10], x)
        seen.append(int((g != 0).sum()))
    return seen, [n * (k - 1) + 1 for n, k in cases]


@claim("C4.29", Asked())
def receptive_field_of_resnet50() -> tuple[int, int]:
    """the receptive field of the last feature map, and the input's side"""
    with torch.device("meta"):  # sizes alone
        rows = [r for r in trace(create("resnet50", size=(224, 224)), torch.empty(1, 3, 224, 224)) if r.field is not None]
    field = rows[-1].field
    assert field is not None
    return field[0], 224


@claim("C4.30", Asked())
def separable_cifar10net() -> tuple[int, int]:
    """parameters of CIFAR10Net with separable convolutions, and with full ones"""
    return parameters(CIFAR10Net(separable=True)), parameters(CIFAR10Net())


@claim("C4.32", Rising())
def parameters_behind_global_pooling() -> list[int]:
    """the classifier of CIFAR10Net behind global average pooling, and behind flattening its 4 × 4 maps"""
    side = output_size(32, [Window(2, 2)] * 3)
    return [parameters(nn.Linear(256, 128)), parameters(nn.Linear(256 * side**2, 128))]
