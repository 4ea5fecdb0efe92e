"""Images of more than 8 bits, as bytes: those of a set are scaled by one range, so that a value means the same in each of its files."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from didact.data.image_files import opened

Span = tuple[float, float]  # the values that become 0 and 255
Values = NDArray[np.float64]
SAMPLE = 4096               # files that are read to find it, evenly spaced, where there are more
PIXELS = 2**22              # of all those files that are looked at, beside the ends of each
APART = 1 / 16              # of the whole range: a gap at which values fall into groups
FAR = 4                     # times its own width that a group must be away from others before these are cut off
LEVELS = 64                 # different values in it: of fewer, little is lost in a range that is too wide
MARKS = 3                   # different values beyond it, such as −9999, that may stand for something else than brightness
RARE = 1e-4                 # share of the pixels that may be cut off where they differ, as those of a broken sensor do


def is_deep(mode: str) -> bool:
    """Whether images of this mode hold numbers that are no bytes: of 16 bits, of 32, or with a point."""
    return mode == "F" or mode.startswith("I")


def span_of(files: Sequence[str]) -> tuple[Span, Span] | None:
    """The range in which the values of these files lie, but for a few that are far off, and the range of all; None where they hold none."""
    chosen = [files[i * len(files) // SAMPLE] for i in range(SAMPLE)] if len(files) > SAMPLE else files
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(partial(looked_at, most=PIXELS // max(1, len(chosen))), chosen))
    ends = [end for _, own in found for end in own]
    if not ends:
        return None
    return usual(np.concatenate([pixels for pixels, _ in found]), np.array(ends)), (min(ends), max(ends))


def looked_at(file: str, most: int) -> tuple[Values, tuple[float, ...]]:
    """Of the finite values of a file, evenly spaced ones and both ends."""
    with opened(file) as image:
        values = np.asarray(image)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.empty(0), ()
    few = finite[np.linspace(0, finite.size - 1, most).astype(np.int64)] if finite.size > most else finite
    return few.astype(np.float64), (float(finite.min()), float(finite.max()))


def usual(pixels: Values, ends: Values) -> Span:
    """The ends of what remains when values far outside are cut off: again and again, since −3e38 hides that −9999 is far as well.

    Stars on a dark sky stay, however few: from them to the sky there is no gap, or the sky has but few values.
    """
    values, place = np.unique(np.concatenate([pixels, ends]), return_inverse=True)
    counts = np.bincount(place[: len(pixels)], minlength=len(values))       # ends were looked for, and are no more frequent for that
    while (kept := nearer(values, counts)) != slice(0, len(values)):
        values, counts = values[kept], counts[kept]
    return float(values[0]), float(values[-1])


def nearer(values: Values, counts: NDArray[np.int64]) -> slice:
    """Of these sorted values the most frequent group, with what lies on either side of it unless that may be cut off."""
    gaps = np.diff(values)
    edges = [0, *(np.flatnonzero(gaps > APART * (values[-1] - values[0])) + 1).tolist(), len(values)]
    groups = [slice(a, b) for a, b in pairwise(edges) if b - a >= LEVELS]
    if not groups:
        return slice(0, len(values))
    main = max(groups, key=lambda group: int(counts[group].sum()))
    width, total = values[main.stop - 1] - values[main.start], int(counts.sum())

    def needless(side: slice, gap: float) -> bool:
        there = int(counts[side].sum())
        few = there <= RARE * total or (side.stop - side.start <= MARKS and 2 * there < total)
        return bool(gap > FAR * width and few)

    low = main.start > 0 and needless(slice(0, main.start), gaps[main.start - 1])
    high = main.stop < len(values) and needless(slice(main.stop, len(values)), gaps[main.stop - 1])
    return slice(main.start if low else 0, main.stop if high else len(values))


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


def span_note(span: Span, whole: Span, deep: int) -> str:
    """What is said of the range that was found."""
    images = f"{deep:,} images have" if deep != 1 else "1 image has"
    said = f"{images} more than 8 bits: {span[0]:.6g} … {span[1]:.6g}, the range of the training images, becomes 0 … 255 in each of them"
    below = [f"below it as 0 (down to {whole[0]:.6g})"] if whole[0] < span[0] else []
    above = [f"above it as 255 (up to {whole[1]:.6g})"] if whole[1] > span[1] else []
    return said + (f"; some values lie far off, read {' and '.join(below + above)}" if below or above else "")
