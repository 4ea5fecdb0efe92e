"""The seasonal period by autocorrelation."""

import numpy as np
import pytest
import torch

from didact.data.time_series.period import compute_autocorrelation, find_period, remove_trend


def test_autocorrelation_is_its_definition():
    x = np.random.default_rng(0).normal(size=57).cumsum()
    centered = x - x.mean()
    expected = [(centered[k:] * centered[: len(x) - k]).sum() / (centered**2).sum() for k in range(20)]
    torch.testing.assert_close(compute_autocorrelation(torch.tensor(x), 19), torch.tensor(expected))


def test_trend_is_numpys_line():
    t = np.arange(40.0)
    x = np.random.default_rng(1).normal(size=40) + 0.3 * t
    expected = x - np.polyval(np.polyfit(t, x, 1), t)
    np.testing.assert_allclose(remove_trend(torch.tensor(x)).numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("period", [4, 7, 12, 24, 52, 365])
@pytest.mark.parametrize("kind", ["plain", "trend", "growth", "noise"])
def test_period_is_found_under_trend_growth_and_noise(period, kind):
    t = np.arange(max(120, 4 * period))
    x = np.sin(2 * np.pi * t / period) + 0.4 * np.sin(4 * np.pi * t / period + 1)
    noise = np.random.default_rng(0).normal(size=len(t))
    x = {"plain": x, "trend": x + 0.05 * t, "growth": (x + 4) * 1.3 ** (t / period), "noise": x + 0.4 * noise}[kind]
    assert find_period(torch.tensor(x)) == period


@pytest.mark.parametrize("seed", range(5))
def test_noise_lines_and_constants_have_no_period(seed):
    noise = np.random.default_rng(seed).normal(size=600)
    assert find_period(torch.tensor(noise)) == 1
    assert find_period(torch.tensor(noise.cumsum())) == 1
    assert find_period([3.0 * k for k in range(100)]) == find_period([2.0] * 50) == find_period([1.0, 2.0]) == 1
