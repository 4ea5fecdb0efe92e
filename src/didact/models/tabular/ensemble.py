"""An ensemble of small MLPs on piecewise linear encodings, as one network: the tabular model.

    x -> piecewise linear encoding -> K x [hidden x (affine, activation, dropout) -> affine  +  linear path]

The members share the input and nothing else: they are one batched matrix product a layer, as fast as a network K times
as wide, and each may be trained on rows of its own.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.activation import make_activation
from didact.layers.piecewise_linear import PiecewiseLinearEncoding
from didact.registry import register_model


class MemberLinear(nn.Module):
    """y_k = x_k W_k + b_k, an affine layer for each of K members."""

    def __init__(self, members: int, num_inputs: int, num_outputs: int, *, std: float, bias_std: float = 0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(members, num_inputs, num_outputs) * std)
        self.bias = nn.Parameter(torch.randn(members, 1, num_outputs) * bias_std)

    def forward(self, x: Tensor, member: int | None = None) -> Tensor:         # (K, B, inputs) -> (K, B, outputs)
        if member is None:
            return torch.baddbmm(self.bias, x, self.weight)
        return torch.addmm(self.bias[member], x, self.weight[member])          # (B, inputs) -> (B, outputs)


@register_model("tabular_ensemble", members=8, hidden=(128, 128))
class TabularEnsemble(nn.Module):
    """f_k(x) = MLP_k(e(x)) + V_k e(x): an MLP and a linear model on the encoding e, for each member k.

    Gorishniy et al. 2022 (the encoding), Cheng et al. 2016 (the linear path), Gorishniy et al. 2025 (an ensemble in one
    network; theirs shares most weights, here none).
    """

    def __init__(
        self,
        edges: Sequence[Sequence[float]],
        outputs: int,
        *,
        members: int = 8,
        hidden: tuple[int, ...] = (128, 128),
        activation: str = "relu",
        dropout: float = 0.2,
        mean: Tensor | None = None,
        std: Tensor | None = None,
    ):
        super().__init__()
        self.encoding = PiecewiseLinearEncoding(edges, mean, std)
        self.num_members = members
        num_inputs = self.encoding.num_outputs
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise((num_inputs, *hidden)):
            # random biases spread the kinks of the units over the data
            layers += [MemberLinear(members, fan_in, fan_out, std=sqrt(2 / max(1, fan_in)), bias_std=0.5)]
            layers += [make_activation(activation), nn.Dropout(dropout)]
        self.hidden = nn.Sequential(*layers)
        width = hidden[-1] if hidden else num_inputs
        self.head = MemberLinear(members, width, outputs, std=0.1 / sqrt(max(1, width)))
        self.linear_path = nn.Parameter(torch.zeros(members, num_inputs, outputs))

    def forward(self, x: Tensor) -> Tensor:                                    # (B, F) -> (B, K, outputs)
        e = self.encoding(x.flatten(1)).expand(self.num_members, -1, -1)       # (K, B, inputs)
        y: Tensor = self.head(self.hidden(e))
        return torch.baddbmm(y, e, self.linear_path).transpose(0, 1)

    def predict_with_members(self, x: Tensor, members: Tensor) -> Tensor:      # (B, F), (B,) -> (B, outputs)
        """Each row by one member alone: a K-th of the work of `forward`."""
        y = x.new_zeros(len(x), self.head.weight.shape[2])
        for k in range(self.num_members):
            rows = (members == k).nonzero()[:, 0]
            h = e = self.encoding(x[rows].flatten(1))
            for layer in self.hidden:
                h = layer(h, k) if isinstance(layer, MemberLinear) else layer(h)
            y[rows] = torch.addmm(self.head(h, k), e, self.linear_path[k]).to(y.dtype)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        edges = ((0.0, 1.0), (-2.0, -0.5, 0.1, 0.7, 3.0), (), (1.0, 2.0, 4.0))
        return {"edges": edges, "outputs": 3, "members": 4, "hidden": (8, 6)}, torch.rand(batch_size, 4)
