"""Losses of single layers: what one wants beside the task, left by its forward pass for the objective to add."""

import torch
from torch import Tensor, nn


class Penalised(nn.Module):
    """A layer that leaves a scalar under `penalty` whenever it is called while training."""

    penalty: Tensor | None = None


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
