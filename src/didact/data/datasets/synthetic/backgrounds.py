"""Backgrounds of synthetic images: crops of scikit-learn's two photographs, real texture without a download."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

LICENSE = "scikit-learn's photographs, CC BY 2.0: china by Jialiang Gao, flower by dany13"


def sample_photo_crops(n: int, side: int, rng: np.random.Generator, *, test: bool) -> Iterator[NDArray[np.uint8]]:
    """(3, side, side) each, of both photographs in turn. Test crops are from the right quarter, which no other crop
    touches."""
    from sklearn.datasets import load_sample_images

    photographs = load_sample_images().images
    for i in range(n):
        height, width, _ = photographs[i % 2].shape
        border = 3 * width // 4
        left = rng.integers(border, width - side + 1) if test else rng.integers(0, border - side + 1)
        top = rng.integers(0, height - side + 1)
        yield photographs[i % 2][top : top + side, left : left + side].transpose(2, 0, 1)
