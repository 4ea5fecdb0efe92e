"""What a recurrent network keeps: its gates over time, and how far a gradient reaches back."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from didact.layers.cells import STEPS, Gates
from didact.layers.recurrent import Bidirectional, Recurrent, weights


def reader_of(network: nn.Module) -> Recurrent | None:
    """The recurrent layers that read from left to right; of a network that reads both ways, those of its first layer."""
    reader = getattr(network, "reader", None)
    if isinstance(reader, Bidirectional):
        reader = reader.right[0]
    return reader if isinstance(reader, Recurrent) else None


@contextmanager
def heard(reader: nn.Module) -> Iterator[list[Tensor]]:
    """What it is given to read, call by call, as long as this lasts."""
    found: list[Tensor] = []
    hook = reader.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
    try:
        yield found
    finally:
        hook.remove()


@torch.no_grad()
def gates(reader: Recurrent, x: Tensor) -> Gates:
    """Each gate of the last layer over time, (T, D) -> (T, H)."""
    return {name: values[0] for name, values in reader.look(x[None])[1][-1].items()}


@torch.no_grad()
def fading(reader: Recurrent, x: Tensor) -> Tensor:
    """‖∂s_T/∂s_{T−d}‖₂ of the last layer for d = 0, 1, … T − 1, s = h, of an LSTM (h, c): (T, D) -> (T,).  Gaba 5.3, Groudiev 5.3.

    The product of the steps' Jacobians: it vanishes where they shrink vectors, and explodes where they stretch them.
    """
    top, w = reader.layers - 1, weights(reader.rnn, reader.layers - 1)
    if top:
        x = reader.look(x[None])[1][top - 1]["h"][0]
    parts = 2 if reader.cell == "lstm" else 1

    def step(s: Tensor, x_t: Tensor) -> Tensor:
        return torch.cat(STEPS[reader.cell](x_t, s.chunk(parts), w)[0])

    s, jacobians = x.new_zeros(parts * reader.hidden), []
    for x_t in x:
        jacobians.append(torch.func.jacrev(step)(s, x_t))
        s = step(s, x_t)
    product, norms = torch.eye(len(s), device=x.device, dtype=x.dtype), []
    for jacobian in reversed(jacobians):
        norms.append(torch.linalg.matrix_norm(product, 2))
        product = product @ jacobian
    return torch.stack(norms)
