"""Noise schedules β_t of diffusion, and the forward process in closed form: what t of T small steps leave of an image.

    x_t = √(1 − β_t) x_{t−1} + √β_t ε   =>   x_t = √ᾱ_t x_0 + √(1 − ᾱ_t) ε,  ᾱ_t = Π_{s<=t} (1 − β_s)
"""

from collections.abc import Callable
from math import pi

import torch
from torch import Tensor, nn

from didact.errors import look_up


def linear_betas(T: int) -> Tensor:
    """β from 10⁻⁴ to 0.02 for T = 1000, in proportion for others.  Gaba eq. 10.17, M47.

    Unscaled, a schedule of few steps would not end in noise.
    """
    # flipped, so that a schedule of a single step has the last β, not the first
    return torch.linspace(20 / T, 0.1 / T, T, dtype=torch.float64).flip(0).clamp(max=0.999)


def linear_betas_fixed(T: int) -> Tensor:
    """β from 10⁻⁴ to 0.02 for every T.  Gaba table 10.1, M47.

    After 200 steps √ᾱ_T is 0.36, but sampling starts from pure noise.
    """
    return torch.linspace(0.02, 1e-4, T, dtype=torch.float64).flip(0)


def cosine_betas(T: int, s: float = 0.008) -> Tensor:
    """β_t = 1 − ᾱ_t / ᾱ_{t−1} <= 0.999, ᾱ_t ~ cos²((t/T + s)/(1 + s) π/2).

    Nichol and Dhariwal 2021; Gaba eq. 10.18.
    """
    f = torch.cos((torch.arange(T + 1, dtype=torch.float64) / T + s) / (1 + s) * pi / 2) ** 2
    return (1 - f[1:] / f[:-1]).clamp(max=0.999)


_BETA_SCHEDULES: dict[str, Callable[[int], Tensor]] = {
    "linear": linear_betas,
    "linear_fixed": linear_betas_fixed,
    "cosine": cosine_betas,
}


class NoiseSchedule(nn.Module):
    """β_t and ᾱ_t for t = 0 … T; β_0 = 0."""

    beta: Tensor
    alpha_bar: Tensor

    def __init__(self, timesteps: int, schedule: str = "linear"):
        super().__init__()
        self.timesteps = timesteps
        beta = torch.cat(
            [torch.zeros(1, dtype=torch.float64), look_up("noise schedule", schedule, _BETA_SCHEDULES)(timesteps)]
        )
        self.register_buffer("beta", beta.float(), persistent=False)
        self.register_buffer("alpha_bar", (1 - beta).cumprod(0).float(), persistent=False)

    def coefficients(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """a = √ᾱ_t and σ = √(1 − ᾱ_t), shaped to multiply images: (B,) -> (B, 1, 1, 1)."""
        alpha_bar = self.alpha_bar[t][:, None, None, None]
        return alpha_bar.sqrt(), (1 - alpha_bar).sqrt()

    def q_sample(self, x0: Tensor, t: Tensor, eps: Tensor) -> Tensor:
        """x_t = a x_0 + σ ε, a sample of q(x_t | x_0).  Gaba eq. 10.2."""
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


# What the network predicts, and x_0 and ε from it: given x_t = a x_0 + σ ε, each of the three gives the others.
_X0AndEps = tuple[Tensor, Tensor]
PREDICTION_TARGETS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "noise": lambda x0, eps, a, sigma: eps,
    "image": lambda x0, eps, a, sigma: x0,
    "velocity": lambda x0, eps, a, sigma: a * eps - sigma * x0,          # Salimans and Ho 2022
}
TO_X0_AND_EPS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], _X0AndEps]] = {   # (out, x_t, a, σ) -> x_0, ε
    "noise": lambda eps, x, a, sigma: ((x - sigma * eps) / a, eps),
    "image": lambda x0, x, a, sigma: (x0, (x - a * x0) / sigma),
    "velocity": lambda v, x, a, sigma: (a * x - sigma * v, sigma * x + a * v),
}
