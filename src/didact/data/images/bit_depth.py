"""Images of more than 8 bits, as bytes: all files of a dataset are scaled by one range, so that a value means the same
in each."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from didact.data.images.open_image import open_image

ValueRange = tuple[float, float]  # the values that become 0 and 255
_FloatArray = NDArray[np.float64]
_MAX_SAMPLED_FILES = 4096            # files that are read, evenly spaced, where there are more
MAX_SAMPLED_PIXELS = 2**22          # pixels that are sampled of all those files, besides the extremes of each
_MIN_GAP_SHARE = 1 / 16              # of the whole range: a gap that divides values into groups
_MIN_GAP_WIDTHS = 4                  # widths of the main group that others must be away from it to be clipped
_MIN_GROUP_VALUES = 64               # different values of a group: with fewer, a range too wide loses little
_MAX_MARKER_VALUES = 3               # different values beyond it that may be markers, such as −9999, not brightness
_MAX_OUTLIER_SHARE = 1e-4            # of the pixels that may be clipped as outliers, such as those of a broken sensor


def has_more_than_8_bits(mode: str) -> bool:
    """Whether images of this mode hold 16-bit, 32-bit or floating-point numbers."""
    return mode == "F" or mode.startswith("I")


def find_value_range(files: Sequence[str]) -> tuple[ValueRange, ValueRange] | None:
    """The range of the values of these files without far outliers, and the range of all; None where there are none."""
    sampled_files = (
        [files[i * len(files) // _MAX_SAMPLED_FILES] for i in range(_MAX_SAMPLED_FILES)]
        if len(files) > _MAX_SAMPLED_FILES
        else files
    )
    with ThreadPoolExecutor() as pool:
        samples = list(
            pool.map(
                partial(_sample_values, max_values=MAX_SAMPLED_PIXELS // max(1, len(sampled_files))), sampled_files
            )
        )
    ends = [end for _, file_ends in samples for end in file_ends]
    if not ends:
        return None
    return _find_robust_range(np.concatenate([pixels for pixels, _ in samples]), np.array(ends)), (min(ends), max(ends))


def _sample_values(file: str, max_values: int) -> tuple[_FloatArray, tuple[float, ...]]:
    """Of the finite values of a file, evenly spaced ones and both extremes."""
    with open_image(file) as image:
        values = np.asarray(image)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.empty(0), ()
    sampled = (
        finite[np.linspace(0, finite.size - 1, max_values).astype(np.int64)] if finite.size > max_values else finite
    )
    return sampled.astype(np.float64), (float(finite.min()), float(finite.max()))


def _find_robust_range(pixels: _FloatArray, ends: _FloatArray) -> ValueRange:
    """The range that remains when far outliers are removed, repeatedly: −3e38 hides that −9999 is far as well.

    Stars on a dark sky stay, however few: there is no gap between them and the sky, or the sky has few values.
    """
    values, inverse = np.unique(np.concatenate([pixels, ends]), return_inverse=True)
    # the extremes were added once more: they do not count
    counts = np.bincount(inverse[: len(pixels)], minlength=len(values))
    while (cluster := _find_main_cluster(values, counts)) != slice(0, len(values)):
        values, counts = values[cluster], counts[cluster]
    return float(values[0]), float(values[-1])


def _find_main_cluster(values: _FloatArray, counts: NDArray[np.int64]) -> slice:
    """The most frequent group of these sorted values, with the values on either side of it that are no outliers."""
    gaps = np.diff(values)
    edges = [0, *(np.flatnonzero(gaps > _MIN_GAP_SHARE * (values[-1] - values[0])) + 1).tolist(), len(values)]
    groups = [slice(a, b) for a, b in pairwise(edges) if b - a >= _MIN_GROUP_VALUES]
    if not groups:
        return slice(0, len(values))
    main = max(groups, key=lambda group: int(counts[group].sum()))
    width, total = values[main.stop - 1] - values[main.start], int(counts.sum())

    def is_outlier(side: slice, gap: float) -> bool:
        num_pixels = int(counts[side].sum())
        is_rare = num_pixels <= _MAX_OUTLIER_SHARE * total or (
            side.stop - side.start <= _MAX_MARKER_VALUES and 2 * num_pixels < total
        )
        return bool(gap > _MIN_GAP_WIDTHS * width and is_rare)

    low = main.start > 0 and is_outlier(slice(0, main.start), gaps[main.start - 1])
    high = main.stop < len(values) and is_outlier(slice(main.stop, len(values)), gaps[main.stop - 1])
    return slice(main.start if low else 0, main.stop if high else len(values))


def to_uint8(image: Any, value_range: ValueRange | None) -> NDArray[np.uint8]:
    """round(255 (v − low) / (high − low)), clipped; NaN is low. Without a range, the file is scaled by itself."""
    values = np.asarray(image)
    if value_range is None:
        return _scale_single_file(image.mode, values)
    low, high = value_range
    clipped = np.nan_to_num(values.astype(np.float64), nan=low).clip(low, high)
    return (255 * (clipped - low) / ((high - low) or 1.0)).round().astype(np.uint8)


def _scale_single_file(mode: str, values: NDArray[Any]) -> NDArray[np.uint8]:
    """A file of no dataset: floats are in [0, 1] if none exceeds 1; of integers the upper 8 bits are kept."""
    if mode == "F":
        values = np.nan_to_num(values)
        return (values * (255 if values.max() <= 1 else 1)).clip(0, 255).astype(np.uint8)
    integers = values.astype(np.int64)
    return (integers >> _count_extra_bits(mode, int(integers.max()))).clip(0, 255).astype(np.uint8)


def _count_extra_bits(mode: str, largest: int) -> int:
    """Bits beyond 8. A 32-bit file does not say how many it uses: 8 or 16 if its largest value needs no more, else as
    many as that."""
    if mode != "I" or 2**8 <= largest < 2**16:
        return 8
    return max(0, largest.bit_length() - 8) if largest >= 0 else 0


def describe_range(value_range: ValueRange, full_range: ValueRange, num_images: int) -> str:
    """A note on the range that was found."""
    images_text = f"{num_images:,} images have" if num_images != 1 else "1 image has"
    note = (
        f"{images_text} more than 8 bits: {value_range[0]:.6g} … {value_range[1]:.6g}, the range of the training "
        "images, becomes 0 … 255 in each of them"
    )
    below = [f"below it as 0 (down to {full_range[0]:.6g})"] if full_range[0] < value_range[0] else []
    above = [f"above it as 255 (up to {full_range[1]:.6g})"] if full_range[1] > value_range[1] else []
    return note + (f"; some values lie far off, read {' and '.join(below + above)}" if below or above else "")
