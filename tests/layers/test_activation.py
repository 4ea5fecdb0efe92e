from math import erf, exp, sqrt
from typing import get_args

import numpy as np
import pytest
import torch

from didact.errors import UsageError
from didact.layers.activation import ACTIVATIONS, Activation, make_activation

FORMULAS = {
    "sigmoid": lambda z: 1 / (1 + exp(-z)),
    "tanh": np.tanh,
    "arctan": np.arctan,
    "relu": lambda z: max(0.0, z),
    "leaky_relu": lambda z: max(0.01 * z, z),
    "elu": lambda z: z if z > 0 else exp(z) - 1,
    "gelu": lambda z: z * (1 + erf(z / sqrt(2))) / 2,
    "silu": lambda z: z / (1 + exp(-z)),
}


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activation_value_and_gradient_follow_the_formula(name):
    z = torch.linspace(-4.05, 4.15, 83, dtype=torch.float64, requires_grad=True)  # off the kink at zero
    y = make_activation(name)(z)
    np.testing.assert_allclose(y.detach(), [FORMULAS[name](v) for v in z.tolist()], atol=1e-12)
    assert torch.autograd.gradcheck(make_activation(name), z)


@pytest.mark.parametrize(("name", "low", "at"), [("gelu", -0.169971, -0.751792), ("silu", -0.278465, -1.278465)])
def test_gelu_and_silu_have_their_known_minimum(name, low, at):
    z = torch.linspace(-5, 5, 100_001, dtype=torch.float64)
    y = make_activation(name)(z)
    assert y.min() == pytest.approx(low, abs=1e-6)
    assert z[y.argmin()] == pytest.approx(at, abs=1e-4)


def test_activation_literal_lists_every_activation():
    assert get_args(Activation) == tuple(ACTIVATIONS)


def test_unknown_activation_suggests_the_nearest():
    with pytest.raises(UsageError, match="no activation named 'rellu'; did you mean 'relu'"):
        make_activation("rellu")
