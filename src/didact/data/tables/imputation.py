"""Imputation: how missing values are filled.

    number     the median of the training rows; where these lack some, a 0/1 feature "… missing" beside it
    category   where training rows lack some, a 0/1 feature "(missing)"; else none of its features is 1
    series     the value before (forward fill)

Which cells are missing: empty ones, and the words of `MISSING_VALUES`.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pandas import Series

# what pandas takes for missing, and ?; in files and in rows on the command line
MISSING_VALUES = frozenset(
    ("", "?", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null",
     "None", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN")
)  # fmt: skip


def is_missing(cell: str) -> bool:
    """Whether a cell of text is a missing value."""
    return cell.strip() in MISSING_VALUES


def fit_median(values: NDArray[np.float64]) -> float:
    """The median of the finite values; 0 where there is none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else 0.0


def impute_median(values: NDArray[np.float64], median: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The values with the median in place of NaN, and where it is."""
    is_nan = np.isnan(values)
    return np.where(is_nan, median, values), is_nan


def fill_forward(numbers: "Series") -> "Series":
    """Each missing value as the one before it; at the start, as the first that is there."""
    return numbers.ffill().bfill()
