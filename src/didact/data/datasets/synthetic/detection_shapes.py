"""Synthetic dataset for detection: discs, squares and triangles over crops of photographs, with exact boxes."""

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
    SQUARE_HALF_SIDE,
    TRIANGLE_INRADIUS,
    Bytes,
    Floats,
    composite,
    sample_textures,
    signed_distance,
)
from didact.data.images.boxes import BoxEncoder

IMAGE_SIDE = 64
NUM_TRAIN, NUM_TEST = 1600, 400
CHUNK_SIZE = 400            # images drawn at once
MAX_SHAPES = 4              # on an image
_MAX_COVERED_SHARE = 0.15    # of a box that a later one may cover
SEED = 2016                 # of the images; the argument `seed` is that of the split
GRAIN = 12
_TRIANGLE_HALF_BASE = TRIANGLE_INRADIUS * 3**0.5    # half the side of a triangle, in radii


@register_dataset(kind="boxes", task="detection", license=LICENSE)
def scatter(seed: int = 0) -> Data:
    """2,000 images of 64 x 64 pixels: discs, squares and triangles over crops of two photographs, with exact boxes.

    The backgrounds of test images are from the right quarter of the photographs, which no other image touches.
    """
    rng = np.random.default_rng(SEED)
    parts = [
        _place_shapes(
            np.stack(list(sample_photo_crops(CHUNK_SIZE, IMAGE_SIDE, rng, test=i * CHUNK_SIZE >= NUM_TRAIN))), rng
        )
        for i in range((NUM_TRAIN + NUM_TEST) // CHUNK_SIZE)
    ]
    x, y, box = (torch.from_numpy(np.concatenate(columns)) for columns in zip(*parts, strict=True))
    return build_data(
        Examples(
            "scatter",
            "boxes",
            {"x": x, "y": y, "box": box},
            task="detection",
            class_names=SHAPE_KINDS,
            target="boxes",
            encoder=BoxEncoder((3, IMAGE_SIDE, IMAGE_SIDE)),
        ),
        test_indices=torch.arange(NUM_TRAIN, NUM_TRAIN + NUM_TEST),
        seed=seed,
    )


def _place_shapes(x: Bytes, rng: np.random.Generator) -> tuple[Bytes, NDArray[np.int64], NDArray[np.float32]]:
    """One to four shapes on each image: (n, 3, 64, 64), their classes (n, 4), −1 where there is none, and boxes
    (n, 4, 4).

    A shape that would cover too much of another is left out.
    """
    n = len(x)
    canvas, y, boxes = x.astype(np.int32), np.full((n, MAX_SHAPES), -1), np.zeros((n, MAX_SHAPES, 4))
    count = rng.integers(1, MAX_SHAPES + 1, n)
    for i in range(MAX_SHAPES):
        kind, radius, angle = rng.integers(0, len(SHAPE_KINDS), n), rng.uniform(7, 15, n), rng.uniform(0, 2 * np.pi, n)
        # fully visible, but for a corner
        center_x, center_y = (rng.uniform(radius, IMAGE_SIDE - radius) for _ in range(2))
        box = compute_bounding_boxes(kind, center_x, center_y, radius, angle)
        rows = np.flatnonzero((i < count) & ~overlaps_too_much(box, boxes[:, :i]))
        d = signed_distance(kind[rows], center_x[rows], center_y[rows], radius[rows], angle[rows], IMAGE_SIDE)
        canvas[rows] = composite(canvas[rows], sample_textures(len(rows), IMAGE_SIDE, GRAIN, rng), d)
        y[rows, i], boxes[rows, i] = kind[rows], box[rows]
    return canvas.astype(np.uint8), y, (boxes / IMAGE_SIDE).astype(np.float32)


def compute_bounding_boxes(
    kind: NDArray[Any], center_x: Floats, center_y: Floats, radius: Floats, angle: Floats
) -> Floats:
    """(n, 4): the smallest axis-aligned box around each rotated shape, in closed form, clipped to the image.

    In the shape's own axes (u right, v down) its corners are known; point (u, v) lies at u (cos, sin) + v (−sin, cos).
    """
    square = np.array(
        [
            (-SQUARE_HALF_SIDE, -SQUARE_HALF_SIDE),
            (SQUARE_HALF_SIDE, -SQUARE_HALF_SIDE),
            (SQUARE_HALF_SIDE, SQUARE_HALF_SIDE),
            (-SQUARE_HALF_SIDE, SQUARE_HALF_SIDE),
        ]
    )
    triangle = np.array(
        [
            (-_TRIANGLE_HALF_BASE, TRIANGLE_INRADIUS),
            (_TRIANGLE_HALF_BASE, TRIANGLE_INRADIUS),
            (0, -2 * TRIANGLE_INRADIUS),
            (0, -2 * TRIANGLE_INRADIUS),
        ]
    )
    u, v = np.moveaxis(np.where((kind == 1)[:, None, None], square, triangle), 2, 0) * radius[:, None]     # (n, 4) each
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    x, y = u * c - v * s, u * s + v * c
    disc = kind == 0
    low = [center_x + np.where(disc, -radius, x.min(1)), center_y + np.where(disc, -radius, y.min(1))]
    high = [center_x + np.where(disc, radius, x.max(1)), center_y + np.where(disc, radius, y.max(1))]
    return np.clip(np.stack([*low, *high], axis=1), 0, IMAGE_SIDE)


def overlaps_too_much(box: Floats, others: Floats) -> NDArray[np.bool_]:
    """Whether a new box covers too much of an existing one, or is covered by it: (n, 4), (n, m, 4) -> (n,)."""
    sides = np.minimum(box[:, None, 2:], others[..., 2:]) - np.maximum(box[:, None, :2], others[..., :2])
    intersection = np.clip(sides, 0, None).prod(2)
    min_area = np.minimum((box[:, None, 2:] - box[:, None, :2]).prod(2), (others[..., 2:] - others[..., :2]).prod(2))
    # a box of class −1 has no area and overlaps none
    is_overlapping: NDArray[np.bool_] = (intersection > _MAX_COVERED_SHARE * min_area).any(1)
    return is_overlapping
