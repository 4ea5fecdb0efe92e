"""KV cache: keys and values of the tokens read so far, in tensors of fixed shape.

Fixed shapes let one decoding step be compiled or captured as a CUDA graph. The number of tokens read is a tensor on the
device too: no step waits for the host.
"""

from collections.abc import Callable, Sequence
from copy import copy
from math import sqrt
from typing import NamedTuple, Self

import torch
from torch import Tensor

from didact.layers.attention.multihead import fused_attention, softmax_weighted_sum


class StepPositions(NamedTuple):
    """Positions of the n new tokens of a decoding step, (n,), and their attention mask over the cache, (n, visible).

    Each new token attends to itself and to all earlier ones, never to the unused part of the cache.
    """

    positions: Tensor
    mask: Tensor


class KVCache:
    """Keys and values of each layer, (B, kv_heads, capacity, d), and the number of tokens they hold, `length`.

    Entries from `length` on are unused and masked. `kv_heads` has a number for each layer, since heads may be pruned.
    Device and data type are those of `like`.
    """

    def __init__(self, kv_heads: Sequence[int], batch_size: int, capacity: int, head_dim: int, *, like: Tensor):
        # lists of tensors: a compiled step writes into each in place, but would copy slices of one large tensor
        self.k, self.v = ([like.new_zeros(batch_size, n, capacity, head_dim) for n in kv_heads] for _ in range(2))
        self.length = torch.zeros(1, dtype=torch.long, device=like.device)
        self.capacity = self.visible = capacity
        # the model's faster way to decode a single token, where it has one
        self.fast_decoder: Callable[[Tensor, KVCache], Tensor] | None = None

    def advance(self, n: int) -> StepPositions:
        """Reserve the next n positions for a step of n tokens."""
        # `length` is changed in place and never read by the host: a captured CUDA graph goes on counting at each replay
        positions = self.length + torch.arange(n, device=self.length.device)
        self.length.add_(n)
        # fixed shape (n, visible): causal among the new tokens, False for the unused part behind them
        return StepPositions(positions, torch.arange(self.visible, device=positions.device) <= positions[:, None])

    def attend(self, step: StepPositions, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store the new keys and values, and attend from the new queries (B, heads, n, d) to all stored ones."""
        (k, v), num_kv_heads = self.update(step, layer, k, v), k.shape[1]
        if q.shape[2] > 1 or not torch.compiler.is_compiling():
            return fused_attention(q, k, v, step.mask, enable_gqa=num_kv_heads < q.shape[1])
        # a single query under torch.compile: plain products, which the compiler spreads over the whole GPU; query heads
        # that share keys and values become rows of one product
        single_query = q.view(len(q), num_kv_heads, -1, q.shape[-1])
        return softmax_weighted_sum(single_query @ k.mT / sqrt(q.shape[-1]), v, step.mask)[0].view(q.shape)

    def update(self, step: StepPositions, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store new keys and values (B, kv_heads, n, d) of a layer; returns all of its visible ones, (B, kv_heads,
        visible, d).
        """
        for stored, new in ((self.k[layer], k), (self.v[layer], v)):
            stored.index_copy_(2, step.positions, new.to(stored.dtype))
        return self.k[layer][:, :, : self.visible], self.v[layer][:, :, : self.visible]

    def narrow(self, visible: int) -> Self:
        """The same cache for steps that attend to its first `visible` positions only: shorter products while it is
        nearly empty.
        """
        view = copy(self)
        view.visible = min(visible, self.capacity)
        return view

    def clear(self) -> None:
        """Forget all tokens; the old entries are masked from now on."""
        self.length.zero_()

    def reorder(self, indices: Tensor) -> None:
        """Row i becomes a copy of row indices[i]: beams after a step of beam search."""
        for stored in (*self.k, *self.v):
            stored.copy_(stored[indices])
