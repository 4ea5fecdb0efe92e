"""Augmentation of images with their masks: what moves pixels moves both alike, what colours them the image alone."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator

from didact.data.augment import Augmentation, Flip, Jitter, Noise, ShiftCrop, chain, images, uniform, warp
from didact.data.core import VOID, Batch
from didact.errors import pick


@dataclass(frozen=True)
class Paired:
    """A move by whole pixels of "x" (B, C, H, W) and "y" (B, H, W) alike; what comes in from outside is of no class.

    The mask travels as one more channel, which is exact: no move that interpolates may be paired so. Less VOID, the zeros that come
    in from outside are pixels that do not count: black is not street.
    """

    move: Augmentation

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, y = batch["x"], batch["y"]
        both = self.move({"x": torch.cat([x, y[:, None].to(x.dtype) - VOID], dim=1)}, generator)["x"]
        return {**batch, "x": both[:, :-1], "y": (both[:, -1] + VOID).to(y.dtype)}


@dataclass(frozen=True)
class Zoom:
    """Enlarged s ~ U(low, high) times, then moved as far as the image still fills the frame, or fits into it where s < 1.

    "x" is read linearly between pixels, "y" at the nearest one: between class 1 and class 3 there is no class 2. What comes in from
    outside is of no class.
    """

    low: float = 0.8
    high: float = 2.0

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, y = images(batch), batch["y"]
        s = uniform(x, generator, self.low, self.high)
        right, down = ((s - 1) * uniform(x, generator, -side / 2, side / 2) for side in (x.shape[3], x.shape[2]))
        straight = torch.zeros_like(s)
        moved = warp(x, straight, scale=s, right=right, down=down)
        mask = warp(y[:, None].to(x.dtype) - VOID, straight, scale=s, right=right, down=down, mode="nearest")
        return {**batch, "x": moved, "y": (mask[:, 0] + VOID).to(y.dtype)}


AUGMENTATIONS: dict[str, Callable[[], Augmentation]] = {
    "flip": lambda: Paired(Flip()),
    "crop": lambda: Paired(ShiftCrop(padding=1 / 8)),
    "zoom": Zoom,
    "jitter": lambda: Jitter(0.3, 0.3, 0.3),
    "noise": Noise,
}


def augmentations(names: tuple[str, ...]) -> Augmentation | None:
    """The named ones in this order, or None where there are none."""
    links = [pick("augmentation of images with masks", name, AUGMENTATIONS)() for name in names]
    return chain(*links) if links else None
