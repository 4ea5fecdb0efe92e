"""Drawing discs, squares and triangles over images in integers, so that every machine makes the same bytes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

SHAPE_KINDS = ("disc", "square", "triangle")
SQUARE_HALF_SIDE, TRIANGLE_INRADIUS = 0.85, 0.6         # half a square's side and a triangle's inner radius, in radii


def signed_distance(
    kind: NDArray[Any], center_x: Floats, center_y: Floats, radius: Floats, angle: Floats, side: int
) -> Floats:
    """Signed distance in pixels to the edge of each rotated shape of SHAPE_KINDS, negative inside: (n, side, side)."""
    center_x, center_y, radius, angle = (a[:, None, None] for a in (center_x, center_y, radius, angle))
    pixel_centers = np.arange(side) + 0.5
    a, b = pixel_centers[None, None, :] - center_x, pixel_centers[None, :, None] - center_y
    u, v = np.cos(angle) * a + np.sin(angle) * b, np.cos(angle) * b - np.sin(angle) * a
    distances = (
        np.sqrt(u**2 + v**2) - radius,
        np.maximum(abs(u), abs(v)) - SQUARE_HALF_SIDE * radius,
        np.maximum(v, 3**0.5 / 2 * abs(u) - v / 2) - TRIANGLE_INRADIUS * radius,
    )
    return np.choose(kind[:, None, None], distances)


def sample_textures(n: int, side: int, grain: int, rng: np.random.Generator) -> Ints:
    """(n, 3, side, side), not yet clipped: a random color with a ramp and grain, so that no shape is a flat patch."""
    color, slope = (rng.integers(low, high, (n, 3, 1, 1), dtype=np.int32) for low, high in ((0, 256), (-40, 41)))
    ramp = slope * (np.arange(side, dtype=np.int32) - side // 2) // side
    textures: Ints = color + ramp + rng.integers(-grain, grain + 1, (n, 1, side, side), dtype=np.int32)
    return textures


def composite(x: Ints, textures: Ints, d: Floats) -> Ints:
    """Alpha compositing: textured shapes over images, antialiased at the edges."""
    share = np.rint(256 * np.clip(0.5 - d, 0, 1)).astype(np.int32)[:, None]    # (n, 1, side, side)
    blended: Ints = (x * (256 - share) + np.clip(textures, 0, 255) * share + 128) >> 8
    return blended
