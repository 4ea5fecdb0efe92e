"""A made set for boxes: discs, squares and triangles over pieces of real photographs. Boxes are exact; nothing is downloaded."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from didact.data.assemble import assemble
from didact.data.boxes import BoxEncoder
from didact.data.core import Data
from didact.data.fetch import source
from didact.data.painting import HALF, INNER, KINDS, Bytes, Floats, distance, over, paint
from didact.data.photographs import LICENCE, pieces

SIDE = 64
TRAIN, TEST = 1600, 400
CHUNK = 400         # images drawn at once
MOST = 4            # shapes on one image
HIDDEN = 0.15       # share of an older box that a newer one may cover
MADE = 2016         # seeds what is drawn; `seed` says only how it is split
GRAIN = 12
BASE = INNER * 3**0.5           # half the side of a triangle, in radii


@source(kind="boxes", task="detection", licence=LICENCE)
def scatter(seed: int = 0) -> Data:
    """2,000 images of 64 x 64 pixels: discs, squares and triangles over pieces of two photographs, with exact boxes.

    Test images lie over the right quarter of the photographs, which no other image touches.
    """
    rng = np.random.default_rng(MADE)
    parts = [strewn(np.stack(list(pieces(CHUNK, SIDE, rng, test=i * CHUNK >= TRAIN))), rng) for i in range((TRAIN + TEST) // CHUNK)]
    x, y, box = (torch.from_numpy(np.concatenate(columns)) for columns in zip(*parts, strict=True))
    return assemble(
        "scatter", "boxes", {"x": x, "y": y, "box": box}, task="detection", labels=KINDS, target="boxes",
        encoder=BoxEncoder((3, SIDE, SIDE)), test=torch.arange(TRAIN, TRAIN + TEST), seed=seed,
    )


def strewn(x: Bytes, rng: np.random.Generator) -> tuple[Bytes, NDArray[np.int64], NDArray[np.float32]]:
    """One to four shapes on each image: (n, 3, 64, 64), their classes (n, 4) and boxes (n, 4, 4); −1 where there is none.

    A shape that would hide too much of another is left out.
    """
    n = len(x)
    mixed, y, boxes = x.astype(np.int32), np.full((n, MOST), -1), np.zeros((n, MOST, 4))
    count = rng.integers(1, MOST + 1, n)
    for i in range(MOST):
        kind, radius, angle = rng.integers(0, len(KINDS), n), rng.uniform(7, 15, n), rng.uniform(0, 2 * np.pi, n)
        across, down = (rng.uniform(radius, SIDE - radius) for _ in range(2))      # seen whole, but for a corner
        box = around(kind, across, down, radius, angle)
        rows = np.flatnonzero((i < count) & ~hides(box, boxes[:, :i]))
        d = distance(kind[rows], across[rows], down[rows], radius[rows], angle[rows], SIDE)
        mixed[rows] = over(mixed[rows], paint(len(rows), SIDE, GRAIN, rng), d)
        y[rows, i], boxes[rows, i] = kind[rows], box[rows]
    return mixed.astype(np.uint8), y, (boxes / SIDE).astype(np.float32)


def around(kind: NDArray[Any], across: Floats, down: Floats, radius: Floats, angle: Floats) -> Floats:
    """(n, 4): the least upright box around each turned shape, in closed form, clipped to the image.

    In the shape's own axes (u right, v down) its corners are known; a point (u, v) lies at u (cos, sin) + v (−sin, cos).
    """
    square = np.array([(-HALF, -HALF), (HALF, -HALF), (HALF, HALF), (-HALF, HALF)])
    triangle = np.array([(-BASE, INNER), (BASE, INNER), (0, -2 * INNER), (0, -2 * INNER)])
    u, v = np.moveaxis(np.where((kind == 1)[:, None, None], square, triangle), 2, 0) * radius[:, None]     # (n, 4) each
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    x, y = u * c - v * s, u * s + v * c
    disc = kind == 0
    low = [across + np.where(disc, -radius, x.min(1)), down + np.where(disc, -radius, y.min(1))]
    high = [across + np.where(disc, radius, x.max(1)), down + np.where(disc, radius, y.max(1))]
    return np.clip(np.stack([*low, *high], axis=1), 0, SIDE)


def hides(box: Floats, others: Floats) -> NDArray[np.bool_]:
    """Whether a new box covers too much of one that is there, or is covered by it: (n, 4), (n, m, 4) -> (n,)."""
    sides = np.minimum(box[:, None, 2:], others[..., 2:]) - np.maximum(box[:, None, :2], others[..., :2])
    both = np.clip(sides, 0, None).prod(2)
    least = np.minimum((box[:, None, 2:] - box[:, None, :2]).prod(2), (others[..., 2:] - others[..., :2]).prod(2))
    met: NDArray[np.bool_] = (both > HIDDEN * least).any(1)         # a box that is not there has no area and meets none
    return met
