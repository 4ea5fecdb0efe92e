"""Weight initialization: variances chosen so that signals keep their size forward and gradients backward.

    xavier      Var W = gain^2 2 / (n_in + n_out)    for functions that are nearly linear around 0: tanh, arctan
    he          Var W = gain^2 / n_in                2 / n_in for ReLU
    orthogonal  W^T W = gain^2 I                     every direction keeps its length
    pytorch     U(-1/sqrt(n_in), 1/sqrt(n_in)), biases too: the default of nn.Linear

gain^2 = 1 / E f(z)^2, z ~ N(0, 1): 2 for ReLU, 1 for linear units.
Gaba 1.5, Van Schependom 3.1, Groudiev 7.1.3-7.1.4. Gaba covers the sigmoid by Xavier, but its mean is not zero (M5).
"""

from collections.abc import Callable
from functools import cache
from math import sqrt
from typing import Literal

import torch
from torch import Tensor, nn

from didact.errors import look_up
from didact.layers.activation import make_activation

InitScheme = Literal["xavier_uniform", "xavier_normal", "he_uniform", "he_normal", "orthogonal", "pytorch"]


@cache
def activation_gain(activation: str) -> float:
    """1 / sqrt(E f(z)^2), z ~ N(0, 1): He's argument for any f.  tanh: 1.59, where PyTorch takes 5/3 from practice.

    "linear" has gain 1, as in PyTorch: Xavier's variance without a factor. With depth the variance returns to 1 for
    bounded functions and ELU, stays for ReLU, and drifts away from 1 for GELU and SiLU, which no constant cures: 20
    layers of these need normalization.
    """
    if activation == "linear":
        return 1.0
    z = torch.linspace(-10, 10, 4001, dtype=torch.float64)
    density = torch.exp(-z.square() / 2) / sqrt(2 * torch.pi)
    return float(torch.trapezoid(make_activation(activation)(z).square() * density, z) ** -0.5)


def he_uniform(w: Tensor, gain: float) -> Tensor:
    """U(-r, r), r = gain sqrt(3 / n_in), because U(-r, r) has variance r^2 / 3."""
    r = gain * sqrt(3 / w[0].numel())
    return nn.init.uniform_(w, -r, r)


def he_normal(w: Tensor, gain: float) -> Tensor:
    """N(0, gain^2 / n_in)."""
    return nn.init.normal_(w, std=gain / sqrt(w[0].numel()))


INITIALIZERS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "xavier_uniform": nn.init.xavier_uniform_,
    "xavier_normal": nn.init.xavier_normal_,
    "he_uniform": he_uniform,
    "he_normal": he_normal,
    "orthogonal": nn.init.orthogonal_,
    "pytorch": lambda w, gain: w,
}


def init_weights(module: nn.Module, scheme: str, *, activation: str = "relu") -> None:
    """Initialize the weights of all affine layers and convolutions inside, from torch's global generator; biases become
    zero.
    """
    initializer = look_up("initialization", scheme, INITIALIZERS)
    if scheme == "pytorch":
        return
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            initializer(layer.weight, activation_gain(activation))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
