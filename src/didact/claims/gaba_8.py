"""Gaba, chapter 8: adversarial networks."""

import math
import re
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian

from didact.claims.compare import Asked, Cases, Differ, Exactly, Inside, NeverMore, Printed, Rising, Same
from didact.claims.core import claim, statements
from didact.claims.tools import Pair, parameters, slope
from didact.layers.geometry import Window


def distributions(n: int, k: int = 6) -> Tensor:
    return torch.randn(n, k).softmax(1)


def game_value(D: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """V = E_p log D + E_q log(1 − D)."""
    return (p * D.log() + q * (1 - D).log()).sum(-1)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    return (p * (p / q).log()).sum(-1)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    m = (p + q) / 2
    return (divergence(p, m) + divergence(q, m)) / 2


@claim("C8.1", Same(1e-6))
def best_discriminator() -> Pair:
    """the D that maximises p log D + q log(1 − D), found by halving the interval in which the slope changes sign, against p/(p + q)"""
    p, q = distributions(2)
    low, high = torch.zeros(6), torch.ones(6)
    for _ in range(60):
        D = (low + high) / 2
        rising = slope(lambda D: p * D.log() + q * (1 - D).log(), D) > 0
        low, high = torch.where(rising, D, low), torch.where(rising, high, D)
    return D, p / (p + q)


@claim("C8.2", Same())
def value_of_the_game() -> Pair:
    """V(D*, G) = −log 4 + 2 JSD(p, q)"""
    p, q = distributions(20), distributions(20)
    return game_value(p / (p + q), p, q), -math.log(4) + 2 * jensen_shannon(p, q)


@claim("C8.3", Printed("-1.386294"))
def least_value_of_the_game() -> Tensor:
    """the least V(D*, G) over a thousand q and q = p"""
    p = distributions(1)
    q = torch.cat([distributions(1000), p])
    return game_value(p / (p + q), p, q).min()


@claim("C8.4", Asked())
def discriminator_of_two_normals() -> tuple[float, ...]:
    """D*(x) = σ(3x − 4.5) at x = 0, 1.5, 3"""
    x, normal = torch.tensor([0.0, 1.5, 3.0]), torch.distributions.Normal
    p, q = normal(3.0, 1.0).log_prob(x).exp(), normal(0.0, 1.0).log_prob(x).exp()
    return tuple(round(v, 6) for v in (p / (p + q)).tolist())


@claim("C8.5", Same())
def point_masses() -> Pair:
    """W(δ_0, δ_θ) = |θ|, while JSD of two masses that do not meet is log 2 however far apart they are"""
    from scipy.stats import wasserstein_distance  # type: ignore[import-untyped]

    thetas, masses = (-2.0, -0.5, 0.5, 3.0), (torch.eye(2) + 1e-300).unbind()
    return [*(wasserstein_distance([0.0], [θ]) for θ in thetas), jensen_shannon(*masses)], [*map(abs, thetas), math.log(2)]


@claim("C8.6", Same(1e-7))
def kantorovich_rubinstein() -> Pair:
    """the cheapest transport between weights on 6 points of the plane = the largest E_p f − E_q f of 1-Lipschitz f: two linear programs"""
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    x, (p, q) = torch.randn(6, 2), distributions(2)
    cost = torch.cdist(x, x).numpy()
    rows = np.concatenate([np.kron(np.eye(6), np.ones(6)), np.kron(np.ones(6), np.eye(6))])
    transport = linprog(cost.ravel(), A_eq=rows, b_eq=torch.cat([p, q]).numpy())
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    slopes = np.array([np.eye(6)[i] - np.eye(6)[j] for i, j in pairs])
    critic = linprog((q - p).numpy(), A_ub=slopes, b_ub=[cost[i, j] for i, j in pairs], bounds=(-10, 10))
    return -critic.fun, transport.fun


@claim("C8.7", Rising())
def saturation_of_the_generator() -> list[float]:
    """|slope| in the logit a = −20 of log(1 − D) below 1e-6, and of log D above 0.99"""
    a = torch.tensor([-20.0])
    saturating, other = slope(lambda a: (1 - a.sigmoid()).log(), a), slope(lambda a: a.sigmoid().log(), a)
    return [float(saturating.abs()), 1e-6, 0.99, float(other.abs())]


UP = ((100, 256, 4, 1, 0), (256, 128, 3, 2, 1), (128, 64, 4, 2, 1), (64, 1, 4, 2, 1))    # channels, kernel, stride, padding
DOWN = ((1, 64, 4, 2, 1), (64, 128, 4, 2, 1), (128, 256, 3, 2, 1), (256, 1, 4, 1, 0))


@claim("C8.8", Exactly((4, 7, 14, 28)))
def sizes_of_the_generator() -> tuple[int, ...]:
    """(i − 1)s − 2p + k behind each of the four transposed convolutions"""
    x, found = torch.zeros(1, 100, 1, 1), []
    for c_in, c_out, k, s, p in UP:
        x = nn.ConvTranspose2d(c_in, c_out, k, s, p)(x)
        found.append(x.shape[-1])
    return tuple(found)


@claim("C8.9", Exactly((14, 7, 4, 1)))
def sizes_of_the_discriminator() -> tuple[int, ...]:
    """⌊(i + 2p − k)/s⌋ + 1 behind each of the four convolutions"""
    size, found = 28, []
    for _, _, k, s, p in DOWN:
        size = Window(k, s, p).size(size)
        found.append(size)
    return tuple(found)


@claim("C8.10", Asked())
def sizes_of_dcgan() -> tuple[int, int]:
    """parameters of generator and discriminator: convolutions without biases, and their batch norms"""
    G = [nn.ConvTranspose2d(*layer, bias=False) for layer in UP] + [nn.BatchNorm2d(c) for c in (256, 128, 64)]
    D = [nn.Conv2d(*layer, bias=False) for layer in DOWN] + [nn.BatchNorm2d(c) for c in (128, 256)]
    return sum(map(parameters, G)), sum(map(parameters, D))


@claim("C8.12", NeverMore())
def range_of_the_inception_score() -> Pair:
    """1 ≤ exp E KL(p(y|x) ‖ p(y)) ≤ K for 50 generators of ten classes, one that repeats itself and one of ten sure classes"""
    answers = [distributions(40, 10) for _ in range(50)] + [distributions(1, 10).expand(40, 10)]
    answers.append((1 - 1e-12) * torch.eye(10) + 1e-13)
    scores = [divergence(p, p.mean(0)).mean().exp() for p in answers]
    return [torch.ones(len(scores)), *scores], [*scores, torch.full((len(scores),), 10.0)]


def root(S: Tensor) -> Tensor:
    """The symmetric square root of a covariance."""
    values, vectors = torch.linalg.eigh(S)
    S_half: Tensor = vectors * values.clamp(min=0).sqrt() @ vectors.mT
    return S_half


@claim("C8.13", Same())
def frechet_distance() -> Pair:
    """‖μ_r − μ_g‖² + Tr(Σ_r + Σ_g − 2(Σ_r Σ_g)^½), against E‖x − T(x)‖² for the optimal map T between the normals"""
    A, B, μ_r, μ_g = torch.randn(5, 5), torch.randn(5, 5), torch.randn(5), torch.randn(5)
    S_r, S_g = A @ A.T, B @ B.T
    trace = torch.linalg.eigvals(S_r @ S_g).real.sqrt().sum()
    fid = (μ_r - μ_g).square().sum() + S_r.trace() + S_g.trace() - 2 * trace
    R = root(S_r)
    T = R.inverse() @ root(R @ S_g @ R) @ R.inverse()
    kept = torch.eye(5) - T
    return [fid, T @ S_r @ T.T], [(μ_r - μ_g).square().sum() + (kept @ S_r @ kept.T).trace(), S_g]


@claim("C8.18", NeverMore(), condition="the generator's rate lowered as well (row TTUR); with D's alone raised the table is worse")
def higher_rate_of_the_discriminator() -> Cases:
    """FID of table 8.1 against its base row: 1e-4/4e-4, and 2e-4/5e-4"""
    base = float(statements()["C8.14"].stated)
    _, alone, both = (float(n) for n in re.findall(r"[\d.]+", statements()["C8.16"].stated))
    return Cases((both, base), (alone, base))


def field(value: Callable[[Tensor], Tensor], players: Tensor) -> Callable[[Tensor], Tensor]:
    """Simultaneous steps on V: entries with −1 go down, those with +1 go up."""
    def move(θ: Tensor) -> Tensor:
        (g,) = torch.autograd.grad(value(θ), θ, create_graph=True)
        return players * g

    return move


def normal_points() -> tuple[Tensor, Tensor]:
    """Nodes and weights with which E f(z), z ~ N(0, 1), is a sum."""
    z, w = np.polynomial.hermite_e.hermegauss(40)
    return torch.from_numpy(z), torch.from_numpy(w / w.sum())


def logistic_game(θ: Tensor) -> Tensor:
    """V for D = σ(a x² + b x + c), data N(0, 1), generator μ + σ z; θ = (μ, σ, a, b, c)."""
    z, w = normal_points()
    μ, σ, a, b, c = θ
    real, fake = (a * x**2 + b * x + c for x in (z, μ + σ * z))
    return (w * torch.nn.functional.logsigmoid(real)).sum() + (w * torch.nn.functional.logsigmoid(-fake)).sum()


@claim("C8.19", Differ())
def field_without_a_potential() -> Pair:
    """the Jacobian of (−∂V/∂G, +∂V/∂D) against its transpose, at a random point: a gradient's would be symmetric"""
    move = field(logistic_game, torch.tensor([-1.0, -1, 1, 1, 1]))
    J = jacobian(move, torch.tensor([0.3, 1.2, 0.1, -0.2, 0.1]))
    return J, J.T


@claim("C8.20", Inside(low=-1e-9), condition="a linear critic, with which the game only circles; a logistic D that holds D* is stable")
def stability_of_the_solution() -> Cases:
    """the least decay rate, max Re λ of the field's Jacobian at μ = 0, σ = 1: linear critic w x, and D = σ(a x² + b x + c)"""
    def linear(θ: Tensor) -> Tensor:  # V = w (E x − E G(z)) with θ = (μ, w)
        return -θ[1] * θ[0]

    def rate(value: Callable[[Tensor], Tensor], players: list[float], at: list[float]) -> Tensor:
        J = jacobian(field(value, torch.tensor(players)), torch.tensor(at))
        slowest: Tensor = torch.linalg.eigvals(J).real.max()
        return slowest

    logistic = rate(logistic_game, [-1.0, -1, 1, 1, 1], [0.0, 1, 0, 0, 0])
    return Cases(rate(linear, [-1.0, 1], [0.0, 0]), logistic)
