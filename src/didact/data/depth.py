"""Images of more than 8 bits, as bytes: those of a set are scaled by one range, so that a value means the same in each of its files."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from didact.data.image_files import opened

Span = tuple[float, float]  # the values that become 0 and 255
SAMPLE = 4096               # files that are read to find it, evenly spaced, where there are more


def is_deep(mode: str) -> bool:
    """Whether images of this mode hold numbers that are no bytes: of 16 bits, of 32, or with a point."""
    return mode == "F" or mode.startswith("I")


def span_of(files: Sequence[str]) -> Span | None:
    """The least and the largest value in these files; None where they hold none."""
    chosen = [files[i * len(files) // SAMPLE] for i in range(SAMPLE)] if len(files) > SAMPLE else files
    with ThreadPoolExecutor() as pool:
        ends = [end for found in pool.map(ends_of, chosen) for end in found]
    return (min(ends), max(ends)) if ends else None


def ends_of(file: str) -> tuple[float, ...]:
    """The least and the largest value of a file that are finite, if any are."""
    with opened(file) as image:
        values = np.asarray(image)
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else ()


def as_bytes(image: Any, span: Span | None) -> NDArray[np.uint8]:
    """round(255 (v − low) / (high − low)), cut off at both ends; NaN is low. Without a range, the file alone decides."""
    values = np.asarray(image)
    if span is None:
        return alone(image.mode, values)
    low, high = span
    inside = np.nan_to_num(values.astype(np.float64), nan=low).clip(low, high)
    return (255 * (inside - low) / ((high - low) or 1.0)).round().astype(np.uint8)


def alone(mode: str, values: NDArray[Any]) -> NDArray[np.uint8]:
    """A file beside a set that has no range: numbers with a point are shares if none exceeds 1, of whole ones the upper 8 bits are kept."""
    if mode == "F":
        values = np.nan_to_num(values)
        return (values * (255 if values.max() <= 1 else 1)).clip(0, 255).astype(np.uint8)
    whole = values.astype(np.int64)
    return (whole >> excess(mode, int(whole.max()))).clip(0, 255).astype(np.uint8)


def excess(mode: str, largest: int) -> int:
    """Bits beyond 8. A file of 32 does not say how many it uses: 8 or 16, if its largest value needs no more, else as many as that."""
    if mode != "I" or 2**8 <= largest < 2**16:
        return 8
    return max(0, largest.bit_length() - 8) if largest >= 0 else 0


def span_note(span: Span, deep: int) -> str:
    """What is said of the range that was found."""
    low, high = (f"{end:.6g}" for end in span)
    images = f"{deep:,} images have" if deep != 1 else "1 image has"
    return f"{images} more than 8 bits: {low} … {high}, the range of the training images, becomes 0 … 255 in each of them"
