"""What a recurrent network keeps: its gates over time, and how far a gradient reaches back."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from didact.layers.cells import STEPS, Gates
from didact.layers.mixing import Mixing
from didact.layers.recurrent import Bidirectional, Recurrent, weights
from didact.layers.xlstm import SLSTM

Reader = Recurrent | Mixing


def reader_of(network: nn.Module) -> Reader | None:
    """The recurrent layers that read from left to right; of a network that reads both ways, those of its first layer."""
    reader = getattr(network, "reader", None)
    if isinstance(reader, Bidirectional):
        reader = reader.right[0]
    return reader if isinstance(reader, Reader) else None


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
def gates(reader: Reader, x: Tensor) -> Gates:
    """Each gate of the last layer over time, (T, D) -> (T, H)."""
    return {name: values[0] for name, values in reader.look(x[None])[1][-1].items()}


@torch.no_grad()
def fading(reader: Reader, x: Tensor) -> Tensor:
    """‖∂s_T/∂s_{T−d}‖₂ of the last layer for d = 0, 1, … T − 1, s = h, of an LSTM (h, c): (T, D) -> (T,).  Gaba 5.4, Groudiev 5.3.

    The product of the steps' Jacobians: it vanishes where they shrink vectors, and explodes where they stretch them. s is h of Mamba and
    C of an mLSTM, where each number fades by itself; (c, n, h) of an sLSTM, in the units e^m that it is kept in.
    """
    if isinstance(reader, Recurrent):
        return norms_back(jacobians(reader, x))
    given, mixer = reader.heard(x[None])[-1], reader.mixers[-1]
    if isinstance(mixer, SLSTM):
        return norms_back(mixing_jacobians(mixer, given))
    kept: Tensor = mixer.kept(given)[0].flatten(1)                     # type: ignore[operator]  # (T, numbers)
    return torch.cat([torch.ones_like(kept[:1]), kept.flip(0)[:-1]]).cumprod(0).amax(1)


def jacobians(reader: Recurrent, x: Tensor) -> list[Tensor]:
    """∂s_t/∂s_{t−1} of the last layer while it reads x."""
    top, w = reader.layers - 1, weights(reader.rnn, reader.layers - 1)
    if top:
        x = reader.look(x[None])[1][top - 1]["h"][0]
    parts = 2 if reader.cell == "lstm" else 1

    def step(s: Tensor, x_t: Tensor) -> Tensor:
        return torch.cat(STEPS[reader.cell](x_t, s.chunk(parts), w)[0])

    s, found = x.new_zeros(parts * reader.hidden), []
    for x_t in x:
        found.append(torch.func.jacrev(step)(s, x_t))
        s = step(s, x_t)
    return found


def mixing_jacobians(mixer: SLSTM, x: Tensor) -> list[Tensor]:
    """The same of (c, n, h) in an sLSTM that reads (1, T, H); m, the logarithm of their unit, counts as given."""
    c, n, h, m = mixer.start(1)
    s, found = torch.stack([c, n, h]), []
    for wx in mixer.gates(x).unbind(1):
        def step(s: Tensor, wx: Tensor = wx, m: Tensor = m) -> Tensor:
            return torch.stack(mixer.step(wx, (*s.unbind(), m))[0][:3])

        found.append(torch.func.jacrev(step)(s).reshape(s.numel(), s.numel()))
        (*parts, m), _ = mixer.step(wx, (*s.unbind(), m))
        s = torch.stack(parts)
    return found


def norms_back(jacobians: list[Tensor]) -> Tensor:
    """‖J_T J_{T−1} … J_{T−d+1}‖₂ for d = 0, 1, …"""
    product, norms = torch.eye(len(jacobians[0]), device=jacobians[0].device, dtype=jacobians[0].dtype), []
    for jacobian in reversed(jacobians):
        norms.append(torch.linalg.matrix_norm(product, 2))
        product = product @ jacobian
    return torch.stack(norms)
