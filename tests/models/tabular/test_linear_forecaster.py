"""Linear, NLinear and DLinear; a network on top of the linear path."""

import numpy as np
import pandas as pd
import pytest
import torch

from didact.layers.window_normalization import NORMALIZATIONS
from didact.models.tabular.linear_forecaster import (
    DLinearForecaster,
    LinearEnsemble,
    LinearForecaster,
    compute_moving_average,
)
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
def test_dlinear_begins_as_the_same_linear_regression(normalization):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(4, 9, 2), torch.randn(3, 18), torch.randn(3)
    shape = {"window": 9, "horizon": 3, "channels": 2, "normalization": normalization, "period": 4}
    models = LinearForecaster(**shape), DLinearForecaster(**shape, kernel_size=5)
    for model in models:
        model.set_weights(weight, bias)
    torch.testing.assert_close(models[0](x), models[1](x))


def test_ensemble_is_the_weighted_mean_of_its_members():
    ensemble = LinearEnsemble([(9, "revin"), (5, "last")], horizon=3, channels=2, period=1)
    ensemble.weights.copy_(torch.tensor([0.25, 0.75]))
    x = torch.randn(4, 9, 2)
    revin, last = ensemble.members
    torch.testing.assert_close(ensemble(x), 0.25 * revin(x) + 0.75 * last(x[:, 4:]))


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_residual_is_added_in_the_scale_of_the_window(network):
    torch.manual_seed(0)
    model = ResidualForecaster(window=9, horizon=3, channels=2, normalization="revin", network=network, num_layers=1)
    x, y = 5 + 3 * torch.randn(40, 9, 2), torch.randn(40, 3)
    with torch.no_grad():
        model.start_from_linear(x, y)
        linear = model.linear(x)
        torch.testing.assert_close(model(x), linear)                    # f is 0
        model.head.weight.normal_()
    std = x.std(1, correction=0)
    z = (x - x.mean(1)[:, None]) / std[:, None]
    input_scale, output_scale = z.square().mean().sqrt(), ((y - linear) / std[:, :1]).square().mean().sqrt()
    f = model.head(model.residual(z / input_scale))
    torch.testing.assert_close(model(x), linear + std[:, :1] * output_scale * f, rtol=1e-4, atol=1e-4)
    assert (model.reader is None) == (network == "mlp")
