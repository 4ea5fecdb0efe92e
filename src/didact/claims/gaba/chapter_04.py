"""Gaba, chapter 4: convolutional networks."""

from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from didact import scratch
from didact.analysis.receptive_field import SlidingWindow, receptive_field, trace_receptive_fields
from didact.claims.forms import Approximately, Conditional, CorrectedClaim, Display, Equal, Exactly, InInterval, Printed
from didact.claims.helpers import Pair, compute_gradients, count_multiplications, count_parameters
from didact.claims.registry import answer, claim
from didact.layers.conv.convolution import SameConv2d
from didact.layers.conv.residual import Bottleneck
from didact.layers.conv.separable import SeparableConv2d
from didact.layers.mlp import make_mlp_layers
from didact.layers.norm import PostNorm, PreNorm
from didact.models.tabular.mlp import MLP
from didact.models.vision.cnn import CNN, CIFAR10Net
from didact.models.vision.resnet import ResNet
from didact.registry import create_model
from didact.scratch.convolution import conv1d
from didact.scratch.modules import AvgPool2d, Conv2d, MaxPool2d


def count_weights(net: nn.Module) -> int:
    """Number of entries of its matrices and kernels, without biases."""
    return sum(p.numel() for p in net.parameters() if p.ndim > 1)


@claim("C4.1", Approximately(150e6, 0.005, "rounded to tens of millions, after an ≈"))
def dense_layer_on_an_image() -> int:
    """224 · 224 · 3 · 1000 weights of didact's affine map from an image to 1000 numbers"""
    with torch.device("meta"):  # sizes alone
        return count_weights(MLP(224 * 224 * 3, 1000, hidden=(), init="pytorch"))


def _count_kernel_weights(c_in: int, c_out: int, k: int) -> int:
    """Weights of didact's own convolution, without biases."""
    return sum(p.size for p in Conv2d(c_in, c_out, k, bias=False).parameters())


@claim(
    "C4.2",
    Exactly(1728),
    remark="weights only; with one bias per filter, which the course counts elsewhere, there are 1,792",
)
def convolution_on_an_image() -> int:
    """3 · 3 · 3 · 64 weights, without biases"""
    return _count_kernel_weights(3, 64, 3)


@claim("C4.3", Equal())
def output_sizes() -> Pair:
    """⌊(H − k + 2p)/s⌋ + 1, against didact's geometry and the output size of its convolution, for 540 combinations"""
    cases = [c for c in product(range(5, 17), (1, 2, 3, 4, 5), (0, 1, 2), (1, 2, 3)) if c[0] - c[1] + 2 * c[2] >= 0]
    stated = [(H - k + 2 * p) // s + 1 for H, k, p, s in cases]

    def output_size(H: int, k: int, p: int, s: int) -> int:
        return conv1d(
            scratch.tensor(np.zeros((1, 1, H))), scratch.tensor(np.zeros((1, 1, k))), stride=s, padding=p
        ).shape[-1]

    return [stated, stated], [
        [SlidingWindow(k, s, p).output_size(H) for H, k, p, s in cases],
        [output_size(*c) for c in cases],
    ]


@claim("C4.4", Exactly(32))
def example_of_an_output_size() -> int:
    """H = 32, k = 5, p = 2, s = 1"""
    return SlidingWindow(5, stride=1, padding=2).output_size(32)


@claim("C4.5", Equal(), condition="odd kernels and stride 1; an even kernel adds a row, stride 2 halves the size")
def same_padding() -> Conditional:
    """the output's size with p = ⌊k/2⌋ against the input's, 32, for odd k, for even k and for odd k with stride 2"""
    def sizes(*kernels: int, stride: int = 1) -> list[int]:
        return [SlidingWindow(k, stride, padding=k // 2).output_size(32) for k in kernels]

    odd, even, strided = sizes(1, 3, 5, 7), sizes(2, 4, 6, 8), sizes(1, 3, 5, 7, stride=2)
    return Conditional(Display((odd, [32] * 4), {"odd k": odd}),
                 Display((even + strided, [32] * 8), {"even k": even, "odd k with stride 2": strided}))


@claim("C4.6", Equal())
def convolution_of_many_channels() -> Pair:
    """Y[o,i,j] = b_o + Σ_c Σ_m Σ_n X[c,i+m,j+n] K[o,c,m,n], and C_out(C_in k_H k_W + 1) parameters, against didact's
    convolution"""
    conv, x = Conv2d(3, 4, (2, 5), rng=0, dtype=np.float64), torch.randn(3, 7, 9).numpy()
    K, b = (p.data for p in conv.parameters())
    y = [b[o] + (x[:, i : i + 2, j : j + 5] * K[o]).sum() for o, i, j in product(range(4), range(6), range(5))]
    return [y, 4 * (3 * 2 * 5 + 1)], [conv(scratch.tensor(x[None])).data, sum(p.size for p in conv.parameters())]


def shift_equivariance_outputs() -> tuple[Any, Any, Any]:
    """f(shift x), f(x) and shift f(x) for two of didact's convolutions with a ReLU between."""
    first, second = Conv2d(1, 4, 3, rng=0, dtype=np.float64), Conv2d(4, 2, 3, rng=1, dtype=np.float64)

    def pad_circular(x: Any) -> scratch.Tensor:
        """Circular padding: there is no border that could break the shift."""
        return scratch.tensor(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="wrap"))

    def f(x: Any) -> Any:
        return second(pad_circular(first(pad_circular(x)).relu().data)).data

    def shift(x: Any) -> Any:
        return np.roll(x, (2, 3), (2, 3))

    x = torch.randn(1, 1, 8, 9).numpy()
    return f(shift(x)), f(x), shift(f(x))


@claim(
    "C4.7",
    Equal(),
    correction="a convolution is equivariant: the output moves with the input; invariance needs pooling",
)
def translation() -> CorrectedClaim:
    """f(shift x) = f(x) for two of didact's convolutions with a ReLU between; corrected: f(shift x) = shift f(x)"""
    output_of_shifted, output, shifted_output = shift_equivariance_outputs()
    return CorrectedClaim((output_of_shifted, output), (output_of_shifted, shifted_output))


@claim("C4.8", Exactly((5, 7)))
def stacked_receptive_fields() -> tuple[int, ...]:
    """r = 1 + n(k − 1) for two and three convolutions 3 × 3"""
    return tuple(receptive_field([SlidingWindow(3)] * n) for n in (2, 3))


@claim("C4.9", Exactly((27, 49)))
def stacked_parameters() -> tuple[int, ...]:
    """weights over C² of three convolutions 3 × 3 and of one 7 × 7, C = 16 channels"""
    return 3 * _count_kernel_weights(16, 16, 3) // 16**2, _count_kernel_weights(16, 16, 7) // 16**2


@claim("C4.10", Equal(), condition="nothing after the sum; a ReLU there, as in the first ResNets, breaks it")
def residual_sum() -> Conditional:
    """x_L = x_l + Σ F_i(x_i) and ∂x_L/∂x_l = I + ∂ΣF_i/∂x_l, for five of didact's residual blocks: nothing after the
    sum, and a ReLU after it"""
    x = torch.randn(6)

    def both(block_class: type[PreNorm], after_sum: nn.Module) -> Pair:
        blocks = [block_class(make_mlp_layers((6, 6), "tanh"), after_sum) for _ in range(5)]
        net = nn.Sequential(*blocks)

        def residual_total(x: Tensor) -> Tensor:
            total = torch.zeros(6)
            for block in blocks:
                x, total = block(x), total + block.sublayer(x)
            return total

        return [x + residual_total(x), torch.eye(6) + jacobian(residual_total, x)], [net(x), jacobian(net, x)]

    return Conditional(both(PreNorm, nn.Identity()), both(PostNorm, nn.ReLU()))


@claim(
    "C4.11",
    InInterval(low=0, is_open=True),
    correction="no guarantee: F(x) = −x cancels the identity; it only makes a vanishing gradient unlikely",
)
def gradient_never_vanishes() -> list[Tensor]:
    """‖∂L/∂x‖ through didact's residual connection x + F(x), for a random F and for F(x) = −x"""
    x, negative = torch.randn(5, requires_grad=True), nn.Linear(5, 5, bias=False)
    with torch.no_grad():
        negative.weight.copy_(-torch.eye(5))
    outs = [PreNorm(F, nn.Identity())(x) for F in (nn.Linear(5, 5), negative)]
    return [compute_gradients(y.square().sum() + y.sum(), x)[0].norm() for y in outs]


@claim("C4.12", Exactly(((64, 16, 16), (128, 8, 8), (256, 4, 4))))
def sizes_of_cifar10net() -> tuple[tuple[int, ...], ...]:
    """channels, height and width after each of the three blocks"""
    net, x, sizes = CIFAR10Net().eval(), torch.zeros(1, 3, 32, 32), []
    for layer in net.features:
        x = layer(x)
        if isinstance(layer, nn.MaxPool2d):
            sizes.append(tuple(x.shape[1:]))
    return tuple(sizes)


_CODE_GIVES_COUNT = "the code on the page gives the computed count"


@claim("C4.13", Exactly(952_202), correction=_CODE_GIVES_COUNT)
def parameters_of_cifar10net() -> int:
    """all weights, biases and batch-norm scales"""
    return count_parameters(CIFAR10Net())


@claim("C4.17", InInterval(10, 100))
def fine_tuning_rates() -> list[float]:
    """length of a step with learning rate 1e-3, that of 4.6, in stages of didact's ResNet, over that with 4.7's rates,
    1e-5 and 1e-4"""
    net = ResNet(width=4, num_classes=10, size=(32, 32))
    net(torch.randn(4, 3, 32, 32)).square().mean().backward()

    def step_length(stage: str, rate: float) -> Tensor:
        weights = list(net.get_submodule(stage).parameters())
        weights_before = parameters_to_vector(weights).detach().clone()
        torch.optim.Adam(weights, lr=rate).step()
        distance: Tensor = (parameters_to_vector(weights).detach() - weights_before).norm()
        vector_to_parameters(weights_before, weights)
        return distance

    return [
        round(float(step_length(stage, 1e-3) / step_length(stage, rate)), 6)
        for stage, rate in (("layer3", 1e-5), ("layer4", 1e-4))
    ]


@claim("C4.18", Exactly(52_778), correction=_CODE_GIVES_COUNT)
def small_cnn() -> int:
    """kernel 3, 32 filters, 3 blocks"""
    return count_parameters(CNN(kernel_size=3, filters=32, num_blocks=3))


@claim("C4.19", Exactly(143_642), correction=_CODE_GIVES_COUNT)
def cnn_of_large_kernels() -> int:
    """kernel 5, 32 filters, 3 blocks"""
    return count_parameters(CNN(kernel_size=5, filters=32, num_blocks=3))


@claim("C4.20", Exactly(207_946), correction=_CODE_GIVES_COUNT)
def wide_cnn() -> int:
    """kernel 3, 64 filters, 3 blocks"""
    return count_parameters(CNN(kernel_size=3, filters=64, num_blocks=3))


@claim("C4.21", Exactly(218_410), correction=_CODE_GIVES_COUNT)
def deep_cnn() -> int:
    """kernel 3, 32 filters, 5 blocks"""
    return count_parameters(CNN(kernel_size=3, filters=32, num_blocks=5))


def _separable_cost_ratio(c_in: int, c_out: int, k: int) -> float:
    """Weights, and multiplications per pixel, of didact's separable convolution over those of its full one."""
    return count_weights(SeparableConv2d(c_in, c_out, k)) / _count_kernel_weights(c_in, c_out, k)


@claim("C4.24", Equal())
def cost_of_a_separable_convolution() -> Pair:
    """(C_in k² + C_in C_out)/(C_in C_out k²) = 1/C_out + 1/k²"""
    cases = [(3, 8, 3), (16, 32, 5), (7, 11, 2)]
    return [_separable_cost_ratio(*c) for c in cases], [1 / c_out + 1 / k**2 for _, c_out, k in cases]


@claim("C4.25", InInterval(8, 9))
def saving_of_a_separable_convolution() -> float:
    """1/(1/256 + 1/9)"""
    return 1 / _separable_cost_ratio(32, 256, 3)


@claim("C4.26", Printed("2"))
def compound_scaling() -> Display:
    """α β² γ² ≈ 2: how many times more multiplications a network of 3 × 3 convolutions takes, 10 layers of 20 channels
    on 20 × 20 pixels, with Tan and Le's (2019) α = 1.2 for depth, β = 1.1 for width, γ = 1.15 for the side"""
    def products(depth: int, width: int, side: int) -> int:
        with torch.device("meta"):  # counted without being computed
            net, x = (
                nn.Sequential(*[SameConv2d(width, width, 3) for _ in range(depth)]),
                torch.zeros(1, width, side, side),
            )
        return count_multiplications(lambda: net(x))

    α, β, γ = 1.2, 1.1, 1.15
    product_ratio = products(round(10 * α), round(20 * β), round(20 * γ)) / products(10, 20, 20)
    return Display(
        product_ratio,
        {f"{α} · {β}² · {γ}² =": α * β**2 * γ**2, "multiplications counted: times": product_ratio},
    )


@answer("C4.27")
def sizes_of_exercise_4_1() -> tuple[tuple[int, ...], ...]:
    """channels, side and parameters after each of didact's layers"""
    layers = [
        Conv2d(3, 32, 5, padding=2),
        MaxPool2d(2),
        Conv2d(32, 64, 3, stride=2),
        Conv2d(64, 128, 3, padding=1),
        AvgPool2d(31),
    ]
    x, sizes = scratch.tensor(np.zeros((1, 3, 128, 128), np.float32)), []
    for layer in layers:
        x = layer(x)
        sizes.append((x.shape[1], x.shape[2], sum(p.size for p in layer.parameters())))
    return tuple(sizes)


@claim("C4.28", Equal())
def receptive_field_of_a_stack() -> Pair:
    """n(k − 1) + 1, against didact's rule, and against the pixels that have a gradient at one output of n of its
    convolutions"""
    cases, field_sizes = [(n, k) for n in (1, 2, 4) for k in (2, 3, 5)], []
    stated = [n * (k - 1) + 1 for n, k in cases]
    for n, k in cases:
        x = scratch.tensor(torch.randn(1, 1, 40).numpy(), requires_grad=True)
        y = x
        for _ in range(n):
            y = conv1d(y, scratch.tensor(torch.rand(1, 1, k).numpy()))
        (g,) = scratch.grad(y[0, 0, 10], (x,))
        field_sizes.append(int((g.data != 0).sum()))
    return [stated, stated], [[receptive_field([SlidingWindow(k)] * n) for n, k in cases], field_sizes]


@answer("C4.29")
def receptive_field_of_resnet50() -> Display:
    """the receptive field of the last feature map, with the stride on the 3 × 3 convolutions, as torchvision has it,
    and on the first 1 × 1, as it was in 2015, and the input's side"""
    # the receptive field is the same at any width
    net, x = create_model("resnet50", size=(224, 224), width=1), torch.zeros(1, 3, 224, 224)

    def last_receptive_field() -> int:
        return [r.field[0] for r in trace_receptive_fields(net, x) if r.field is not None][-1]

    torchvision = last_receptive_field()
    for block in net.modules():
        if isinstance(block, Bottleneck):
            block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
    original = last_receptive_field()
    return Display(
        (torchvision, original, 224),
        {
            "stride on the 3 × 3 (torchvision):": torchvision,
            "on the first 1 × 1 (2015):": original,
            "input's side:": 224,
        },
    )


@answer("C4.30")
def separable_cifar10net() -> tuple[int, int]:
    """parameters of CIFAR10Net with separable convolutions, and with full ones"""
    return count_parameters(CIFAR10Net(separable=True)), count_parameters(CIFAR10Net())


@claim("C4.32", Equal())
def parameters_after_global_pooling() -> Pair:
    """weights of the first dense layer of CIFAR10Net after flattened maps, over those after global pooling, against
    H W"""
    net = CIFAR10Net().eval()
    maps = net.features(torch.zeros(1, 3, 32, 32))
    first = next(m for m in net.classifier if isinstance(m, nn.Linear))
    return count_weights(nn.Linear(maps.numel(), first.out_features)) / first.weight.numel(), maps.shape[
        2
    ] * maps.shape[3]
