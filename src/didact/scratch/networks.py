"""Four whole networks: what the layers are for. Names and shapes are those of the same networks in PyTorch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from didact.scratch.autograd.tensor import Array, Tensor
from didact.scratch.init import Rng
from didact.scratch.modules import (
    GELU,
    GRU,
    LSTM,
    RNN,
    Conv2d,
    Embedding,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool2d,
    Module,
    MultiHeadAttention,
    ReLU,
    Sequential,
)

CELLS: dict[str, type[RNN] | type[LSTM] | type[GRU]] = {"rnn": RNN, "lstm": LSTM, "gru": GRU}


class MLP(Module):
    """784 -> 256 -> 128 -> 10 and the like, with ReLU between.  Gaba 1.6."""

    def __init__(
        self, features: int, hidden: tuple[int, ...], num_classes: int, *, rng: Rng = None, dtype: Any = np.float32
    ):
        super().__init__()
        rng, widths = np.random.default_rng(rng), (features, *hidden, num_classes)
        parts: list[Module] = [Flatten()]
        for a, b in pairwise(widths):
            parts += [Linear(a, b, rng=rng, dtype=dtype), ReLU()]
        self.layers = Sequential(*parts[:-1])  # no ReLU after the logits

    def forward(self, x: Tensor) -> Tensor:                        # (N, ...)
        scores: Tensor = self.layers(x)
        return scores


class LeNet(Module):
    """conv 5x5 (6) - pool - conv 5x5 (16) - pool - 120 - 84 - classes.  LeCun et al. 1998; Fleuret 5.2."""

    def __init__(self, channels: int, size: int, num_classes: int, *, rng: Rng = None, dtype: Any = np.float32):
        super().__init__()
        rng = np.random.default_rng(rng)
        half = size // 2
        border = 0 if half >= 7 else 2  # an unpadded 5 x 5 would leave nothing of 8 x 8 digits
        side = (half - 4 + 2 * border) // 2
        self.features = Sequential(
            Conv2d(channels, 6, 5, padding=2, rng=rng, dtype=dtype), ReLU(), MaxPool2d(2),
            Conv2d(6, 16, 5, padding=border, rng=rng, dtype=dtype), ReLU(), MaxPool2d(2),
        )
        self.head = MLP(16 * side * side, (120, 84), num_classes, rng=rng, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:                        # (N, C, H, H)
        scores: Tensor = self.head(self.features(x))
        return scores


class CharacterRNN(Module):
    """h_t = cell(e(x_t), h_{t-1}), z_t = W h_t + b: the logits of the next character after each one.

    Gaba 5.2, Groudiev 5.
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        hidden_size: int,
        *,
        cell: str = "lstm",
        rng: Rng = None,
        dtype: Any = np.float32,
    ):
        super().__init__()
        rng = np.random.default_rng(rng)
        self.embed = Embedding(vocab_size, embed_dim, rng=rng, dtype=dtype)
        self.rnn = CELLS[cell](embed_dim, hidden_size, batch_first=True, rng=rng, dtype=dtype)
        self.head = Linear(hidden_size, vocab_size, rng=rng, dtype=dtype)

    def forward(self, ids: Array) -> Tensor:                       # (N, T) -> (N, T, tokens)
        states, _ = self.rnn(self.embed(ids))
        scores: Tensor = self.head(states)
        return scores


class Block(Module):
    """u = x + attention(LN(x)), y = u + W2 GELU(W1 LN(u)).  Pre-norm, as in GPT-2; Fleuret 5.3."""

    def __init__(self, embed_dim: int, num_heads: int, rng: Rng, dtype: Any):
        super().__init__()
        self.norm1, self.norm2 = LayerNorm(embed_dim, dtype=dtype), LayerNorm(embed_dim, dtype=dtype)
        self.attention = MultiHeadAttention(embed_dim, num_heads, batch_first=True, rng=rng, dtype=dtype)
        self.mlp = Sequential(
            Linear(embed_dim, 4 * embed_dim, rng=rng, dtype=dtype),
            GELU(),
            Linear(4 * embed_dim, embed_dim, rng=rng, dtype=dtype),
        )

    def forward(self, x: Tensor) -> Tensor:                        # (N, T, D)
        u = x + self.attention(self.norm1(x), is_causal=True)
        y: Tensor = u + self.mlp(self.norm2(u))
        return y


class GPT(Module):
    """e(x) + p -> blocks -> LN -> logits of the next token.  Radford et al. 2019, without dropout and untied."""

    def __init__(
        self,
        vocab_size: int,
        *,
        context_length: int,
        embed_dim: int = 64,
        num_heads: int = 4,
        num_layers: int = 2,
        rng: Rng = None,
        dtype: Any = np.float32,
    ):
        super().__init__()
        rng = np.random.default_rng(rng)
        self.embed = Embedding(vocab_size, embed_dim, rng=rng, dtype=dtype)
        self.position = Embedding(context_length, embed_dim, rng=rng, dtype=dtype)
        for table in (self.embed, self.position):
            table.weight.data *= 0.02  # N(0, 1) rows would dwarf what the blocks add to them
        self.blocks = Sequential(*[Block(embed_dim, num_heads, rng, dtype) for _ in range(num_layers)])
        self.norm = LayerNorm(embed_dim, dtype=dtype)
        self.head = Linear(embed_dim, vocab_size, rng=rng, dtype=dtype)

    def forward(self, ids: Array) -> Tensor:                       # (N, T) -> (N, T, tokens)
        x = self.embed(ids) + self.position(np.arange(ids.shape[1]))
        scores: Tensor = self.head(self.norm(self.blocks(x)))
        return scores
