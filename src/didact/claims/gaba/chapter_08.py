"""Gaba, chapter 8: adversarial networks."""

import math
import re
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian

from didact.claims.forms import Conditional, Display, Equal, Exactly, LessOrEqual, NotEqual
from didact.claims.helpers import Pair, count_parameters, elementwise_derivative
from didact.claims.registry import answer, claim, load_statements
from didact.metrics.generative import covariance, gaussian_frechet_distance, inception_score
from didact.models.generative.gan import DCGANDiscriminator, DCGANGenerator
from didact.objectives.generative.gan import (
    discriminator_loss,
    generator_loss_non_saturating,
    generator_loss_saturating,
    wasserstein_critic_loss,
)
from didact.objectives.generative.vae import log_normal


def random_distributions(n: int, k: int = 6) -> Tensor:
    return torch.randn(n, k).softmax(1)


def gan_value(s: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """V = E_p log D + E_q log(1 − D), D = σ(s): minus didact's loss of the discriminator, over all pairs of a real and
    a generated x."""
    pairs = p[..., :, None] * q[..., None, :]
    return -(pairs * discriminator_loss(s[..., :, None], s[..., None, :])).sum((-2, -1))


def _kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    return (p * (p / q).log()).sum(-1)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    m = (p + q) / 2
    return (_kl_divergence(p, m) + _kl_divergence(q, m)) / 2


@claim("C8.1", Equal(1e-6))
def best_discriminator() -> Pair:
    """the D that maximizes didact's game, found by bisection on the sign of the slope in the logit, against p/(p +
    q)"""
    p, q = random_distributions(2)
    low, high = torch.full((6,), -30.0), torch.full((6,), 30.0)
    for _ in range(60):
        s = (low + high) / 2
        rising = elementwise_derivative(lambda s: gan_value(s, p, q), s) > 0
        low, high = torch.where(rising, s, low), torch.where(rising, high, s)
    return s.sigmoid(), p / (p + q)


@claim("C8.2", Equal())
def value_of_the_game() -> Pair:
    """V(D*, G) = −log 4 + 2 JSD(p, q), the left side by didact's losses at D* = p/(p + q), the logit of which is log
    p/q"""
    p, q = random_distributions(20), random_distributions(20)
    return gan_value((p / q).log(), p, q), -math.log(4) + 2 * jensen_shannon(p, q)


@claim("C8.3", Exactly((-1.386294, True)))
def least_value_of_the_game() -> Display:
    """V(D*, G) of didact's game at q = p, to six digits, and whether at a thousand other q it is above −log 4"""
    p, q = random_distributions(1), random_distributions(1000)
    value_at_p, value_elsewhere = (gan_value((p / r).log(), p.expand_as(r), r).min() for r in (p, q))
    return Display(
        (round(value_at_p.item(), 6), bool(value_elsewhere > -math.log(4))),
        {"at q = p": value_at_p, "at a thousand other q at least": value_elsewhere},
    )


@answer("C8.4")
def discriminator_of_two_normals() -> tuple[float, ...]:
    """D*(x) = p/(p + q) = σ(log p − log q), which is σ(3x − 4.5), at x = 0, 1.5, 3"""
    x = torch.tensor([[0.0], [1.5], [3.0]])
    return tuple(round(v, 6) for v in (log_normal(x, 3.0) - log_normal(x, 0.0)).sigmoid().tolist())


@claim("C8.5", Equal())
def point_masses() -> Display:
    """W(δ_0, δ_θ), the largest value of didact's critic with f(x) = c x, |c| ≤ 1, is |θ|; JSD = ½(log 4 + V) of the
    best D is log 2 at any θ ≠ 0, and 0 at θ = 0"""
    θ, c, s = (
        torch.tensor([-2.0, -0.5, 0.0, 0.5, 3.0]),
        torch.linspace(-1, 1, 201)[:, None],
        torch.linspace(-50, 50, 101)[:, None],
    )
    W = (-wasserstein_critic_loss(c * 0.0, c * θ)).amax(0)
    # at θ = 0 the two are one point, and D has one logit there
    V = (-discriminator_loss(s, torch.where(θ == 0, s, -s))).amax(0)
    JSD = (math.log(4) + V) / 2
    return Display(([W, JSD], [θ.abs(), math.log(2) * (θ != 0)]), {"θ": θ, "W": W, "JSD": JSD})


@claim("C8.6", Equal(1e-7))
def kantorovich_rubinstein() -> Pair:
    """the cheapest transport between weights on 6 points of the plane = the value of didact's critic with the best
    1-Lipschitz f: two linear programs"""
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    x, (p, q) = torch.randn(6, 2), random_distributions(2)
    cost = torch.cdist(x, x).numpy()
    rows = np.concatenate([np.kron(np.eye(6), np.ones(6)), np.kron(np.ones(6), np.eye(6))])
    transport = linprog(cost.ravel(), A_eq=rows, b_eq=torch.cat([p, q]).numpy())
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    slopes = np.array([np.eye(6)[i] - np.eye(6)[j] for i, j in pairs])
    f = torch.from_numpy(linprog((q - p).numpy(), A_ub=slopes, b_ub=[cost[i, j] for i, j in pairs], bounds=(-10, 10)).x)
    return -(p[:, None] * q * wasserstein_critic_loss(f[:, None], f)).sum(), transport.fun


@claim("C8.7", Equal(1e-6))
def saturation_of_the_generator() -> Pair:
    """slopes in the logit of didact's log(1 − D) and −log D, for D = 10⁻¹ … 10⁻¹²: the first is −D, which vanishes, the
    second −(1 − D), which does not"""
    D = 10.0 ** -torch.arange(1.0, 13.0)
    s = (D / (1 - D)).log()
    return [
        elementwise_derivative(generator_loss_saturating, s).abs().log10(),
        elementwise_derivative(generator_loss_non_saturating, s),
    ], [D.log10(), D - 1]


@claim("C8.8", Exactly((4, 7, 14, 28)))
def sizes_of_the_generator() -> tuple[int, ...]:
    """sides of the maps after each of the four transposed convolutions of didact's DCGAN generator: (i − 1)s − 2p +
    k"""
    net, x, sizes = DCGANGenerator(), torch.zeros(2, 100, 1, 1), []
    for block in net.blocks:
        x = block(x, None)
        sizes.append(x.shape[-1])
    return (*sizes, net.last(x).shape[-1])


@claim("C8.9", Exactly((14, 7, 4, 1)))
def sizes_of_the_discriminator() -> tuple[int, ...]:
    """sides of the maps after each of the four convolutions of didact's DCGAN discriminator: ⌊(i + 2p − k)/s⌋ + 1"""
    x, sizes = torch.zeros(2, 1, 28, 28), []
    for layer in DCGANDiscriminator().layers:
        x = layer(x)
        if isinstance(layer, nn.Conv2d):
            sizes.append(x.shape[-1])
    return tuple(sizes)


@answer("C8.10")
def sizes_of_dcgan() -> tuple[int, int]:
    """parameters of didact's generator and discriminator as the program of 8.7 has them: convolutions without biases,
    and batch norms"""
    return count_parameters(DCGANGenerator()), count_parameters(DCGANDiscriminator())


@claim("C8.12", LessOrEqual())
def range_of_the_inception_score() -> Pair:
    """1 ≤ exp E KL(p(y|x) ‖ p(y)) ≤ K, by didact's metric for 50 generators of ten classes; 1 for one that repeats
    itself, K for one with ten certain classes"""
    scores = torch.stack([inception_score(random_distributions(40, 10)) for _ in range(50)])
    repeated, confident = inception_score(random_distributions(1, 10).expand(40, 10)), inception_score(torch.eye(10))
    return [torch.ones(50), scores, repeated, 10.0], [scores, torch.full((50,), 10.0), 1.0, confident]


def _matrix_sqrt(S: Tensor) -> Tensor:
    """The symmetric square root of a covariance."""
    values, vectors = torch.linalg.eigh(S)
    S_half: Tensor = vectors * values.clamp(min=0).sqrt() @ vectors.mT
    return S_half


@claim("C8.13", Equal())
def frechet_distance() -> Pair:
    """‖μ_r − μ_g‖² + Tr(Σ_r + Σ_g − 2(Σ_r Σ_g)^½) of two samples, and E‖x − T(x)‖² for the optimal map T between the
    normals, against didact's distance"""
    x, y = torch.randn(60, 5) @ torch.randn(5, 5), torch.randn(40, 5) @ torch.randn(5, 5) + torch.randn(5)
    S_r, S_g, squared_mean_distance = covariance(x), covariance(y), (x.mean(0) - y.mean(0)).square().sum()
    stated = squared_mean_distance + S_r.trace() + S_g.trace() - 2 * torch.linalg.eigvals(S_r @ S_g).real.sqrt().sum()
    R = _matrix_sqrt(S_r)
    residual_map = torch.eye(5) - R.inverse() @ _matrix_sqrt(R @ S_g @ R) @ R.inverse()
    return [stated, squared_mean_distance + (residual_map @ S_r @ residual_map.T).trace()], [
        gaussian_frechet_distance(x, y)
    ] * 2


@claim(
    "C8.18",
    LessOrEqual(),
    condition="the generator's rate lowered as well (row TTUR); with only D's rate raised the table is worse",
)
def higher_rate_of_the_discriminator() -> Conditional:
    """FID of table 8.1 against its base row: 1e-4 / 4e-4, and 2e-4 / 5e-4"""
    base = float(load_statements()["C8.14"].stated)
    _, raised_alone, both_changed = (float(n) for n in re.findall(r"[\d.]+", load_statements()["C8.16"].stated))
    return Conditional((both_changed, base), (raised_alone, base))


def _game_field(value: Callable[[Tensor], Tensor], directions: Tensor) -> Callable[[Tensor], Tensor]:
    """Simultaneous steps on V: entries with −1 go down, those with +1 go up."""
    def game_step(θ: Tensor) -> Tensor:
        (g,) = torch.autograd.grad(value(θ), θ, create_graph=True)
        return directions * g

    return game_step


def gauss_hermite() -> tuple[Tensor, Tensor]:
    """Nodes and weights with which E f(z), z ~ N(0, 1), is a sum."""
    z, w = np.polynomial.hermite_e.hermegauss(40)
    return torch.from_numpy(z), torch.from_numpy(w / w.sum())


def _logistic_game(θ: Tensor) -> Tensor:
    """V of didact's game for D = σ(a x² + b x + c), data N(0, 1), generator μ + σ z; θ = (μ, σ, a, b, c)."""
    z, w = gauss_hermite()
    μ, σ, a, b, c = θ
    real, fake = (a * x**2 + b * x + c for x in (z, μ + σ * z))
    return -(w[:, None] * w * discriminator_loss(real[:, None], fake)).sum()


@claim("C8.19", NotEqual())
def field_without_a_potential() -> Pair:
    """the Jacobian of (−∂V/∂G, +∂V/∂D) against its transpose, at a random point: a gradient's would be symmetric"""
    vector_field = _game_field(_logistic_game, torch.tensor([-1.0, -1, 1, 1, 1]))
    J = jacobian(vector_field, torch.tensor([0.3, 1.2, 0.1, -0.2, 0.1]))
    return J, J.T


@claim(
    "C8.20",
    Equal(),
    condition="a D that cannot detect σ, such as σ(bx + c), so that nothing restores it; with a D that contains D* it "
    "is stable",
)
def stability_of_the_solution() -> Conditional:
    """the slowest decay around μ = 0, σ = 1, b = c = 0 in the standard game, max Re λ of its field's Jacobian, against
    0: D = σ(bx + c), and D = σ(ax² + bx + c), which contains D*"""
    def slowest_decay(value: Callable[[Tensor], Tensor], discriminator: int) -> Tensor:
        directions, equilibrium = (
            torch.tensor([-1.0, -1.0] + [1.0] * discriminator),
            torch.tensor([0.0, 1.0] + [0.0] * discriminator),
        )
        rate: Tensor = torch.linalg.eigvals(jacobian(_game_field(value, directions), equilibrium)).real.max()
        return rate

    def linear_game(θ: Tensor) -> Tensor:
        return _logistic_game(torch.cat([θ[:2], torch.zeros(1), θ[2:]]))

    return Conditional((slowest_decay(linear_game, 2), 0.0), (slowest_decay(_logistic_game, 3), 0.0))
