"""A made set for masks: discs, squares and triangles over pieces of real photographs. Masks are exact; nothing is downloaded."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from didact.data.assemble import assemble
from didact.data.core import Data
from didact.data.fetch import source
from didact.data.folder import ImageEncoder
from didact.data.photographs import LICENCE, pieces

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

SIDE = 48
TRAIN, TEST = 1000, 200
CHUNK = 200         # images drawn at once
SHAPES = ("background", "disc", "square", "triangle")
MOST = 3            # shapes on one image
CELL, CONTRAST = 3, 48  # pixels of a stripe or check, and how far its paint is from the shape's
MADE = 2015         # seeds what is drawn; `seed` says only how it is split
HALF_ROOT_3 = 3**0.5 / 2


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

    A pixel is of the class that its centre lies in; at an edge its colour is mixed by the share covered, as a camera would.
    Colours are mixed in whole numbers, so that every machine makes the same bytes.
    """
    mixed, y = x.astype(np.int32), np.zeros((len(x), SIDE, SIDE), np.uint8)
    count = rng.integers(1, MOST + 1, len(x))
    for i in range(MOST):
        rows = np.flatnonzero(i < count)
        kind = rng.integers(1, len(SHAPES), len(rows), dtype=np.uint8)
        across, down, radius, angle = (rng.uniform(a, b, len(rows)) for a, b in ((4, SIDE - 4), (4, SIDE - 4), (8, 15), (0, 2 * np.pi)))
        d = distance(kind, across, down, radius, angle)
        share = np.rint(256 * np.clip(0.5 - d, 0, 1)).astype(np.int32)[:, None]  # (n, 1, 48, 48)
        mixed[rows] = (mixed[rows] * (256 - share) + painted(kind, rng) * share + 128) >> 8
        y[rows] = np.where(d < 0, kind[:, None, None], y[rows])
    return mixed.astype(np.uint8), y


def distance(kind: NDArray[Any], across: Floats, down: Floats, radius: Floats, angle: Floats) -> Floats:
    """Pixels from each centre to the shape's edge, below 0 inside it: (n, 48, 48). Shapes are turned about their middle."""
    across, down, radius, angle = (a[:, None, None] for a in (across, down, radius, angle))
    centres = np.arange(SIDE) + 0.5
    a, b = centres[None, None, :] - across, centres[None, :, None] - down
    u, v = np.cos(angle) * a + np.sin(angle) * b, np.cos(angle) * b - np.sin(angle) * a
    d = np.empty_like(u)
    disc, square, triangle = (kind == k for k in (1, 2, 3))
    d[disc] = np.sqrt(u[disc] ** 2 + v[disc] ** 2) - radius[disc]
    d[square] = np.maximum(abs(u[square]), abs(v[square])) - 0.85 * radius[square]
    d[triangle] = np.maximum(v[triangle], HALF_ROOT_3 * abs(u[triangle]) - 0.5 * v[triangle]) - 0.6 * radius[triangle]
    return d


def painted(kind: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int32]:
    """(n, 3, 48, 48): any colour, running a little across, with grain; plain, in stripes or in checks, as the shape is.

    Told by their outlines alone, shapes are learned too, but not within a minute.
    """
    n = len(kind)
    colour = rng.integers(0, 256, (n, 3, 1, 1), dtype=np.int32)
    slope = rng.integers(-40, 41, (n, 3, 1, 1), dtype=np.int32)
    at = np.arange(SIDE, dtype=np.int32)
    ramp = slope * (at - SIDE // 2) // SIDE
    grain = rng.integers(-16, 17, (n, 1, SIDE, SIDE), dtype=np.int32)
    down, across = at[:, None] // CELL, at // CELL
    pattern = np.stack([0 * (down + across), 2 * (down % 2) - 1 + 0 * across, 2 * ((down + across) % 2) - 1])  # (3, 48, 48): −1, 0, 1
    paint: NDArray[np.int32] = np.clip(colour + ramp + grain + CONTRAST * pattern[kind - 1][:, None], 0, 255)
    return paint
