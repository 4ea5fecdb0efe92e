"""Normalization of windows of a time series, and the scaler around it."""

import numpy as np
import pytest
import torch

from didact.layers.series_scaler import SeriesScaler
from didact.layers.window_normalization import NORMALIZATIONS, get_min_window, normalize_window

BASELINES = {   # what is forecast where the network answers 0: with a window 1 … 10 and a period of 4
    "none": [0, 0, 0, 0, 0, 0],
    "last": [10] * 6,
    "revin": [5.5] * 6,
    "seasonal": [7, 8, 9, 10, 7, 8],
    "seasonal_revin": [7, 8, 9, 10, 7, 8],
    "seasonal_last": [11, 12, 13, 14, 11, 12],
}


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_baseline_of_a_count(normalization):
    x = torch.arange(1.0, 11)[None, :, None]
    normalized = normalize_window(x, 6, normalization, 4)
    assert normalized.restore(torch.zeros(1, 6))[0].tolist() == BASELINES[normalization]


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_level_and_scale_come_back(normalization):
    """A forecast of the shifted window is the shifted forecast; of the scaled window the scaled one, for RevIN."""
    torch.manual_seed(0)
    x, network = torch.randn(3, 10, 2), torch.nn.Linear(20, 6)

    def forecast(window):
        normalized = normalize_window(window, 6, normalization, 4)
        return normalized.restore(network(normalized.z.flatten(1)))

    shift = torch.tensor([5.0, -3.0])
    has_level = normalization != "none"
    assert torch.allclose(forecast(x + shift), forecast(x) + 5, atol=1e-4) == has_level
    assert torch.allclose(forecast(3 * x), 3 * forecast(x), atol=1e-4) == normalization.endswith("revin")


def test_revin_is_instance_normalization():
    x = torch.randn(3, 10, 2)
    z = normalize_window(x, 1, "revin").z
    expected = torch.nn.functional.instance_norm(x.mT, eps=0).mT
    torch.testing.assert_close(z, expected)
    assert normalize_window(torch.ones(1, 10, 1), 1, "revin").z.abs().max() == 0


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_shortest_window_is_enough(normalization):
    n = get_min_window(normalization, 4)
    assert normalize_window(torch.randn(2, n, 1), 9, normalization, 4).baseline.shape == (2, 9)


@pytest.mark.parametrize("log_transform", [False, True])
@pytest.mark.parametrize("has_many", [False, True])
def test_scaler_and_its_inverse(log_transform, has_many):
    scaler = SeriesScaler([100.0, -2.0], [20.0, 4.0], log_transform=log_transform)
    batch = {"x": torch.tensor([[[90.0, 2.0], [150.0, -2.0]], [[1.0, 0.0], [110.0, 6.0]]])}
    mean, std = np.array([[100.0, -2.0]] * 2), np.array([[20.0, 4.0]] * 2)
    if has_many:
        mean, std = np.array([[100.0, -2.0], [7.0, 1.0]]), np.array([[20.0, 4.0], [2.0, 0.5]])
        batch |= {"location": torch.tensor(mean).float(), "scale": torch.tensor(std).float()}
    z = scaler.standardize_window(batch)
    x = batch["x"].numpy()
    expected = (x - mean[:, None]) / std[:, None]
    if log_transform:
        expected[..., 0] = np.log(x[..., 0] / mean[:, :1]) * mean[:, :1] / std[:, :1]
    np.testing.assert_allclose(z.numpy(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scaler.restore(z[..., 0], batch), batch["x"][..., 0])
    torch.testing.assert_close(scaler.standardize(batch["x"][..., 0], batch), z[..., 0])
    assert scaler.restore(torch.full((2, 1), 1e9), batch).isfinite().all()
