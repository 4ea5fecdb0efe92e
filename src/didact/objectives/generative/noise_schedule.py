"""The way into noise, in closed form: what is left of an image after t of T small steps, and the one step back when
the image is known.

    x_t = √(1 − β_t) x_{t−1} + √β_t ε   =>   x_t = √ᾱ_t x_0 + √(1 − ᾱ_t) ε,  ᾱ_t = Π_{s<=t} (1 − β_s)
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import log, pi
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from didact.errors import UsageError, look_up
from didact.progress import report_progress


def linear_betas(T: int) -> Tensor:
    """β from 10⁻⁴ to 0.02 for T = 1000, in proportion for others: few would else leave the image in sight.  Gaba
    eq. 10.17, M47."""
    # a single step is the last, not the first
    return torch.linspace(20 / T, 0.1 / T, T, dtype=torch.float64).flip(0).clamp(max=0.999)


def linear_betas_fixed(T: int) -> Tensor:
    """β from 10⁻⁴ to 0.02 whatever T. Of 200 steps √ᾱ_T = 0.36, but sampling begins with noise alone.  Gaba table
    10.1, M47."""
    return torch.linspace(0.02, 1e-4, T, dtype=torch.float64).flip(0)


def cosine_betas(T: int, s: float = 0.008) -> Tensor:
    """β_t = 1 − ᾱ_t / ᾱ_{t−1} <= 0.999, ᾱ_t ~ cos²((t/T + s)/(1 + s) π/2).  Nichol and Dhariwal 2021; Gaba eq.
    10.18."""
    f = torch.cos((torch.arange(T + 1, dtype=torch.float64) / T + s) / (1 + s) * pi / 2) ** 2
    return (1 - f[1:] / f[:-1]).clamp(max=0.999)


NoiseSource = Callable[[Tensor], Tensor]    # a state -> new noise of its shape
VarianceType = Literal["posterior", "beta"]
SolverOrder = Literal[1, 2]
BETA_SCHEDULES: dict[str, Callable[[int], Tensor]] = {
    "linear": linear_betas,
    "linear_fixed": linear_betas_fixed,
    "cosine": cosine_betas,
}


class NoiseSchedule(nn.Module):
    """β_t and ᾱ_t for t = 0 … T; at 0 there is no noise yet."""

    beta: Tensor
    alpha_bar: Tensor

    def __init__(self, timesteps: int, schedule: str = "linear"):
        super().__init__()
        self.timesteps = timesteps
        beta = torch.cat(
            [torch.zeros(1, dtype=torch.float64), look_up("noise schedule", schedule, BETA_SCHEDULES)(timesteps)]
        )
        self.register_buffer("beta", beta.float(), persistent=False)
        self.register_buffer("alpha_bar", (1 - beta).cumprod(0).float(), persistent=False)

    def coefficients(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """a = √ᾱ_t and σ = √(1 − ᾱ_t), shaped to multiply images: (B,) -> (B, 1, 1, 1)."""
        alpha_bar = self.alpha_bar[t][:, None, None, None]
        return alpha_bar.sqrt(), (1 - alpha_bar).sqrt()

    def q_sample(self, x0: Tensor, t: Tensor, eps: Tensor) -> Tensor:
        """x_t = a x_0 + σ ε, a draw of q(x_t | x_0).  Gaba eq. 10.2."""
        a, sigma = self.coefficients(t)
        return a * x0 + sigma * eps

    def posterior(self, x0: Tensor, xt: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of q(x_{t−1} | x_t, x_0).  Gaba eq. 10.11-10.12.

        μ̃ = √ᾱ_{t−1} β_t / (1 − ᾱ_t) x_0 + √α_t (1 − ᾱ_{t−1}) / (1 − ᾱ_t) x_t,  β̃ = (1 − ᾱ_{t−1}) / (1 − ᾱ_t) β_t
        """
        beta, alpha_bar, alpha_bar_prev = (
            v[:, None, None, None] for v in (self.beta[t], self.alpha_bar[t], self.alpha_bar[t - 1])
        )
        mean = (
            alpha_bar_prev.sqrt() * beta / (1 - alpha_bar) * x0
            + (1 - beta).sqrt() * (1 - alpha_bar_prev) / (1 - alpha_bar) * xt
        )
        return mean, (1 - alpha_bar_prev) / (1 - alpha_bar) * beta


# What the network says, and what it says about x_0 and ε: given x_t = a x_0 + σ ε each of the three tells the other
# two.
X0AndEps = tuple[Tensor, Tensor]
PREDICTION_TARGETS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "noise": lambda x0, eps, a, sigma: eps,
    "image": lambda x0, eps, a, sigma: x0,
    "velocity": lambda x0, eps, a, sigma: a * eps - sigma * x0,          # Salimans and Ho 2022
}
TO_X0_AND_EPS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], X0AndEps]] = {   # (out, x_t, a, σ) -> x_0, ε
    "noise": lambda eps, x, a, sigma: ((x - sigma * eps) / a, eps),
    "image": lambda x0, x, a, sigma: (x0, (x - a * x0) / sigma),
    "velocity": lambda v, x, a, sigma: (a * x - sigma * v, sigma * x + a * v),
}


def make_noise_source(generator: Generator) -> NoiseSource:
    """Noise as the generator goes on."""
    return lambda x: torch.randn(x.shape, generator=generator, device=x.device)


def sampling_timesteps(T: int, steps: int) -> list[int]:
    """T = t_0 > t_1 > … > 0, evenly spread: the moments that a shorter way back stops at."""
    if not 1 <= steps <= T:
        raise UsageError(f"a model of {T} steps is sampled in 1 to {T} of them, got {steps}")
    return [round(T * (1 - k / steps)) for k in range(steps + 1)]


def repaint_timesteps(timesteps: Sequence[int], resamples: int) -> list[int]:
    """The same moments, each step taken `again` times: after all but the last, back into the noise that it came
    from."""
    return [timestep for t, s in pairwise(timesteps) for timestep in (t, s) * (resamples - 1) + (t,)] + [timesteps[-1]]


def _half_log_snr(alpha_bar: float) -> float:
    """λ = log(a/σ), in which the way back is smooth."""
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
    """x_s = √ᾱ_s x̂_0 + √(1 − ᾱ_s − ς²) ε̂ + ς z,  ς = η √((1 − ᾱ_s)/(1 − ᾱ_t)) √(1 − ᾱ_t/ᾱ_s), from each t to the
    next s.

    Song et al. 2021, eq. 12 and 16; Gaba eq. 10.21. η = 0 is DDIM, which draws nothing; η = 1 over all T steps is
    DDPM, whose mean and
    variance are then the posterior's. `clean` guesses x̂_0; ε̂ is what is left of x. Where the moments rise, noise
    is added again.
    With the variance "beta" z counts η √(1 − ᾱ_t/ᾱ_s) instead, √β_t over all T steps, and nothing in the last one:
    Gaba 10.8's loop.
    Of order 2, where nothing is drawn, x̂_0 is what it will be half a step ahead, by the line through this guess
    and the one before:
    x̂_0 + h/2h' (x̂_0 − x̂_0'), h and h' this step and the last in λ = ½ log ᾱ/(1 − ᾱ).  Lu et al. 2022
    (DPM-Solver++ 2M), algorithm 2.
    """
    previous: tuple[Tensor, float] | None = None    # the last guess, and how far its step went
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
        if solver_order == 2 and not eta and s:          # the last step goes infinitely far
            h, predicted = _half_log_snr(alpha_bar_s) - _half_log_snr(alpha_bar_t), x0
            if previous is not None:
                x0 = predicted + h / (2 * previous[1]) * (predicted - previous[0])
            previous = predicted, h
        eps = (x - alpha_bar_t**0.5 * x0) / (1 - alpha_bar_t) ** 0.5
        noise_std = eta * ((1 - alpha_bar_s) / (1 - alpha_bar_t) * (1 - alpha_bar_t / alpha_bar_s)) ** 0.5
        x = alpha_bar_s**0.5 * x0 + max(0.0, 1 - alpha_bar_s - noise_std**2) ** 0.5 * eps
        if noise_std and variance == "beta":
            noise_std = eta * (1 - alpha_bar_t / alpha_bar_s) ** 0.5
        if noise_std:
            x = x + noise_std * noise_source(x)
        yield x
