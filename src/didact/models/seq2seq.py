"""Sequence to sequence (Sutskever et al. 2014; Bahdanau et al. 2015): one recurrent network reads, another writes.

    x -> embedding -> both directions -> h_1 … h_S;   s_0 = tanh(W h_end)
    none              s_t = cell(s_{t−1}, [y_{t−1}; h_end])                          everything through one vector: the bottleneck
    bahdanau          s_t = cell(s_{t−1}, [y_{t−1}; c_t]),  c_t from s_{t−1}           logits W [s_t; c_t]
    dot, general, …   s_t = cell(s_{t−1}, y_{t−1}),  c_t from s_t                      logits W tanh(W_c [s_t; c_t])   (Luong et al. 2015)

Gaba 6.1-6.3, Groudiev 6.1, Van Schependom 6.4.1, Lhotte 7.5. Token 0 is padding; y begins with <bos> and ends with <eos>.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from didact.layers import masks
from didact.layers.alignment import alignment
from didact.layers.cells import State
from didact.layers.recurrent import Bidirectional, Recurrent, both_ends
from didact.models.recurrent import lengths_of

Attention = Literal["none", "bahdanau", "dot", "general", "concat"]


class Memory(NamedTuple):
    """What was read: the states (B, S, 2H), their two ends (B, 2H), and where they are no padding (B, S)."""

    h: Tensor
    end: Tensor
    there: Tensor


@dataclass
class Read:
    """What the decoder goes on from: what was read, and the state behind what it has written, before the first token `begun`."""

    memory: Memory
    begun: State
    state: State
    room: int

    def within(self, reach: int) -> Self:
        return self

    def clear(self) -> None:
        self.state = self.begun

    def pick(self, rows: Tensor) -> None:
        """Of one sentence all rows have read the same."""
        self.state = tuple(part[:, rows] for part in self.state)


class Seq2Seq(nn.Module):
    """p(y | x) = Π_t p(y_t | y_<t, x).  Gaba eq. 6.1."""

    def __init__(
        self, source: int, target: int, *, cell: str = "gru", attention: Attention = "bahdanau", width: int = 128, hidden: int = 128,
        layers: int = 1, dropout: float = 0.0,
    ):
        super().__init__()
        self.cell, self.hidden, self.layers, self.attention = cell, hidden, layers, attention
        self.source = nn.Embedding(source, width, padding_idx=0)
        self.target = nn.Embedding(target, width, padding_idx=0)
        self.reader = Bidirectional(cell, width, hidden, layers=layers, dropout=dropout)
        fed = width + 2 * hidden if attention in ("none", "bahdanau") else width
        self.writer = Recurrent(cell, fed, hidden, layers=layers, dropout=dropout)
        self.bridge = nn.Linear(2 * hidden, layers * hidden * (2 if cell == "lstm" else 1))   # s_0, and c_0 of an LSTM
        states = 2 * hidden if attention == "dot" else hidden
        self.widen = nn.Linear(hidden, 2 * hidden) if attention == "dot" else nn.Identity()   # as wide as the memory
        self.align = None if attention == "none" else alignment(attention, states, 2 * hidden, width=hidden)
        luong = attention not in ("none", "bahdanau")
        self.combine = nn.Linear(3 * hidden, hidden) if luong else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(3 * hidden if attention == "bahdanau" else hidden, target)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Logits of what follows each token of y, which the decoder is told (teacher forcing): (B, S), (B, T) -> (B, T, V)."""
        return self.look(x, y)[0]

    def look(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """With the attention weights (B, T, S): row what is written, column what is looked at."""
        memory = self.encode(x)
        logits, _, a = self.after(y, self.start(memory), memory)
        return logits, a

    def encode(self, x: Tensor) -> Memory:
        lengths = lengths_of(x)
        h = self.reader(self.dropout(self.source(x)), lengths)
        return Memory(h, both_ends(h, lengths), masks.padding(lengths, x.shape[1]))

    def start(self, memory: Memory) -> State:
        """s_0 = tanh(W h_end), (layers, B, H); an LSTM's cell is given the same way."""
        parts = torch.tanh(self.bridge(memory.end)).unflatten(-1, (-1, self.layers, self.hidden))
        return tuple(part.transpose(0, 1).contiguous() for part in parts.unbind(1))

    def read(self, x: Tensor, room: int, *, copies: int = 1) -> Read:
        """The sentences read, each `copies` times; a state holds as many written tokens as there may be."""
        memory = Memory(*(t.repeat_interleave(copies, dim=0) for t in self.encode(x)))
        begun = self.start(memory)
        return Read(memory, begun, begun, room)

    def go_on(self, tokens: Tensor, read: Read) -> Tensor:
        """Logits behind the last of these target tokens, (B, V)."""
        logits, read.state, _ = self.after(tokens, read.state, read.memory)
        return logits[:, -1]

    def after(self, y: Tensor, state: State, memory: Memory) -> tuple[Tensor, State, Tensor | None]:
        """Logits after each token of y, the state behind it, and the weights."""
        told = self.dropout(self.target(y))                                     # (B, T, width)
        if self.attention == "bahdanau":
            return self.step_by_step(told, state, memory)
        if self.attention == "none":
            told = torch.cat([told, memory.end[:, None].expand(-1, y.shape[1], -1)], dim=-1)
        s, state = self.writer(told, state)
        a = None
        if self.align is not None:
            c, a = self.align(self.widen(s), memory.h, memory.there)            # all steps at once: c_t does not feed back
            s = torch.tanh(self.combine(torch.cat([s, c], dim=-1)))
        return self.head(self.dropout(s)), state, a

    def step_by_step(self, told: Tensor, state: State, memory: Memory) -> tuple[Tensor, State, Tensor]:
        """c_t is asked for with s_{t−1} and feeds the step to s_t: one after the other."""
        assert self.align is not None
        out, weights = [], []
        for y_t in told.split(1, dim=1):
            c, a = self.align(state[0][-1][:, None], memory.h, memory.there)    # (B, 1, 2H), (B, 1, S)
            s, state = self.writer(torch.cat([y_t, c], dim=-1), state)
            out.append(torch.cat([s, c], dim=-1))
            weights.append(a)
        return self.head(self.dropout(torch.cat(out, dim=1))), state, torch.cat(weights, dim=1)
