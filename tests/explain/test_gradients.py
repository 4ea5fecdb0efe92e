"""Saliency, SmoothGrad and gradient × input against gradients in closed form."""

import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.explain import gradient_times_input, saliency, smooth_grad

A = torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, -4.0]])


def quadratic(x):
    """s_c = Σ a_ci x_i² / 2, whose gradient is a_ci x_i."""
    return (x.flatten(1) ** 2 / 2) @ A.T


def test_saliency_is_the_slope_of_the_given_class():
    x = torch.tensor([[1.0, 2.0, -1.0], [2.0, 1.0, 1.0]])
    torch.testing.assert_close(saliency(quadratic, x, 0), (A[0] * x).abs())
    per_example = saliency(quadratic, x, torch.tensor([0, 1]))
    # every example its own class (mistake M56)
    torch.testing.assert_close(per_example, torch.stack([A[0] * x[0], A[1] * x[1]]).abs())


def test_saliency_takes_the_strongest_channel():
    w = torch.randn(4, 3, 5, 7)
    saliency_map = saliency(lambda x: torch.einsum("bchw,kchw->bk", x, w), torch.randn(2, 3, 5, 7), 2)
    torch.testing.assert_close(saliency_map, w[2].abs().amax(0).expand(2, 5, 7))


def test_smooth_grad_averages_the_slope_under_noise():
    """s = x³/3 has the gradient x²; with noise of standard deviation σ its mean is x² + σ²."""
    x = torch.tensor([0.0, 1.0, 2.0]).expand(4000, 3)
    mean_slope = smooth_grad(
        lambda x: (x**3 / 3).sum(1, keepdim=True),
        x,
        0,
        noise=0.25,
        num_samples=8,
        generator=torch.Generator().manual_seed(0),
    )
    torch.testing.assert_close(mean_slope.mean(0), x[0] ** 2 + 0.5**2, atol=0.05, rtol=0)


def test_smooth_grad_without_noise_is_saliency():
    x = torch.randn(2, 3)
    torch.testing.assert_close(smooth_grad(quadratic, x, 1, noise=0.0, num_samples=3), saliency(quadratic, x, 1))


def test_gradient_times_input_splits_a_linear_score():
    linear, b = nn.Linear(5, 3), torch.randn(5)
    x = torch.randn(4, 5)
    attributions = gradient_times_input(linear, x, 1, baseline=b)
    torch.testing.assert_close(attributions, (x - b) * linear.weight[1].detach())
    torch.testing.assert_close(attributions.sum(1), (linear(x) - linear(b))[:, 1].detach())


def test_saliency_leaves_inputs_and_weights_unchanged():
    linear, x = nn.Linear(3, 2), torch.randn(1, 3)
    with torch.no_grad():
        saliency(linear, x, 0)
    assert linear.weight.grad is None and not x.requires_grad


@pytest.mark.parametrize(("model", "target", "message"), [
    (nn.Linear(3, 2), 2, "from 0 to 1, got 2"),
    (lambda x: x[:, :, None, None], 0, r"\(B, K\); this model gives \(1, 3, 1, 1\)"),
])
def test_saliency_refuses_models_without_class_scores(model, target, message):
    with pytest.raises(UsageError, match=message):
        saliency(model, torch.randn(1, 3), target)
