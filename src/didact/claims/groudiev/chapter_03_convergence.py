"""Groudiev, chapter 3, section 3.4: convergence rates of stochastic gradient descent."""

import math
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from didact.claims.forms import CorrectedClaim, Display, Equal, LessOrEqual
from didact.claims.helpers import Pair, elementwise_derivative
from didact.claims.registry import claim


def _step_size(β: float, Δ: float, σ: float, T: int) -> float:
    """min(1/β, √(2Δ/(Tβσ²)))"""
    return min(1 / β, math.sqrt(2 * Δ / (T * β * σ**2))) if σ else 1 / β


def _bound(β: float, Δ: float, σ: float, T: float) -> float:
    """4βΔ/T + √(8βΔσ²/T)"""
    return 4 * β * Δ / T + math.sqrt(8 * β * Δ * σ**2 / T)


@claim("CE20", LessOrEqual())
def gradients_on_a_parabola() -> Display:
    """the mean of E‖∇L‖² over T steps on ½ β x², which is at least their minimum, over the bound, by the exact
    recursion of E x²; and the bound is nearly tight: the mean is half of it or more without noise, and more than 0.4 of
    it after many steps with noise"""
    shares, tight_shares, lower_bounds = [], [], []
    for β, x0, σ, T in product((0.5, 4.0), (0.3, 3.0), (0.0, 0.1, 2.0), (1, 10, 1000)):
        Δ, square, total = β * x0**2 / 2, x0**2, 0.0
        η = _step_size(β, Δ, σ, T)
        for _ in range(T):
            total += β**2 * square
            square = (1 - η * β) ** 2 * square + (η * σ) ** 2
        shares.append(total / T / _bound(β, Δ, σ, T))
        if σ == 0.0 or T == 1000:
            tight_shares.append(shares[-1])
            lower_bounds.append(0.4 if σ else 0.5)
    shown_numbers = {
        "mean of ‖∇L‖² over 1,000 steps with noise": total / T,
        "bound": _bound(β, Δ, σ, T),
        "largest share of any bound": max(shares),
    }
    return Display((shares + lower_bounds, [1.0] * len(shares) + tight_shares), shown_numbers)


@claim("CE21", LessOrEqual())
def gradients_on_nonconvex_functions() -> Display:
    """the same on x²/(1 + x²) and log(1 + x²), which are 2-smooth and not convex, means over 300 paths from each of x =
    0.2, 1, 3 with noise of standard deviation 0, 0.1, 1, over the bound; and from 0.2 without noise the mean is at
    least 0.4 of it"""
    starts, shares = list(product((0.2, 1.0, 3.0), (0.0, 0.1, 1.0))), []
    start_x, σ = (torch.tensor(column)[:, None] for column in zip(*starts, strict=True))
    functions: list[Callable[[Tensor], Tensor]] = [lambda x: x**2 / (1 + x**2), lambda x: (1 + x**2).log()]
    for f, T in product(functions, (10, 100, 400)):
        cases = [(2.0, float(f(torch.tensor(x0))), s, T) for x0, s in starts]        # β, Δ, σ, T
        η, x, total = torch.tensor([[_step_size(*case)] for case in cases]), start_x.repeat(1, 300), torch.zeros(9)
        for _ in range(T):
            g = elementwise_derivative(f, x)
            total += g.square().mean(1)
            x = x - η * (g + σ * torch.randn(9, 300))
        shares.append(total / T / torch.tensor([_bound(*case) for case in cases]))
    bound_shares = torch.stack(shares)                                                       # (6, 9)
    value = [bound_shares, torch.full((6,), 0.4)], [torch.ones(6, 9), bound_shares[:, 0]]
    shown_numbers = {
        "mean of ‖∇L‖² over 400 steps with noise": total[-1] / T,
        "bound": _bound(*cases[-1]),
        "largest share of any bound": bound_shares.max(),
    }
    return Display(value, shown_numbers)


@claim("CE22", Equal(1e-3))
def iterations_to_a_small_gradient() -> Pair:
    """exponents of ε, β, Δ and σ in the least T whose bound is ε², at ε near 10⁻⁵: −4, 1, 1, 2 with noise, −2, 1, 1
    without"""
    def log2_steps(ε: float, β: float, Δ: float, σ: float) -> float:
        low, high = 0.0, 100.0                                  # log₂ T, by bisection
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if _bound(β, Δ, σ, 2**middle) > ε**2 else (low, middle)
        return high

    def exponents(*point: float, num_exponents: int) -> list[float]:
        return [
            log2_steps(*(2 * v if i == k else v for k, v in enumerate(point))) - log2_steps(*point)
            for i in range(num_exponents)
        ]

    return [*exponents(1e-5, 1.0, 1.0, 1.0, num_exponents=4), *exponents(1e-5, 1.0, 1.0, 0.0, num_exponents=3)], [
        -4,
        1,
        1,
        2,
        -2,
        1,
        1,
    ]


@claim("CE23", Equal(1e-3), correction="σ√(ηβ): proportional to the standard deviation of the noise, not to its root")
def floor_of_a_constant_step() -> CorrectedClaim:
    """exponents of η, β and σ in the stationary √E‖∇L‖² on ½ β x², against ½, ½, ½ as printed; corrected: ½, ½, 1"""
    def stationary_gradient(η: float, β: float, σ: float) -> float:
        square = 0.0
        for _ in range(100_000):
            square = (1 - η * β) ** 2 * square + (η * σ) ** 2
        return math.log2(β * math.sqrt(square))

    point = (1e-4, 1.0, 0.3)
    log_gradient = stationary_gradient(*point)
    exponents = [
        stationary_gradient(*(2 * v if i == k else v for k, v in enumerate(point))) - log_gradient for i in range(3)
    ]
    return CorrectedClaim(([0.5, 0.5, 0.5], exponents), ([0.5, 0.5, 1.0], exponents))
