"""Gaba, chapter 10: diffusion."""

import math
from collections import deque

import torch
from torch import Tensor

from didact.claims.forms import CorrectedClaim, Display, Equal, Exactly, Increasing, InInterval, LessOrEqual
from didact.claims.helpers import Pair, count_parameters, elementwise_derivative, total_variance
from didact.claims.registry import answer, claim
from didact.layers.positional import sinusoidal_table
from didact.layers.timestep_embedding import timestep_features
from didact.models.generative.diffusion_unet import SIMPLE_UNET_GROUPS, SimpleUNet, TimeResBlock
from didact.objectives.generative.noise_schedule import TO_X0_AND_EPS, NoiseSchedule, cosine_betas, linear_betas
from didact.registry import create_model
from didact.samplers.ddim import classifier_free_guidance, ddim_sample, sampling_timesteps

# didact keeps ᾱ in float32: identities with it hold to six digits


def _marginal(noising: NoiseSchedule, t: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of the image and of the noise in didact's forward process: (B,) each."""
    ones, zero_image = torch.ones(len(t), 1, 1, 1), torch.zeros(len(t), 1, 1, 1)
    return noising.q_sample(ones, t, zero_image).flatten(), noising.q_sample(zero_image, t, ones).flatten()


def _to_images(x: Tensor) -> Tensor:
    """Numbers as images of one pixel, which didact's objectives take."""
    return x[:, None, None, None]


@claim("C10.1", Equal(1e-6))
def closed_form_marginal() -> Pair:
    """mean factor and variance of x_t after t steps of √(1 − β) x + √β ε, against √ᾱ_t and 1 − ᾱ_t of didact's noise
    schedule"""
    factor, variance, factors_and_variances = 1.0, 0.0, []
    for b in linear_betas(1000).tolist():
        factor, variance = math.sqrt(1 - b) * factor, (1 - b) * variance + b
        factors_and_variances.append((factor, variance))
    signal, noise = _marginal(NoiseSchedule(1000), torch.arange(1, 1001))
    return factors_and_variances, torch.stack([signal, noise.square()], dim=1)


@claim("C10.2", Equal(1e-6), correction="the factor of x_0 is √(α_t ᾱ_{t−1}) = √ᾱ_t")
def factor_in_the_proof() -> CorrectedClaim:
    """the factor of x_0 in √α_t x_{t−1}, by didact's forward process, against √α_t; corrected: against that in x_t"""
    α, t = 1 - linear_betas(1000)[1:], torch.arange(2, 1001)
    factor_before, factor_now = (_marginal(NoiseSchedule(1000), s)[0] for s in (t - 1, t))
    return CorrectedClaim((α.sqrt(), α.sqrt() * factor_before), (factor_now, α.sqrt() * factor_before))


@claim("C10.3", Equal(1e-4))
def posterior() -> Pair:
    """μ̃_t and β̃_t of 10.11 and 10.12, and didact's, against conditioning the joint normal of (x_{t−1}, x_t) given x_0
    on x_t; 50 steps"""
    noising, t, x0, xt = NoiseSchedule(50), torch.arange(2, 51), torch.randn(49), torch.randn(49)
    β, α, ᾱ = linear_betas(50)[1:], 1 - linear_betas(50)[1:], (1 - linear_betas(50)).cumprod(0)
    ᾱ_before, ᾱ_now = ᾱ[:-1], ᾱ[1:]
    stated = ᾱ_before.sqrt() * β / (1 - ᾱ_now) * x0 + α.sqrt() * (1 - ᾱ_before) / (1 - ᾱ_now) * xt
    gain = α.sqrt() * (1 - ᾱ_before) / (α * (1 - ᾱ_before) + β)                # Cov(x_{t−1}, x_t) / Var(x_t)
    mean = ᾱ_before.sqrt() * x0 + gain * (xt - α.sqrt() * ᾱ_before.sqrt() * x0)
    variance = (1 - ᾱ_before) - gain * α.sqrt() * (1 - ᾱ_before)
    ours = noising.posterior(_to_images(x0), _to_images(xt), t)
    return [stated, (1 - ᾱ_before) / (1 - ᾱ_now) * β, *ours], [mean, variance] * 2


@claim("C10.4", InInterval(0, 0.01))
def signal_after_a_thousand_steps() -> Tensor:
    """√ᾱ_T, the factor of x_0 in x_T, for didact's linear schedule with T = 1000, 1e-4 to 0.02"""
    return _marginal(NoiseSchedule(1000), torch.tensor([1000]))[0]


@claim(
    "C10.5",
    InInterval(0, 0.01),
    correction="a fifth of the steps needs five times the βs, 5e-4 to 0.1; with those of 10.17 much of x_0 remains",
)
def signal_after_two_hundred_steps() -> CorrectedClaim:
    """√ᾱ_T for T = 200 and the β from 1e-4 to 0.02 that 10.17 has for T = 1000; corrected: didact's schedule of 200
    steps"""
    fixed_schedule, last = NoiseSchedule(200, "linear_fixed"), torch.tensor([200])
    return CorrectedClaim(_marginal(fixed_schedule, last)[0], _marginal(NoiseSchedule(200), last)[0])


@claim("C10.6", Equal())
def linear_schedule() -> Pair:
    """β_min + (t − 1)/(T − 1)(β_max − β_min), against didact's schedule and the program's torch.linspace(1e-4, 0.02,
    1000)"""
    stated = [1e-4 + (t - 1) / 999 * (0.02 - 1e-4) for t in range(1, 1001)]
    return [stated] * 2, [linear_betas(1000), torch.linspace(1e-4, 0.02, 1000)]


@claim("C10.7", InInterval(0, 1, is_open=True), correction="β_T is 1: clip at 0.999, as the paper does")
def cosine_schedule() -> CorrectedClaim:
    """β_t = 1 − ᾱ_t/ᾱ_{t−1} with ᾱ_t ~ cos²((t/T + s)/(1 + s) π/2) lies in (0, 1); corrected: clipped at 0.999, and so
    didact's"""
    f = torch.cos((torch.arange(1001) / 1000 + 0.008) / 1.008 * math.pi / 2) ** 2
    β = 1 - f[1:] / f[:-1]
    return CorrectedClaim(β, [β.clamp(max=0.999), cosine_betas(1000)])


@claim("C10.8", Increasing())
def offset_of_the_cosine_schedule() -> list[Tensor]:
    """β_1 of didact's schedule without the offset, with half of it, with s = 0.008, and with twice as much"""
    return [cosine_betas(1000, s=s)[0] for s in (0.0, 0.004, 0.008, 0.016)]


@claim("C10.9", LessOrEqual())
def first_steps_of_both_schedules() -> Pair:
    """the standard deviation √(1 − ᾱ_t) of the noise in didact's cosine schedule ≤ that in the linear one, for the
    first half of the steps"""
    cosine_noise, linear_noise = (
        _marginal(NoiseSchedule(1000, schedule), torch.arange(1, 501))[1] for schedule in ("cosine", "linear")
    )
    return cosine_noise, linear_noise


@claim("C10.10", Equal(1e-4), correction="the noise is divided by √(1 − ᾱ_t), as the code has it, not by √(1 − α_t)")
def step_of_ddpm() -> CorrectedClaim:
    """(x_t − β_t/√(1 − α_t) ε)/√α_t, against didact's μ̃_t at the x_0 that didact solves from ε; corrected: √(1 − ᾱ_t);
    50 steps"""
    noising, t, xt, ε = NoiseSchedule(50), torch.arange(2, 51), torch.randn(49), torch.randn(49)
    β, α, ᾱ = linear_betas(50)[1:], 1 - linear_betas(50)[1:], (1 - linear_betas(50)).cumprod(0)[1:]
    x0, _ = TO_X0_AND_EPS["noise"](_to_images(ε), _to_images(xt), *noising.coefficients(t))
    mean, _ = noising.posterior(x0, _to_images(xt), t)
    stated, corrected = ((xt - β / (1 - a).sqrt() * ε) / α.sqrt() for a in (α, ᾱ))
    return CorrectedClaim((stated, mean), (corrected, mean))


@claim("C10.11", Equal(1e-6))
def step_of_ddim() -> Pair:
    """didact's steps with the true x_0 and no new noise, and 10.21 with the true ε, go from √ᾱ_t x_0 + √(1 − ᾱ_t) ε to
    the same at t − 1"""
    ᾱ, x0, ε = [1.0, *(1 - linear_betas(1000)).cumprod(0).tolist()], torch.randn(9), torch.randn(9)
    trajectory = [math.sqrt(a) * x0 + math.sqrt(1 - a) * ε for a in ᾱ]
    ours = list(ddim_sample(lambda x, t: x0, trajectory[-1], ᾱ, range(1000, -1, -1)))

    def stated(x: Tensor, ᾱ_now: float, ᾱ_next: float) -> Tensor:
        return math.sqrt(ᾱ_next) * (x - math.sqrt(1 - ᾱ_now) * ε) / math.sqrt(ᾱ_now) + math.sqrt(1 - ᾱ_next) * ε

    printed = [stated(trajectory[t], ᾱ[t], ᾱ[t - 1]) for t in range(1000, 0, -1)]
    return [torch.stack(ours), torch.stack(printed)], [torch.stack(trajectory[-2::-1])] * 2


@claim("C10.12", LessOrEqual())
def few_steps_of_ddim() -> Display:
    """the mean distance between the ends of 50 and of 1,000 steps from the same noise, over the standard deviation of
    the data, at most 10 %: didact's sampler and cosine schedule with the exact x̂_0 of five normals of standard
    deviation 0.3 around random centers in eight dimensions; the spread of those ends around the nearest center differs
    from 0.3 √8 by at most 10 % too; and both shrink with more steps"""
    ᾱ, centers = [1.0, *(1 - cosine_betas(1000)).cumprod(0).tolist()], torch.randn(5, 8)

    def predict_x0(x: Tensor, t: int) -> Tensor:
        a, v = math.sqrt(ᾱ[t]), 0.09 * ᾱ[t] + 1 - ᾱ[t]                        # x_t of each is N(a · center, v)
        m = (-torch.cdist(x, a * centers).square() / (2 * v)).softmax(1) @ centers       # mean of centers, given x_t
        x0: Tensor = m + 0.09 * a / v * (x - a * m)
        return x0

    noise, steps = torch.randn(2000, 8), [10, 50, 200, 1000]
    ends = [deque(ddim_sample(predict_x0, noise, ᾱ, sampling_timesteps(1000, S)), maxlen=1)[0] for S in steps]
    distances = [(x - ends[-1]).norm(dim=1).mean() / total_variance(ends[-1]).sqrt() for x in ends[:-1]]
    narrowing = [1 - (torch.cdist(x, centers).amin(1).square().mean() / (8 * 0.09)).sqrt() for x in ends]
    compared = (
        [distances[1], narrowing[1].abs(), *distances[1:], narrowing[1], narrowing[-1].abs()],
        [0.1, 0.1, *distances[:-1], narrowing[0], narrowing[1]],
    )
    relative_std = [1 - n for n in narrowing]
    return Display(
        compared, {"steps": steps, "distance from the last": [*distances, 0.0], "spread over the data's": relative_std}
    )


@claim("C10.13", Equal())
def guidance() -> Pair:
    """didact's (1 + w) ε(c) − w ε(∅) = −σ times ∇log p(x) + (1 + w) ∇log p(c|x), for scores −ε/σ of one of two normals
    and of both"""
    x, w, σ = torch.randn(9), 2.5, 0.8

    # log p(x, c) for N(1.3, 0.7) and N(−0.4, 4), up to a constant
    def joint(x: Tensor) -> Tensor:
        return torch.stack([-(x - 1.3).square() / 1.4, -(x + 0.4).square() / 8])

    conditional_score, marginal_score = (
        elementwise_derivative(lambda x: joint(x)[0], x),
        elementwise_derivative(lambda x: joint(x).logsumexp(0), x),
    )
    # ∇log p(c|x), by Bayes and not as a difference of scores
    classifier_score = elementwise_derivative(lambda x: joint(x).log_softmax(0)[0], x)
    return classifier_free_guidance(-σ * conditional_score, -σ * marginal_score, w), -σ * (
        marginal_score + (1 + w) * classifier_score
    )


@claim(
    "C10.14",
    Equal(1e-6),
    correction="the code has all sines first, and frequencies down to 1/10000 exactly: another embedding",
)
def time_embedding() -> CorrectedClaim:
    """the code's embedding against equation 10.19, which is didact's table of positions; corrected: half instead of
    half − 1 and the columns interleaved, by hand and from didact's timestep features"""
    d, t = 16, torch.arange(20.0)
    formula, half = sinusoidal_table(20, d), d // 2

    def embed_times(slowest: int) -> Tensor:
        angle = t[:, None] * torch.exp(torch.arange(half) * -(math.log(10000) / slowest))
        return torch.cat([angle.sin(), angle.cos()], dim=1)

    corrected = [
        torch.stack(halves.chunk(2, dim=1), dim=2).flatten(1) for halves in (embed_times(half), timestep_features(t, d))
    ]
    return CorrectedClaim((embed_times(half - 1), formula), (corrected, [formula, formula]))


@claim(
    "C10.15", Exactly("runs"), correction="eight groups cannot share one channel: begin with a 3 × 3 convolution 1 → 32"
)
def building_the_unet() -> CorrectedClaim:
    """ResBlock(1, 32), didact's block, begins with GroupNorm(8, 1); corrected: didact's network with a first
    convolution"""
    def build(module_class: type[TimeResBlock] | type[SimpleUNet], *sizes: int, **keywords: object) -> str:
        try:
            module_class(*sizes, **keywords)  # type: ignore[arg-type]
        except ValueError as error:
            return f"{type(error).__name__}: {error}"
        return "runs"

    return CorrectedClaim(
        build(TimeResBlock, 1, 32, 128, groups=SIMPLE_UNET_GROUPS),
        build(SimpleUNet, shape=(1, 28, 28), widths=(32, 64, 128)),
    )


@answer("C10.16")
def size_of_the_unet() -> tuple[int, int]:
    """parameters of didact's SimpleUNet with the first convolution that corrects it; and with one group in the first
    norm instead"""
    net = create_model("simple_unet", shape=(1, 28, 28))
    assert isinstance(net, SimpleUNet)
    first = (
        count_parameters(TimeResBlock(1, 32, 128, groups=1))
        - count_parameters(net.stem)
        - count_parameters(net.down[0])
    )
    return count_parameters(net), count_parameters(net) + first
