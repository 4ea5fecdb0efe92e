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
from didact.layers.stack import stack
from didact.metrics.regression import rmse
from didact.models.ssd import SSD
from didact.objectives.noising import Noising
from didact.registry import create


@claim("CF02", Rising())
def errors_of_an_overfit() -> list[float]:
    """root mean squared errors: of the polynomial of degree 9 on the ten noisy points of sin πx that it goes through, of sin πx on
    new points, which is the noise, and of the polynomial there"""
    def noisy(x: Tensor) -> Tensor:
        return (math.pi * x).sin() + 0.3 * torch.randn(len(x))

    x, new = torch.linspace(-1, 1, 10), 2 * torch.rand(2000) - 1
    y, truth = noisy(x), noisy(new)
    w = torch.linalg.solve(torch.vander(x), y)
    fit, apart = torch.vander(new, 10) @ w, (math.pi * new).sin()
    return [float(rmse(a, b)) for a, b in ((torch.vander(x) @ w, y), (apart, truth), (fit, truth))]


@claim("CF13", Same())
def memory_of_training() -> Pair:
    """tensors that didact's stack of 4, 8, 16 layers keeps for its backward pass: the input and one a layer; with 4 checkpoints 4, for one
    forward pass more: products over those of a forward pass, 3 and 4"""
    def cost(depth: int, parts: int) -> tuple[float, int]:
        layers, kept = stack((32,) * (depth + 1), "tanh"), dict[int, Tensor]()

        def keep(t: Tensor) -> Tensor:
            if not isinstance(t, nn.Parameter) and t._base is None:     # weights are there anyway
                kept[id(t)] = t
            return t

        def go() -> None:
            h, size = torch.randn(8, 32, requires_grad=True), len(layers) // parts
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
                for part in (layers[i : i + size] for i in range(0, len(layers), size)):
                    h = part(h) if parts == 1 else checkpoint(part, h, use_reentrant=False)
            h.sum().backward()

        return count_products(go) / count_products(lambda: layers(torch.randn(8, 32)).detach()), len(kept)

    plain, cut = [cost(depth, 1) for depth in (4, 8, 16)], cost(16, 4)
    return [*(n for _, n in plain), cut[1], plain[2][0], cut[0]], [4 + 1, 8 + 1, 16 + 1, 4, 3, 4]


@claim("CF21", Sampled())
def share_of_positive_activations() -> tuple[Tensor, Tensor, float]:
    """the share of positive inputs of the third ReLU of 60 of didact's stacks, He's weights and batch norm, against one half"""
    shares = []
    for _ in range(60):
        net = stack((64,) * 4, "relu", norm="batch")
        initialise(net, "he_normal")
        with torch.no_grad():
            shares.append((net[:-1](torch.randn(64, 64)) > 0).double().mean())
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

    return Cases([measured(f"resnet{n}") for n in (18, 101)], measured("vgg16"))


@claim("CF43", Same(), condition="one box for each cell; with k of them k(4 + C + 1)")
def channels_of_a_detector() -> Cases:
    """numbers that didact's SSD says of a cell, those of its whole answer over the cells of its maps, for C = 1, 3 and 20 classes, against
    4 + C + 1: one box a cell, and three"""
    def of_a_cell(k: int, C: int) -> float:
        net = SSD(widths=(4, 6, 8, 8), levels=2, neck=6, classes=C, size=(32, 48), sizes=torch.full((2, k, 2), 0.3))
        cells: list[int] = []
        for head in net.heads:
            head.register_forward_pre_hook(lambda _, maps: cells.append(maps[0][0, 0].numel()))
        said: Tensor = net(torch.zeros(1, 3, 32, 48))
        return said.numel() / sum(cells)

    stated = [4 + C + 1 for C in (1, 3, 20)]
    return Cases(*(([of_a_cell(k, C) for C in (1, 3, 20)], stated) for k in (1, 3)))


@claim("CF46", Same(1e-5))
def noise_with_variance_kept() -> Pair:
    """weight of x_0 and variance after steps x ← √(1 − β) x + √β ε: e^{t log(1−β)/2} and 1 for β = 0.03; for didact's β_t its √ᾱ_t and 1"""
    def steps(β: list[float]) -> tuple[Tensor, Tensor]:
        weight, spread = [1.0], [1.0]
        for b in β:
            weight.append(math.sqrt(1 - b) * weight[-1])
            spread.append((1 - b) * spread[-1] + b)
        return torch.tensor(weight), torch.tensor(spread)

    noising, t = Noising(200), torch.arange(201)
    a, sigma = noising.at(t)
    exponential = (0.5 * math.log(1 - 0.03) * t).exp()
    return [*steps([0.03] * 200), *steps(noising.beta[1:].tolist())], [exponential, torch.ones(201), a, a**2 + sigma**2]


@claim("CF47", Same(1e-5))
def reverse_step_as_a_sum() -> Pair:
    """x_t + f(x_t, t), f = (1/√α − 1) x_t − β E[ε|x_t]/√(α(1 − ᾱ)), against E[x_{t−1}|x_t] by Gaussian conditioning, x_0 ~ N(0.7, 0.5²),
    and against the mean of didact's posterior for E[x_0|x_t]"""
    m, s, noising, t = 0.7, 0.5, Noising(50), torch.arange(2, 51)
    β, after, before = noising.beta[t].double(), noising.alpha_bar[t].double(), noising.alpha_bar[t - 1].double()
    α, x = 1 - β, torch.randn(49)
    spread, spread_before = after * s**2 + 1 - after, before * s**2 + 1 - before
    off = x - after.sqrt() * m
    ε, x_0 = (1 - after).sqrt() / spread * off, m + after.sqrt() * s**2 / spread * off     # E[ε | x_t], E[x_0 | x_t]
    f = (1 / α.sqrt() - 1) * x - β / (α * (1 - after)).sqrt() * ε
    ours = noising.posterior(x_0[:, None, None, None], x[:, None, None, None], t)[0]
    return [x + f, x + f], [before.sqrt() * m + α.sqrt() * spread_before / spread * off, ours]


unable("CF52", "performance that is not named on hardware that is not named; peak rates and memory are those of data sheets")
