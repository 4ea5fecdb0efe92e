"""Linear, NLinear and DLinear; a network on top of the linear path."""

import numpy as np
import pandas as pd
import pytest
import torch

from didact.layers.window_normalization import NORMALIZATIONS
from didact.models.tabular.linear_forecaster import DLinearForecaster, LinearForecaster, compute_moving_average
from didact.models.tabular.residual_forecaster import ResidualForecaster
from didact.registry import create_model


@pytest.mark.parametrize("kernel_size", [1, 4, 5, 25])
def test_moving_average_is_pandas_rolling_mean_with_repeated_ends(kernel_size):
    x = np.random.default_rng(0).normal(size=12)
    before, after = (kernel_size - 1) // 2, kernel_size // 2
    padded = np.concatenate([[x[0]] * before, x, [x[-1]] * after])
    expected = pd.Series(padded).rolling(kernel_size).mean().dropna().to_numpy()
    trend = compute_moving_average(torch.tensor(x)[None, :, None], kernel_size)
    np.testing.assert_allclose(trend[0, :, 0], expected, atol=1e-12)


def test_nlinear_is_the_papers_equation():
    model = create_model("nlinear_forecaster", window=8, horizon=3)
    x = torch.randn(4, 8, 1)
    last = x[:, -1]
    torch.testing.assert_close(model(x), model.linear(x[..., 0] - last) + last)


def test_dlinear_is_the_papers_equation():
    model = DLinearForecaster(window=8, horizon=3, kernel_size=5)
    x = torch.randn(4, 8, 1)
    trend = compute_moving_average(x, 5)[..., 0]
    torch.testing.assert_close(model(x), model.trend(trend) + model.seasonal(x[..., 0] - trend))


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_all_begin_as_the_same_linear_regression(normalization):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(4, 9, 2), torch.randn(3, 18), torch.randn(3)
    shape = {"window": 9, "horizon": 3, "channels": 2, "normalization": normalization, "period": 4}
    linear = LinearForecaster(**shape)
    others = [DLinearForecaster(**shape, kernel_size=5), ResidualForecaster(**shape, network="mlp"),
              ResidualForecaster(**shape, network="gru", num_layers=1)]
    for model in (linear, *others):
        model.set_weights(weight, bias, input_scale=2.0)
    for model in others:
        torch.testing.assert_close(model(x), linear(x))


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_residual_is_added_before_level_and_scale_come_back(network):
    torch.manual_seed(0)
    model = ResidualForecaster(window=9, horizon=3, channels=2, normalization="revin", network=network, num_layers=1)
    model.set_weights(torch.zeros(3, 18), torch.zeros(3), input_scale=2.0)
    with torch.no_grad():
        model.head.weight.normal_()
    x = torch.randn(4, 9, 2)
    mean, std = x.mean(1), x.std(1, correction=0)
    z = (x - mean[:, None]) / std[:, None] / 2
    expected = mean[:, :1] + std[:, :1] * model.head(model.residual(z))
    torch.testing.assert_close(model(x), expected)
    assert (model.reader is None) == (network == "mlp")
