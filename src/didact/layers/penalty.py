"""Losses of single layers: what one wants beside the task, left by its forward pass for the objective to add."""

from typing import Any

import torch
from torch import Tensor, nn


class Penalised(nn.Module):
    """A layer that leaves a scalar under `penalty` whenever it is called while training, and None otherwise."""

    penalty: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"penalty": None}      # a copy has not been called: it has no part in this graph


def penalty(network: nn.Module) -> Tensor | None:
    """The mean of what the layers left in the forward pass just made; None where none has one.

    It is taken away: neither a compiled loss nor a captured one holds on to its graph.
    """
    left = []
    for layer in network.modules():
        if isinstance(layer, Penalised) and layer.penalty is not None:
            left.append(layer.penalty)
            layer.penalty = None
    return torch.stack(left).mean() if left else None
