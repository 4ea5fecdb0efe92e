"""Activation functions: the element-wise functions between affine layers, without which a deep network is one affine
map.

    sigmoid     1 / (1 + e^-z)                 (0, 1)           Gaba 1.1.2, Van Schependom 1.5, Groudiev 1.3.1
    tanh        (e^z - e^-z) / (e^z + e^-z)    (-1, 1)          Gaba 1.1.2, Van Schependom 1.5, Groudiev 1.3.1
    arctan      arctan z                       (-pi/2, pi/2)    Van Schependom 1.5
    relu        max(0, z)                      [0, inf)         Gaba 1.1.2, Van Schependom 1.5, Groudiev 1.3.1
    leaky_relu  max(0.01 z, z)                 R                Gaba 1.1.2, Van Schependom 1.5
    elu         z, below zero e^z - 1          (-1, inf)        Clevert et al. 2016
    gelu        z Phi(z)                       [-0.170, inf)    Gaba 1.1.2, whose table says R (mistake M1)
    silu        z sigmoid(z)                   [-0.279, inf)    Elfwing et al. 2018
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from didact.errors import look_up

Activation = Literal["sigmoid", "tanh", "arctan", "relu", "leaky_relu", "elu", "gelu", "silu"]


class Arctan(nn.Module):
    """y = arctan z;  dy/dz = 1 / (1 + z^2) decays polynomially, that of tanh exponentially."""

    def forward(self, z: Tensor) -> Tensor:
        return torch.arctan(z)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "arctan": Arctan,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def make_activation(name: str) -> nn.Module:
    """The activation module of that name."""
    return look_up("activation", name, ACTIVATIONS)()
