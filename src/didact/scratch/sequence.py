"""Modules over sequences: stacked recurrent layers and multi-head attention, with torch.nn's names."""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar

import numpy as np

from didact.scratch import attention, recurrent
from didact.scratch.dropout import dropout
from didact.scratch.initialise import Rng, uniform, xavier_uniform, zeros
from didact.scratch.module import Module, parameter
from didact.scratch.shape import concatenate
from didact.scratch.tensor import Array, ScratchError, Tensor


class Recurrent(Module):
    """What RNN, LSTM and GRU share: layers on top of each other, each in one or two directions, over (T, N, D).

    Weights are `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`, and `…_reverse` for the way back.
    """

    gates: ClassVar[int]

    def __init__(self, inputs: int, hidden: int, layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
                 bidirectional: bool = False, *, rng: Rng = None, dtype: Any = np.float32):
        super().__init__()
        self.hidden, self.layers, self.batch_first, self.dropout = hidden, layers, batch_first, dropout
        self.ways = ("", "_reverse") if bidirectional else ("",)
        self.rng = np.random.default_rng(rng)
        rows = self.gates * hidden
        for layer in range(layers):
            width = hidden * len(self.ways) if layer else inputs
            for way in self.ways:
                shapes: list[tuple[str, tuple[int, ...]]] = [("weight_ih", (rows, width)), ("weight_hh", (rows, hidden))]
                shapes += [("bias_ih", (rows,)), ("bias_hh", (rows,))] if bias else []
                for name, shape in shapes:
                    setattr(self, f"{name}_l{layer}{way}", parameter(uniform(shape, 1 / sqrt(hidden), self.rng, dtype)))

    def weights(self, layer: int, way: str) -> tuple[Tensor, ...]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return tuple(w for name in names if (w := getattr(self, f"{name}_l{layer}{way}", None)) is not None)

    def run(self, x: Tensor, start: list[Tensor], weights: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
        """One layer, one direction: all states, and the last of each kind."""
        raise NotImplementedError

    def sweep(self, x: Tensor, start: list[Tensor] | None, kinds: int) -> tuple[Tensor, list[Tensor]]:
        if self.batch_first:
            x = x.transpose(0, 1)
        if start is None:
            start = [Tensor(np.zeros((self.layers * len(self.ways), x.shape[1], self.hidden), x.dtype)) for _ in range(kinds)]
        ends: list[list[Tensor]] = [[] for _ in range(kinds)]
        for layer in range(self.layers):
            outs = []
            for d, way in enumerate(self.ways):
                at = layer * len(self.ways) + d
                out, last = self.run(x[::-1] if way else x, [s[at] for s in start], self.weights(layer, way))
                outs.append(out[::-1] if way else out)
                for end, state in zip(ends, last, strict=True):
                    end.append(state.unsqueeze(0))
            x = outs[0] if len(outs) == 1 else concatenate(outs, -1)
            if layer < self.layers - 1:
                x = dropout(x, self.dropout, self.rng, self.training)
        return x.transpose(0, 1) if self.batch_first else x, [concatenate(end) for end in ends]


class RNN(Recurrent):
    gates = 1

    def __init__(self, inputs: int, hidden: int, layers: int = 1, nonlinearity: str = "tanh", *args: Any, **keywords: Any):
        if nonlinearity not in ("tanh", "relu"):
            raise ScratchError(f"RNN: nonlinearity is 'tanh' or 'relu', got {nonlinearity!r}")
        super().__init__(inputs, hidden, layers, *args, **keywords)
        self.relu = nonlinearity == "relu"

    def run(self, x: Tensor, start: list[Tensor], weights: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
        h = recurrent.rnn(x, start[0], *weights, relu=self.relu)
        return h, [h[-1]]

    def forward(self, x: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
        out, (h,) = self.sweep(x, None if h0 is None else [h0], 1)
        return out, h


class GRU(Recurrent):
    gates = 3

    def run(self, x: Tensor, start: list[Tensor], weights: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
        h = recurrent.gru(x, start[0], *weights)
        return h, [h[-1]]

    def forward(self, x: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
        out, (h,) = self.sweep(x, None if h0 is None else [h0], 1)
        return out, h


class LSTM(Recurrent):
    gates = 4

    def run(self, x: Tensor, start: list[Tensor], weights: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
        states = recurrent.lstm(x, *start, *weights)                              # h_1 … h_T, then c_T
        return states[:-1], [states[-2], states[-1]]

    def forward(self, x: Tensor, start: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        out, (h, c) = self.sweep(x, None if start is None else list(start), 2)
        return out, (h, c)


class Projection(Module):
    """W_O, under the name `out_proj.weight`."""

    def __init__(self, width: int, bias: bool, rng: Rng, dtype: Any):
        super().__init__()
        self.weight = parameter(uniform((width, width), 1 / sqrt(width), rng, dtype))
        self.bias = parameter(zeros((width,), dtype)) if bias else None


class MultiHeadAttention(Module):
    """torch.nn.MultiheadAttention: `in_proj_weight` stacks W_Q, W_K, W_V.

    Masks are as there, and the opposite of `attention`'s: True is *blocked*. `key_padding_mask` (N, S) marks the padding.
    """

    def __init__(self, width: int, heads: int, bias: bool = True, batch_first: bool = False, *, rng: Rng = None, dtype: Any = np.float32):
        super().__init__()
        if width % heads:
            raise ScratchError(f"MultiHeadAttention: width must be a multiple of heads={heads}, got {width}")
        rng = np.random.default_rng(rng)
        self.heads, self.batch_first = heads, batch_first
        self.in_proj_weight = parameter(xavier_uniform((3 * width, width), rng, dtype=dtype))
        self.in_proj_bias = parameter(zeros((3 * width,), dtype)) if bias else None
        self.out_proj = Projection(width, bias, rng, dtype)

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, key_padding_mask: Any = None,
                attn_mask: Any = None, is_causal: bool = False) -> Tensor:
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = (x if self.batch_first else x.transpose(0, 1) for x in (query, key, value))
        mask = joined(key_padding_mask, attn_mask, q.shape[0], self.heads, q.dtype)
        y = attention.multi_head_attention(q, k, v, self.heads, self.in_proj_weight, self.in_proj_bias, self.out_proj.weight,
                                           self.out_proj.bias, mask, is_causal)
        return y if self.batch_first else y.transpose(0, 1)


def joined(padding: Any, mask: Any, n: int, heads: int, dtype: Any) -> Array | None:
    """Both masks as one array to be added to (N, heads, T, S)."""
    total: Array | None = None
    if mask is not None:
        total = added(mask, dtype)
        if total.ndim == 3:                                                        # (N·heads, T, S)
            total = total.reshape(n, heads, *total.shape[1:])
    if padding is not None:
        column = added(padding, dtype)[:, None, None, :]                            # (N, S) -> every head, every query
        total = column if total is None else total + column
    return total


def added(mask: Any, dtype: Any) -> Array:
    given = np.asarray(mask)
    return np.where(given, -np.inf, 0).astype(dtype) if given.dtype == bool else given.astype(dtype)
