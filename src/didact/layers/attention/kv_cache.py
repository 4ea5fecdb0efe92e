"""What a decoder has read, kept: keys and values in tensors of fixed shape, so that one step can be compiled or
captured as a graph.

The number of tokens read lies on the device too: no step waits for the host.
"""

from collections.abc import Callable, Sequence
from copy import copy
from math import sqrt
from typing import NamedTuple, Self

import torch
from torch import Tensor

from didact.layers.attention.multihead import fused_attention, softmax_weighted_sum


class StepPositions(NamedTuple):
    """Whose turn it is: the positions of n new tokens, (n,), and what each may look at, itself and all before it,
    (n, reach)."""

    positions: Tensor
    mask: Tensor


class KVCache:
    """Keys and values of each layer, (B, groups, room, d), and `at`, how many tokens they hold; what lies behind is
    masked.

    `groups` has a number for each layer: heads may have been taken out. Device and precision are those of `like`.
    """

    def __init__(self, kv_heads: Sequence[int], batch_size: int, capacity: int, head_dim: int, *, like: Tensor):
        # a list, not one tensor: a compiled step writes into each in place, where slices of one would be copied
        self.k, self.v = ([like.new_zeros(batch_size, n, capacity, head_dim) for n in kv_heads] for _ in range(2))
        self.length = torch.zeros(1, dtype=torch.long, device=like.device)
        self.capacity = self.visible = capacity
        # how its model takes a single token, if there is a quicker way
        self.fast_decoder: Callable[[Tensor, KVCache], Tensor] | None = None

    def advance(self, n: int) -> StepPositions:
        """It is the turn of the next n tokens."""
        positions = self.length + torch.arange(n, device=self.length.device)
        self.length.add_(n)
        return StepPositions(positions, torch.arange(self.visible, device=positions.device) <= positions[:, None])

    def attend(self, step: StepPositions, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Keep the new keys and values; the queries (B, heads, n, d) look at all that is kept."""
        (k, v), num_kv_heads = self.update(step, layer, k, v), k.shape[1]
        if q.shape[2] > 1 or not torch.compiler.is_compiling():
            return fused_attention(q, k, v, step.mask, enable_gqa=num_kv_heads < q.shape[1])
        # a single query: plain products, which a compiler spreads over the whole chip
        single_query = q.view(len(q), num_kv_heads, -1, q.shape[-1])
        return softmax_weighted_sum(single_query @ k.mT / sqrt(q.shape[-1]), v, step.mask)[0].view(q.shape)

    def update(self, step: StepPositions, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values of a layer within reach, these among them, (B, groups, reach, d)."""
        for stored, new in ((self.k[layer], k), (self.v[layer], v)):
            stored.index_copy_(2, step.positions, new.to(stored.dtype))
        return self.k[layer][:, :, : self.visible], self.v[layer][:, :, : self.visible]

    def narrowed(self, visible: int) -> Self:
        """The same memory for steps that look at its first `reach` places only: the rest costs no time."""
        view = copy(self)
        view.visible = min(visible, self.capacity)
        return view

    def clear(self) -> None:
        """Nothing was read."""
        self.length.zero_()

    def reorder(self, indices: Tensor) -> None:
        """Row i becomes what row rows[i] was: how beams are reordered."""
        for stored in (*self.k, *self.v):
            stored.copy_(stored[indices])
