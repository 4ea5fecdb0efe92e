"""Recurrent cells from their equations: one step of each, with its gates; weights and order of gates are PyTorch's.

PyTorch has two biases where the courses have one or none: the same model with more parameters (Gaba Rem. 5.6, mistake
M31).
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

Cell = Literal["rnn", "lstm", "gru"]
Gates = dict[str, Tensor]
State = tuple[Tensor, ...]                     # (h,), or (h, c) of an LSTM; each (B, H)
CellWeights = tuple[Tensor, Tensor, Tensor, Tensor]  # w_ih (gates·H, D), w_hh (gates·H, H), b_ih, b_hh


def rnn_step(x: Tensor, state: State, w: CellWeights) -> tuple[State, Gates]:
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh).  Gaba eq. 5.1, Groudiev 5.2.2, Lhotte 7.3."""
    (h,), (w_ih, w_hh, b_ih, b_hh) = state, w
    h_new = torch.tanh(linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh))
    return (h_new,), {"h": h_new}


def lstm_step(x: Tensor, state: State, w: CellWeights) -> tuple[State, Gates]:
    """i, f, o = σ(·), g = tanh(·) of W_ih x + W_hh h + b;  c' = f c + i g,  h' = o tanh c'.  Gaba eq. 5.9-5.14,
    Groudiev 5.4.1.

    Order i, f, g, o; Van Schependom 6.4 has f, i, g, o and Groudiev i, f, o, g.
    """
    (h, c), (w_ih, w_hh, b_ih, b_hh) = state, w
    i, f, g, o = (linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh)).chunk(4, dim=-1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * c + i * g
    h = o * c.tanh()
    return (h, c), {"input": i, "forget": f, "candidate": g, "output": o, "cell": c, "h": h}


def gru_step(x: Tensor, state: State, w: CellWeights) -> tuple[State, Gates]:
    """r, z = σ(·),  n = tanh(W_in x + b_in + r (W_hn h + b_hn)),  h' = (1 − z) n + z h.  As in PyTorch and cuDNN.

    Gaba eq. 5.16-5.19 is the cell of 2014, `gru_step_2014`: weights do not carry over (mistake M30).
    """
    (h,), (w_ih, w_hh, b_ih, b_hh) = state, w
    xr, xz, xn = linear(x, w_ih, b_ih).chunk(3, dim=-1)
    hr, hz, hn = linear(h, w_hh, b_hh).chunk(3, dim=-1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    h = (1 - z) * n + z * h
    return (h,), {"reset": r, "update": z, "candidate": n, "h": h}


def gru_step_2014(x: Tensor, state: State, w: CellWeights) -> tuple[State, Gates]:
    """r before the matrix, z the other way round: n = tanh(W x + U (r h) + b),  h' = (1 − z) h + z n.

    Cho et al. 2014; Gaba eq. 5.16-5.19.
    """
    (h,), (w_ih, w_hh, b_ih, b_hh) = state, w
    hidden_size = h.shape[-1]
    xr, xz, xn = linear(x, w_ih, b_ih).chunk(3, dim=-1)
    hr, hz = linear(h, w_hh[: 2 * hidden_size], b_hh[: 2 * hidden_size]).chunk(2, dim=-1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + linear(r * h, w_hh[2 * hidden_size :], b_hh[2 * hidden_size :])).tanh()
    h = (1 - z) * h + z * n
    return (h,), {"reset": r, "update": z, "candidate": n, "h": h}


CELL_STEPS: dict[str, Callable[[Tensor, State, CellWeights], tuple[State, Gates]]] = {
    "rnn": rnn_step,
    "lstm": lstm_step,
    "gru": gru_step,
}
FUSED_LAYERS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def unroll_cell(cell: str, x: Tensor, state: State, w: CellWeights) -> tuple[Tensor, State, Gates]:
    """All steps of a sequence (B, T, D): h (B, T, H), the final state, and every gate (B, T, H)."""
    gates_by_step: list[Gates] = []
    for x_t in x.unbind(1):
        state, gates = CELL_STEPS[cell](x_t, state, w)
        gates_by_step.append(gates)
    stacked = {name: torch.stack([gates[name] for gates in gates_by_step], dim=1) for name in gates_by_step[0]}
    return stacked["h"], state, stacked
