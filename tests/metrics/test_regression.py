"""Regression metrics against scikit-learn and torchmetrics."""

import pytest
import sklearn.metrics as sk
import torch
import torchmetrics.functional.regression as tm
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from didact import metrics


def to_float64(value):
    return torch.as_tensor(value, dtype=torch.float64)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.floats(0, 3))
def test_mae_rmse_and_r2_equal_references(seed, n, noise):
    generator = torch.Generator().manual_seed(seed)
    y = 5 + 2 * torch.randn(n, generator=generator, dtype=torch.float64)
    predicted = y + noise * torch.randn(n, generator=generator, dtype=torch.float64)
    assert_close(metrics.mae(predicted, y), to_float64(sk.mean_absolute_error(y, predicted)))
    assert_close(metrics.rmse(predicted, y), to_float64(sk.root_mean_squared_error(y, predicted)))
    assert_close(metrics.r2(predicted, y), to_float64(sk.r2_score(y, predicted)), rtol=1e-6, atol=1e-9)
    assert_close(metrics.mae(predicted, y), tm.mean_absolute_error(predicted, y))
    assert_close(metrics.rmse(predicted, y), tm.mean_squared_error(predicted, y, squared=False))


def test_r2_survives_a_large_mean_in_float32():
    torch.manual_seed(0)
    y = 1e6 + torch.randn(1000)
    predicted = y + 0.5 * torch.randn(1000)
    assert_close(metrics.r2(predicted, y), to_float64(sk.r2_score(y.double(), predicted.double())))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8 / 3])
def test_r2_of_constant_targets(value):
    y = torch.full((7,), value)
    assert metrics.r2(y, y) == 1
    assert metrics.r2(y + torch.arange(7) * (1 + value), y) == 0


def test_coverage_counts_targets_within_the_interval():
    mean, std, y = torch.zeros(4), torch.tensor([1.0, 1.0, 2.0, 0.5]), torch.tensor([1.0, -2.0, 3.9, -1.0])
    assert metrics.coverage(mean, std, y) == 0.5   # 1 and 3.9 lie within; -2 and -1 are 2 standard deviations away
    assert metrics.coverage(mean, std, y, z=2.0) == 1


def test_coverage_of_gaussians_matches_z():
    torch.manual_seed(0)
    mean, std = torch.randn(200_000), torch.rand(200_000) + 0.1
    y = mean + std * torch.randn(200_000)
    assert abs(metrics.coverage(mean, std, y) - 0.95) < 0.003
    assert abs(metrics.coverage(mean, std, y, z=1.0) - 0.6827) < 0.005
