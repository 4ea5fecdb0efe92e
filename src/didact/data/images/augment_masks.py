"""Augmentation of images with segmentation masks: geometric transforms move both, color transforms the image alone."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator

from didact.data.core import IGNORE_LABEL, Batch
from didact.data.images.augment import (
    Augmentation,
    ColorJitter,
    Flip,
    GaussianNoise,
    RandomCrop,
    compose,
    get_images,
    sample_uniform,
    warp,
)
from didact.errors import look_up


@dataclass(frozen=True)
class MaskTransform:
    """A transform by whole pixels of "x" (B, C, H, W) and "y" (B, H, W) alike; pixels from outside are of no class.

    The mask is one more channel, which is exact: no transform that interpolates may be used so. Less IGNORE_LABEL, the
    zeros from outside are pixels that do not count.
    """

    transform: Augmentation

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, y = batch["x"], batch["y"]
        stacked = self.transform({"x": torch.cat([x, y[:, None].to(x.dtype) - IGNORE_LABEL], dim=1)}, generator)["x"]
        return {**batch, "x": stacked[:, :-1], "y": (stacked[:, -1] + IGNORE_LABEL).to(y.dtype)}


@dataclass(frozen=True)
class MaskZoom:
    """Scaled by s ~ U(low, high), then translated as far as the image still fills the frame, or fits in where s < 1.

    "x" is interpolated bilinearly, "y" by the nearest pixel: between class 1 and class 3 there is no class 2. Pixels
    from outside are of no class.
    """

    low: float = 0.8
    high: float = 2.0

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, y = get_images(batch), batch["y"]
        s = sample_uniform(x, generator, self.low, self.high)
        right, down = ((s - 1) * sample_uniform(x, generator, -side / 2, side / 2) for side in (x.shape[3], x.shape[2]))
        zero_angle = torch.zeros_like(s)
        warped = warp(x, zero_angle, scale=s, right=right, down=down)
        mask = warp(y[:, None].to(x.dtype) - IGNORE_LABEL, zero_angle, scale=s, right=right, down=down, mode="nearest")
        return {**batch, "x": warped, "y": (mask[:, 0] + IGNORE_LABEL).to(y.dtype)}


AUGMENTATIONS: dict[str, Callable[[], Augmentation]] = {
    "flip": lambda: MaskTransform(Flip()),
    "crop": lambda: MaskTransform(RandomCrop(padding=1 / 8)),
    "zoom": MaskZoom,
    "jitter": lambda: ColorJitter(0.3, 0.3, 0.3),
    "noise": GaussianNoise,
}


def make_mask_augmentations(names: tuple[str, ...]) -> Augmentation | None:
    """The named augmentations in this order, or None where there are none."""
    steps = [look_up("augmentation of images with masks", name, AUGMENTATIONS)() for name in names]
    return compose(*steps) if steps else None
