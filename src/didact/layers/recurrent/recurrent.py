"""Recurrent layers, stacked and bidirectional, on PyTorch's fused kernels; `forward_with_gates` computes the equations
and returns the gates.
"""

from collections.abc import Callable
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from didact.errors import UsageError, look_up
from didact.layers.recurrent.cells import FUSED_LAYERS, CellWeights, Gates, State, unroll_cell
from didact.layers.recurrent.mixer_stack import MIXERS, SequenceMixerStack

Init = Literal["orthogonal", "random"]


_FUSED_KERNELS: dict[str, Callable[..., Any]] = {"rnn": torch.rnn_tanh, "lstm": torch.lstm, "gru": torch.gru}


def _autocasts_to_bf16(x: Tensor) -> bool:
    return x.is_cuda and torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16


class Recurrent(nn.Module):
    """h_t^(l) = cell(h_t^(l−1), h_{t−1}^(l)), stacked layers.  Gaba 5.2-5.6, Van Schependom 6.3, Groudiev 5.5."""

    def __init__(
        self, cell: str, input_size: int, hidden_size: int, *, num_layers: int = 1, dropout: float = 0.0,
        init: Init = "orthogonal"
    ):
        super().__init__()
        self.cell, self.hidden_size, self.num_layers = cell, hidden_size, num_layers
        # PyTorch warns about dropout in a single layer, where it does nothing
        inter_layer_dropout = dropout if num_layers > 1 else 0.0
        self.rnn = look_up("cell", cell, FUSED_LAYERS)(
            input_size, hidden_size, num_layers, batch_first=True, dropout=inter_layer_dropout
        )
        _init_recurrent(self.rnn, init)

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """(B, T, D) -> (B, T, H), and the new state: (h,) or (h, c), each (layers, B, H)."""
        # under bf16 autocast PyTorch runs cuDNN in fp16, which overflows without a loss scale: fp32 instead
        if _autocasts_to_bf16(x):
            with torch.autocast("cuda", enabled=False):
                return self.forward(x.float(), None if state is None else tuple(part.float() for part in state))
        if x.is_cuda and self.training and self.rnn.dropout:
            return self._forward_layer_by_layer(x, state or self.initial_state(len(x)))
        y, new_state = self.rnn(x, None if state is None else state if self.cell == "lstm" else state[0])
        return y, new_state if self.cell == "lstm" else (new_state,)

    def _forward_layer_by_layer(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The same with dropout between the layers sampled by PyTorch: cuDNN has a random state of its own, which no
        checkpoint can save.
        """
        new_states = []
        for layer in range(self.num_layers):
            w = cell_weights(self.rnn, layer)
            buffer = torch.cat([p.flatten() for p in w])  # one contiguous piece of memory, as cuDNN reads them
            pieces = [piece.view_as(p) for piece, p in zip(buffer.split([p.numel() for p in w]), w, strict=True)]
            layer_state = tuple(part[layer, None] for part in state)
            y, *new_state = _FUSED_KERNELS[self.cell](
                x, layer_state if self.cell == "lstm" else layer_state[0], pieces, True, 1, 0.0, True, False, True
            )
            new_states.append(new_state)
            x = nn.functional.dropout(y, self.rnn.dropout) if layer < self.num_layers - 1 else y
        return x, tuple(torch.cat(parts) for parts in zip(*new_states, strict=True))

    def forward_with_gates(self, x: Tensor) -> tuple[Tensor, list[Gates]]:
        """The output by the equations, and the gates of each layer over time, (B, T, H). Without dropout."""
        gates_by_layer = []
        for layer in range(self.num_layers):
            x, _, gates = unroll_cell(
                self.cell, x, tuple(part[layer] for part in self.initial_state(len(x))), cell_weights(self.rnn, layer)
            )
            gates_by_layer.append(gates)
        return x, gates_by_layer

    def initial_state(self, batch_size: int) -> State:
        """h_0 = 0 (and c_0 = 0), each (layers, B, H)."""
        zero = next(self.parameters()).new_zeros(self.num_layers, batch_size, self.hidden_size)
        return (zero, zero) if self.cell == "lstm" else (zero,)


def make_recurrent(
    cell: str,
    input_size: int,
    hidden_size: int,
    *,
    num_layers: int = 1,
    dropout: float = 0.0,
    init: Init = "orthogonal",
) -> Recurrent | SequenceMixerStack:
    """Unidirectional layers with a recurrent state: RNN, LSTM, GRU, Mamba or xLSTM."""
    look_up("cell", cell, {**FUSED_LAYERS, **MIXERS})
    if cell in FUSED_LAYERS:
        return Recurrent(cell, input_size, hidden_size, num_layers=num_layers, dropout=dropout, init=init)
    if init != "orthogonal":
        raise UsageError(
            f"--recurrent-init {init} is for rnn, lstm and gru; {cell} is initialized as in its paper: leave it out"
        )
    return SequenceMixerStack(cell, input_size, hidden_size, num_layers=num_layers, dropout=dropout)


class Bidirectional(nn.Module):
    """[h→_t; h←_t]: one pass from the left, one from the right, twice as wide, in each layer.  Gaba eq. 5.20-5.22.

    Each sequence is reversed within its own length, so that no state depends on padding and shapes stay fixed: the
    numbers of packed sequences, without asking the host for the lengths.
    """

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        *,
        num_layers: int = 1,
        dropout: float = 0.0,
        init: Init = "orthogonal",
    ):
        super().__init__()
        widths = [input_size] + [2 * hidden_size] * (num_layers - 1)
        self.right = nn.ModuleList(make_recurrent(cell, n, hidden_size, init=init) for n in widths)
        self.left = nn.ModuleList(make_recurrent(cell, n, hidden_size, init=init) for n in widths)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, T, D), (B,) -> (B, T, 2H), zero at padding."""
        reversal = _reversal_index(lengths, x.shape[1])
        mask = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        for layer, (right, left) in enumerate(zip(self.right, self.left, strict=True)):
            x = self.dropout(x) if layer else x
            left_output = _gather_time(left(_gather_time(x, reversal))[0], reversal)
            x = torch.cat([right(x)[0], left_output], dim=-1) * mask[..., None]
        return x


class RecurrentState:
    """The recurrent state of a decoder, each part (layers, B, …), as h or h and c: its size does not grow with the
    text.

    Steps change it in place, so that a step can be captured as a CUDA graph. `capacity` is the length of text that the
    caller plans for.
    """

    def __init__(self, layers: Recurrent | SequenceMixerStack, batch_size: int, capacity: int):
        self.initial = layers.initial_state(batch_size)
        self.state: State = tuple(part.clone() for part in self.initial)
        self.capacity = capacity

    def update(self, state: State) -> None:
        for stored, new in zip(self.state, state, strict=True):
            stored.copy_(new)

    def narrow(self, visible: int) -> Self:
        """The same state: it has no positions that could be left out."""
        return self

    def clear(self) -> None:
        """Return to the state before the first token."""
        self.update(self.initial)

    def reorder(self, indices: Tensor) -> None:
        """Row i becomes a copy of row indices[i]: beams after a step of beam search."""
        self.update(tuple(stored[:, indices] for stored in self.state))


def _reversal_index(lengths: Tensor, num_steps: int) -> Tensor:
    """(B, n): the source of step t of the reversed sequence, length − 1 − t; padding stays where it is."""
    t = torch.arange(num_steps, device=lengths.device).expand(len(lengths), num_steps)
    return torch.where(t < lengths[:, None], lengths[:, None] - 1 - t, t)


def _gather_time(x: Tensor, index: Tensor) -> Tensor:
    """x[b, index[b, t]]"""
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


def last_valid(y: Tensor, lengths: Tensor) -> Tensor:
    """The output at each sequence's last token, (B, T, H) -> (B, H); of an empty sequence the first output."""
    return _gather_time(y, (lengths - 1).clamp(min=0)[:, None])[:, 0]


def final_states(y: Tensor, lengths: Tensor) -> Tensor:
    """The final state of each direction: of the forward pass at the end, of the backward pass at the beginning.  Gaba
    5.8.
    """
    right, left = y.chunk(2, dim=-1)
    return torch.cat([last_valid(right, lengths), left[:, 0]], dim=-1)


def cell_weights(rnn: nn.RNNBase, layer: int) -> CellWeights:
    w_ih, w_hh, b_ih, b_hh = (
        getattr(rnn, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    return w_ih, w_hh, b_ih, b_hh


def _init_recurrent(rnn: nn.RNNBase, init: Init) -> None:
    """orthogonal: W_hh of each gate orthogonal, so that h neither vanishes nor explodes at first; W_ih Xavier; b_f = 1
    of an LSTM.

    random: PyTorch's U(−1/√H, 1/√H).  Saxe et al. 2014, Jozefowicz et al. 2015; Gaba 5.4.
    """
    if init == "random":
        return
    for name, p in rnn.named_parameters():
        if name.startswith("weight"):
            for gate in p.data.split(rnn.hidden_size):
                nn.init.orthogonal_(gate) if name.startswith("weight_hh") else nn.init.xavier_uniform_(gate)
        else:
            nn.init.zeros_(p)
            if isinstance(rnn, nn.LSTM) and name.startswith("bias_ih"):
                nn.init.ones_(p.data[rnn.hidden_size : 2 * rnn.hidden_size])


@torch.no_grad()
def chrono_init_(rnn: nn.RNNBase, span: int) -> None:
    """Chrono initialization: b_f = log u, b_i = −log u, of a GRU b_z = log u, u ~ U(1, span): units that hold their
    state for u steps at first.

    Tallec & Ollivier 2018, eq. 16. A plain RNN has no such gate and stays as it is.
    """
    n = rnn.hidden_size
    for layer in range(rnn.num_layers * (not isinstance(rnn, nn.RNN))):
        b = cell_weights(rnn, layer)[2]
        u = torch.empty(n, device=b.device).uniform_(1, max(2, span)).log()
        b[n : 2 * n] = u                          # forget of an LSTM, update of a GRU: both are the second gate
        if isinstance(rnn, nn.LSTM):
            b[:n] = -u
