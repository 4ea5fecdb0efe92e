"""Gaba, chapter 8: adversarial networks."""

import math
import re
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian

from didact.claims.compare import Cases, Differ, Exactly, NeverMore, Same, Told
from didact.claims.core import answer, claim, statements
from didact.claims.tools import Pair, parameters, slope
from didact.metrics.generative import covariance, frechet, inception_score
from didact.models.gan import DCGANDiscriminator, DCGANGenerator
from didact.objectives.adversarial import critic, non_saturating, saturating, tell_apart
from didact.objectives.elbo import log_normal


def distributions(n: int, k: int = 6) -> Tensor:
    return torch.randn(n, k).softmax(1)


def game_value(s: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """V = E_p log D + E_q log(1 − D), D = σ(s): minus didact's loss of the discriminator, over all pairs of a real and a made x."""
    pairs = p[..., :, None] * q[..., None, :]
    return -(pairs * tell_apart(s[..., :, None], s[..., None, :])).sum((-2, -1))


def divergence(p: Tensor, q: Tensor) -> Tensor:
    return (p * (p / q).log()).sum(-1)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    m = (p + q) / 2
    return (divergence(p, m) + divergence(q, m)) / 2


@claim("C8.1", Same(1e-6))
def best_discriminator() -> Pair:
    """the D that maximises didact's game, found by halving the interval of logits in which the slope changes sign, against p/(p + q)"""
    p, q = distributions(2)
    low, high = torch.full((6,), -30.0), torch.full((6,), 30.0)
    for _ in range(60):
        s = (low + high) / 2
        rising = slope(lambda s: game_value(s, p, q), s) > 0
        low, high = torch.where(rising, s, low), torch.where(rising, high, s)
    return s.sigmoid(), p / (p + q)


@claim("C8.2", Same())
def value_of_the_game() -> Pair:
    """V(D*, G) = −log 4 + 2 JSD(p, q), the left side by didact's losses at D* = p/(p + q), the logit of which is log p/q"""
    p, q = distributions(20), distributions(20)
    return game_value((p / q).log(), p, q), -math.log(4) + 2 * jensen_shannon(p, q)


@claim("C8.3", Exactly((-1.386294, True)))
def least_value_of_the_game() -> Told:
    """V(D*, G) of didact's game at q = p, to six digits, and whether at a thousand other q it is above −log 4"""
    p, q = distributions(1), distributions(1000)
    same, other = (game_value((p / r).log(), p.expand_as(r), r).min() for r in (p, q))
    return Told((round(same.item(), 6), bool(other > -math.log(4))), {"at q = p": same, "at a thousand other q at least": other})


@answer("C8.4")
def discriminator_of_two_normals() -> tuple[float, ...]:
    """D*(x) = p/(p + q) = σ(log p − log q), which is σ(3x − 4.5), at x = 0, 1.5, 3"""
    x = torch.tensor([[0.0], [1.5], [3.0]])
    return tuple(round(v, 6) for v in (log_normal(x, 3.0) - log_normal(x, 0.0)).sigmoid().tolist())


@claim("C8.5", Same())
def point_masses() -> Told:
    """W(δ_0, δ_θ), what didact's critic earns at best of f(x) = c x, |c| ≤ 1, is |θ|; JSD = ½(log 4 + V) of the best D is log 2 at any
    θ but 0, and 0 there"""
    θ, c, s = torch.tensor([-2.0, -0.5, 0.0, 0.5, 3.0]), torch.linspace(-1, 1, 201)[:, None], torch.linspace(-50, 50, 101)[:, None]
    W = (-critic(c * 0.0, c * θ)).amax(0)
    V = (-tell_apart(s, torch.where(θ == 0, s, -s))).amax(0)   # at θ = 0 the two are one point, and D has one logit there
    JSD = (math.log(4) + V) / 2
    return Told(([W, JSD], [θ.abs(), math.log(2) * (θ != 0)]), {"θ": θ, "W": W, "JSD": JSD})


@claim("C8.6", Same(1e-7))
def kantorovich_rubinstein() -> Pair:
    """the cheapest transport between weights on 6 points of the plane = what didact's critic earns with the best 1-Lipschitz f: two linear
    programs"""
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    x, (p, q) = torch.randn(6, 2), distributions(2)
    cost = torch.cdist(x, x).numpy()
    rows = np.concatenate([np.kron(np.eye(6), np.ones(6)), np.kron(np.ones(6), np.eye(6))])
    transport = linprog(cost.ravel(), A_eq=rows, b_eq=torch.cat([p, q]).numpy())
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    slopes = np.array([np.eye(6)[i] - np.eye(6)[j] for i, j in pairs])
    f = torch.from_numpy(linprog((q - p).numpy(), A_ub=slopes, b_ub=[cost[i, j] for i, j in pairs], bounds=(-10, 10)).x)
    return -(p[:, None] * q * critic(f[:, None], f)).sum(), transport.fun


@claim("C8.7", Same(1e-6))
def saturation_of_the_generator() -> Pair:
    """slopes in the logit of didact's log(1 − D) and −log D, for D = 10⁻¹ … 10⁻¹²: the first is −D, a line of slope 1 down to nothing in
    logarithms, the second −(1 − D), which stays"""
    D = 10.0 ** -torch.arange(1.0, 13.0)
    s = (D / (1 - D)).log()
    return [slope(saturating, s).abs().log10(), slope(non_saturating, s)], [D.log10(), D - 1]


@claim("C8.8", Exactly((4, 7, 14, 28)))
def sizes_of_the_generator() -> tuple[int, ...]:
    """the maps of didact's DCGAN generator behind each of its four transposed convolutions: (i − 1)s − 2p + k"""
    net, x, found = DCGANGenerator(), torch.zeros(2, 100, 1, 1), []
    for block in net.blocks:
        x = block(x, None)
        found.append(x.shape[-1])
    return (*found, net.last(x).shape[-1])


@claim("C8.9", Exactly((14, 7, 4, 1)))
def sizes_of_the_discriminator() -> tuple[int, ...]:
    """the maps of didact's DCGAN discriminator behind each of its four convolutions: ⌊(i + 2p − k)/s⌋ + 1"""
    x, found = torch.zeros(2, 1, 28, 28), []
    for layer in DCGANDiscriminator().layers:
        x = layer(x)
        if isinstance(layer, nn.Conv2d):
            found.append(x.shape[-1])
    return tuple(found)


@answer("C8.10")
def sizes_of_dcgan() -> tuple[int, int]:
    """parameters of didact's generator and discriminator as the program of 8.7 has them: convolutions without biases, and batch norms"""
    return parameters(DCGANGenerator()), parameters(DCGANDiscriminator())


@claim("C8.12", NeverMore())
def range_of_the_inception_score() -> Pair:
    """1 ≤ exp E KL(p(y|x) ‖ p(y)) ≤ K, by didact's metric for 50 generators of ten classes; no more than 1 of one that repeats itself, no
    less than K of one with ten sure classes"""
    scores = torch.stack([inception_score(distributions(40, 10)) for _ in range(50)])
    same, sure = inception_score(distributions(1, 10).expand(40, 10)), inception_score(torch.eye(10))
    return [torch.ones(50), scores, same, 10.0], [scores, torch.full((50,), 10.0), 1.0, sure]


def root(S: Tensor) -> Tensor:
    """The symmetric square root of a covariance."""
    values, vectors = torch.linalg.eigh(S)
    S_half: Tensor = vectors * values.clamp(min=0).sqrt() @ vectors.mT
    return S_half


@claim("C8.13", Same())
def frechet_distance() -> Pair:
    """‖μ_r − μ_g‖² + Tr(Σ_r + Σ_g − 2(Σ_r Σ_g)^½) of two samples, and E‖x − T(x)‖² for the optimal map T between the normals, against
    didact's distance"""
    x, y = torch.randn(60, 5) @ torch.randn(5, 5), torch.randn(40, 5) @ torch.randn(5, 5) + torch.randn(5)
    S_r, S_g, apart = covariance(x), covariance(y), (x.mean(0) - y.mean(0)).square().sum()
    stated = apart + S_r.trace() + S_g.trace() - 2 * torch.linalg.eigvals(S_r @ S_g).real.sqrt().sum()
    R = root(S_r)
    kept = torch.eye(5) - R.inverse() @ root(R @ S_g @ R) @ R.inverse()
    return [stated, apart + (kept @ S_r @ kept.T).trace()], [frechet(x, y)] * 2


@claim("C8.18", NeverMore(), condition="the generator's rate lowered as well (row TTUR); with D's alone raised the table is worse")
def higher_rate_of_the_discriminator() -> Cases:
    """FID of table 8.1 against its base row: 1e-4 / 4e-4, and 2e-4 / 5e-4"""
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
    """V of didact's game for D = σ(a x² + b x + c), data N(0, 1), generator μ + σ z; θ = (μ, σ, a, b, c)."""
    z, w = normal_points()
    μ, σ, a, b, c = θ
    real, fake = (a * x**2 + b * x + c for x in (z, μ + σ * z))
    return -(w[:, None] * w * tell_apart(real[:, None], fake)).sum()


@claim("C8.19", Differ())
def field_without_a_potential() -> Pair:
    """the Jacobian of (−∂V/∂G, +∂V/∂D) against its transpose, at a random point: a gradient's would be symmetric"""
    move = field(logistic_game, torch.tensor([-1.0, -1, 1, 1, 1]))
    J = jacobian(move, torch.tensor([0.3, 1.2, 0.1, -0.2, 0.1]))
    return J, J.T


@claim("C8.20", Same(), condition="a D that cannot see σ, as σ(bx + c), so that nothing pulls it back; with one that holds D* it is stable")
def stability_of_the_solution() -> Cases:
    """the slowest decay around μ = 0, σ = 1, b = c = 0 in the standard game, max Re λ of its field's Jacobian, against 0: D = σ(bx + c),
    and D = σ(ax² + bx + c), which holds D*"""
    def slowest(value: Callable[[Tensor], Tensor], discriminator: int) -> Tensor:
        players, at = torch.tensor([-1.0, -1.0] + [1.0] * discriminator), torch.tensor([0.0, 1.0] + [0.0] * discriminator)
        rate: Tensor = torch.linalg.eigvals(jacobian(field(value, players), at)).real.max()
        return rate

    def blind(θ: Tensor) -> Tensor:
        return logistic_game(torch.cat([θ[:2], torch.zeros(1), θ[2:]]))

    return Cases((slowest(blind, 2), 0.0), (slowest(logistic_game, 3), 0.0))
