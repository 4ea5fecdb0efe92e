"""The Transformer (Vaswani et al. 2017): one stack reads a sentence, another writes its translation while looking at what was read.

    source -> √D · embedding + positions -> layers x [attention, perceptron] -> memory
    target -> √D · embedding + positions -> layers x [causal attention, attention to the memory, perceptron] -> logits

Norms stand behind the sums, as in the paper. Names of a layer's parts are those of torch.nn.Transformer. Token 0 is padding.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.attention import CrossAttention, SelfAttention
from didact.layers.cache import Cache, Turn
from didact.layers.positions import Sinusoidal


class EncoderLayer(nn.Module):
    """u = LN(x + attention(x)),  y = LN(u + W2 relu(W1 u)).  Sec. 3.1 of the paper; Gaba 7.4."""

    def __init__(self, dim: int, heads: int, hidden: int, *, dropout: float):
        super().__init__()
        self.self_attn = SelfAttention(dim, heads, dropout=dropout)
        self.linear1, self.linear2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.norm1, self.norm2, self.dropout = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        u = self.norm1(x + self.dropout(self.self_attn(x, mask)))
        y: Tensor = self.norm2(u + self.dropout(self.linear2(self.dropout(torch.relu(self.linear1(u))))))
        return y


class DecoderLayer(nn.Module):
    """The same with a look at the memory between: u = LN(x + causal(x)),  w = LN(u + cross(u, memory)),  y = LN(w + perceptron(w))."""

    def __init__(self, dim: int, heads: int, hidden: int, *, dropout: float):
        super().__init__()
        self.self_attn = SelfAttention(dim, heads, dropout=dropout)
        self.multihead_attn = CrossAttention(dim, heads, dropout=dropout)
        self.linear1, self.linear2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        return self.look(x, self.self_attn(x, causal=True), memory, mask)

    def go_on(self, x: Tensor, read: "Read", turn: Turn, layer: int) -> Tensor:
        y = self.self_attn.join(read.cache.attend(turn, layer, *self.self_attn.project(x)))
        return self.look(x, y, read.memory, read.mask)

    def look(self, x: Tensor, attended: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        u = self.norm1(x + self.dropout(attended))
        w = self.norm2(u + self.dropout(self.multihead_attn(u, memory, mask)))
        y: Tensor = self.norm3(w + self.dropout(self.linear2(self.dropout(torch.relu(self.linear1(w))))))
        return y


@dataclass(frozen=True)
class Read:
    """What the decoder goes on from: the sentence that was read, and what it has written itself."""

    memory: Tensor           # (B, S, D)
    mask: Tensor             # (B, 1, 1, S): not padding
    cache: Cache

    @property
    def room(self) -> int:
        return self.cache.room

    def within(self, reach: int) -> Self:
        return replace(self, cache=self.cache.within(reach))

    def clear(self) -> None:
        self.cache.clear()

    def pick(self, rows: Tensor) -> None:
        self.cache.pick(rows)
        self.memory.copy_(self.memory[rows])
        self.mask.copy_(self.mask[rows])


class Transformer(nn.Module):
    """p(y_{t+1} | y_≤t, x) = softmax(E h_t), E the target embedding.  Vaswani et al. 2017; Gaba 7.4, Fleuret 5.3, Lhotte 8.2."""

    def __init__(
        self, source: int, target: int, *, dim: int = 512, layers: int = 6, heads: int = 8, hidden: int = 2048, dropout: float = 0.1,
        context: int = 256,
    ):
        super().__init__()
        self.source, self.target = nn.Embedding(source, dim, padding_idx=0), nn.Embedding(target, dim, padding_idx=0)
        self.scale, self.positions, self.dropout = sqrt(dim), Sinusoidal(context, dim), nn.Dropout(dropout)
        self.encoder = nn.ModuleList(EncoderLayer(dim, heads, hidden, dropout=dropout) for _ in range(layers))
        self.decoder = nn.ModuleList(DecoderLayer(dim, heads, hidden, dropout=dropout) for _ in range(layers))
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.xavier_uniform_(p)
        for table in (self.source, self.target):
            nn.init.normal_(table.weight[1:], std=1 / sqrt(dim))          # times √D as large as the positions

    def forward(self, source: Tensor, target: Tensor) -> Tensor:            # (B, S), (B, T) -> (B, T, V)
        memory, mask = self.encode(source)
        x = self.dropout(self.positions(self.scale * self.target(target)))
        for layer in self.decoder:
            x = layer(x, memory, mask)
        return F.linear(x, self.target.weight)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """What is read, (B, S, D), and where it is not padding, (B, 1, 1, S)."""
        mask = (source != 0)[:, None, None]
        x = self.dropout(self.positions(self.scale * self.source(source)))
        for layer in self.encoder:
            x = layer(x, mask)
        return x, mask

    def read(self, source: Tensor, room: int, *, copies: int = 1) -> Read:
        """The sentences read, each `copies` times, and an empty memory of what will be written, at most `room` tokens."""
        memory, mask = (t.repeat_interleave(copies, dim=0) for t in self.encode(source))
        own = [layer.self_attn for layer in self.decoder if isinstance(layer, DecoderLayer)]
        room, dim = min(room, len(self.positions.table)), own[0].out_proj.in_features // own[0].heads
        return Read(memory, mask, Cache([a.heads for a in own], len(memory), room, dim, like=memory))

    def go_on(self, tokens: Tensor, read: Read) -> Tensor:
        """Logits behind the last of these target tokens, (B, V)."""
        turn = read.cache.turn(tokens.shape[1])
        x = self.scale * self.target(tokens) + self.positions.table[turn.places]
        for number, layer in enumerate(self.decoder):
            assert isinstance(layer, DecoderLayer)
            x = layer.go_on(x, read, turn, number)
        return F.linear(x[:, -1], self.target.weight)
