"""Diffusion samplers: DDPM, DDIM (any η), DPM-Solver++(2M) and RePaint inpainting, all of them one formula of a step.

A sampler starts from noise x_T and walks down timesteps t; at each it asks for a prediction of the image x_0.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import log
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from didact.errors import UsageError
from didact.progress import report_progress

NoiseSource = Callable[[Tensor], Tensor]    # a state -> new noise of its shape
VarianceType = Literal["posterior", "beta"]
SolverOrder = Literal[1, 2]


class SamplingConfig(NamedTuple):
    """Settings of a diffusion sampler."""

    steps: int = 25
    eta: float = 0.0                        # new noise at each step: 0 is DDIM, 1 with all T steps DDPM
    guidance: float = 0.0                   # weight w of classifier-free guidance
    variance: VarianceType = "posterior"    # of the new noise
    solver_order: SolverOrder = 1           # for η = 0: 1 is DDIM, 2 is DPM-Solver++(2M)


def classifier_free_guidance(conditional: Tensor, unconditional: Tensor, w: float) -> Tensor:
    """(1 + w) f(x, c) − w f(x, ∅).  Ho and Salimans 2022; Gaba eq. 10.22.

    An extrapolation from the unconditional prediction through the conditional one: w = 0 is the conditional model, and
    a larger w goes further towards what the class adds. Others write w + 1 for this w.
    """
    return (1 + w) * conditional - w * unconditional


def make_noise_source(generator: Generator) -> NoiseSource:
    """New noise at each call, from the generator's stream."""
    return lambda x: torch.randn(x.shape, generator=generator, device=x.device)


def sampling_timesteps(T: int, steps: int) -> list[int]:
    """T = t_0 > t_1 > … > 0, evenly spaced: the timesteps of a sampler of fewer than T steps."""
    if not 1 <= steps <= T:
        raise UsageError(f"a model of {T} steps is sampled in 1 to {T} of them, got {steps}")
    return [round(T * (1 - k / steps)) for k in range(steps + 1)]


def repaint_timesteps(timesteps: Sequence[int], resamples: int) -> list[int]:
    """RePaint's timesteps: each step is taken `resamples` times; after all but the last, the noise is added again."""
    return [timestep for t, s in pairwise(timesteps) for timestep in (t, s) * (resamples - 1) + (t,)] + [timesteps[-1]]


def _half_log_snr(alpha_bar: float) -> float:
    """λ = log(a/σ), half of the log signal-to-noise ratio: the variable in which DPM-Solver extrapolates."""
    return 0.5 * log(alpha_bar / (1 - alpha_bar))


def ddim_sample(
    predict_x0: Callable[[Tensor, int], Tensor],
    x: Tensor,
    alpha_bar: Sequence[float],
    timesteps: Sequence[int],
    *,
    eta: float = 0.0,
    variance: VarianceType = "posterior",
    solver_order: SolverOrder = 1,
    noise_source: NoiseSource = torch.randn_like,
) -> Iterator[Tensor]:
    """Steps x_s = √ᾱ_s x̂_0 + √(1 − ᾱ_s − ς²) ε̂ + ς z,  ς = η √((1 − ᾱ_s)/(1 − ᾱ_t)) √(1 − ᾱ_t/ᾱ_s), from t to s.

    Song et al. 2021, eq. 12 and 16; Gaba eq. 10.21. η = 0 is DDIM, which is deterministic; η = 1 over all T steps is
    DDPM, whose mean and variance are then the posterior's. `predict_x0` gives x̂_0; ε̂ is what is left of x. Where the
    timesteps rise (RePaint), noise is added again.

    With the variance "beta", z has the factor η √(1 − ᾱ_t/ᾱ_s) instead, √β_t over all T steps, and none in the last
    step: the loop of Gaba 10.8.

    Of order 2, for η = 0, x̂_0 is extrapolated half a step ahead, on the line through this prediction and the one
    before: x̂_0 + h/2h' (x̂_0 − x̂_0'), h and h' this step and the last in λ = ½ log ᾱ/(1 − ᾱ).  Lu et al. 2022
    (DPM-Solver++ 2M), algorithm 2.
    """
    previous: tuple[Tensor, float] | None = None    # the last prediction, and the size of its step in λ
    for step, (t, s) in enumerate(pairwise(timesteps), start=1):
        report_progress(step, len(timesteps) - 1)
        alpha_bar_t, alpha_bar_s = alpha_bar[t], alpha_bar[s]
        if s > t:
            x, previous = (
                (alpha_bar_s / alpha_bar_t) ** 0.5 * x + (1 - alpha_bar_s / alpha_bar_t) ** 0.5 * noise_source(x),
                None,
            )
            continue
        x0 = predict_x0(x, t)
        if solver_order == 2 and not eta and s:    # the last step, to t = 0, is infinitely long in λ
            h, predicted = _half_log_snr(alpha_bar_s) - _half_log_snr(alpha_bar_t), x0
            if previous is not None:
                x0 = predicted + h / (2 * previous[1]) * (predicted - previous[0])
            previous = predicted, h
        eps = (x - alpha_bar_t**0.5 * x0) / (1 - alpha_bar_t) ** 0.5
        noise_std = eta * ((1 - alpha_bar_s) / (1 - alpha_bar_t) * (1 - alpha_bar_t / alpha_bar_s)) ** 0.5
        # max: rounding, or η > 1, can bring the root's argument below 0
        x = alpha_bar_s**0.5 * x0 + max(0.0, 1 - alpha_bar_s - noise_std**2) ** 0.5 * eps
        if noise_std and variance == "beta":
            noise_std = eta * (1 - alpha_bar_t / alpha_bar_s) ** 0.5
        if noise_std:
            x = x + noise_std * noise_source(x)
        yield x
