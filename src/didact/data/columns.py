"""Columns of a table: numbers and names, how each is told from the other, and what it makes of cells that it never met."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from didact.data.centring import BIGGEST, centre, centred, less, near
from didact.data.delimited import is_number, parsed
from didact.data.health import listed
from didact.errors import UsageError, counted

if TYPE_CHECKING:
    from pandas import Series

CATEGORIES = 50     # values of a category that get a feature of their own; the rarer share '(other)'
FEW = 20            # at most so many whole numbers can be class numbers
DATE = r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}"
NAMES_ROWS = re.compile(r"(.*[_ ])?(id|index|row|nr|number)", re.IGNORECASE)
COARSE = 0.01       # of a column's deviation: what rounding to float64 may take from it unsaid


@dataclass(frozen=True)
class Number:
    """A column of numbers; `missing` where training rows lacked some, which then has a feature of its own. `comma`: what one means.

    `shift` is what is subtracted before rounding, of numbers far from zero and near each other.
    """

    name: str
    median: float = 0.0
    missing: bool = False
    comma: str = ""
    shift: float = 0.0

    @property
    def features(self) -> tuple[str, ...]:
        value = less(self.name, self.shift)
        return (value, f"{self.name} missing") if self.missing else (value,)

    def encode(self, column: "Series") -> np.ndarray:
        values = parsed(column).to_numpy(np.float64)
        for i in np.flatnonzero(np.abs(values) > BIGGEST)[:1]:
            where = f"{column.iloc[i]} in line {column.index[i]}"
            raise UsageError(f"column {self.name!r} must hold finite numbers, got {where}")
        lacking = np.isnan(values)
        filled = np.where(lacking, self.median, values)
        value = centred(filled, self.shift)
        return np.stack((value, lacking.astype(np.float32)) if self.missing else (value,), axis=1)

    def doubt(self, column: "Series") -> tuple[np.ndarray, str]:
        """Which cells cannot be read, and what to say of them."""
        wrong = (column.notna() & parsed(column).isna()).to_numpy()
        return wrong, f"{counted(int(wrong.sum()), 'cell')} not read as a number, taken as missing"


@dataclass(frozen=True)
class Category:
    """A column of names. Where training met no rare value, an unseen one is all zeros; so is a missing one."""

    name: str
    values: tuple[str, ...]
    other: bool = False
    missing: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        extra = ("(other)",) * self.other + ("(missing)",) * self.missing
        return tuple(f"{self.name}={value}" for value in self.values + extra)

    def number(self, words: Sequence[str]) -> list[int]:
        """The place of each among the values; −1 where training met none like it and has no feature for others."""
        known = {alike(v): i for i, v in enumerate(self.values)} | {v: i for i, v in enumerate(self.values)}
        other = len(self.values) if self.other else -1
        return [known.get(w, known.get(alike(w), other)) for w in words]

    def encode(self, column: "Series") -> np.ndarray:
        words, each = np.unique(texts(column).to_numpy(str), return_inverse=True)
        numbers = np.array(self.number(words.tolist()))[each]
        numbers[column.isna().to_numpy()] = len(self.features) - 1 if self.missing else -1
        return np.eye(len(self.features) + 1, dtype=np.float32)[numbers, :-1]   # -1, unseen, is the row of zeros

    def doubt(self, column: "Series") -> tuple[np.ndarray, str]:
        """Which cells training met none like, and what to say of them."""
        words = texts(column)
        new = [word for word in dict.fromkeys(words[column.notna()]) if self.number([word]) == [-1]]
        wrong = words.isin(new).to_numpy() & column.notna().to_numpy()
        return wrong, f"{listed([repr(word) for word in new])}, which training did not meet"


def column_spec(column: Number | Category) -> dict[str, Any]:
    """A column as JSON; what it holds says which kind it is."""
    if isinstance(column, Number):
        rare = {"comma": column.comma, "shift": column.shift}
        return {"name": column.name, "median": column.median, "missing": column.missing} | {k: v for k, v in rare.items() if v}
    return {"name": column.name, "values": list(column.values), "other": column.other, "missing": column.missing}


def column_from_spec(spec: Mapping[str, Any]) -> Number | Category:
    """The column that `column_spec` wrote."""
    if "values" in spec:
        return Category(spec["name"], tuple(spec["values"]), spec["other"], spec["missing"])
    return Number(spec["name"], spec["median"], spec["missing"], spec.get("comma", ""), spec.get("shift", 0.0))


def understand(column: "Series", shift: float | None = None) -> tuple[Number | Category | None, str]:
    """How a column is encoded, and what to say of it; None: it is left out. `shift` is what to subtract, where that is known already."""
    name, n = str(column.name), int(column.notna().sum())
    if n == 0:
        return None, f"column {name!r} is empty: left out"
    if str(column.dtype).startswith("datetime"):
        return None, f"column {name!r} holds dates: left out"
    numbers = as_numbers(column)
    if numbers is not None:
        finite = numbers.replace([np.inf, -np.inf], np.nan)
        shift = centre(finite.to_numpy(np.float64)) if shift is None else shift
        median = float(finite.median()) if finite.notna().any() else 0.0
        return Number(name, median, bool(numbers.isna().any()), shift=shift), f"column {name!r} {near(shift)}" if shift else ""
    words = texts(column.dropna())
    counts = words.value_counts()
    if words.str.match(DATE).mean() > 0.9 and len(counts) > CATEGORIES:
        return None, f"column {name!r} holds dates: left out"
    if len(counts) > max(10, n / 2):
        different = f"{len(counts)} different in {n} rows"
        return None, f"column {name!r} holds free text, {different}: left out (--text {name} learns from it)"
    common = sorted(counts.index, key=lambda value: (-counts[value], value))[:CATEGORIES]
    rare = len(counts) - len(common)
    note = f"column {name!r} holds {len(counts)} categories: the {rare} rarest are one, '(other)'" if rare else ""
    return Category(name, tuple(sorted(common)), rare > 0, bool(column.isna().any())), note


def texts(column: "Series") -> "Series":
    """The values as words; missing ones read as an empty word."""
    import pandas as pd

    words = ["" if gone else str(v).strip() for v, gone in zip(column.astype(object), column.isna(), strict=True)]
    return pd.Series(words, index=column.index, name=column.name, dtype=object)


def alike(word: str) -> str:
    """What two spellings of a category share: case does not matter, and 3.0 is 3."""
    return str(float(word)) if is_number(word) else word.casefold()


def number_notes(column: "Series") -> list[str]:
    """What to say of a column of numbers, in all rows of the table."""
    numbers = parsed(column)
    wrong = column[numbers.isna() & column.notna()]
    found = [f"column {column.name!r} {said}"] if (said := coarse(numbers)) else []
    if len(wrong):
        first = f"first {wrong.iloc[0]!r} in line {wrong.index[0]}"
        found.append(f"column {column.name!r} holds {counted(len(wrong), 'cell')} not read as a number, {first}: taken as missing")
    if numbers.notna().all() and numbers.is_unique and bool((numbers % 1 == 0).all()):
        rising = " and counts up" if bool((numbers.diff().iloc[1:] == 1).all()) else ""
        if rising or NAMES_ROWS.fullmatch(str(column.name).strip()):
            found.append(f"column {column.name!r} is different in every row{rising}: leave it out if it names rows")
    return found


def coarse(numbers: "Series") -> str:
    """What to say where numbers are so large beside their differences that even float64 rounds these away."""
    finite = numbers[numbers.abs() <= BIGGEST].to_numpy(np.float64)
    if len(finite) == 0 or not finite.std() > 0:
        return ""
    step = float(np.spacing(np.abs(finite).max()))
    middle = float(np.median(finite))
    if step <= COARSE * float((finite - middle).std()):
        return ""
    return f"lies so near {middle:.10g} that double precision rounds it to steps of {step:g}; subtract {middle:.10g} in the file"


def as_numbers(column: "Series", *, few: bool = True) -> "Series | None":
    """The column as numbers; None where it is not one of numbers.

    Words count as missing: a tenth of the cells at most among many different numbers, a twentieth among `few`.
    """
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or isinstance(column.dtype, pd.CategoricalDtype):
        return None
    numbers = parsed(column)
    present = column.notna()
    wrong = (numbers.isna() & present).sum()
    words = 0.1 if numbers.nunique() > FEW else 0.05 if few and numbers.nunique() > 1 else 0
    return numbers if wrong <= words * present.sum() else None
