"""Layers over sequences: stacked recurrent layers and multi-head attention, with torch.nn's names."""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar

import numpy as np

from didact.scratch import attention, recurrent
from didact.scratch.autograd.shape import concatenate
from didact.scratch.autograd.tensor import Array, ScratchError, Tensor
from didact.scratch.dropout import dropout
from didact.scratch.init import Rng, uniform, xavier_uniform, zeros
from didact.scratch.module import Module, parameter


class _Recurrent(Module):
    """What RNN, LSTM and GRU share: stacked layers, each in one or two directions, over (T, N, D).

    Weights are `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`, and `…_reverse` for the backward direction.
    """

    gates: ClassVar[int]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        rng: Rng = None,
        dtype: Any = np.float32,
    ):
        super().__init__()
        self.hidden_size, self.num_layers, self.batch_first, self.dropout = (
            hidden_size,
            num_layers,
            batch_first,
            dropout,
        )
        self.directions = ("", "_reverse") if bidirectional else ("",)
        self.rng = np.random.default_rng(rng)
        rows = self.gates * hidden_size
        for layer in range(num_layers):
            width = hidden_size * len(self.directions) if layer else input_size
            for direction in self.directions:
                shapes: list[tuple[str, tuple[int, ...]]] = [
                    ("weight_ih", (rows, width)),
                    ("weight_hh", (rows, hidden_size)),
                ]
                shapes += [("bias_ih", (rows,)), ("bias_hh", (rows,))] if bias else []
                for name, shape in shapes:
                    setattr(
                        self,
                        f"{name}_l{layer}{direction}",
                        parameter(uniform(shape, 1 / sqrt(hidden_size), self.rng, dtype)),
                    )

    def weights(self, layer: int, direction: str) -> tuple[Tensor, ...]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return tuple(w for name in names if (w := getattr(self, f"{name}_l{layer}{direction}", None)) is not None)

    def run_layer(self, x: Tensor, start: list[Tensor], weights: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
        """One layer in one direction: all states, and the last of each kind."""
        raise NotImplementedError

    def run_layers(self, x: Tensor, start: list[Tensor] | None, kinds: int) -> tuple[Tensor, list[Tensor]]:
        """All layers in all directions: the states of the last layer, and the last states of every layer."""
        if self.batch_first:
            x = x.transpose(0, 1)
        if start is None:
            start = [
                Tensor(np.zeros((self.num_layers * len(self.directions), x.shape[1], self.hidden_size), x.dtype))
                for _ in range(kinds)
            ]
        ends: list[list[Tensor]] = [[] for _ in range(kinds)]
        for layer in range(self.num_layers):
            outs = []
            for d, direction in enumerate(self.directions):
                index = layer * len(self.directions) + d
                out, last = self.run_layer(
                    x[::-1] if direction else x, [s[index] for s in start], self.weights(layer, direction)
                )
                outs.append(out[::-1] if direction else out)
                for end, state in zip(ends, last, strict=True):
                    end.append(state.unsqueeze(0))
            x = outs[0] if len(outs) == 1 else concatenate(outs, -1)
            if layer < self.num_layers - 1:
                x = dropout(x, self.dropout, self.rng, self.training)
        return x.transpose(0, 1) if self.batch_first else x, [concatenate(end) for end in ends]


class RNN(_Recurrent):
    """torch.nn.RNN: `nonlinearity` is "tanh" or "relu"."""
    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **keywords: Any,
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise ScratchError(f"RNN: nonlinearity is 'tanh' or 'relu', got {nonlinearity!r}")
        super().__init__(input_size, hidden_size, num_layers, *args, **keywords)
        self.relu = nonlinearity == "relu"

    def run_layer(self, x: Tensor, start: list[Tensor], weights: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
        h = recurrent.rnn(x, start[0], *weights, relu=self.relu)
        return h, [h[-1]]

    def forward(self, x: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
        out, (h,) = self.run_layers(x, None if h0 is None else [h0], 1)
        return out, h


class GRU(_Recurrent):
    """torch.nn.GRU."""
    gates = 3

    def run_layer(self, x: Tensor, start: list[Tensor], weights: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
        h = recurrent.gru(x, start[0], *weights)
        return h, [h[-1]]

    def forward(self, x: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
        out, (h,) = self.run_layers(x, None if h0 is None else [h0], 1)
        return out, h


class LSTM(_Recurrent):
    """torch.nn.LSTM."""
    gates = 4

    def run_layer(self, x: Tensor, start: list[Tensor], weights: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
        states = recurrent.lstm(x, *start, *weights)                              # h_1 … h_T, then c_T
        return states[:-1], [states[-2], states[-1]]

    def forward(self, x: Tensor, start: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        out, (h, c) = self.run_layers(x, None if start is None else list(start), 2)
        return out, (h, c)


class _Projection(Module):
    """W_O, under the name `out_proj.weight`."""

    def __init__(self, embed_dim: int, bias: bool, rng: Rng, dtype: Any):
        super().__init__()
        self.weight = parameter(uniform((embed_dim, embed_dim), 1 / sqrt(embed_dim), rng, dtype))
        self.bias = parameter(zeros((embed_dim,), dtype)) if bias else None


class MultiHeadAttention(Module):
    """torch.nn.MultiheadAttention: `in_proj_weight` stacks W_Q, W_K, W_V.

    Masks are as there, and the opposite of `attention`'s: True is *blocked*. `key_padding_mask` (N, S) marks padding.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        bias: bool = True,
        batch_first: bool = False,
        *,
        rng: Rng = None,
        dtype: Any = np.float32,
    ):
        super().__init__()
        if embed_dim % num_heads:
            raise ScratchError(
                f"MultiHeadAttention: embed_dim must be a multiple of num_heads={num_heads}, got {embed_dim}"
            )
        rng = np.random.default_rng(rng)
        self.num_heads, self.batch_first = num_heads, batch_first
        self.in_proj_weight = parameter(xavier_uniform((3 * embed_dim, embed_dim), rng, dtype=dtype))
        self.in_proj_bias = parameter(zeros((3 * embed_dim,), dtype)) if bias else None
        self.out_proj = _Projection(embed_dim, bias, rng, dtype)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Any = None,
        attn_mask: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = (x if self.batch_first else x.transpose(0, 1) for x in (query, key, value))
        mask = _combine_masks(key_padding_mask, attn_mask, q.shape[0], self.num_heads, q.dtype)
        y = attention.multi_head_attention(
            q,
            k,
            v,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.out_proj.weight,
            self.out_proj.bias,
            mask,
            is_causal,
        )
        return y if self.batch_first else y.transpose(0, 1)


def _combine_masks(padding: Any, mask: Any, n: int, num_heads: int, dtype: Any) -> Array | None:
    """Both masks as one array to add to the scores (N, heads, T, S)."""
    total: Array | None = None
    if mask is not None:
        total = _additive_mask(mask, dtype)
        if total.ndim == 3:                                                        # (N·heads, T, S)
            total = total.reshape(n, num_heads, *total.shape[1:])
    if padding is not None:
        # (N, S) -> every head, every query
        column = _additive_mask(padding, dtype)[:, None, None, :]
        total = column if total is None else total + column
    return total


def _additive_mask(mask: Any, dtype: Any) -> Array:
    mask_array = np.asarray(mask)
    return np.where(mask_array, -np.inf, 0).astype(dtype) if mask_array.dtype == bool else mask_array.astype(dtype)
