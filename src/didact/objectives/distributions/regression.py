"""Regression: Normal (MSE), Laplace (L1), Huber and heteroscedastic likelihoods of numbers."""

from collections.abc import Callable
from math import erf, exp, log, pi, sqrt

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from didact import metrics
from didact.errors import UsageError
from didact.objectives.distributions.base import Likelihood, at_least_float32, to_floats


class Regression(Likelihood):
    """y = m + s (μ + ε): the network outputs μ for targets standardized by their mean m and standard deviation s.

    Losses are in standardized units, predictions and metrics in the targets' own. Normal, Laplace and Huber do not
    learn the size of ε: its standard deviation is what the loss assumes, until `residual_std` is measured.
    Heteroscedastic learns it.
    """

    task, monitor, monitor_mode, num_outputs = "regression", "rmse", "min", 1
    learns_noise = False
    residual_std: float | None = None     # in the targets' units, measured on held-out examples
    location: Tensor
    scale: Tensor

    def __init__(self, *, mean: float = 0.0, std: float = 1.0):
        super().__init__()
        if not std > 0:
            raise UsageError(f"the targets' standard deviation must be positive, got std={std:g}")
        self.register_buffer("location", torch.tensor(float(mean)))
        self.register_buffer("scale", torch.tensor(float(std)))

    def standardize(self, y: Tensor) -> Tensor:
        return (y - self.location) / self.scale

    def sample_noise(self, mu: Tensor, generator: Generator | None) -> Tensor:
        """A sample of ε for each μ."""
        raise NotImplementedError

    @property
    def noise_std(self) -> float:
        """The standard deviation of ε that the loss assumes."""
        raise NotImplementedError

    def mode(self, out: Tensor) -> Tensor:
        return self.mean(out)

    def mean(self, out: Tensor) -> Tensor:
        return self.location + self.scale * at_least_float32(out)[:, 0]

    def sample(self, out: Tensor, generator: Generator | None = None) -> Tensor:
        width = self.scale if self.residual_std is None else self.residual_std / self.noise_std
        return self.mean(out) + width * self.sample_noise(at_least_float32(out)[:, 0], generator)

    def compute_metric_tensors(self, out: Tensor, y: Tensor) -> dict[str, Tensor]:
        predicted = self.mean(out.double())
        return {
            "mae": metrics.mae(predicted, y),
            "rmse": metrics.rmse(predicted, y),
            "r2": metrics.r2(predicted, y),
        }

    def compute_metrics(self, out: Tensor, y: Tensor) -> dict[str, float]:
        return to_floats(self.compute_metric_tensors(out, y))


class Normal(Regression):
    """p ∝ exp(−½ (y − μ)²), L = (y − μ)²: mean squared error, twice the negative log-likelihood."""

    noise_std = 1.0

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(at_least_float32(out)[:, 0], self.standardize(y), reduction="none")

    def sample_noise(self, mu: Tensor, generator: Generator | None) -> Tensor:
        return torch.empty_like(mu).normal_(generator=generator)


class Laplace(Regression):
    """p ∝ exp(−|y − μ|), L = |y − μ|: mean absolute error; learns the median, which outliers do not move."""

    noise_std = sqrt(2)

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.l1_loss(at_least_float32(out)[:, 0], self.standardize(y), reduction="none")

    def sample_noise(self, mu: Tensor, generator: Generator | None) -> Tensor:
        a, b = (torch.empty_like(mu).exponential_(generator=generator) for _ in range(2))
        return a - b


class Huber(Regression):
    """p ∝ exp(−L), L = ½ r² where |r| = |y − μ| ≤ δ, else δ (|r| − ½ δ).  Huber 1964.

    A Gaussian with exponential tails; δ → ∞ is half of Normal's loss.
    """

    def __init__(self, *, delta: float = 1.0, mean: float = 0.0, std: float = 1.0):
        super().__init__(mean=mean, std=std)
        if not delta > 0:
            raise UsageError(f"delta, where the loss becomes linear, must be positive, got {delta:g}")
        self.delta = delta

    @property
    def noise_std(self) -> float:
        d = self.delta
        inside = sqrt(2 * pi) * erf(d / sqrt(2))                                            # ∫ exp(−L) over |r| ≤ δ
        squared = inside - 2 * d * exp(-d * d / 2)                                          # ∫ r² exp(−L) over |r| ≤ δ
        tail, its = exp(-d * d / 2) / d, exp(-d * d / 2) * (d + 2 / d + 2 / d**3)           # the same two over r > δ
        return sqrt((squared + 2 * its) / (inside + 2 * tail))

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.huber_loss(at_least_float32(out)[:, 0], self.standardize(y), reduction="none", delta=self.delta)

    def sample_noise(self, mu: Tensor, generator: Generator | None) -> Tensor:
        d = self.delta
        inside = sqrt(2 * pi) * erf(d / sqrt(2))       # ∫ exp(−L) over |r| ≤ δ
        tail = exp(-d * d / 2) / d                     # and over r > δ
        u = torch.empty_like(mu).uniform_(generator=generator)
        # invert the distribution function in its lower half, where it is v over the whole integral; then reflect
        v = (inside + 2 * tail) * torch.minimum(u, 1 - u).clamp(min=torch.finfo(u.dtype).tiny)
        core = torch.special.ndtri(0.5 * (1 - erf(d / sqrt(2))) + (v - tail).clamp(min=0) / sqrt(2 * pi))
        r = torch.where(v < tail, (v * d).log() / d - d / 2, core)
        return torch.where(u < 0.5, r, -r)


class Heteroscedastic(Regression):
    """p = N(y; μ, σ²), L = ½ ((y − μ)²/σ² + log σ² + log 2π), outputs (μ, log σ²).

    Nix and Weigend 1994; Van Schependom 1.2.
    """

    monitor, num_outputs, learns_noise = "nll", 2, True

    def log_variance(self, out: Tensor) -> Tensor:
        # from a thousandth to a thousand standard deviations of the targets: e^100 overflows float32
        return at_least_float32(out)[:, 1].clamp(-14, 14)

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        mu, log_variance = at_least_float32(out)[:, 0], self.log_variance(out)
        squared = (self.standardize(y) - mu).square()
        return 0.5 * (squared * (-log_variance).exp() + log_variance + log(2 * pi))

    def std(self, out: Tensor) -> Tensor:
        return self.scale * (0.5 * self.log_variance(out)).exp()

    def sample_noise(self, mu: Tensor, generator: Generator | None) -> Tensor:
        return torch.empty_like(mu).normal_(generator=generator)

    def sample(self, out: Tensor, generator: Generator | None = None) -> Tensor:
        return self.mean(out) + self.std(out) * self.sample_noise(at_least_float32(out)[:, 0], generator)

    def compute_metric_tensors(self, out: Tensor, y: Tensor) -> dict[str, Tensor]:
        out = out.double()
        return {
            **super().compute_metric_tensors(out, y),
            "nll": self.loss(out, y).mean() + self.scale.log(),  # of the density in the targets' own units
            "coverage_95": metrics.coverage(self.mean(out), self.std(out), y),
        }


REGRESSION_LOSSES: dict[str, Callable[..., Regression]] = {
    "mse": Normal,
    "l1": Laplace,
    "huber": Huber,
    "gaussian": Heteroscedastic,
}
