"""Fleuret: sizes, memory and costs of real networks, over-fitting, diffusion."""

import math

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import didact.models  # noqa: F401 (registers the presets)
from didact.claims.compare import Conditional, Equal, Increasing, InInterval, ShownAs
from didact.claims.core import claim, mark_not_checkable
from didact.claims.tools import Pair, count_multiplications, count_parameters
from didact.layers.init import init_weights
from didact.layers.mlp import make_mlp_layers
from didact.layers.standardize import Standardize
from didact.metrics.regression import rmse
from didact.models.vision.ssd import SSD
from didact.objectives.generative.noise_schedule import NoiseSchedule
from didact.registry import create_model


@claim("CF02", Increasing())
def errors_of_an_overfit() -> list[float]:
    """root mean squared errors: of the polynomial of degree 9 on the ten noisy points of sin πx that it goes
    through, of sin πx on
    new points, which is the noise, and of the polynomial there"""
    def noisy_sine(x: Tensor) -> Tensor:
        return (math.pi * x).sin() + 0.3 * torch.randn(len(x))

    x, test_x = torch.linspace(-1, 1, 10), 2 * torch.rand(2000) - 1
    y, truth = noisy_sine(x), noisy_sine(test_x)
    w = torch.linalg.solve(torch.vander(x), y)
    fit, sine = torch.vander(test_x, 10) @ w, (math.pi * test_x).sin()
    return [float(rmse(a, b)) for a, b in ((torch.vander(x) @ w, y), (sine, truth), (fit, truth))]


@claim("CF13", Equal())
def memory_of_training() -> Pair:
    """tensors that didact's stack of 4, 8, 16 layers keeps for its backward pass: the input and one a layer; with 4
    checkpoints 4, for one
    forward pass more: products over those of a forward pass, 3 and 4"""
    def cost(depth: int, num_checkpoints: int) -> tuple[float, int]:
        layers, saved_tensors = make_mlp_layers((32,) * (depth + 1), "tanh"), dict[int, Tensor]()

        def save_tensor(t: Tensor) -> Tensor:
            if not isinstance(t, nn.Parameter) and t._base is None:     # weights are there anyway
                saved_tensors[id(t)] = t
            return t

        def forward_backward() -> None:
            h, size = torch.randn(8, 32, requires_grad=True), len(layers) // num_checkpoints
            with torch.autograd.graph.saved_tensors_hooks(save_tensor, lambda t: t):
                for segment in (layers[i : i + size] for i in range(0, len(layers), size)):
                    h = segment(h) if num_checkpoints == 1 else checkpoint(segment, h, use_reentrant=False)
            h.sum().backward()

        return count_multiplications(forward_backward) / count_multiplications(
            lambda: layers(torch.randn(8, 32)).detach()
        ), len(saved_tensors)

    costs, checkpointed_cost = [cost(depth, 1) for depth in (4, 8, 16)], cost(16, 4)
    return [*(n for _, n in costs), checkpointed_cost[1], costs[2][0], checkpointed_cost[0]], [
        4 + 1,
        8 + 1,
        16 + 1,
        4,
        3,
        4,
    ]


@claim("CF21", InInterval(0.45, 0.55))
def share_of_positive_activations() -> ShownAs:
    """the share of positive inputs of each ReLU of 20 of didact's stacks with He's weights, data of positive
    numbers normalised; and of
    each unit of the first layer alone, which without the normalisation would lie anywhere from 0 to 1"""
    shares = []
    for _ in range(20):
        net, h = make_mlp_layers((64,) * 4, "relu"), torch.rand(2000, 64) ** 2
        init_weights(net, "he_normal")
        with torch.no_grad():
            h = Standardize(h.mean(0), h.std(0))(h)
            for layer in net:
                if isinstance(layer, nn.ReLU):
                    shares.append((h > 0).double().mean(0))
                h = layer(h)
    by_net = torch.stack(shares).unflatten(0, (20, 3))                          # (nets, layers, units)
    layers, first = by_net.mean((0, 2)), by_net[:, 0]
    return ShownAs([layers, first], {
        "share positive by layer": layers, "of a unit of the first at least": first.min(), "at most": first.max()})


NUM_IMAGENET_IMAGES = 1_281_167       # of ImageNet


def _model_size(name: str) -> tuple[int, int]:
    """Parameters, and products for one image."""
    with torch.device("meta"):
        net = create_model(name).eval()
        return count_parameters(net), count_multiplications(lambda: net(torch.zeros(1, 3, 224, 224)))


@claim(
    "CF38",
    InInterval(0, 1),
    condition="ResNet-18 to 152, trained for 90 epochs on ImageNet; VGG-16, trained for 74, has more than 100 million",
)
def sizes_of_vision_models() -> Conditional:
    """log₁₀(parameters/10⁷) and log₁₀(operations/10¹⁸): two for each product, three passes, epochs × 1,281,167
    images; ResNets for 90
    epochs, and VGG-16 for the 74 of its paper"""
    def training_cost(epochs: int, *names: str) -> ShownAs:
        sizes, products = zip(*map(_model_size, names), strict=True)
        operations = [2 * 3 * n * NUM_IMAGENET_IMAGES * epochs for n in products]
        value = [[math.log10(n / 1e7) for n in sizes], [math.log10(n / 1e18) for n in operations]]
        return ShownAs(value, {"millions of parameters": [n / 1e6 for n in sizes], "operations": operations})

    return Conditional(training_cost(90, "resnet18", "resnet152"), training_cost(74, "vgg16"))


@claim("CF43", Equal(), condition="one box for each cell; with k of them k(4 + C + 1)")
def channels_of_a_detector() -> Conditional:
    """numbers that didact's SSD says of a cell, those of its whole answer over the cells of its maps, for C = 1, 3
    and 20 classes, against
    4 + C + 1: one box a cell, and three"""
    def numbers_per_cell(k: int, C: int) -> float:
        net = SSD(widths=(4, 6, 8, 8), levels=2, neck=6, num_classes=C, size=(32, 48), sizes=torch.full((2, k, 2), 0.3))
        cells: list[int] = []
        for head in net.heads:
            head.register_forward_pre_hook(lambda _, maps: cells.append(maps[0][0, 0].numel()))
        predictions: Tensor = net(torch.zeros(1, 3, 32, 48))
        return predictions.numel() / sum(cells)

    stated = [4 + C + 1 for C in (1, 3, 20)]
    return Conditional(*(([numbers_per_cell(k, C) for C in (1, 3, 20)], stated) for k in (1, 3)))


@claim("CF46", Equal(1e-5))
def noise_that_preserves_variance() -> ShownAs:
    """weight of x_0 and variance after steps x ← √(1 − β) x + √β ε: e^{t log(1−β)/2} and 1 for β = 0.03; for
    didact's β_t its √ᾱ_t and 1;
    and E x_T⁴ for x_0 = ±1, which is 1 at the start, against 3, that of a normal x_T"""
    def steps(β: list[float]) -> tuple[Tensor, Tensor, float]:
        weights, variances, fourth_moment = [1.0], [1.0], 1.0
        for b in β:
            fourth_moment = (1 - b) ** 2 * fourth_moment + 6 * b * (1 - b) * variances[-1] + 3 * b**2
            weights.append(math.sqrt(1 - b) * weights[-1])
            variances.append((1 - b) * variances[-1] + b)
        return torch.tensor(weights), torch.tensor(variances), fourth_moment

    noising, t = NoiseSchedule(200), torch.arange(201)
    a, sigma = noising.coefficients(t)
    exponential = (0.5 * math.log(1 - 0.03) * t).exp()
    trajectories = steps([0.03] * 200), steps(noising.beta[1:].tolist())
    return ShownAs(
        ([*trajectories[0], *trajectories[1]], [exponential, torch.ones(201), 3.0, a, a**2 + sigma**2, 3.0]),
        {
            "weight of x_0 after 200 steps": [w[-1] for w, _, _ in trajectories],
            "variance": [v[-1] for _, v, _ in trajectories],
            "fourth moment": [m for _, _, m in trajectories],
        },
    )


@claim("CF47", Equal(1e-5), remark="this f moves the mean; the f of four arguments above it, a density, is another")
def reverse_step_as_a_sum() -> Pair:
    """x_t + f(x_t, t), f = (1/√α − 1) x_t − β E[ε|x_t]/√(α(1 − ᾱ)), against E[x_{t−1}|x_t] by Gaussian
    conditioning, x_0 ~ N(0.7, 0.5²),
    and against the mean of didact's posterior for E[x_0|x_t]; and its σ_t², against Var[x_{t−1}|x_t, x_0] by the
    same rule"""
    m, s, noising, t = 0.7, 0.5, NoiseSchedule(50), torch.arange(2, 51)
    β, ᾱ, ᾱ_before = noising.beta[t].double(), noising.alpha_bar[t].double(), noising.alpha_bar[t - 1].double()
    α, x = 1 - β, torch.randn(49)
    variance_now, variance_before = ᾱ * s**2 + 1 - ᾱ, ᾱ_before * s**2 + 1 - ᾱ_before
    offset = x - ᾱ.sqrt() * m
    # E[ε | x_t], E[x_0 | x_t]
    ε, x_0 = (1 - ᾱ).sqrt() / variance_now * offset, m + ᾱ.sqrt() * s**2 / variance_now * offset
    f = (1 / α.sqrt() - 1) * x - β / (α * (1 - ᾱ)).sqrt() * ε
    ours, variance = noising.posterior(x_0[:, None, None, None], x[:, None, None, None], t)
    # of x_{t−1}, less what x_t tells of it
    posterior_variance = 1 - ᾱ_before - α * (1 - ᾱ_before) ** 2 / (1 - ᾱ)
    return [x + f, x + f, posterior_variance], [
        ᾱ_before.sqrt() * m + α.sqrt() * variance_before / variance_now * offset,
        ours,
        variance,
    ]


mark_not_checkable(
    "CF52",
    "peak rates and memory are those of data sheets; that 16 bits lose nothing is said of no named network, task or "
    "operands",
)
