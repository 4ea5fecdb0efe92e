"""What a decoder has read, kept: keys and values in tensors of fixed shape, so that one step can be compiled or captured as a graph.

The number of tokens read lies on the device too: no step waits for the host.
"""

from collections.abc import Callable, Sequence
from copy import copy
from math import sqrt
from typing import NamedTuple, Self

import torch
from torch import Tensor

from didact.layers.attention import fused, weigh


class Turn(NamedTuple):
    """Whose turn it is: the positions of n new tokens, (n,), and what each may look at, itself and all before it, (n, reach)."""

    places: Tensor
    mask: Tensor


class Cache:
    """Keys and values of each layer, (B, groups, room, d), and `at`, how many tokens they hold; what lies behind is masked.

    `groups` has a number for each layer: heads may have been taken out. Device and precision are those of `like`.
    """

    def __init__(self, groups: Sequence[int], rows: int, room: int, dim: int, *, like: Tensor):
        # a list, not one tensor: a compiled step writes into each in place, where slices of one would be copied
        self.k, self.v = ([like.new_zeros(rows, n, room, dim) for n in groups] for _ in range(2))
        self.at = torch.zeros(1, dtype=torch.long, device=like.device)
        self.room = self.reach = room
        self.swift: Callable[[Tensor, Cache], Tensor] | None = None      # how its model takes a single token, if there is a quicker way

    def turn(self, n: int) -> Turn:
        """It is the turn of the next n tokens."""
        places = self.at + torch.arange(n, device=self.at.device)
        self.at.add_(n)
        return Turn(places, torch.arange(self.reach, device=places.device) <= places[:, None])

    def attend(self, turn: Turn, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Keep the new keys and values; the queries (B, heads, n, d) look at all that is kept."""
        (k, v), groups = self.keep(turn, layer, k, v), k.shape[1]
        if q.shape[2] > 1 or not torch.compiler.is_compiling():
            return fused(q, k, v, turn.mask, grouped=groups < q.shape[1])
        one = q.view(len(q), groups, -1, q.shape[-1])     # a single query: plain products, which a compiler spreads over the whole chip
        return weigh(one @ k.mT / sqrt(q.shape[-1]), v, turn.mask)[0].view(q.shape)

    def keep(self, turn: Turn, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values of a layer within reach, these among them, (B, groups, reach, d)."""
        for held, new in ((self.k[layer], k), (self.v[layer], v)):
            held.index_copy_(2, turn.places, new.to(held.dtype))
        return self.k[layer][:, :, : self.reach], self.v[layer][:, :, : self.reach]

    def within(self, reach: int) -> Self:
        """The same memory for steps that look at its first `reach` places only: the rest costs no time."""
        near = copy(self)
        near.reach = min(reach, self.room)
        return near

    def clear(self) -> None:
        """Nothing was read."""
        self.at.zero_()

    def pick(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was: how beams are reordered."""
        for held in (*self.k, *self.v):
            held.copy_(held[rows])
