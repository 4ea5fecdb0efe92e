"""Gaba, chapter 1: neurons, activations, losses, initialisation."""

import math
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from didact.claims.compare import Cases, Corrected, Exactly, Inside, NeverMore, Printed, Rising, Same
from didact.claims.core import claim
from didact.claims.tools import Pair, parameters, slope
from didact.layers.activation import activation
from didact.layers.initialise import initialise
from didact.layers.propagation import propagation
from didact.layers.stack import stack
from didact.models.mlp import MLP
from didact.scratch.ways.by_hand import SIGMOID


@claim("C1.1", Same())
def derivative_of_the_sigmoid() -> Pair:
    """σ′(z) = σ(z)(1 − σ(z))"""
    z = torch.linspace(-30, 30, 1001)
    σ = z.sigmoid()
    return slope(torch.sigmoid, z), σ * (1 - σ)


@claim("C1.2", Printed("0.25"))
def steepest_sigmoid() -> float:
    """max σ′ = 1/4"""
    z = torch.linspace(-10, 10, 2001)  # 0 is one of them
    return float(SIGMOID.slope(z.numpy()).max())


@claim("C1.3", Same(1e-6))
def ranges() -> Pair:
    """Least and largest values over |z| ≤ 1000; an open end is approached and not reached, so it is met up to rounding."""
    z = torch.linspace(-1000, 1000, 20001)
    rows = torch.stack([z, torch.zeros_like(z), -z], dim=1).softmax(dim=1)
    seen = [activation(name)(z) for name in ("sigmoid", "tanh", "relu")] + [rows]
    ends = [(float(y.min()), float(y.max())) for y in seen]
    leaky = activation("leaky_relu")(1e6 * z)                # no bound on either side
    ends.append((float(leaky.min() < -1e6), float(leaky.max() > 1e6)))
    return ends, [(0, 1), (-1, 1), (0, 1000), (0, 1), (1, 1)]


@claim("C1.4", Inside(high=-100.0), right="GELU is bounded below: its range is [−0.170, ∞)")
def least_gelu() -> float:
    """all of R would take the least value of z Φ(z) on [−1000, 1000] below any bound, −100 for one"""
    return float(activation("gelu")(torch.linspace(-1000, 1000, 2_000_001)).min())


@claim("C1.5", NeverMore())
def flat_sigmoid() -> Pair:
    """σ′(z) ≤ e^−|z|, which is 4.5e-5 at 10"""
    z = torch.tensor([-30.0, -20, -10, 10, 20, 30])
    return slope(torch.sigmoid, z), (-z.abs()).exp()


def perceptron(*widths: int) -> int:
    """Parameters of didact's own MLP."""
    first, *hidden, last = widths
    return parameters(MLP(features=first, hidden=tuple(hidden), outputs=last))


@claim("C1.6", Exactly(235_146))
def parameters_by_formula() -> int:
    """Σ n_l (n_{l−1} + 1)"""
    return sum(m * (n + 1) for n, m in pairwise((784, 256, 128, 10)))


@claim("C1.7", Exactly("Parameters: 235,146"))
def printed_parameters() -> str:
    """print(f"Parameters: {sum(p.numel() for p in model.parameters()):,}")"""
    return f"Parameters: {perceptron(784, 256, 128, 10):,}"


@claim("C1.8", Same())
def cross_entropy_is_negative_log_likelihood() -> Pair:
    """−(1/N) Σ_i Σ_k y_ik log ŷ_ik = −(1/N) Σ_i log p(y_i | x_i)"""
    z, y = torch.randn(50, 7), torch.randint(7, (50,))
    onehot = F.one_hot(y, 7)
    likelihood = torch.distributions.Categorical(logits=z).log_prob(y)
    return -(onehot * z.softmax(1).log()).sum() / 50, -likelihood.mean()


@claim("C1.9", Same())
def binary_cross_entropy_is_the_case_of_two() -> Pair:
    """CE of the logits (0, z) is BCE of σ(z)"""
    z, y = 5 * torch.randn(100), torch.randint(2, (100,))
    ŷ = z.sigmoid()
    two = torch.stack([torch.zeros_like(z), z], dim=1)
    return F.cross_entropy(two, y, reduction="none"), -(y * ŷ.log() + (1 - y) * (1 - ŷ).log())


@claim("C1.10", Same())
def variance_of_xavier() -> Pair:
    """U(−r, r) with r = √(6/(n_in + n_out)) has variance r²/3 = 2/(n_in + n_out); r read off drawn weights would only be near"""
    n_in, n_out = torch.tensor([784.0, 256, 128]), torch.tensor([256.0, 128, 10])
    r = (6 / (n_in + n_out)).sqrt()
    return torch.distributions.Uniform(-r, r).variance, 2 / (n_in + n_out)


@torch.no_grad()
def signal(name: str, scheme: str, *, spread: float = 1.0, depth: int = 5, width: int = 300, networks: int = 20) -> float:
    """Mean square of the activations after `depth` layers over that of the inputs, on average over networks."""
    ratios = []
    for _ in range(networks):
        net = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)]) if name == "linear" else stack((width,) * (depth + 1), name)
        initialise(net, scheme)
        x = spread * torch.randn(100, width)
        ratios.append(float(net(x).square().mean() / x.square().mean()))
    return sum(ratios) / networks


@claim("C1.11", Inside(0.8, 1.25), condition="linear units, or tanh with small signals; tanh of unit signals and the sigmoid lose it")
def xavier_keeps_the_signal() -> Cases:
    """E h² after five layers over E x² at the input: 1 where the signal is kept"""
    small = signal("linear", "xavier_uniform"), signal("tanh", "xavier_uniform", spread=0.01)
    return Cases(small, (signal("tanh", "xavier_uniform"), signal("sigmoid", "xavier_uniform")))


@claim("C1.12", Inside(0.8, 1.25))
def he_keeps_the_signal() -> float:
    """E h_l² = (n/2) Var(W) E h_{l−1}², and Var(W) = 2/n makes the factor 1: five ReLU layers over the input"""
    return signal("relu", "he_normal")


@claim("C1.13", Rising())
def bad_initialisation() -> list[float]:
    """log10 of the signal behind ten ReLU layers of 256 with W ~ N(0, 0.01²), and with N(0, 1): below −6 and above 6"""
    found = []
    for std in (0.01, 1.0):
        net = stack((256,) * 11, "relu")
        for p in net.parameters():
            nn.init.normal_(p, std=std) if p.ndim == 2 else nn.init.zeros_(p)
        last = propagation(net, torch.randn(64, 256))[-1]
        found.append(math.log10(last["variance"] + last["mean"] ** 2))
    return [found[0], -6, 6, found[1]]


COUNTED = "the page's own code gives the computed count"


@claim("C1.14", Exactly(812_042), right=COUNTED)
def shallow_wide() -> int:
    """784 – 1024 – 10"""
    return perceptron(784, 1024, 10)


@claim("C1.15", Exactly(235_146))
def two_layers() -> int:
    """784 – 256 – 128 – 10"""
    return perceptron(784, 256, 128, 10)


@claim("C1.16", Exactly(243_338), right=COUNTED)
def three_layers() -> int:
    """784 – 256 – 128 – 64 – 10"""
    return perceptron(784, 256, 128, 64, 10)


@claim("C1.17", Exactly(63_434), right=COUNTED)
def deep_narrow() -> int:
    """784 – 64 – 64 – 64 – 64 – 10"""
    return perceptron(784, 64, 64, 64, 64, 10)


@claim("C1.18", Printed("3"))
def wide_over_two_layers() -> float:
    """parameters of the wide network over those of the network with two hidden layers: 3.46, which one digit rounds to 3"""
    return perceptron(784, 1024, 10) / perceptron(784, 256, 128, 10)


@claim("C1.19", Inside(0.9, 1.1), right="they differ by a factor of three; a hidden layer of 667 would match")
def equal_budgets() -> Corrected:
    """parameters of (1024, 2048, 10) over those of (1024, 512, 256, 128, 10); mended: (1024, 667, 10)"""
    deep = perceptron(1024, 512, 256, 128, 10)
    return Corrected(perceptron(1024, 2048, 10) / deep, perceptron(1024, 667, 10) / deep)


@claim("C1.25", Rising())
def approximation_by_width() -> list[float]:
    """−log₁₀ of the largest error of one hidden layer of 5, 20, 80 and 320 ReLU units fitted to |x − 0.4| + sin 6x on [0, 1]"""
    from didact.claims.van_schependom_measured import uniform_error  # it builds on this chapter

    return [-math.log10(uniform_error(torch.relu, n)) for n in (5, 20, 80, 320)]
