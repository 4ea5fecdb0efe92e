"""Fleuret, chapter 1: machine learning."""

import math

import torch
from torch import Tensor

import didact.models  # noqa: F401 (registers the presets)
from didact import scratch
from didact.claims.forms import Equal, Increasing
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.metrics.regression import rmse
from didact.scratch.losses import mse_loss


@claim("CF01", Equal())
def normal_equations() -> Pair:
    """the w with ΦᵀΦ w = Φᵀy for six Gaussian kernels, against torch's least squares; and the gradient of didact's
    squared error there, against 0"""
    x, y = torch.linspace(-1, 1, 30), torch.randn(30)
    Φ = torch.exp(-((x[:, None] - torch.linspace(-1, 1, 6)) ** 2) / 0.1)
    w = torch.linalg.solve(Φ.T @ Φ, Φ.T @ y)
    leaf = scratch.tensor(w.numpy(), requires_grad=True)
    (g,) = scratch.grad(mse_loss(scratch.tensor(Φ.numpy()) @ leaf, y.numpy()), (leaf,))
    return [w, torch.from_numpy(g.data)], [torch.linalg.lstsq(Φ, y[:, None]).solution, torch.zeros(6)]


@claim("CF02", Increasing())
def errors_of_an_overfit() -> list[float]:
    """root mean squared errors: of the polynomial of degree 9 on the ten noisy points of sin πx that it interpolates,
    of sin πx on new points (the noise), and of the polynomial on new points"""
    def noisy_sine(x: Tensor) -> Tensor:
        return (math.pi * x).sin() + 0.3 * torch.randn(len(x))

    x, test_x = torch.linspace(-1, 1, 10), 2 * torch.rand(2000) - 1
    y, truth = noisy_sine(x), noisy_sine(test_x)
    w = torch.linalg.solve(torch.vander(x), y)
    fit, sine = torch.vander(test_x, 10) @ w, (math.pi * test_x).sin()
    return [float(rmse(a, b)) for a, b in ((torch.vander(x) @ w, y), (sine, truth), (fit, truth))]
