"""Gaba, chapter 1: neurons, activations, losses, initialization."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise, starmap
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact import scratch
from didact.analysis.signal_propagation import measure_signal_propagation
from didact.claims.forms import (
    Conditional,
    CorrectedClaim,
    Display,
    Equal,
    Exactly,
    Increasing,
    InInterval,
    Printed,
    WithinStandardErrors,
)
from didact.claims.helpers import Pair, count_parameters
from didact.claims.registry import claim
from didact.layers.activation import make_activation
from didact.layers.init import init_weights
from didact.layers.mlp import make_mlp_layers
from didact.models.tabular.mlp import MLP
from didact.objectives.distributions.classification import Bernoulli, Categorical
from didact.scratch.gradients.by_hand import SIGMOID
from didact.scratch.losses import cross_entropy as scratch_cross_entropy


def _scratch_derivative(f: Callable[[scratch.Tensor], scratch.Tensor], z: Tensor) -> Any:
    """f′ at every entry of z, by didact's own engine."""
    x = scratch.tensor(z.numpy(), requires_grad=True)
    f(x).sum().backward()
    return x.grad


@claim("C1.1", Equal())
def derivative_of_the_sigmoid() -> Pair:
    """σ′(z) = σ(z)(1 − σ(z)) with σ(z) = 1/(1 + e^−z), against didact's own engine"""
    z = torch.linspace(-30, 30, 1001)
    σ = 1 / (1 + (-z).exp())
    return σ * (1 - σ), _scratch_derivative(scratch.Tensor.sigmoid, z)


@claim("C1.2", Printed("0.25"))
def steepest_sigmoid() -> float:
    """max σ′ = 1/4"""
    z = torch.linspace(-10, 10, 2001)  # 0 is one of them
    return float(SIGMOID.slope(z.numpy()).max())


@claim(
    "C1.3",
    Equal(1e-6),
    remark="softmax: each output alone; together they sum to 1, so not all of (0, 1)^K is reached",
)
def ranges_of_activations() -> Display:
    """Least and largest values over |z| ≤ 100; an open end is approached but not reached, so it is met up to
    rounding"""
    z = torch.linspace(-100, 100, 20001)
    rows = Categorical(3).probabilities(torch.stack([z, torch.zeros_like(z), -z], dim=1))
    activations = [make_activation(name)(z) for name in ("sigmoid", "tanh", "relu")] + [rows]
    ends = [(float(y.min()), float(y.max())) for y in activations]
    leaky = make_activation("leaky_relu")(1e7 * z)                # no bound on either side
    unbounded = float(leaky.min() < -1e6), float(leaky.max() > 1e6)
    names = "over |z| ≤ 100: sigmoid", "tanh", "ReLU", "softmax"
    return Display(([*ends, unbounded], [(0, 1), (-1, 1), (0, 100), (0, 1), (1, 1)]),
                dict(zip(names, ends, strict=True)) | {"over |z| ≤ 1e9: leaky ReLU": [leaky.min(), leaky.max()]})


@claim("C1.4", InInterval(high=-100.0), correction="GELU is bounded below: its range is [−0.170, ∞)")
def least_gelu() -> Display:
    """the minimum of z Φ(z) on [−1000, 1000]; a range of all of R would go below any bound, such as −100"""
    minimum = float(make_activation("gelu")(torch.linspace(-1000, 1000, 2_000_001)).min())
    return Display(minimum, {"least value": minimum})


@claim("C1.5", Equal(1e-3))
def flat_sigmoid() -> Display:
    """σ′(z) e^|z| = 1 within 1e-3 for |z| ≥ 10: the slope falls as e^−|z| (4.5e-5 at 10); didact's slope by hand and by
    its engine"""
    z = torch.tensor([-20.0, -15, -12, -10, 10, 12, 15, 20])
    slopes = SIGMOID.slope(z.numpy()), _scratch_derivative(scratch.Tensor.sigmoid, z)
    scaled = [torch.from_numpy(s) * z.abs().exp() for s in slopes]
    return Display((scaled, [torch.ones(8)] * 2), {"σ′ at z = 10, 12, 15, 20:": slopes[0][4:]})


def _count_mlp_parameters(*widths: int) -> int:
    """Parameters of didact's own MLP."""
    first, *hidden, last = widths
    return count_parameters(MLP(features=first, hidden=tuple(hidden), outputs=last))


@claim("C1.6", Exactly(235_146))
def parameters_by_formula() -> int:
    """Σ n_l (n_{l−1} + 1), the widths read from didact's weight matrices"""
    matrices = [p for p in MLP(784, 10, hidden=(256, 128)).parameters() if p.ndim == 2]
    return sum(n * (before + 1) for n, before in (m.shape for m in matrices))


@claim("C1.7", Exactly("Parameters: 235,146"))
def printed_parameters() -> str:
    """print(f"Parameters: {sum(p.numel() for p in model.parameters()):,}")"""
    return f"Parameters: {_count_mlp_parameters(784, 256, 128, 10):,}"


@claim("C1.8", Equal())
def cross_entropy_is_negative_log_likelihood() -> Pair:
    """−(1/N) Σ_i Σ_k y_ik log ŷ_ik = −(1/N) Σ_i log p(y_i | x_i), the right side by didact's loss on torch and on its
    own engine"""
    z, y = torch.randn(50, 7), torch.randint(7, (50,))
    onehot = F.one_hot(y, 7)
    stated = -(onehot * z.softmax(1).log()).sum() / 50
    ours = Categorical(7).mean_loss(z, y), scratch_cross_entropy(scratch.tensor(z.numpy()), y.numpy()).item()
    return [stated, stated], list(ours)


@claim("C1.9", Equal())
def binary_cross_entropy_is_the_case_of_two() -> Pair:
    """didact's loss of the logits (0, z) and its loss of σ(z), against −(y log ŷ + (1 − y) log(1 − ŷ))"""
    z, y = 5 * torch.randn(100), torch.randint(2, (100,))
    ŷ = z.sigmoid()
    stated = -(y * ŷ.log() + (1 - y) * (1 - ŷ).log())
    logits = torch.stack([torch.zeros_like(z), z], dim=1)
    return [Categorical(2).loss(logits, y), Bernoulli().loss(z[:, None], y)], [stated, stated]


@claim("C1.10", WithinStandardErrors())
def variance_of_xavier() -> tuple[list[Tensor], list[Tensor], list[float]]:
    """the variance of didact's Xavier weights, U(−r, r) with r = √(6/(n_in + n_out)), against 2/(n_in + n_out): three
    layers"""
    sizes, variances, errors = ((784, 256), (256, 1024), (500, 700)), [], []
    for n_in, n_out in sizes:
        layer = nn.Linear(n_in, n_out)
        init_weights(layer, "xavier_uniform", activation="linear")
        square = layer.weight.detach().square()
        variances.append(square.mean())
        errors.append(square.std() / math.sqrt(square.numel()))
    return variances, errors, [2 / (n_in + n_out) for n_in, n_out in sizes]


@torch.no_grad()
def _signal_ratio(
    name: str, scheme: str, *, input_std: float = 1.0, widths: tuple[int, ...] = (200,) * 6, networks: int = 8
) -> float:
    """Mean square of the activations after layers of these widths over that of the inputs, averaged over networks."""
    ratios = []
    for _ in range(networks):
        net = (
            nn.Sequential(*starmap(nn.Linear, pairwise(widths))) if name == "linear" else make_mlp_layers(widths, name)
        )
        # Gaba's Xavier has no gain; He's factor 2 is ReLU's
        init_weights(net, scheme, activation="linear" if scheme.startswith("xavier") else "relu")
        x = input_std * torch.randn(30, widths[0])
        ratios.append(float(net(x).square().mean() / x.square().mean()))
    return sum(ratios) / networks


@claim(
    "C1.11",
    InInterval(0.8, 1.25),
    condition="layers of equal width (else a factor 2 n_in/(n_in + n_out) per layer), and linear units or tanh with "
    "small signals",
)
def xavier_keeps_the_signal() -> Conditional:
    """E h² after five layers of 200 units over E x² at the input: 1 where the signal is preserved; then after 784 – 256
    – 128 linear units"""
    xavier_ratio = partial(_signal_ratio, scheme="xavier_uniform")
    ratios = {"linear": xavier_ratio("linear"), "tanh of small signals": xavier_ratio("tanh", input_std=0.01)}
    other_ratios = {
        "linear 784 – 256 – 128": xavier_ratio("linear", widths=(784, 256, 128)),
        "tanh": xavier_ratio("tanh"),
        "sigmoid": xavier_ratio("sigmoid"),
    }
    return Conditional(Display([*ratios.values()], ratios), Display([*other_ratios.values()], other_ratios))


@claim("C1.12", InInterval(0.8, 1.25))
def he_keeps_the_signal() -> float:
    """E h_l² = (n/2) Var(W) E h_{l−1}², and Var(W) = 2/n makes the factor 1: five ReLU layers over the input"""
    return _signal_ratio("relu", "he_normal")


@claim("C1.13", InInterval(high=-6))
def bad_initialization() -> Display:
    """E h² after ten ReLU layers of 256 for E x² = 1: a millionth or less with W ~ N(0, 0.01²), a million or more with
    N(0, 1)"""
    mean_squares = []
    for std in (0.01, 1.0):
        net = make_mlp_layers((256,) * 11, "relu")
        for p in net.parameters():
            nn.init.normal_(p, std=std) if p.ndim == 2 else nn.init.zeros_(p)
        last = measure_signal_propagation(net, torch.randn(64, 256))[-1]
        mean_squares.append(last["variance"] + last["mean"] ** 2)
    small, large = mean_squares
    return Display([math.log10(small), -math.log10(large)], {"E h² with σ = 0.01:": small, "with σ = 1:": large})


_CODE_GIVES_COUNT = "the code on the page gives the computed count"


@claim("C1.14", Exactly(812_042), correction=_CODE_GIVES_COUNT)
def shallow_wide() -> int:
    """784 – 1024 – 10"""
    return _count_mlp_parameters(784, 1024, 10)


@claim("C1.15", Exactly(235_146))
def two_layers() -> int:
    """784 – 256 – 128 – 10"""
    return _count_mlp_parameters(784, 256, 128, 10)


@claim("C1.16", Exactly(243_338), correction=_CODE_GIVES_COUNT)
def three_layers() -> int:
    """784 – 256 – 128 – 64 – 10"""
    return _count_mlp_parameters(784, 256, 128, 64, 10)


@claim("C1.17", Exactly(63_434), correction=_CODE_GIVES_COUNT)
def deep_narrow() -> int:
    """784 – 64 – 64 – 64 – 64 – 10"""
    return _count_mlp_parameters(784, 64, 64, 64, 64, 10)


@claim("C1.18", Printed("3"))
def wide_over_three_layers() -> float:
    """parameters of the wide network over those of the best one, with three hidden layers, which the remark names
    first"""
    return _count_mlp_parameters(784, 1024, 10) / _count_mlp_parameters(784, 256, 128, 64, 10)


@claim("C1.19", InInterval(0.9, 1.1), correction="they differ by a factor of three; a hidden layer of 667 would match")
def equal_budgets() -> CorrectedClaim:
    """parameters of (1024, 2048, 10) over those of (1024, 512, 256, 128, 10); corrected: (1024, n, 10) with n(1024 + 1
    + 10) + 10 of them"""
    deep_parameters = _count_mlp_parameters(1024, 512, 256, 128, 10)
    n = round((deep_parameters - 10) / (1024 + 1 + 10))
    return CorrectedClaim(
        _count_mlp_parameters(1024, 2048, 10) / deep_parameters, _count_mlp_parameters(1024, n, 10) / deep_parameters
    )


@claim("C1.25", Increasing())
def approximation_by_width() -> list[float]:
    """−log₁₀ of the largest error of one hidden layer of 5, 20, 80 and 320 ReLU units fitted to |x − 0.4| + sin 6x on
    [0, 1]"""
    from didact.claims.van_schependom.chapter_01 import uniform_error  # it builds on this chapter

    return [-math.log10(uniform_error(make_activation("relu"), n)) for n in (5, 20, 80, 320)]
