"""Metrics of regression, in the units of the target. Sums are float64: squares of float32 cancel."""

import torch
from torch import Tensor


def mae(predicted: Tensor, y: Tensor) -> Tensor:
    """mean |ŷ − y|."""
    return (predicted.double() - y.double()).abs().mean()


def rmse(predicted: Tensor, y: Tensor) -> Tensor:
    """√ mean (ŷ − y)²."""
    return (predicted.double() - y.double()).square().mean().sqrt()


def r2(predicted: Tensor, y: Tensor) -> Tensor:
    """R² = 1 − Σ(y − ŷ)² / Σ(y − ȳ)²; where all y are equal, 1 if every prediction is right and else 0."""
    y = y.double()
    residual = (y - predicted.double()).square().sum()
    centered = y - y[:1]  # so that equal targets give exactly 0, whatever their mean rounds to
    total = (centered - centered.mean()).square().sum()
    return torch.where(total > 0, 1 - residual / total, (residual == 0).double())


def coverage(mean: Tensor, std: Tensor, y: Tensor, z: float = 1.959964) -> Tensor:
    """The fraction of y within mean ± z·std; 0.95 for the default z if the predicted Gaussians are right."""
    return ((y - mean).abs() <= z * std).double().mean()
