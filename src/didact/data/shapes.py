"""A made set for masks: discs, squares and triangles over pieces of real photographs. Masks are exact; nothing is downloaded."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from didact.data.assemble import assemble
from didact.data.core import Data
from didact.data.fetch import source
from didact.data.folder import ImageEncoder
from didact.data.painting import KINDS, Bytes, Ints, distance, over, paint
from didact.data.photographs import LICENCE, pieces

SIDE = 48
TRAIN, TEST = 1000, 200
CHUNK = 200         # images drawn at once
SHAPES = ("background", *KINDS)
MOST = 3            # shapes on one image
CELL, CONTRAST = 3, 48  # pixels of a stripe or check, and how far its paint is from the shape's
GRAIN = 16
MADE = 2015         # seeds what is drawn; `seed` says only how it is split


@source(kind="masks", task="segmentation", licence=LICENCE)
def shapes(seed: int = 0) -> Data:
    """1,200 images of 48 x 48 pixels: plain discs, striped squares and checked triangles over photographs, with exact masks.

    Test images lie over the right quarter of the photographs, which no other image touches.
    """
    rng = np.random.default_rng(MADE)
    parts = [drawn(backgrounds(CHUNK, rng, test=i * CHUNK >= TRAIN), rng) for i in range((TRAIN + TEST) // CHUNK)]
    x, y = (torch.from_numpy(np.concatenate(columns)) for columns in zip(*parts, strict=True))
    return assemble(
        "shapes", "masks", {"x": x, "y": y}, task="segmentation", labels=SHAPES, target="mask",
        encoder=ImageEncoder((3, SIDE, SIDE)), test=torch.arange(TRAIN, TRAIN + TEST), seed=seed,
    )


def backgrounds(n: int, rng: np.random.Generator, *, test: bool) -> Bytes:
    """(n, 3, 48, 48): pieces of both photographs in turn, mirrored at random."""
    cut = pieces(n, SIDE, rng, test=test)   # one at a time: chance decides on the piece, then on its mirror
    return np.stack([piece[:, :, ::-1] if rng.random() < 0.5 else piece for piece in cut])


def drawn(x: Bytes, rng: np.random.Generator) -> tuple[Bytes, Bytes]:
    """One to three shapes on each image, later ones over earlier ones: (n, 3, 48, 48), and (n, 48, 48) classes.

    A pixel is of the class that its centre lies in.
    """
    mixed, y = x.astype(np.int32), np.zeros((len(x), SIDE, SIDE), np.uint8)
    count = rng.integers(1, MOST + 1, len(x))
    for i in range(MOST):
        rows = np.flatnonzero(i < count)
        kind = rng.integers(1, len(SHAPES), len(rows), dtype=np.uint8)
        across, down, radius, angle = (rng.uniform(a, b, len(rows)) for a, b in ((4, SIDE - 4), (4, SIDE - 4), (8, 15), (0, 2 * np.pi)))
        d = distance(kind - 1, across, down, radius, angle, SIDE)
        mixed[rows] = over(mixed[rows], painted(kind, rng), d)
        y[rows] = np.where(d < 0, kind[:, None, None], y[rows])
    return mixed.astype(np.uint8), y


def painted(kind: NDArray[Any], rng: np.random.Generator) -> Ints:
    """(n, 3, 48, 48): plain, in stripes or in checks, as the shape is.

    Told by their outlines alone, shapes are learned too, but not within a minute.
    """
    at = np.arange(SIDE, dtype=np.int32) // CELL
    down, across = at[:, None], at
    pattern = np.stack([0 * (down + across), 2 * (down % 2) - 1 + 0 * across, 2 * ((down + across) % 2) - 1])  # (3, 48, 48): −1, 0, 1
    drawn: Ints = paint(len(kind), SIDE, GRAIN, rng) + CONTRAST * pattern[kind - 1][:, None]
    return drawn
