"""Numbers far from zero and near each other, as Unix times are: what they share is taken from them in double precision.

Only what is left is stored in single precision, which would have rounded their differences away.
"""

from math import floor, log10

import numpy as np
from numpy.typing import NDArray

BIGGEST = float(np.finfo(np.float32).max)
FINE = 1e-5         # of the mean distance from the middle: rounding takes less of air pressures, 1013 ± 3, more of a season's Unix times


def centre(values: NDArray[np.float64]) -> float:
    """What to subtract: a value from the middle, so that no decimals are added; 0 where single precision keeps them as they are."""
    finite = values[np.abs(values) <= BIGGEST]
    if not len(finite):
        return 0.0
    half = len(finite) // 2
    middle = float(np.partition(finite, half)[half])
    lost, spread = np.abs(finite - finite.astype(np.float32)).mean(), np.abs(finite - middle).mean()
    return middle if lost > FINE * spread > 0 else 0.0


def centred(values: NDArray[np.float64], shift: float) -> NDArray[np.float32]:
    """values − shift, rounded last."""
    return (values - shift).astype(np.float32)


def less(name: str, shift: float) -> str:
    """What the numbers that are left are called: t − 1700000000."""
    return f"{name} − {exact(shift)}" if shift else name


def exact(value: float) -> str:
    """A number of the table as it stands there, without a power of ten: 1700000000000, 52.52."""
    return f"{value:.0f}" if value.is_integer() else f"{value:.15g}"


def full(value: float, shift: float) -> str:
    """A number from which `shift` had been subtracted, with all the digits that tell it from its neighbours: 1,700,000,000,250.5.

    They are those of six that the rest has, stored in single precision, and no more than double precision knows of the whole.
    """
    rest, size = abs(value - shift), max(abs(value), abs(shift), 1.0)
    places = 14 - floor(log10(size))
    if rest:
        places = min(places, 5 - floor(log10(rest)))
    digits = f"{value:,.{max(0, places)}f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def near(shift: float) -> str:
    """What is said of a column from which it is subtracted."""
    return f"lies so near {exact(shift)} that this is subtracted before it is rounded to single precision"
