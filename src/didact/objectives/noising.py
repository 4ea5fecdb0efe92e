"""The way into noise, in closed form: what is left of an image after t of T small steps, and the one step back when the image is known.

    x_t = √(1 − β_t) x_{t−1} + √β_t ε   =>   x_t = √ᾱ_t x_0 + √(1 − ᾱ_t) ε,  ᾱ_t = Π_{s<=t} (1 − β_s)
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import log, pi
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from didact.errors import UsageError, pick
from didact.objectives.pace import drawing


def linear(T: int) -> Tensor:
    """β from 10⁻⁴ to 0.02 for T = 1000, in proportion for others: few would else leave the image in sight.  Gaba eq. 10.17, M47."""
    return torch.linspace(20 / T, 0.1 / T, T, dtype=torch.float64).flip(0).clamp(max=0.999)   # a single step is the last, not the first


def linear_fixed(T: int) -> Tensor:
    """β from 10⁻⁴ to 0.02 whatever T. Of 200 steps √ᾱ_T = 0.36, but sampling begins with noise alone.  Gaba table 10.1, M47."""
    return torch.linspace(0.02, 1e-4, T, dtype=torch.float64).flip(0)


def cosine(T: int, s: float = 0.008) -> Tensor:
    """β_t = 1 − ᾱ_t / ᾱ_{t−1} <= 0.999, ᾱ_t ~ cos²((t/T + s)/(1 + s) π/2).  Nichol and Dhariwal 2021; Gaba eq. 10.18."""
    f = torch.cos((torch.arange(T + 1, dtype=torch.float64) / T + s) / (1 + s) * pi / 2) ** 2
    return (1 - f[1:] / f[:-1]).clamp(max=0.999)


Fresh = Callable[[Tensor], Tensor]    # a state -> new noise of its shape
Variance = Literal["posterior", "beta"]
Order = Literal[1, 2]
SCHEDULES: dict[str, Callable[[int], Tensor]] = {"linear": linear, "linear_fixed": linear_fixed, "cosine": cosine}


class Noising(nn.Module):
    """β_t and ᾱ_t for t = 0 … T; at 0 there is no noise yet."""

    beta: Tensor
    alpha_bar: Tensor

    def __init__(self, T: int, schedule: str = "linear"):
        super().__init__()
        self.T = T
        beta = torch.cat([torch.zeros(1, dtype=torch.float64), pick("noise schedule", schedule, SCHEDULES)(T)])
        self.register_buffer("beta", beta.float(), persistent=False)
        self.register_buffer("alpha_bar", (1 - beta).cumprod(0).float(), persistent=False)

    def at(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """a = √ᾱ_t and σ = √(1 − ᾱ_t), shaped to multiply images: (B,) -> (B, 1, 1, 1)."""
        kept = self.alpha_bar[t][:, None, None, None]
        return kept.sqrt(), (1 - kept).sqrt()

    def noised(self, x0: Tensor, t: Tensor, eps: Tensor) -> Tensor:
        """x_t = a x_0 + σ ε, a draw of q(x_t | x_0).  Gaba eq. 10.2."""
        a, sigma = self.at(t)
        return a * x0 + sigma * eps

    def posterior(self, x0: Tensor, xt: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of q(x_{t−1} | x_t, x_0).  Gaba eq. 10.11-10.12.

        μ̃ = √ᾱ_{t−1} β_t / (1 − ᾱ_t) x_0 + √α_t (1 − ᾱ_{t−1}) / (1 − ᾱ_t) x_t,  β̃ = (1 − ᾱ_{t−1}) / (1 − ᾱ_t) β_t
        """
        beta, now, before = (v[:, None, None, None] for v in (self.beta[t], self.alpha_bar[t], self.alpha_bar[t - 1]))
        mean = before.sqrt() * beta / (1 - now) * x0 + (1 - beta).sqrt() * (1 - before) / (1 - now) * xt
        return mean, (1 - before) / (1 - now) * beta


# What the network says, and what it says about x_0 and ε: given x_t = a x_0 + σ ε each of the three tells the other two.
Out = tuple[Tensor, Tensor]
TARGETS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "noise": lambda x0, eps, a, sigma: eps,
    "image": lambda x0, eps, a, sigma: x0,
    "velocity": lambda x0, eps, a, sigma: a * eps - sigma * x0,          # Salimans and Ho 2022
}
SOLVED: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Out]] = {   # (out, x_t, a, σ) -> x_0, ε
    "noise": lambda eps, x, a, sigma: ((x - sigma * eps) / a, eps),
    "image": lambda x0, x, a, sigma: (x0, (x - a * x0) / sigma),
    "velocity": lambda v, x, a, sigma: (a * x - sigma * v, sigma * x + a * v),
}


def drawn_from(generator: Generator) -> Fresh:
    """Noise as the generator goes on."""
    return lambda x: torch.randn(x.shape, generator=generator, device=x.device)


def moments(T: int, steps: int) -> list[int]:
    """T = t_0 > t_1 > … > 0, evenly spread: the moments that a shorter way back stops at."""
    if not 1 <= steps <= T:
        raise UsageError(f"a model of {T} steps is sampled in 1 to {T} of them, got {steps}")
    return [round(T * (1 - k / steps)) for k in range(steps + 1)]


def hesitant(times: Sequence[int], again: int) -> list[int]:
    """The same moments, each step taken `again` times: after all but the last, back into the noise that it came from."""
    return [moment for t, s in pairwise(times) for moment in (t, s) * (again - 1) + (t,)] + [times[-1]]


def half_log_snr(alpha_bar: float) -> float:
    """λ = log(a/σ), in which the way back is smooth."""
    return 0.5 * log(alpha_bar / (1 - alpha_bar))


def way_back(
    clean: Callable[[Tensor, int], Tensor], x: Tensor, alpha_bar: Sequence[float], times: Sequence[int], *,
    eta: float = 0.0, variance: Variance = "posterior", order: Order = 1, fresh: Fresh = torch.randn_like,
) -> Iterator[Tensor]:
    """x_s = √ᾱ_s x̂_0 + √(1 − ᾱ_s − ς²) ε̂ + ς z,  ς = η √((1 − ᾱ_s)/(1 − ᾱ_t)) √(1 − ᾱ_t/ᾱ_s), from each t to the next s.

    Song et al. 2021, eq. 12 and 16; Gaba eq. 10.21. η = 0 is DDIM, which draws nothing; η = 1 over all T steps is DDPM, whose mean and
    variance are then the posterior's. `clean` guesses x̂_0; ε̂ is what is left of x. Where the moments rise, noise is added again.
    With the variance "beta" z counts η √(1 − ᾱ_t/ᾱ_s) instead, √β_t over all T steps, and nothing in the last one: Gaba 10.8's loop.
    Of order 2, where nothing is drawn, x̂_0 is what it will be half a step ahead, by the line through this guess and the one before:
    x̂_0 + h/2h' (x̂_0 − x̂_0'), h and h' this step and the last in λ = ½ log ᾱ/(1 − ᾱ).  Lu et al. 2022 (DPM-Solver++ 2M), algorithm 2.
    """
    before: tuple[Tensor, float] | None = None    # the last guess, and how far its step went
    for done, (t, s) in enumerate(pairwise(times), start=1):
        drawing(done, len(times) - 1)
        now, then = alpha_bar[t], alpha_bar[s]
        if s > t:
            x, before = (then / now) ** 0.5 * x + (1 - then / now) ** 0.5 * fresh(x), None
            continue
        x0 = clean(x, t)
        if order == 2 and not eta and s:          # the last step goes infinitely far
            h, guess = half_log_snr(then) - half_log_snr(now), x0
            if before is not None:
                x0 = guess + h / (2 * before[1]) * (guess - before[0])
            before = guess, h
        eps = (x - now**0.5 * x0) / (1 - now) ** 0.5
        drawn = eta * ((1 - then) / (1 - now) * (1 - now / then)) ** 0.5
        x = then**0.5 * x0 + max(0.0, 1 - then - drawn**2) ** 0.5 * eps
        if drawn and variance == "beta":
            drawn = eta * (1 - now / then) ** 0.5
        if drawn:
            x = x + drawn * fresh(x)
        yield x
