"""Auxiliary losses of single layers: left by the forward pass for the objective to add to the loss of the task."""

from typing import Any

import torch
from torch import Tensor, nn


class HasAuxiliaryLoss(nn.Module):
    """A layer that stores a scalar in `auxiliary_loss` at each training forward pass, and None in eval mode."""

    auxiliary_loss: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"auxiliary_loss": None}      # a copy has no part in this autograd graph


def pop_auxiliary_loss(network: nn.Module) -> Tensor | None:
    """The mean of the auxiliary losses of the last forward pass; None where no layer has one.

    They are removed from the layers, so that neither a compiled nor a captured step keeps their graph alive.
    """
    losses = []
    for layer in network.modules():
        if isinstance(layer, HasAuxiliaryLoss) and layer.auxiliary_loss is not None:
            losses.append(layer.auxiliary_loss)
            layer.auxiliary_loss = None
    return torch.stack(losses).mean() if losses else None
