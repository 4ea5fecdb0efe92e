"""Groudiev, section 3.4: how fast stochastic gradient descent gets to where the gradient is small."""

import math
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from didact.claims.compare import Corrected, NeverMore, Same, Told
from didact.claims.core import claim
from didact.claims.tools import Pair, slope


def step_size(β: float, Δ: float, σ: float, T: int) -> float:
    """min(1/β, √(2Δ/(Tβσ²)))"""
    return min(1 / β, math.sqrt(2 * Δ / (T * β * σ**2))) if σ else 1 / β


def bound(β: float, Δ: float, σ: float, T: float) -> float:
    """4βΔ/T + √(8βΔσ²/T)"""
    return 4 * β * Δ / T + math.sqrt(8 * β * Δ * σ**2 / T)


@claim("CE20", NeverMore())
def gradients_on_a_parabola() -> Told:
    """the mean of E‖∇L‖² over T steps on ½ β x², which is above their least, over the bound, by the exact recursion of E x²; and that the
    bound is not idle: the mean is half of it without noise, and more than 0.4 of it after many steps with noise"""
    shares, sharp, least = [], [], []
    for β, x0, σ, T in product((0.5, 4.0), (0.3, 3.0), (0.0, 0.1, 2.0), (1, 10, 1000)):
        Δ, square, total = β * x0**2 / 2, x0**2, 0.0
        η = step_size(β, Δ, σ, T)
        for _ in range(T):
            total += β**2 * square
            square = (1 - η * β) ** 2 * square + (η * σ) ** 2
        shares.append(total / T / bound(β, Δ, σ, T))
        if σ == 0.0 or T == 1000:
            sharp.append(shares[-1])
            least.append(0.4 if σ else 0.5)
    last = {"mean of ‖∇L‖² over 1,000 steps with noise": total / T, "bound": bound(β, Δ, σ, T), "largest share of any bound": max(shares)}
    return Told((shares + least, [1.0] * len(shares) + sharp), last)


@claim("CE21", NeverMore())
def gradients_on_a_hollow() -> Told:
    """the same on x²/(1 + x²) and log(1 + x²), which are 2-smooth and not convex, means over 300 paths from each of x = 0.2, 1, 3 with
    noise of deviation 0, 0.1, 1, over the bound; and that from 0.2 and without noise the mean is 0.4 of it and more"""
    starts, shares = list(product((0.2, 1.0, 3.0), (0.0, 0.1, 1.0))), []
    at, σ = (torch.tensor(column)[:, None] for column in zip(*starts, strict=True))
    hollows: list[Callable[[Tensor], Tensor]] = [lambda x: x**2 / (1 + x**2), lambda x: (1 + x**2).log()]
    for f, T in product(hollows, (10, 100, 400)):
        cases = [(2.0, float(f(torch.tensor(x0))), s, T) for x0, s in starts]        # β, Δ, σ, T
        η, x, total = torch.tensor([[step_size(*case)] for case in cases]), at.repeat(1, 300), torch.zeros(9)
        for _ in range(T):
            g = slope(f, x)
            total += g.square().mean(1)
            x = x - η * (g + σ * torch.randn(9, 300))
        shares.append(total / T / torch.tensor([bound(*case) for case in cases]))
    found = torch.stack(shares)                                                       # (6, 9)
    value = [found, torch.full((6,), 0.4)], [torch.ones(6, 9), found[:, 0]]
    last = {"mean of ‖∇L‖² over 400 steps with noise": total[-1] / T, "bound": bound(*cases[-1]), "largest share of any bound": found.max()}
    return Told(value, last)


@claim("CE22", Same(1e-3))
def iterations_to_a_small_gradient() -> Pair:
    """exponents of ε, β, Δ and σ in the least T whose bound is ε², at ε near 10⁻⁵: −4, 1, 1, 2 with noise, −2, 1, 1 without"""
    def steps(ε: float, β: float, Δ: float, σ: float) -> float:
        low, high = 0.0, 100.0                                  # log₂ T, halved until it is sure
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if bound(β, Δ, σ, 2**middle) > ε**2 else (low, middle)
        return high

    def exponents(*at: float, of: int) -> list[float]:
        return [steps(*(2 * v if i == k else v for k, v in enumerate(at))) - steps(*at) for i in range(of)]

    return [*exponents(1e-5, 1.0, 1.0, 1.0, of=4), *exponents(1e-5, 1.0, 1.0, 0.0, of=3)], [-4, 1, 1, 2, -2, 1, 1]


@claim("CE23", Same(1e-3), right="σ√(ηβ): proportional to the deviation of the noise, not to its root")
def floor_of_a_constant_step() -> Corrected:
    """exponents of η, β and σ in √E‖∇L‖² on ½ β x², once it has settled, against ½, ½, ½ as printed; mended: ½, ½, 1"""
    def settled(η: float, β: float, σ: float) -> float:
        square = 0.0
        for _ in range(100_000):
            square = (1 - η * β) ** 2 * square + (η * σ) ** 2
        return math.log2(β * math.sqrt(square))

    at = (1e-4, 1.0, 0.3)
    start = settled(*at)
    found = [settled(*(2 * v if i == k else v for k, v in enumerate(at))) - start for i in range(3)]
    return Corrected(([0.5, 0.5, 0.5], found), ([0.5, 0.5, 1.0], found))
