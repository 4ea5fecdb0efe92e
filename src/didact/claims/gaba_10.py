"""Gaba, chapter 10: diffusion."""

import math

import torch
from torch import Tensor, nn

from didact.claims.compare import Asked, Corrected, Exactly, Inside, NeverMore, Rising, Same
from didact.claims.core import claim
from didact.claims.tools import Pair, parameters
from didact.objectives.noising import moments, way_back


def linear(T: int = 1000, low: float = 1e-4, high: float = 0.02) -> tuple[Tensor, Tensor, Tensor]:
    """β, α and ᾱ of the linear schedule; entry 0 is t = 1."""
    β = torch.linspace(low, high, T)
    return β, 1 - β, (1 - β).cumprod(0)


def cosine(T: int = 1000, s: float = 0.008) -> tuple[Tensor, Tensor]:
    """β and ᾱ of equation 10.18."""
    f = torch.cos((torch.arange(T + 1) / T + s) / (1 + s) * math.pi / 2) ** 2
    ᾱ = f / f[0]
    return 1 - ᾱ[1:] / ᾱ[:-1], ᾱ[1:]


@claim("C10.1", Same())
def closed_form_marginal() -> Pair:
    """mean factor and variance of x_t after t steps of √(1 − β) x + √β ε, against √ᾱ_t and 1 − ᾱ_t"""
    β, _, ᾱ = linear()
    factor, variance, found = 1.0, 0.0, []
    for b in β.tolist():
        factor, variance = math.sqrt(1 - b) * factor, (1 - b) * variance + b
        found.append((factor, variance))
    return found, torch.stack([ᾱ.sqrt(), 1 - ᾱ], dim=1)


@claim("C10.2", Same(), right="the factor of x_0 is √(α_t ᾱ_{t−1}) = √ᾱ_t")
def factor_in_the_proof() -> Corrected:
    """the factor of x_0 in √α_t(√ᾱ_{t−1} x_0 + …), against √α_t; mended: against √ᾱ_t"""
    _, α, ᾱ = linear()
    factor = α[1:].sqrt() * ᾱ[:-1].sqrt()
    return Corrected((α[1:].sqrt(), factor), (ᾱ[1:].sqrt(), factor))


@claim("C10.3", Same())
def posterior() -> Pair:
    """μ̃_t and β̃_t of 10.11 and 10.12, against conditioning the joint normal of (x_{t−1}, x_t) given x_0 on x_t"""
    β, α, ᾱ = linear(50, 0.01, 0.2)
    β, α, before, now, x0, xt = β[1:], α[1:], ᾱ[:-1], ᾱ[1:], torch.randn(49), torch.randn(49)
    stated = before.sqrt() * β / (1 - now) * x0 + α.sqrt() * (1 - before) / (1 - now) * xt
    gain = α.sqrt() * (1 - before) / (α * (1 - before) + β)                # Cov(x_{t−1}, x_t) / Var(x_t)
    mean = before.sqrt() * x0 + gain * (xt - α.sqrt() * before.sqrt() * x0)
    variance = (1 - before) - gain * α.sqrt() * (1 - before)
    return [stated, (1 - before) / (1 - now) * β], [mean, variance]


@claim("C10.4", Inside(0, 0.01))
def what_is_left_after_a_thousand_steps() -> Tensor:
    """√ᾱ_T, the part of x_0 in x_T, for the linear schedule with T = 1000"""
    return linear()[2][-1].sqrt()


@claim("C10.5", Inside(0, 0.01), right="with fewer steps the βs must grow in proportion, else x_T still shows x_0")
def what_is_left_after_two_hundred_steps() -> Corrected:
    """√ᾱ_T for T = 200 and the same β from 1e-4 to 0.02; mended: from 5e-4 to 0.1"""
    return Corrected(linear(200)[2][-1].sqrt(), linear(200, 5e-4, 0.1)[2][-1].sqrt())


@claim("C10.6", Same())
def linear_schedule() -> Pair:
    """β_min + (t − 1)/(T − 1)(β_max − β_min), against torch.linspace(1e-4, 0.02, 1000)"""
    return [1e-4 + (t - 1) / 999 * (0.02 - 1e-4) for t in range(1, 1001)], linear()[0]


@claim("C10.7", Inside(0, 1, open=True), right="β_T is 1: clip at 0.999, as the paper does")
def cosine_schedule() -> Corrected:
    """β_t = 1 − ᾱ_t/ᾱ_{t−1} of the cosine schedule lies in (0, 1); mended: clipped at 0.999"""
    β, _ = cosine()
    return Corrected(β, β.clamp(max=0.999))


@claim("C10.8", Rising())
def offset_of_the_cosine_schedule() -> list[Tensor]:
    """β_1 without the offset, and with s = 0.008"""
    return [cosine(s=0.0)[0][0], cosine(s=0.008)[0][0]]


@claim("C10.9", NeverMore())
def first_steps_of_both_schedules() -> Pair:
    """the noise 1 − ᾱ_t of the cosine schedule ≤ that of the linear one, for the first half of the steps"""
    return 1 - cosine()[1][:500], 1 - linear()[2][:500]


@claim("C10.10", Same(), right="the noise is divided by √(1 − ᾱ_t), as the code has it, not by √(1 − α_t)")
def step_of_ddpm() -> Corrected:
    """(x_t − β_t/√(1 − α_t) ε)/√α_t, against μ̃_t at x_0 = (x_t − √(1 − ᾱ_t) ε)/√ᾱ_t; mended: √(1 − ᾱ_t)"""
    β, α, ᾱ = linear()
    β, α, before, now, xt, ε = β[1:], α[1:], ᾱ[:-1], ᾱ[1:], torch.randn(999), torch.randn(999)
    x0 = (xt - (1 - now).sqrt() * ε) / now.sqrt()
    mean = before.sqrt() * β / (1 - now) * x0 + α.sqrt() * (1 - before) / (1 - now) * xt
    stated, mended = ((xt - β / (1 - a).sqrt() * ε) / α.sqrt() for a in (α, now))
    return Corrected((stated, mean), (mended, mean))


def ddim(x: Tensor, ε: Tensor, now: Tensor, then: Tensor) -> Tensor:
    """Equation 10.21."""
    return then.sqrt() * (x - (1 - now).sqrt() * ε) / now.sqrt() + (1 - then).sqrt() * ε


@claim("C10.11", Same())
def step_of_ddim() -> Pair:
    """one step with the true noise takes √ᾱ_t x_0 + √(1 − ᾱ_t) ε to √ᾱ_{t−1} x_0 + √(1 − ᾱ_{t−1}) ε"""
    _, _, ᾱ = linear()
    then, now, x0, ε = ᾱ[:-1], ᾱ[1:], torch.randn(999), torch.randn(999)
    return ddim(now.sqrt() * x0 + (1 - now).sqrt() * ε, ε, now, then), then.sqrt() * x0 + (1 - then).sqrt() * ε


@claim("C10.12", Inside(0, 0.02))
def few_steps_of_ddim() -> float:
    """the mean distance between the ends of 50 and of 1,000 steps from the same noise, over the deviation of the data, at most 2 %:
    didact's sampler with the exact x̂_0 of a mixture of N(±1, 0.3²), the cosine schedule"""
    ᾱ = [1.0, *cosine()[1].clamp(min=1e-9).tolist()]

    def clean(x: Tensor, t: int) -> Tensor:
        a, v = math.sqrt(ᾱ[t]), 0.09 * ᾱ[t] + 1 - ᾱ[t]                        # x_t of each half is N(±a, v)
        m = torch.tanh(a * x / v)                                             # the mean of ±1, given x_t
        x0: Tensor = m + 0.09 * a / v * (x - a * m)
        return x0

    noise = torch.randn(2000)
    short, long = (list(way_back(clean, noise, ᾱ, moments(1000, S)))[-1] for S in (50, 1000))
    return float((short - long).abs().mean() / long.std())


@claim("C10.13", Same())
def guidance() -> Pair:
    """(1 + w) ε(c) − w ε(∅) = −σ times ∇log p + (1 + w) ∇log p(c|x), for scores −ε/σ of two normals"""
    x, w, σ = torch.randn(9), 2.5, 0.8
    plain, given = -x / 4.0, -(x - 1.3) / 0.7                                # scores of N(0, 4) and of N(1.3, 0.7)
    ε_plain, ε_given = -σ * plain, -σ * given
    return (1 + w) * ε_given - w * ε_plain, -σ * (plain + (1 + w) * (given - plain))


@claim("C10.14", Same(1e-6), right="the code has all sines first, and frequencies down to 1/10000 exactly: another embedding, as good")
def time_embedding() -> Corrected:
    """the code's embedding against equation 10.19; mended: its columns interleaved, and half instead of half − 1"""
    d, t = 16, torch.arange(20.0)
    half = d // 2
    formula = torch.stack([(torch.cos if c % 2 else torch.sin)(t / 10000 ** (2 * (c // 2) / d)) for c in range(d)], dim=1)

    def embed(steps: int) -> list[Tensor]:
        angle = t[:, None] * torch.exp(torch.arange(half) * -(math.log(10000) / steps))
        return [angle.sin(), angle.cos()]

    return Corrected((torch.cat(embed(half - 1), dim=1), formula), (torch.stack(embed(half), dim=2).flatten(1), formula))


def res_block(c_in: int, c_out: int, time: int = 128, groups: int = 8) -> nn.ModuleList:
    """The layers of ResBlock (10.8)."""
    return nn.ModuleList([
        nn.GroupNorm(groups, c_in), nn.Conv2d(c_in, c_out, 3, padding=1), nn.Linear(time, c_out),
        nn.GroupNorm(8, c_out), nn.Conv2d(c_out, c_out, 3, padding=1),
        nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity(),
    ])


@claim("C10.15", Exactly("runs"), right="eight groups cannot share one channel: begin with a 3 × 3 convolution 1 → 32")
def building_the_unet() -> str:
    """ResBlock(1, 32) begins with GroupNorm(8, 1)"""
    try:
        res_block(1, 32)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return "runs"


@claim("C10.16", Asked())
def size_of_the_unet() -> int:
    """all layers of SimpleUNet, the first block with one group in its first norm"""
    blocks = [res_block(1, 32, groups=1), *(res_block(*c) for c in ((32, 64), (64, 128), (128, 64), (64, 32)))]
    rest = [nn.Linear(128, 128), nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2), nn.Conv2d(32, 1, 1)]
    return sum(parameters(m) for m in [*blocks, *rest])
