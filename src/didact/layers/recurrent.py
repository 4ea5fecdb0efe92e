"""Recurrent layers: stacked and in both directions, on PyTorch's fused kernels; `look` walks the equations and shows the gates."""

from collections.abc import Callable
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from didact.errors import UsageError, pick
from didact.layers.cells import FUSED, Gates, State, Weights, unroll
from didact.layers.mixing import MIXERS, Mixing

Init = Literal["orthogonal", "random"]


KERNELS: dict[str, Callable[..., Any]] = {"rnn": torch.rnn_tanh, "lstm": torch.lstm, "gru": torch.gru}


def autocasts_to_bf16(x: Tensor) -> bool:
    return x.is_cuda and torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16


class Recurrent(nn.Module):
    """h_t^(l) = cell(h_t^(l−1), h_{t−1}^(l)), layer upon layer.  Gaba 5.2-5.6, Van Schependom 6.3, Groudiev 5.5."""

    def __init__(
        self, cell: str, inputs: int, hidden: int, *, layers: int = 1, dropout: float = 0.0, init: Init = "orthogonal"
    ):
        super().__init__()
        self.cell, self.hidden, self.layers = cell, hidden, layers
        between = dropout if layers > 1 else 0.0            # PyTorch warns of a dropout that has no place to act
        self.rnn = pick("cell", cell, FUSED)(inputs, hidden, layers, batch_first=True, dropout=between)
        initialise(self.rnn, init)

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """(B, T, D) -> (B, T, H), and the state to go on from: (h,) or (h, c), each (layers, B, H)."""
        if autocasts_to_bf16(x):  # PyTorch would run cuDNN in fp16 then, which overflows without a loss scale: fp32 instead
            with torch.autocast("cuda", enabled=False):
                return self.forward(x.float(), None if state is None else tuple(part.float() for part in state))
        if x.is_cuda and self.training and self.rnn.dropout:
            return self.layer_by_layer(x, state or self.start(len(x)))
        y, after = self.rnn(x, None if state is None else state if self.cell == "lstm" else state[0])
        return y, after if self.cell == "lstm" else (after,)

    def layer_by_layer(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The same with dropout between the layers drawn by PyTorch: cuDNN draws from a state of its own, which no checkpoint can hold."""
        after = []
        for layer in range(self.layers):
            w = weights(self.rnn, layer)
            chunk = torch.cat([p.flatten() for p in w])  # in one piece, as cuDNN reads them
            pieces = [piece.view_as(p) for piece, p in zip(chunk.split([p.numel() for p in w]), w, strict=True)]
            start = tuple(part[layer, None] for part in state)
            y, *end = KERNELS[self.cell](x, start if self.cell == "lstm" else start[0], pieces, True, 1, 0.0, True, False, True)
            after.append(end)
            x = nn.functional.dropout(y, self.rnn.dropout) if layer < self.layers - 1 else y
        return x, tuple(torch.cat(parts) for parts in zip(*after, strict=True))

    def look(self, x: Tensor) -> tuple[Tensor, list[Gates]]:
        """The same by the equations, with the gates of each layer over time, (B, T, H). Without dropout."""
        shown = []
        for layer in range(self.layers):
            x, _, gates = unroll(self.cell, x, tuple(part[layer] for part in self.start(len(x))), weights(self.rnn, layer))
            shown.append(gates)
        return x, shown

    def start(self, rows: int) -> State:
        """h_0 = 0 (and c_0 = 0), each (layers, B, H)."""
        zero = next(self.parameters()).new_zeros(self.layers, rows, self.hidden)
        return (zero, zero) if self.cell == "lstm" else (zero,)


def reading(
    cell: str, inputs: int, hidden: int, *, layers: int = 1, dropout: float = 0.0, init: Init = "orthogonal"
) -> Recurrent | Mixing:
    """Layers that read from left to right and carry a state: recurrent ones, Mamba or xLSTM."""
    pick("cell", cell, {**FUSED, **MIXERS})
    if cell in FUSED:
        return Recurrent(cell, inputs, hidden, layers=layers, dropout=dropout, init=init)
    if init != "orthogonal":
        raise UsageError(f"--init {init} is for rnn, lstm and gru; {cell} begins as its paper says: leave it out")
    return Mixing(cell, inputs, hidden, layers=layers, dropout=dropout)


class Bidirectional(nn.Module):
    """[h→_t; h←_t]: one pass from the left, one from the right, twice as wide, in each layer.  Gaba eq. 5.20-5.22.

    Each sequence is turned around within its own length, so that padding is read by nobody and shapes stay fixed: the same numbers as
    packed sequences give, without asking the host for the lengths.
    """

    def __init__(
        self, cell: str, inputs: int, hidden: int, *, layers: int = 1, dropout: float = 0.0, init: Init = "orthogonal"
    ):
        super().__init__()
        widths = [inputs] + [2 * hidden] * (layers - 1)
        self.right = nn.ModuleList(reading(cell, n, hidden, init=init) for n in widths)
        self.left = nn.ModuleList(reading(cell, n, hidden, init=init) for n in widths)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, T, D), (B,) -> (B, T, 2H), zero behind each end."""
        around = turned(lengths, x.shape[1])
        inside = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        for layer, (right, left) in enumerate(zip(self.right, self.left, strict=True)):
            x = self.dropout(x) if layer else x
            back = along(left(along(x, around))[0], around)
            x = torch.cat([right(x)[0], back], dim=-1) * inside[..., None]
        return x


class Carried:
    """The state that a reader goes on from, each part (layers, B, …), as h or h and c: a memory whose size the text does not change.

    Steps change it in place, so that one of them can be captured as a graph. `room` is how long a text the caller means to keep.
    """

    def __init__(self, reader: Recurrent | Mixing, rows: int, room: int):
        self.first = reader.start(rows)
        self.state: State = tuple(part.clone() for part in self.first)
        self.room = room

    def keep(self, state: State) -> None:
        for held, new in zip(self.state, state, strict=True):
            held.copy_(new)

    def within(self, reach: int) -> Self:
        """The same: a state has no places to look at."""
        return self

    def clear(self) -> None:
        """As before the first token."""
        self.keep(self.first)

    def pick(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was: how beams are reordered."""
        self.keep(tuple(held[:, rows] for held in self.state))


def turned(lengths: Tensor, n: int) -> Tensor:
    """(B, n): where step t of the turned sequence comes from: length − 1 − t; padding stays where it is."""
    t = torch.arange(n, device=lengths.device).expand(len(lengths), n)
    return torch.where(t < lengths[:, None], lengths[:, None] - 1 - t, t)


def along(x: Tensor, index: Tensor) -> Tensor:
    """x[b, index[b, t]]"""
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


def last(y: Tensor, lengths: Tensor) -> Tensor:
    """The output at each sequence's own last step, (B, T, H) -> (B, H). Empty ones give their first."""
    return along(y, (lengths - 1).clamp(min=0)[:, None])[:, 0]


def both_ends(y: Tensor, lengths: Tensor) -> Tensor:
    """The last state of each direction: of the right-going one at the end, of the left-going one at the beginning.  Gaba 5.8."""
    right, left = y.chunk(2, dim=-1)
    return torch.cat([last(right, lengths), left[:, 0]], dim=-1)


def weights(rnn: nn.RNNBase, layer: int) -> Weights:
    w_ih, w_hh, b_ih, b_hh = (getattr(rnn, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    return w_ih, w_hh, b_ih, b_hh


def initialise(rnn: nn.RNNBase, init: Init) -> None:
    """orthogonal: W_hh of each gate keeps lengths, so that h neither fades nor grows at first; W_ih Xavier; b_f = 1 of an LSTM.

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
def patient(rnn: nn.RNNBase, span: int) -> None:
    """b_f = log u, b_i = −log u, of a GRU b_z = log u, u ~ U(1, span): units that begin by keeping what they hold for u steps.

    Tallec & Ollivier 2018, eq. 16. A plain RNN has no gate to hold with, and stays as it is.
    """
    n = rnn.hidden_size
    for layer in range(rnn.num_layers * (not isinstance(rnn, nn.RNN))):
        b = weights(rnn, layer)[2]
        u = torch.empty(n, device=b.device).uniform_(1, max(2, span)).log()
        b[n : 2 * n] = u                          # forget of an LSTM, update of a GRU: both are the second gate
        if isinstance(rnn, nn.LSTM):
            b[:n] = -u
