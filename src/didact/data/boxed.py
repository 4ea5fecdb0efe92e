"""Augmentation of images with their boxes: what moves pixels moves both alike, what colours them the image alone."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import torch
from torch import Generator, Tensor

from didact.data.augment import Augmentation, Jitter, Noise, chain, images, uniform, warp
from didact.data.core import Batch
from didact.errors import pick
from didact.metrics.detection import area


def seen(box: Tensor, y: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """Boxes clipped to the image; where less than that share of one is left, it is no longer there: class −1."""
    inside = box.clamp(0, 1)
    there = (y >= 0) & (area(inside) > 0) & (area(inside) >= least * area(box))
    return torch.where(there[..., None], inside, 0.0), torch.where(there, y, -1)


@dataclass(frozen=True)
class BoxFlip:
    """Mirror left-right and upside down with these probabilities: x1, x2 become 1 − x2, 1 − x1."""

    horizontal: float = 0.5
    vertical: float = 0.0

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, box = images(batch), batch["box"]
        there = (batch["y"] >= 0)[..., None]
        for p, axis, (low, high) in ((self.horizontal, -1, (0, 2)), (self.vertical, -2, (1, 3))):
            if p:
                turned = uniform(x, generator) < p                                          # (B, 1, 1, 1)
                mirrored = box.clone()
                mirrored[..., low], mirrored[..., high] = 1 - box[..., high], 1 - box[..., low]
                x, box = torch.where(turned, x.flip(axis), x), torch.where(turned[:, 0] & there, mirrored, box)
        return {**batch, "x": x, "box": box}


@dataclass(frozen=True)
class BoxZoom:
    """p = s (q − ½) + ½ + t: scaled about the centre by U(low, high) in logarithms, moved by up to a share of each side.

    Larger than 1 it crops, below it leaves a border of `fill`. What is seen of a box by less than `least` is no longer there.
    """

    low: float = 0.7
    high: float = 1.5
    shift: float = 0.2
    least: float = 0.4
    fill: float = 0.5

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, box = images(batch), batch["box"]
        height, width = x.shape[-2:]
        ratio = log(self.high / self.low)
        s = self.low * (uniform(x, generator) * ratio).exp()                                # (B, 1, 1, 1)
        right, down = (uniform(x, generator, -self.shift, self.shift) for _ in range(2))
        x = warp(x - self.fill, torch.zeros_like(s), scale=s, right=right * width, down=down * height) + self.fill
        t = torch.cat([right, down, right, down], dim=-1)[:, 0]                             # (B, 1, 4)
        box, y = seen(s[:, 0] * (box - 0.5) + 0.5 + t, batch["y"], self.least)
        return {**batch, "x": x, "box": box, "y": y}


AUGMENTATIONS: dict[str, Callable[[], Augmentation]] = {
    "flip": BoxFlip,
    "flips": lambda: BoxFlip(vertical=0.5),
    "zoom": BoxZoom,
    "jitter": Jitter,
    "noise": Noise,
}


def augmentations(names: tuple[str, ...]) -> Augmentation | None:
    """The named ones in this order, or None where there are none."""
    links = [pick("augmentation of images with boxes", name, AUGMENTATIONS)() for name in names]
    return chain(*links) if links else None
