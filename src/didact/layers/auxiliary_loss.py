"""Losses of single layers: what one wants beside the task, left by its forward pass for the objective to add."""

from typing import Any

import torch
from torch import Tensor, nn


class HasAuxiliaryLoss(nn.Module):
    """A layer that leaves a scalar under `auxiliary_loss` whenever it is called while training, and None otherwise."""

    auxiliary_loss: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"auxiliary_loss": None}      # a copy has not been called: it has no part in this graph


def pop_auxiliary_loss(network: nn.Module) -> Tensor | None:
    """The mean of what the layers left in the forward pass just made; None where none has one.

    It is taken away: neither a compiled loss nor a captured one holds on to its graph.
    """
    losses = []
    for layer in network.modules():
        if isinstance(layer, HasAuxiliaryLoss) and layer.auxiliary_loss is not None:
            losses.append(layer.auxiliary_loss)
            layer.auxiliary_loss = None
    return torch.stack(losses).mean() if losses else None
