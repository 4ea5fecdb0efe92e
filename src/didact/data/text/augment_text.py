"""Augmentation of token batches, on the device: random deletion, swap and insertion (EDA, Wei & Zou 2019).

Tokens are (B, L) with padding 0 behind. As for images, all randomness comes from the generator and shapes are fixed.
Insertion repeats tokens of the text, so that no dictionary of synonyms is needed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.errors import look_up

Augmentation = Callable[[Batch, Generator], Batch]


def _sample_bernoulli(x: Tensor, p: float, generator: Generator) -> Tensor:
    """True with probability p, for each entry."""
    return torch.rand(x.shape, generator=generator, device=x.device) < p


def _compact_left(x: Tensor, keep_mask: Tensor) -> Tensor:
    """The tokens of the mask moved to the front, in their order, zeros behind."""
    order = (~keep_mask).to(torch.uint8).argsort(dim=1, stable=True)
    return (x * keep_mask).gather(1, order)


@dataclass(frozen=True)
class RandomDeletion:
    """Each token is deleted with probability p, except the first, so that no text becomes empty."""

    p: float = 0.1

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x = batch["x"]
        keep_mask = (x != 0) & ~_sample_bernoulli(x, self.p, generator)
        keep_mask[:, 0] = True
        return {**batch, "x": _compact_left(x, keep_mask)}


@dataclass(frozen=True)
class RandomSwap:
    """Neighbors are swapped, so that each token moves with probability p."""

    p: float = 0.1

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x = batch["x"]
        positions = torch.arange(x.shape[1], device=x.device)
        # pairs are (0, 1), (2, 3) … or (1, 2), (3, 4) …
        odd = torch.randint(2, (len(x), 1), generator=generator, device=x.device)
        # the first position of each position's pair, (B, L)
        first = positions - (positions + odd) % 2
        has_partner = (first >= 0) & (first + 1 < x.shape[1])
        has_partner &= x.gather(1, (first + 1).clamp(0, x.shape[1] - 1)) != 0               # padding stays where it is
        # both of a pair read the same sample
        is_swapped = _sample_bernoulli(x, self.p, generator).gather(1, first.clamp(min=0))
        partner = torch.where(has_partner & is_swapped, 2 * first + 1 - positions, positions)
        return {**batch, "x": x.gather(1, partner)}


@dataclass(frozen=True)
class RandomInsertion:
    """Behind each token, with probability p, a random token of the same text is inserted; the end is cut off."""

    p: float = 0.1

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x = batch["x"]
        size = (x != 0).sum(1, keepdim=True).clamp(min=1)
        source_positions = (torch.rand(x.shape, generator=generator, device=x.device) * size).long()
        # (B, 2L): token, candidate, token, …
        candidates = torch.stack([x, x.gather(1, source_positions)], dim=2).flatten(1)
        keep_mask = torch.stack([x != 0, (x != 0) & _sample_bernoulli(x, self.p, generator)], dim=2).flatten(1)
        return {**batch, "x": _compact_left(candidates, keep_mask)[:, : x.shape[1]]}


AUGMENTATIONS: dict[str, Callable[[], Augmentation]] = {
    "deletion": RandomDeletion,
    "swap": RandomSwap,
    "insertion": RandomInsertion,
}


def make_text_augmentations(names: tuple[str, ...]) -> Augmentation | None:
    """The named augmentations in this order, or None where there are none."""
    steps = [look_up("augmentation", name, AUGMENTATIONS)() for name in names]

    def apply_all(batch: Batch, generator: Generator) -> Batch:
        for step in steps:
            batch = step(batch, generator)
        return batch

    return apply_all if steps else None
