"""Synthetic dataset for segmentation: discs, squares and triangles over crops of photographs, with exact masks."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from didact.data.build import Examples, build_data
from didact.data.core import Data
from didact.data.datasets.download import register_dataset
from didact.data.datasets.synthetic.backgrounds import LICENSE, sample_photo_crops
from didact.data.datasets.synthetic.draw_shapes import (
    SHAPE_KINDS,
    Bytes,
    Ints,
    composite,
    sample_textures,
    signed_distance,
)
from didact.data.images.image_folder import ImageEncoder

IMAGE_SIDE = 48
NUM_TRAIN, NUM_TEST = 1000, 200
CHUNK_SIZE = 200            # images drawn at once
_CLASS_NAMES = ("background", *SHAPE_KINDS)
MAX_SHAPES = 3              # on an image
_PATTERN_CELL_PX, _PATTERN_CONTRAST = 3, 48  # width of a stripe or check in pixels, and its contrast to the shape
GRAIN = 16
SEED = 2015                 # of the images; the argument `seed` is that of the split


@register_dataset(kind="masks", task="segmentation", license=LICENSE)
def shapes(seed: int = 0) -> Data:
    """1,200 images of 48 x 48 pixels: plain discs, striped squares and checked triangles over photographs, with exact
    masks.

    The backgrounds of test images are from the right quarter of the photographs, which no other image touches.
    """
    rng = np.random.default_rng(SEED)
    parts = [
        _draw_shapes(_sample_backgrounds(CHUNK_SIZE, rng, test=i * CHUNK_SIZE >= NUM_TRAIN), rng)
        for i in range((NUM_TRAIN + NUM_TEST) // CHUNK_SIZE)
    ]
    x, y = (torch.from_numpy(np.concatenate(columns)) for columns in zip(*parts, strict=True))
    return build_data(
        Examples(
            "shapes",
            "masks",
            {"x": x, "y": y},
            task="segmentation",
            class_names=_CLASS_NAMES,
            target="mask",
            encoder=ImageEncoder((3, IMAGE_SIDE, IMAGE_SIDE)),
        ),
        test_indices=torch.arange(NUM_TRAIN, NUM_TRAIN + NUM_TEST),
        seed=seed,
    )


def _sample_backgrounds(n: int, rng: np.random.Generator, *, test: bool) -> Bytes:
    """(n, 3, 48, 48): crops of both photographs in turn, flipped at random."""
    # one at a time: the generator decides on the crop, then on its flip
    crops = sample_photo_crops(n, IMAGE_SIDE, rng, test=test)
    return np.stack([crop[:, :, ::-1] if rng.random() < 0.5 else crop for crop in crops])


def _draw_shapes(x: Bytes, rng: np.random.Generator) -> tuple[Bytes, Bytes]:
    """One to three shapes on each image, later ones over earlier ones: (n, 3, 48, 48), and (n, 48, 48) classes.

    A pixel is of the class that its center lies in.
    """
    canvas, y = x.astype(np.int32), np.zeros((len(x), IMAGE_SIDE, IMAGE_SIDE), np.uint8)
    count = rng.integers(1, MAX_SHAPES + 1, len(x))
    for i in range(MAX_SHAPES):
        rows = np.flatnonzero(i < count)
        kind = rng.integers(1, len(_CLASS_NAMES), len(rows), dtype=np.uint8)
        center_x, center_y, radius, angle = (
            rng.uniform(a, b, len(rows)) for a, b in ((4, IMAGE_SIDE - 4), (4, IMAGE_SIDE - 4), (8, 15), (0, 2 * np.pi))
        )
        d = signed_distance(kind - 1, center_x, center_y, radius, angle, IMAGE_SIDE)
        canvas[rows] = composite(canvas[rows], _paint_patterns(kind, rng), d)
        y[rows] = np.where(d < 0, kind[:, None, None], y[rows])
    return canvas.astype(np.uint8), y


def _paint_patterns(kind: NDArray[Any], rng: np.random.Generator) -> Ints:
    """(n, 3, 48, 48): plain, striped or checked, by the kind of shape.

    By their outlines alone shapes are learned too, but not within a minute.
    """
    cells = np.arange(IMAGE_SIDE, dtype=np.int32) // _PATTERN_CELL_PX
    row_cells, column_cells = cells[:, None], cells
    # (3, 48, 48): −1, 0, 1
    pattern = np.stack(
        [
            0 * (row_cells + column_cells),
            2 * (row_cells % 2) - 1 + 0 * column_cells,
            2 * ((row_cells + column_cells) % 2) - 1,
        ]
    )
    textures: Ints = sample_textures(len(kind), IMAGE_SIDE, GRAIN, rng) + _PATTERN_CONTRAST * pattern[kind - 1][:, None]
    return textures
