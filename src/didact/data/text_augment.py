"""Augmentation of token batches, on the device: words left out, exchanged, or said twice. No dictionary of synonyms is needed.

Tokens are (B, L) with padding 0 behind. As for images, all randomness comes from the generator and shapes are fixed. Wei & Zou 2019.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.errors import pick

Augmentation = Callable[[Batch, Generator], Batch]


def chance(x: Tensor, p: float, generator: Generator) -> Tensor:
    """True with probability p, for each entry."""
    return torch.rand(x.shape, generator=generator, device=x.device) < p


def closed_up(x: Tensor, kept: Tensor) -> Tensor:
    """The kept tokens moved together to the front, in their order, zeros behind."""
    order = (~kept).to(torch.uint8).argsort(dim=1, stable=True)
    return (x * kept).gather(1, order)


@dataclass(frozen=True)
class Deletion:
    """Leave out each token with probability p; the first stays, so that no text becomes empty."""

    p: float = 0.1

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x = batch["x"]
        kept = (x != 0) & ~chance(x, self.p, generator)
        kept[:, 0] = True
        return {**batch, "x": closed_up(x, kept)}


@dataclass(frozen=True)
class Swap:
    """Exchange neighbours, so that each token moves with probability p."""

    p: float = 0.1

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x = batch["x"]
        place = torch.arange(x.shape[1], device=x.device)
        odd = torch.randint(2, (len(x), 1), generator=generator, device=x.device)     # pairs are (0, 1), (2, 3) … or (1, 2), (3, 4) …
        first = place - (place + odd) % 2                                             # of the pair that each place is in, (B, L)
        there = (first >= 0) & (first + 1 < x.shape[1])
        there &= x.gather(1, (first + 1).clamp(0, x.shape[1] - 1)) != 0               # padding stays where it is
        drawn = chance(x, self.p, generator).gather(1, first.clamp(min=0))            # both of a pair read the same draw
        partner = torch.where(there & drawn, 2 * first + 1 - place, place)
        return {**batch, "x": x.gather(1, partner)}


@dataclass(frozen=True)
class Insertion:
    """Behind each token, with probability p, another of the same text is said again; what no longer fits falls off the end."""

    p: float = 0.1

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x = batch["x"]
        size = (x != 0).sum(1, keepdim=True).clamp(min=1)
        any_place = (torch.rand(x.shape, generator=generator, device=x.device) * size).long()
        both = torch.stack([x, x.gather(1, any_place)], dim=2).flatten(1)             # (B, 2L): token, candidate, token, …
        kept = torch.stack([x != 0, (x != 0) & chance(x, self.p, generator)], dim=2).flatten(1)
        return {**batch, "x": closed_up(both, kept)[:, : x.shape[1]]}


AUGMENTATIONS: dict[str, Callable[[], Augmentation]] = {"deletion": Deletion, "swap": Swap, "insertion": Insertion}


def augmenting(names: tuple[str, ...]) -> Augmentation | None:
    """The named augmentations in this order, or None where there are none."""
    links = [pick("augmentation", name, AUGMENTATIONS)() for name in names]

    def chain(batch: Batch, generator: Generator) -> Batch:
        for link in links:
            batch = link(batch, generator)
        return batch

    return chain if links else None
