"""Fleuret, chapter 7: synthesis."""

import math

import torch
from torch import Tensor

import didact.models  # noqa: F401 (registers the presets)
from didact.claims.forms import Display, Equal
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.objectives.generative.noise_schedule import NoiseSchedule


@claim("CF46", Equal(1e-5))
def noise_that_preserves_variance() -> Display:
    """factor of x_0 and variance after steps x ← √(1 − β) x + √β ε: e^{t log(1−β)/2} and 1 for β = 0.03; for didact's
    β_t its √ᾱ_t and 1; and E x_T⁴ for x_0 = ±1, which starts at 1, against 3, that of a normal x_T"""
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
    return Display(
        ([*trajectories[0], *trajectories[1]], [exponential, torch.ones(201), 3.0, a, a**2 + sigma**2, 3.0]),
        {
            "factor of x_0 after 200 steps": [w[-1] for w, _, _ in trajectories],
            "variance": [v[-1] for _, v, _ in trajectories],
            "fourth moment": [m for _, _, m in trajectories],
        },
    )


@claim(
    "CF47",
    Equal(1e-5),
    remark="this f shifts the mean; the f of four arguments above it is a density, another function",
)
def reverse_step_as_a_sum() -> Pair:
    """x_t + f(x_t, t), f = (1/√α − 1) x_t − β E[ε|x_t]/√(α(1 − ᾱ)), against E[x_{t−1}|x_t] by Gaussian conditioning,
    x_0 ~ N(0.7, 0.5²), and against the mean of didact's posterior for E[x_0|x_t]; and its σ_t², against
    Var[x_{t−1}|x_t, x_0] by the same rule"""
    m, s, noising, t = 0.7, 0.5, NoiseSchedule(50), torch.arange(2, 51)
    β, ᾱ, ᾱ_before = noising.beta[t].double(), noising.alpha_bar[t].double(), noising.alpha_bar[t - 1].double()
    α, x = 1 - β, torch.randn(49)
    variance_now, variance_before = ᾱ * s**2 + 1 - ᾱ, ᾱ_before * s**2 + 1 - ᾱ_before
    offset = x - ᾱ.sqrt() * m
    # E[ε | x_t], E[x_0 | x_t]
    ε, x_0 = (1 - ᾱ).sqrt() / variance_now * offset, m + ᾱ.sqrt() * s**2 / variance_now * offset
    f = (1 / α.sqrt() - 1) * x - β / (α * (1 - ᾱ)).sqrt() * ε
    ours, variance = noising.posterior(x_0[:, None, None, None], x[:, None, None, None], t)
    # Var[x_{t−1} | x_t, x_0]
    posterior_variance = 1 - ᾱ_before - α * (1 - ᾱ_before) ** 2 / (1 - ᾱ)
    return [x + f, x + f, posterior_variance], [
        ᾱ_before.sqrt() * m + α.sqrt() * variance_before / variance_now * offset,
        ours,
        variance,
    ]
