"""Augmentation of images with bounding boxes: geometric transforms move both, color transforms the image alone."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import torch
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.data.images.augment import (
    Augmentation,
    ColorJitter,
    GaussianNoise,
    compose,
    get_images,
    sample_uniform,
    warp,
)
from didact.errors import look_up
from didact.metrics.detection import box_area


def clip_boxes(box: Tensor, y: Tensor, min_visible: float) -> tuple[Tensor, Tensor]:
    """Boxes clipped to the image; one with less than `min_visible` of its area left is removed: class −1."""
    clipped = box.clamp(0, 1)
    is_visible = (y >= 0) & (box_area(clipped) > 0) & (box_area(clipped) >= min_visible * box_area(box))
    return torch.where(is_visible[..., None], clipped, 0.0), torch.where(is_visible, y, -1)


@dataclass(frozen=True)
class BoxFlip:
    """Random horizontal and vertical flip with these probabilities: x1, x2 become 1 − x2, 1 − x1."""

    horizontal: float = 0.5
    vertical: float = 0.0

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, box = get_images(batch), batch["box"]
        is_box = (batch["y"] >= 0)[..., None]
        for p, axis, (low, high) in ((self.horizontal, -1, (0, 2)), (self.vertical, -2, (1, 3))):
            if p:
                is_flipped = sample_uniform(x, generator) < p                                          # (B, 1, 1, 1)
                mirrored = box.clone()
                mirrored[..., low], mirrored[..., high] = 1 - box[..., high], 1 - box[..., low]
                x, box = torch.where(is_flipped, x.flip(axis), x), torch.where(is_flipped[:, 0] & is_box, mirrored, box)
        return {**batch, "x": x, "box": box}


@dataclass(frozen=True)
class BoxZoom:
    """p = s (q − ½) + ½ + t: scaled about the center, log s ~ U(log low, log high), translated by `max_shift` at most.

    s > 1 crops, s < 1 leaves a border of `fill`. A box of which less than `min_visible` is left is removed.
    """

    low: float = 0.7
    high: float = 1.5
    max_shift: float = 0.2
    min_visible: float = 0.4
    fill: float = 0.5

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, box = get_images(batch), batch["box"]
        height, width = x.shape[-2:]
        ratio = log(self.high / self.low)
        s = self.low * (sample_uniform(x, generator) * ratio).exp()                                # (B, 1, 1, 1)
        right, down = (sample_uniform(x, generator, -self.max_shift, self.max_shift) for _ in range(2))
        x = warp(x - self.fill, torch.zeros_like(s), scale=s, right=right * width, down=down * height) + self.fill
        t = torch.cat([right, down, right, down], dim=-1)[:, 0]                             # (B, 1, 4)
        box, y = clip_boxes(s[:, 0] * (box - 0.5) + 0.5 + t, batch["y"], self.min_visible)
        return {**batch, "x": x, "box": box, "y": y}


AUGMENTATIONS: dict[str, Callable[[], Augmentation]] = {
    "flip": BoxFlip,
    "flips": lambda: BoxFlip(vertical=0.5),
    "zoom": BoxZoom,
    "jitter": ColorJitter,
    "noise": GaussianNoise,
}


def make_box_augmentations(names: tuple[str, ...]) -> Augmentation | None:
    """The named augmentations in this order, or None where there are none."""
    steps = [look_up("augmentation of images with boxes", name, AUGMENTATIONS)() for name in names]
    return compose(*steps) if steps else None
