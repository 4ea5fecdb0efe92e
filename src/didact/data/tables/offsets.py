"""Offsets of numbers far from zero and near each other, as Unix times are: subtracted in double precision.

Only the difference is stored, in single precision, which would have rounded the numbers themselves to one value.
"""

from math import floor, log10

import numpy as np
from numpy.typing import NDArray

MAX_FLOAT32 = float(np.finfo(np.float32).max)
# of the mean distance from the median: rounding takes less of air pressures, 1013 ± 3, more of a season's Unix times
_MAX_RELATIVE_ROUNDING = 1e-5


def find_offset(values: NDArray[np.float64]) -> float:
    """The offset: a value from the middle, so that no decimals are added; 0 where float32 is precise enough."""
    finite = values[np.abs(values) <= MAX_FLOAT32]
    if not len(finite):
        return 0.0
    half = len(finite) // 2
    median = float(np.partition(finite, half)[half])
    rounding_error, spread = np.abs(finite - finite.astype(np.float32)).mean(), np.abs(finite - median).mean()
    return median if rounding_error > _MAX_RELATIVE_ROUNDING * spread > 0 else 0.0


def subtract_offset(values: NDArray[np.float64], offset: float) -> NDArray[np.float32]:
    """values − offset, rounded last."""
    return (values - offset).astype(np.float32)


def format_offset_name(name: str, offset: float) -> str:
    """The name of a column less its offset: t − 1700000000."""
    return f"{name} − {format_plain(offset)}" if offset else name


def format_plain(value: float) -> str:
    """A number as the table has it, without a power of ten: 1700000000000, 52.52."""
    return f"{value:.0f}" if value.is_integer() else f"{value:.15g}"


def format_exact(value: float, offset: float) -> str:
    """A number whose offset had been subtracted, with all its significant digits: 1,700,000,000,250.5.

    The difference has six, as it is stored in single precision; the whole has at most those of double precision.
    """
    difference, magnitude = abs(value - offset), max(abs(value), abs(offset), 1.0)
    num_decimals = 14 - floor(log10(magnitude))
    if difference:
        num_decimals = min(num_decimals, 5 - floor(log10(difference)))
    digits = f"{value:,.{max(0, num_decimals)}f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def describe_offset(offset: float) -> str:
    """A note on a column from which an offset is subtracted."""
    return f"lies so near {format_plain(offset)} that this is subtracted before it is rounded to single precision"
