"""Normalization of a window of a time series: its level and scale are taken out, and given back to the forecast.

    none             x̂ = f(x)
    last             x̂ = x_T + f(x − x_T)                          NLinear, Zeng et al. 2023 (arXiv:2205.13504)
    revin            x̂ = μ + σ f((x − μ) / σ)                      RevIN, Kim et al. 2022, without its affine weights
    seasonal         x̂_k = x_{T+k−m} + f(x − μ_m)                  what is learned is the error of the seasonal naive
    seasonal_revin   x̂_k = x_{T+k−m} + σ f((x − μ_m) / σ)          forecast; μ_m: the mean of the last period m
    seasonal_last    x̂_k = x_{T+k−m} + x_T − x_{T−m} + f(x − x_T)  the differences (1 − L)(1 − Lᵐ) of Box and Jenkins
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Normalization = Literal["none", "last", "revin", "seasonal", "seasonal_revin", "seasonal_last"]
NORMALIZATIONS: tuple[Normalization, ...] = ("none", "last", "revin", "seasonal", "seasonal_revin", "seasonal_last")
_MIN_SCALE = 1e-2     # of a window, in training standard deviations: a constant window must not be blown up


@dataclass(frozen=True)
class NormalizedWindow:
    """A window without its level and scale, (B, T, C), and what gives them back: (B, n) and (B, 1) of the target."""

    z: Tensor
    baseline: Tensor
    scale: Tensor

    def restore(self, output: Tensor) -> Tensor:
        """baseline + scale · output: the forecast in the units of the window."""
        return self.baseline + self.scale * output


def get_min_window(normalization: str, period: int) -> int:
    """The shortest window that a normalization can be computed from."""
    if not normalization.startswith("seasonal"):
        return 1
    return period + 1 if normalization == "seasonal_last" else period


def normalize_window(x: Tensor, n: int, normalization: str, period: int = 1) -> NormalizedWindow:
    """A window (B, T, C), the target as its first channel, for a forecast of n values."""
    target = x[..., 0]
    if normalization == "none":
        return NormalizedWindow(x, x.new_zeros(len(x), n), x.new_ones(len(x), 1))
    if normalization.startswith("seasonal"):
        steps = (n + period - 1) // period
        baseline = target[:, -period:].repeat(1, steps)[:, :n]
    if normalization in ("last", "seasonal_last"):
        center = x[:, -1:]
        if normalization == "last":
            baseline = center[..., 0].expand(-1, n)
        else:
            baseline = baseline + (target[:, -1:] - target[:, -1 - period : -period])
    elif normalization == "revin":
        center = x.mean(1, keepdim=True)
        baseline = center[..., 0].expand(-1, n)
    else:
        center = x[:, -period:].mean(1, keepdim=True)
    scale = x.new_ones(len(x), 1, x.shape[2])
    if normalization.endswith("revin"):
        scale = x.std(1, keepdim=True, correction=0).clamp(min=_MIN_SCALE)
    return NormalizedWindow((x - center) / scale, baseline, scale[:, :, 0])
