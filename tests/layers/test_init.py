from typing import get_args

import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.layers.activation import ACTIVATIONS, make_activation
from didact.layers.init import INITIALIZERS, InitScheme, activation_gain, init_weights


def make_initialized(make, scheme, **keywords):
    torch.manual_seed(0)
    layer = make()
    init_weights(layer, scheme, **keywords)
    return layer


def make_linear():
    return nn.Linear(300, 500)


def make_conv():
    return nn.Conv2d(24, 60, (3, 5))  # n_in = 24 * 15, n_out = 60 * 15


@pytest.mark.parametrize(("make", "n_in", "n_out"), [(make_linear, 300, 500), (make_conv, 360, 900)])
@pytest.mark.parametrize("shape", ["uniform", "normal"])
@pytest.mark.parametrize("activation", ["relu", "tanh", "linear"])
def test_init_weights_has_the_variance_of_its_scheme(make, n_in, n_out, shape, activation):
    gain = activation_gain(activation)
    for scheme, variance in [("xavier", 2 * gain**2 / (n_in + n_out)), ("he", gain**2 / n_in)]:
        layer = make_initialized(make, f"{scheme}_{shape}", activation=activation)
        w = layer.weight.detach()
        assert w.var().item() == pytest.approx(variance, rel=0.05)
        assert abs(w.mean().item()) < 4 * (variance / w.numel()) ** 0.5
        assert not layer.bias.any()
        if shape == "uniform":
            r = (3 * variance) ** 0.5
            assert 0.99 * r < w.abs().max() <= r


@pytest.mark.parametrize("shape", ["uniform", "normal"])
@pytest.mark.parametrize("make", [make_linear, make_conv])
def test_he_init_matches_pytorch_kaiming(make, shape):
    weight = make_initialized(make, f"he_{shape}", activation="leaky_relu").weight
    torch.manual_seed(0)
    expected = make().weight
    getattr(nn.init, f"kaiming_{shape}_")(expected, a=0.01, nonlinearity="leaky_relu")
    torch.testing.assert_close(weight, expected)


@pytest.mark.parametrize("shape", ["uniform", "normal"])
@pytest.mark.parametrize("make", [make_linear, make_conv])
def test_xavier_init_matches_pytorch_with_the_gain_of_the_activation(make, shape):
    weight = make_initialized(make, f"xavier_{shape}", activation="leaky_relu").weight
    torch.manual_seed(0)
    expected = make().weight
    getattr(nn.init, f"xavier_{shape}_")(expected, gain=nn.init.calculate_gain("leaky_relu", 0.01))
    torch.testing.assert_close(weight, expected)


def test_orthogonal_init_has_orthogonal_rows_or_columns():
    w = make_initialized(make_linear, "orthogonal").weight.detach()  # (500, 300): orthogonal columns
    torch.testing.assert_close(w.T @ w, 2 * torch.eye(300), atol=1e-5, rtol=0)
    # (60, 360): orthogonal rows
    w = make_initialized(make_conv, "orthogonal", activation="tanh").weight.detach().flatten(1)
    torch.testing.assert_close(w @ w.T, activation_gain("tanh") ** 2 * torch.eye(60), atol=1e-5, rtol=0)


def test_pytorch_scheme_keeps_the_default_init():
    torch.manual_seed(0)
    default = make_linear()
    layer = make_initialized(make_linear, "pytorch")
    torch.testing.assert_close(layer.weight, default.weight, rtol=0, atol=0)
    torch.testing.assert_close(layer.bias, default.bias, rtol=0, atol=0)


def test_activation_gain_matches_pytorch():
    assert activation_gain("linear") == nn.init.calculate_gain("linear") == 1
    assert activation_gain("relu") == pytest.approx(nn.init.calculate_gain("relu"), rel=1e-6)
    assert activation_gain("leaky_relu") == pytest.approx(nn.init.calculate_gain("leaky_relu", 0.01), rel=1e-6)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_he_init_keeps_unit_variance_through_one_layer(name):
    layer = make_initialized(lambda: nn.Linear(2000, 500), "he_normal", activation=name)
    z = torch.randn(200, 2000, generator=torch.Generator().manual_seed(0))
    assert layer(make_activation(name)(z)).square().mean().item() == pytest.approx(1, rel=0.02)


def test_init_scheme_lists_every_initializer():
    assert get_args(InitScheme) == tuple(INITIALIZERS)
    with pytest.raises(UsageError, match="no initialization named 'he_norm'; did you mean 'he_normal'"):
        init_weights(make_linear(), "he_norm")
