"""The memory of recurrent networks: gates over time, and how far back gradients reach."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from didact.layers.recurrent.cells import CELL_STEPS, Gates
from didact.layers.recurrent.mixer_stack import SequenceMixerStack
from didact.layers.recurrent.recurrent import Bidirectional, Recurrent, cell_weights
from didact.layers.recurrent.xlstm import SLSTM

RecurrentReader = Recurrent | SequenceMixerStack


def find_reader(network: nn.Module) -> RecurrentReader | None:
    """The recurrent layers that read from left to right; of a bidirectional network, those of its first layer."""
    reader = getattr(network, "reader", None)
    if isinstance(reader, Bidirectional):
        reader = reader.right[0]
    return reader if isinstance(reader, RecurrentReader) else None


@contextmanager
def record_inputs(reader: nn.Module) -> Iterator[list[Tensor]]:
    """Inside, the inputs of each call are recorded."""
    recorded: list[Tensor] = []
    hook = reader.register_forward_pre_hook(lambda _, inputs: recorded.append(inputs[0]))
    try:
        yield recorded
    finally:
        hook.remove()


@torch.no_grad()
def compute_gates(reader: RecurrentReader, x: Tensor) -> Gates:
    """The gates of the last layer over time, (T, D) -> (T, H) each."""
    return {name: values[0] for name, values in reader.forward_with_gates(x[None])[1][-1].items()}


@torch.no_grad()
def compute_gradient_decay(reader: RecurrentReader, x: Tensor) -> Tensor:
    """‖∂s_T/∂s_{T−d}‖₂ of the last layer for d = 0, 1, … T − 1, (T, D) -> (T,) in float64.  Gaba 5.4, Groudiev 5.3.

    s is h, of an LSTM (h, c). The product of the steps' Jacobians vanishes where they shrink vectors, and explodes
    where they stretch them. For Mamba s is h and for mLSTM C, where each number decays by itself; for sLSTM (c, n, h)
    in units of e^m.
    """
    if isinstance(reader, Recurrent):
        return _cumulative_norms(_recurrent_jacobians(reader, x))
    mixer_inputs, mixer = reader.mixer_inputs(x[None])[-1], reader.mixers[-1]
    if isinstance(mixer, SLSTM):
        return _cumulative_norms(_slstm_jacobians(mixer, mixer_inputs))
    decay: Tensor = mixer.compute_decay(mixer_inputs)[0].flatten(1)  # type: ignore[operator]  # (T, numbers)
    decay = decay.cpu().double()
    return torch.cat([torch.ones_like(decay[:1]), decay.flip(0)[:-1]]).cumprod(0).amax(1)


def _recurrent_jacobians(reader: Recurrent, x: Tensor) -> list[Tensor]:
    """∂s_t/∂s_{t−1} of the last layer while it reads x."""
    last_layer, w = reader.num_layers - 1, cell_weights(reader.rnn, reader.num_layers - 1)
    if last_layer:
        x = reader.forward_with_gates(x[None])[1][last_layer - 1]["h"][0]
    num_parts = 2 if reader.cell == "lstm" else 1

    def step(s: Tensor, x_t: Tensor) -> Tensor:
        return torch.cat(CELL_STEPS[reader.cell](x_t, s.chunk(num_parts), w)[0])

    s, step_jacobians = x.new_zeros(num_parts * reader.hidden_size), []
    for x_t in x:
        step_jacobians.append(torch.func.jacrev(step)(s, x_t))
        s = step(s, x_t)
    return step_jacobians


def _slstm_jacobians(mixer: SLSTM, x: Tensor) -> list[Tensor]:
    """The same of (c, n, h) in an sLSTM that reads (1, T, H); m, the logarithm of their unit, is held constant."""
    c, n, h, m = mixer.initial_state(1)
    s, step_jacobians = torch.stack([c, n, h]), []
    for wx in mixer.project_gates(x).unbind(1):
        def step(s: Tensor, wx: Tensor = wx, m: Tensor = m) -> Tensor:
            return torch.stack(mixer.step(wx, (*s.unbind(), m))[0][:3])

        step_jacobians.append(torch.func.jacrev(step)(s).reshape(s.numel(), s.numel()))
        (*parts, m), _ = mixer.step(wx, (*s.unbind(), m))
        s = torch.stack(parts)
    return step_jacobians


def _cumulative_norms(jacobians: list[Tensor]) -> Tensor:
    """‖J_T J_{T−1} … J_{T−d+1}‖₂ for d = 0, 1, …, float64 on the CPU.

    The product has norm 1 and its logarithm is kept apart: vanishing entries would underflow long before float64 ends
    (and long before in float32), and the norm of a matrix with an infinite entry cannot be computed.
    """
    product, log_norm = torch.eye(len(jacobians[0]), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    norms = []
    for jacobian in reversed(jacobians):
        norms.append(log_norm.exp())                    # beyond float64: 0, or infinite
        product = product @ jacobian.cpu().double()
        norm = torch.linalg.matrix_norm(product, 2)
        log_norm = log_norm + norm.log()
        product = product / norm if norm > 0 else product
    return torch.stack(norms)
