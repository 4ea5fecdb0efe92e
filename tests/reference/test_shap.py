"""Shapley values against the library shap: of features by its exact explainer, of patches by its kernel explainer."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from didact.explain import patch_grid, shapley

with warnings.catch_warnings():
    warnings.simplefilter("ignore")      # of numba, at import
    shap = pytest.importorskip("shap", reason="shap is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow   # its loops are compiled first
def test_shapley_of_features_matches_the_exact_explainer():
    torch.manual_seed(0)
    f = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double().requires_grad_(False)
    x, b = torch.randn(4, 6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    masker = shap.maskers.Independent(b[None].numpy())
    expected = shap.ExactExplainer(lambda z: f(torch.from_numpy(z))[:, 2].numpy(), masker)(x.numpy()).values
    np.testing.assert_allclose(shapley(f, x, 2, baseline=b).numpy(), expected, atol=1e-8)


def test_shapley_of_features_matches_the_kernel_explainer():
    """With as many samples as there are coalitions it solves for the exact values."""
    torch.manual_seed(0)
    f = nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Linear(16, 3)).double().requires_grad_(False)
    x, b = torch.randn(3, 7, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    explainer = shap.KernelExplainer(lambda z: f(torch.from_numpy(z))[:, 2].numpy(), b[None].numpy())
    expected = explainer.shap_values(x.numpy(), nsamples=2**7, silent=True, l1_reg=False)
    np.testing.assert_allclose(shapley(f, x, 2, baseline=b).numpy(), expected, atol=1e-6)


def test_shapley_of_patches_matches_the_kernel_explainer():
    torch.manual_seed(0)
    f = (
        nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 4 * 7, 3))
        .double()
        .requires_grad_(False)
    )
    x, patch_index = torch.rand(2, 6, 9, dtype=torch.float64), patch_grid((6, 9), 3)

    def evaluate_coalitions(z):
        is_present = torch.from_numpy(z).bool()[:, patch_index][:, None]        # (M, 1, 6, 9)
        return f(torch.where(is_present, x, 0.4))[:, 1].numpy()

    explainer = shap.KernelExplainer(evaluate_coalitions, np.zeros((1, 9)))
    expected = explainer.shap_values(np.ones((1, 9)), nsamples=2**9, silent=True, l1_reg=False)
    actual = shapley(f, x[None], 1, players=patch_index, baseline=0.4)
    np.testing.assert_allclose(actual.numpy(), expected, atol=1e-6)
