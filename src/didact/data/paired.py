"""Augmentation of images with their masks: what moves pixels moves both alike, what colours them the image alone."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator

from didact.data.augment import Augmentation, Flip, Jitter, Noise, ShiftCrop, chain
from didact.data.core import Batch
from didact.errors import pick


@dataclass(frozen=True)
class Paired:
    """A move by whole pixels of "x" (B, C, H, W) and "y" (B, H, W) alike; what comes in from outside is class 0.

    The mask travels as one more channel, which is exact: no move that interpolates may be paired so.
    """

    move: Augmentation

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, y = batch["x"], batch["y"]
        both = self.move({"x": torch.cat([x, y[:, None].to(x.dtype)], dim=1)}, generator)["x"]
        return {**batch, "x": both[:, :-1], "y": both[:, -1].to(y.dtype)}


AUGMENTATIONS: dict[str, Callable[[], Augmentation]] = {
    "flip": lambda: Paired(Flip()),
    "crop": lambda: Paired(ShiftCrop(padding=1 / 8)),
    "jitter": Jitter,
    "noise": Noise,
}


def augmentations(names: tuple[str, ...]) -> Augmentation | None:
    """The named ones in this order, or None where there are none."""
    links = [pick("augmentation of images with masks", name, AUGMENTATIONS)() for name in names]
    return chain(*links) if links else None
