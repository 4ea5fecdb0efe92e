"""Fleuret: sizes, memory and costs of real networks, over-fitting, diffusion."""

import math

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import didact.models  # noqa: F401 (registers the presets)
from didact.claims.compare import Cases, Inside, Rising, Same, Sampled
from didact.claims.core import claim, unable
from didact.claims.tools import Pair, count_products, parameters
from didact.layers.initialise import initialise
from didact.layers.trunk import PerCell
from didact.registry import create


@claim("CF02", Rising())
def errors_of_an_overfit() -> list[float]:
    """root mean squared error of the polynomial of degree 9 through ten noisy points of sin πx: on them, and beside them above the noise"""
    x = torch.linspace(-1, 1, 10)
    y = (math.pi * x).sin() + 0.3 * torch.randn(10)
    w = torch.linalg.solve(torch.vander(x), y)
    new = 2 * torch.rand(2000) - 1
    truth = (math.pi * new).sin() + 0.3 * torch.randn(2000)
    train, test = (float((torch.vander(u, 10) @ w - v).square().mean().sqrt()) for u, v in ((x, y), (new, truth)))
    return [train, 1e-6, 0.3, test]


@claim("CF13", Same())
def memory_of_training() -> Pair:
    """numbers kept for the backward pass: from 8 to 16 layers twice as many more as from 4 to 8; checkpoints keep fewer and compute more"""
    def cost(depth: int, parts: int) -> tuple[int, int]:
        layers = [nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(depth)]
        kept = 0

        def keep(t: Tensor) -> Tensor:
            nonlocal kept
            kept += 0 if isinstance(t, nn.Parameter) or t._base is not None else t.numel()   # weights are there anyway
            return t

        def go() -> None:
            h = torch.randn(8, 32, requires_grad=True)
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
                for start in range(0, depth, depth // parts):
                    part = nn.Sequential(*layers[start : start + depth // parts])
                    h = part(h) if parts == 1 else checkpoint(part, h, use_reentrant=False)
            h.sum().backward()

        return count_products(go), kept

    (_, four), (_, eight), (products, sixteen) = (cost(depth, 1) for depth in (4, 8, 16))
    again, fewer = cost(16, 4)
    return [(sixteen - eight) / (eight - four), float(fewer < sixteen / 2), float(again > 1.2 * products)], [2, 1, 1]


@claim("CF21", Sampled())
def share_of_positive_activations() -> tuple[Tensor, Tensor, float]:
    """the share of positive inputs of the third ReLU of 150 networks, He's weights and batch norm, against one half"""
    shares = []
    for _ in range(150):
        net = nn.Sequential(*[m for _ in range(3) for m in (nn.ReLU(), nn.Linear(128, 128), nn.BatchNorm1d(128))])
        initialise(net, "he_normal")
        with torch.no_grad():
            shares.append((net(torch.randn(64, 128)) > 0).double().mean())
    s = torch.stack(shares)
    return s.mean(), s.std() / math.sqrt(len(s)), 0.5


IMAGES, EPOCHS = 1_281_167, 90       # of ImageNet, and how long ResNets are trained on it


@claim("CF38", Inside(0, 1), condition="ResNet-18 to 101, trained for 90 epochs on ImageNet; VGG-16 has 138 million parameters")
def sizes_of_vision_models() -> Cases:
    """log₁₀(parameters/10⁷) and log₁₀(operations/10¹⁸): two for each product, three passes, 90 × 1,281,167 images; ResNets, and VGG-16"""
    def measured(name: str) -> list[float]:
        with torch.device("meta"):
            net = create(name).eval()
            products = count_products(lambda: net(torch.zeros(1, 3, 224, 224)))
        return [math.log10(parameters(net) / 1e7), math.log10(2 * 3 * products * IMAGES * EPOCHS / 1e18)]

    return Cases([measured(f"resnet{n}") for n in (18, 34, 50, 101)], measured("vgg16"))


@claim("CF43", Same(), condition="one box for each cell; with k of them k(4 + C + 1)")
def channels_of_a_detector() -> Cases:
    """channels of didact's detection layer for C = 1, 3 and 20 classes, against 4 + C + 1: one box a cell, and three"""
    def channels(k: int) -> Pair:
        heads = [PerCell(16, k, 4 + C + 1) for C in (1, 3, 20)]
        return [head.conv.out_channels for head in heads], [4 + C + 1 for C in (1, 3, 20)]

    return Cases(channels(1), channels(3))


@claim("CF46", Same())
def noise_with_variance_kept() -> Pair:
    """weight of x_0 and variance after t = 0 … 200 steps x ← √(1 − β) x + √β ε, against e^{t log(1−β)/2} and 1, β = 0.03"""
    β, weight, spread = 0.03, [1.0], [1.0]
    for _ in range(200):
        weight.append(math.sqrt(1 - β) * weight[-1])
        spread.append((1 - β) * spread[-1] + β)
    t = torch.arange(201.0)
    return [torch.tensor(weight), torch.tensor(spread)], [(0.5 * math.log(1 - β) * t).exp(), torch.ones(201)]


@claim("CF47", Same())
def reverse_step_as_a_sum() -> Pair:
    """x_t + f(x_t, t), f = (1/√α − 1) x_t − β E[ε|x_t]/√(α(1 − ᾱ)), against E[x_{t−1}|x_t] by Gaussian conditioning, x_0 ~ N(0.7, 0.5²)"""
    m, s = 0.7, 0.5
    β = torch.linspace(1e-3, 0.1, 50)
    α, ᾱ = (1 - β)[1:], (1 - β).cumprod(0)
    before, after = ᾱ[:-1], ᾱ[1:]
    x = torch.randn(49)
    spread, spread_before = after * s**2 + 1 - after, before * s**2 + 1 - before
    off = x - after.sqrt() * m
    ε = (1 - after).sqrt() / spread * off                                 # E[ε | x_t]
    f = (1 / α.sqrt() - 1) * x - β[1:] / (α * (1 - after)).sqrt() * ε
    return x + f, before.sqrt() * m + α.sqrt() * spread_before / spread * off


unable("CF51", "a time on a GPU that the text does not name; it says almost as quickly, and no factor")
unable("CF52", "performance that is not named on hardware that is not named; peak rates and memory are those of data sheets")
