"""Gaba, chapter 10: diffusion."""

import math
from collections import deque

import torch
from torch import Tensor

from didact.claims.compare import Corrected, Exactly, Inside, NeverMore, Rising, Same, Told
from didact.claims.core import answer, claim
from didact.claims.tools import Pair, parameters, slope, total_variance
from didact.layers.positions import sinusoidal
from didact.layers.time import time_features
from didact.models.denoise_unet import GROUPS, SimpleUNet, TimedBlock
from didact.objectives.diffusion import guided
from didact.objectives.noising import SOLVED, Noising, cosine, linear, moments, way_back
from didact.registry import create

# didact keeps ᾱ in float32: identities with it hold to six digits


def marginal(noising: Noising, t: Tensor) -> tuple[Tensor, Tensor]:
    """What didact's way into noise keeps of an image of ones, and what it adds of a noise of ones: (B,) each."""
    one, none = torch.ones(len(t), 1, 1, 1), torch.zeros(len(t), 1, 1, 1)
    return noising.noised(one, t, none).flatten(), noising.noised(none, t, one).flatten()


def image(x: Tensor) -> Tensor:
    """Numbers as images of one pixel, which didact's objectives take."""
    return x[:, None, None, None]


@claim("C10.1", Same(1e-6))
def closed_form_marginal() -> Pair:
    """mean factor and variance of x_t after t steps of √(1 − β) x + √β ε, against √ᾱ_t and 1 − ᾱ_t of didact's noising"""
    factor, variance, found = 1.0, 0.0, []
    for b in linear(1000).tolist():
        factor, variance = math.sqrt(1 - b) * factor, (1 - b) * variance + b
        found.append((factor, variance))
    kept, added = marginal(Noising(1000), torch.arange(1, 1001))
    return found, torch.stack([kept, added.square()], dim=1)


@claim("C10.2", Same(1e-6), right="the factor of x_0 is √(α_t ᾱ_{t−1}) = √ᾱ_t")
def factor_in_the_proof() -> Corrected:
    """the factor of x_0 in √α_t x_{t−1}, by didact's noising, against √α_t; mended: against that in x_t"""
    α, t = 1 - linear(1000)[1:], torch.arange(2, 1001)
    before, now = (marginal(Noising(1000), s)[0] for s in (t - 1, t))
    return Corrected((α.sqrt(), α.sqrt() * before), (now, α.sqrt() * before))


@claim("C10.3", Same(1e-4))
def posterior() -> Pair:
    """μ̃_t and β̃_t of 10.11 and 10.12, and didact's, against conditioning the joint normal of (x_{t−1}, x_t) given x_0 on x_t; 50 steps"""
    noising, t, x0, xt = Noising(50), torch.arange(2, 51), torch.randn(49), torch.randn(49)
    β, α, ᾱ = linear(50)[1:], 1 - linear(50)[1:], (1 - linear(50)).cumprod(0)
    before, now = ᾱ[:-1], ᾱ[1:]
    stated = before.sqrt() * β / (1 - now) * x0 + α.sqrt() * (1 - before) / (1 - now) * xt
    gain = α.sqrt() * (1 - before) / (α * (1 - before) + β)                # Cov(x_{t−1}, x_t) / Var(x_t)
    mean = before.sqrt() * x0 + gain * (xt - α.sqrt() * before.sqrt() * x0)
    variance = (1 - before) - gain * α.sqrt() * (1 - before)
    ours = noising.posterior(image(x0), image(xt), t)
    return [stated, (1 - before) / (1 - now) * β, *ours], [mean, variance] * 2


@claim("C10.4", Inside(0, 0.01))
def what_is_left_after_a_thousand_steps() -> Tensor:
    """√ᾱ_T, the part of x_0 in x_T, for didact's linear schedule with T = 1000, 1e-4 to 0.02"""
    return marginal(Noising(1000), torch.tensor([1000]))[0]


@claim("C10.5", Inside(0, 0.01), right="a fifth of the steps needs five times the βs, 5e-4 to 0.1; with those of 10.17 much of x_0 is left")
def what_is_left_after_two_hundred_steps() -> Corrected:
    """√ᾱ_T for T = 200 and the β from 1e-4 to 0.02 that 10.17 has for T = 1000; mended: didact's schedule of 200 steps"""
    fixed, last = Noising(200, "linear_fixed"), torch.tensor([200])
    return Corrected(marginal(fixed, last)[0], marginal(Noising(200), last)[0])


@claim("C10.6", Same())
def linear_schedule() -> Pair:
    """β_min + (t − 1)/(T − 1)(β_max − β_min), against didact's schedule and the program's torch.linspace(1e-4, 0.02, 1000)"""
    stated = [1e-4 + (t - 1) / 999 * (0.02 - 1e-4) for t in range(1, 1001)]
    return [stated] * 2, [linear(1000), torch.linspace(1e-4, 0.02, 1000)]


@claim("C10.7", Inside(0, 1, open=True), right="β_T is 1: clip at 0.999, as the paper does")
def cosine_schedule() -> Corrected:
    """β_t = 1 − ᾱ_t/ᾱ_{t−1} with ᾱ_t ~ cos²((t/T + s)/(1 + s) π/2) lies in (0, 1); mended: clipped at 0.999, and so didact's"""
    f = torch.cos((torch.arange(1001) / 1000 + 0.008) / 1.008 * math.pi / 2) ** 2
    β = 1 - f[1:] / f[:-1]
    return Corrected(β, [β.clamp(max=0.999), cosine(1000)])


@claim("C10.8", Rising())
def offset_of_the_cosine_schedule() -> list[Tensor]:
    """β_1 of didact's schedule without the offset, with half of it, with s = 0.008, and with twice as much"""
    return [cosine(1000, s=s)[0] for s in (0.0, 0.004, 0.008, 0.016)]


@claim("C10.9", NeverMore())
def first_steps_of_both_schedules() -> Pair:
    """the deviation √(1 − ᾱ_t) of the noise in didact's cosine schedule ≤ that in the linear one, for the first half of the steps"""
    slow, fast = (marginal(Noising(1000, schedule), torch.arange(1, 501))[1] for schedule in ("cosine", "linear"))
    return slow, fast


@claim("C10.10", Same(1e-4), right="the noise is divided by √(1 − ᾱ_t), as the code has it, not by √(1 − α_t)")
def step_of_ddpm() -> Corrected:
    """(x_t − β_t/√(1 − α_t) ε)/√α_t, against didact's μ̃_t at the x_0 that didact solves from ε; mended: √(1 − ᾱ_t); 50 steps"""
    noising, t, xt, ε = Noising(50), torch.arange(2, 51), torch.randn(49), torch.randn(49)
    β, α, ᾱ = linear(50)[1:], 1 - linear(50)[1:], (1 - linear(50)).cumprod(0)[1:]
    x0, _ = SOLVED["noise"](image(ε), image(xt), *noising.at(t))
    mean, _ = noising.posterior(x0, image(xt), t)
    stated, mended = ((xt - β / (1 - a).sqrt() * ε) / α.sqrt() for a in (α, ᾱ))
    return Corrected((stated, mean), (mended, mean))


@claim("C10.11", Same(1e-6))
def step_of_ddim() -> Pair:
    """didact's steps with the true x_0 and no new noise, and 10.21 with the true ε, go from √ᾱ_t x_0 + √(1 − ᾱ_t) ε to the same at t − 1"""
    ᾱ, x0, ε = [1.0, *(1 - linear(1000)).cumprod(0).tolist()], torch.randn(9), torch.randn(9)
    true = [math.sqrt(a) * x0 + math.sqrt(1 - a) * ε for a in ᾱ]
    ours = list(way_back(lambda x, t: x0, true[-1], ᾱ, range(1000, -1, -1)))

    def stated(x: Tensor, now: float, then: float) -> Tensor:
        return math.sqrt(then) * (x - math.sqrt(1 - now) * ε) / math.sqrt(now) + math.sqrt(1 - then) * ε

    printed = [stated(true[t], ᾱ[t], ᾱ[t - 1]) for t in range(1000, 0, -1)]
    return [torch.stack(ours), torch.stack(printed)], [torch.stack(true[-2::-1])] * 2


@claim("C10.12", NeverMore())
def few_steps_of_ddim() -> Told:
    """the mean distance of the ends of 50 steps from those of 1,000 from the same noise, over the deviation of the data, at most 10 %:
    didact's sampler with the exact x̂_0 of five normals of deviation 0.3 around places drawn in eight dimensions, its cosine schedule;
    how far the deviation of those ends from the nearest place is from 0.3 √8, at most 10 % too; and both less with more steps"""
    ᾱ, places = [1.0, *(1 - cosine(1000)).cumprod(0).tolist()], torch.randn(5, 8)

    def clean(x: Tensor, t: int) -> Tensor:
        a, v = math.sqrt(ᾱ[t]), 0.09 * ᾱ[t] + 1 - ᾱ[t]                        # x_t of each is N(a place, v)
        m = (-torch.cdist(x, a * places).square() / (2 * v)).softmax(1) @ places       # the mean of places, given x_t
        x0: Tensor = m + 0.09 * a / v * (x - a * m)
        return x0

    noise, steps = torch.randn(2000, 8), [10, 50, 200, 1000]
    ends = [deque(way_back(clean, noise, ᾱ, moments(1000, S)), maxlen=1)[0] for S in steps]
    apart = [(x - ends[-1]).norm(dim=1).mean() / total_variance(ends[-1]).sqrt() for x in ends[:-1]]
    narrow = [1 - (torch.cdist(x, places).amin(1).square().mean() / (8 * 0.09)).sqrt() for x in ends]
    compared = [apart[1], narrow[1].abs(), *apart[1:], narrow[1], narrow[-1].abs()], [0.1, 0.1, *apart[:-1], narrow[0], narrow[1]]
    wide = [1 - n for n in narrow]
    return Told(compared, {"steps": steps, "distance from the last": [*apart, 0.0], "spread over the data's": wide})


@claim("C10.13", Same())
def guidance() -> Pair:
    """didact's (1 + w) ε(c) − w ε(∅) = −σ times ∇log p(x) + (1 + w) ∇log p(c|x), for scores −ε/σ of one of two normals and of both"""
    x, w, σ = torch.randn(9), 2.5, 0.8

    def joint(x: Tensor) -> Tensor:                                # log p(x, c) for N(1.3, 0.7) and N(−0.4, 4), up to a constant
        return torch.stack([-(x - 1.3).square() / 1.4, -(x + 0.4).square() / 8])

    given, plain = slope(lambda x: joint(x)[0], x), slope(lambda x: joint(x).logsumexp(0), x)
    label = slope(lambda x: joint(x).log_softmax(0)[0], x)         # ∇log p(c|x), by Bayes and not as a difference of scores
    return guided(-σ * given, -σ * plain, w), -σ * (plain + (1 + w) * label)


@claim("C10.14", Same(1e-6), right="the code has all sines first, and frequencies down to 1/10000 exactly: another embedding")
def time_embedding() -> Corrected:
    """the code's embedding against equation 10.19, which is didact's table of positions; mended: half instead of half − 1 and the
    columns interleaved, by hand and from didact's features of times"""
    d, t = 16, torch.arange(20.0)
    formula, half = sinusoidal(20, d), d // 2

    def code(slowest: int) -> Tensor:
        angle = t[:, None] * torch.exp(torch.arange(half) * -(math.log(10000) / slowest))
        return torch.cat([angle.sin(), angle.cos()], dim=1)

    mended = [torch.stack(both.chunk(2, dim=1), dim=2).flatten(1) for both in (code(half), time_features(t, d))]
    return Corrected((code(half - 1), formula), (mended, [formula, formula]))


@claim("C10.15", Exactly("runs"), right="eight groups cannot share one channel: begin with a 3 × 3 convolution 1 → 32")
def building_the_unet() -> Corrected:
    """ResBlock(1, 32), didact's block, begins with GroupNorm(8, 1); mended: didact's network with a first convolution"""
    def build(make: type[TimedBlock] | type[SimpleUNet], *sizes: int, **more: object) -> str:
        try:
            make(*sizes, **more)  # type: ignore[arg-type]
        except ValueError as error:
            return f"{type(error).__name__}: {error}"
        return "runs"

    return Corrected(build(TimedBlock, 1, 32, 128, groups=GROUPS), build(SimpleUNet, shape=(1, 28, 28), widths=(32, 64, 128)))


@answer("C10.16")
def size_of_the_unet() -> tuple[int, int]:
    """parameters of didact's SimpleUNet with the first convolution that mends it; and with one group in the first norm instead"""
    net = create("simple_unet", shape=(1, 28, 28))
    assert isinstance(net, SimpleUNet)
    first = parameters(TimedBlock(1, 32, 128, groups=1)) - parameters(net.stem) - parameters(net.down[0])
    return parameters(net), parameters(net) + first
