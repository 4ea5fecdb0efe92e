"""Hidden layers of a multi-layer perceptron (MLP): affine map, norm, activation, dropout, repeated."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from torch import nn

from didact.errors import UsageError, look_up
from didact.layers.activation import make_activation

Norm = Literal["none", "batch", "layer"]

_NORMS_1D: dict[str, Callable[[int], nn.Module] | None] = {"none": None, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


def make_mlp_layers(
    widths: Sequence[int], activation: str = "relu", dropout: float = 0.0, norm: Norm = "none"
) -> nn.Sequential:
    """h_l = drop(f(norm(W_l h_{l-1} + b_l))) from widths[0] inputs.  Gaba 1.2, 3.10; the norm before f: Lhotte 4.4."""
    if min(widths) < 1:
        raise UsageError(f"layers need at least one unit, got widths {tuple(widths)}")
    make_norm = look_up("norm", norm, _NORMS_1D)
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers.append(nn.Linear(n_in, n_out))
        if make_norm:
            layers.append(make_norm(n_out))
        layers.append(make_activation(activation))
        if dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)
