from typing import get_args

import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.layers.activation import ACTIVATIONS, activation
from didact.layers.initialise import INITIALISATIONS, Initialisation, gain, initialise


def fresh(make, scheme, **keywords):
    torch.manual_seed(0)
    layer = make()
    initialise(layer, scheme, **keywords)
    return layer


def linear():
    return nn.Linear(300, 500)


def conv():
    return nn.Conv2d(24, 60, (3, 5))  # n_in = 24 * 15, n_out = 60 * 15


@pytest.mark.parametrize(("make", "n_in", "n_out"), [(linear, 300, 500), (conv, 360, 900)])
@pytest.mark.parametrize("shape", ["uniform", "normal"])
def test_variances(make, n_in, n_out, shape):
    for scheme, variance in [("xavier", 2 / (n_in + n_out)), ("he", 2 / n_in)]:
        layer = fresh(make, f"{scheme}_{shape}")
        w = layer.weight.detach()
        assert w.var().item() == pytest.approx(variance, rel=0.05)
        assert abs(w.mean().item()) < 4 * (variance / w.numel()) ** 0.5
        assert not layer.bias.any()
        if shape == "uniform":
            r = (3 * variance) ** 0.5
            assert 0.99 * r < w.abs().max() <= r


@pytest.mark.parametrize("shape", ["uniform", "normal"])
@pytest.mark.parametrize("make", [linear, conv])
def test_he_is_pytorchs_kaiming(make, shape):
    ours = fresh(make, f"he_{shape}", activation="leaky_relu").weight
    torch.manual_seed(0)
    theirs = make().weight
    getattr(nn.init, f"kaiming_{shape}_")(theirs, a=0.01, nonlinearity="leaky_relu")
    torch.testing.assert_close(ours, theirs)


def test_orthogonal():
    w = fresh(linear, "orthogonal").weight.detach()  # (500, 300): orthogonal columns
    torch.testing.assert_close(w.T @ w, 2 * torch.eye(300), atol=1e-5, rtol=0)
    w = fresh(conv, "orthogonal", activation="tanh").weight.detach().flatten(1)  # (60, 360): orthogonal rows
    torch.testing.assert_close(w @ w.T, gain("tanh") ** 2 * torch.eye(60), atol=1e-5, rtol=0)


def test_pytorch_leaves_the_default():
    torch.manual_seed(0)
    default = linear()
    ours = fresh(linear, "pytorch")
    torch.testing.assert_close(ours.weight, default.weight, rtol=0, atol=0)
    torch.testing.assert_close(ours.bias, default.bias, rtol=0, atol=0)


def test_gain():
    assert gain("relu") == pytest.approx(nn.init.calculate_gain("relu"), rel=1e-6)
    assert gain("leaky_relu") == pytest.approx(nn.init.calculate_gain("leaky_relu", 0.01), rel=1e-6)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_one_layer_keeps_unit_variance(name):
    layer = fresh(lambda: nn.Linear(2000, 500), "he_normal", activation=name)
    z = torch.randn(200, 2000, generator=torch.Generator().manual_seed(0))
    assert layer(activation(name)(z)).square().mean().item() == pytest.approx(1, rel=0.02)


def test_names():
    assert get_args(Initialisation) == tuple(INITIALISATIONS)
    with pytest.raises(UsageError, match="no initialisation named 'he_norm'; did you mean 'he_normal'"):
        initialise(linear(), "he_norm")
