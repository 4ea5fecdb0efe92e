"""Columns of a table: numbers and names, how each is told from the other, and what it makes of cells that it never
met."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from didact.data.checks import summarize_list
from didact.data.tables.csv_reader import is_number, to_numeric
from didact.data.tables.offsets import MAX_FLOAT32, describe_offset, find_offset, format_offset_name, subtract_offset
from didact.errors import UsageError, format_count

if TYPE_CHECKING:
    from pandas import Series

MAX_CATEGORIES = 50     # values of a category that get a feature of their own; the rarer share '(other)'
MAX_CLASS_NUMBERS = 20            # at most so many whole numbers can be class numbers
DATE_PATTERN = r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}"
ROW_ID_PATTERN = re.compile(r"(.*[_ ])?(id|index|row|nr|number)", re.IGNORECASE)
MAX_ROUNDING_SHARE = 0.01       # of a column's deviation: what rounding to float64 may take from it unsaid


@dataclass(frozen=True)
class NumericColumn:
    """A column of numbers; `missing` where training rows lacked some, which then has a feature of its own. `comma`:
    what one means.

    `offset` is what is subtracted before rounding, of numbers far from zero and near each other.
    """

    name: str
    median: float = 0.0
    has_missing: bool = False
    comma_meaning: str = ""
    offset: float = 0.0

    @property
    def feature_names(self) -> tuple[str, ...]:
        value = format_offset_name(self.name, self.offset)
        return (value, f"{self.name} missing") if self.has_missing else (value,)

    def encode(self, column: "Series") -> np.ndarray:
        values = to_numeric(column).to_numpy(np.float64)
        for i in np.flatnonzero(np.abs(values) > MAX_FLOAT32)[:1]:
            cell_text = f"{column.iloc[i]} in line {column.index[i]}"
            raise UsageError(f"column {self.name!r} must hold finite numbers, got {cell_text}")
        is_missing = np.isnan(values)
        filled = np.where(is_missing, self.median, values)
        value = subtract_offset(filled, self.offset)
        return np.stack((value, is_missing.astype(np.float32)) if self.has_missing else (value,), axis=1)

    def find_unseen(self, column: "Series") -> tuple[np.ndarray, str]:
        """Which cells cannot be read, and what to say of them."""
        is_unseen = (column.notna() & to_numeric(column).isna()).to_numpy()
        return is_unseen, f"{format_count(int(is_unseen.sum()), 'cell')} not read as a number, taken as missing"


@dataclass(frozen=True)
class CategoricalColumn:
    """A column of names. Where training met no rare value, an unseen one is all zeros; so is a missing one."""

    name: str
    values: tuple[str, ...]
    has_other: bool = False
    has_missing: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        extra = ("(other)",) * self.has_other + ("(missing)",) * self.has_missing
        return tuple(f"{self.name}={value}" for value in self.values + extra)

    def to_category_ids(self, cells: Sequence[str]) -> list[int]:
        """The place of each among the values; −1 where training met none like it and has no feature for others."""
        ids = {_normalize_category(v): i for i, v in enumerate(self.values)} | {v: i for i, v in enumerate(self.values)}
        other_id = len(self.values) if self.has_other else -1
        return [ids.get(w, ids.get(_normalize_category(w), other_id)) for w in cells]

    def encode(self, column: "Series") -> np.ndarray:
        unique_texts, inverse = np.unique(to_strings(column).to_numpy(str), return_inverse=True)
        ids = np.array(self.to_category_ids(unique_texts.tolist()))[inverse]
        ids[column.isna().to_numpy()] = len(self.feature_names) - 1 if self.has_missing else -1
        return np.eye(len(self.feature_names) + 1, dtype=np.float32)[ids, :-1]   # -1, unseen, is the row of zeros

    def find_unseen(self, column: "Series") -> tuple[np.ndarray, str]:
        """Which cells training met none like, and what to say of them."""
        cells = to_strings(column)
        unseen = [word for word in dict.fromkeys(cells[column.notna()]) if self.to_category_ids([word]) == [-1]]
        is_unseen = cells.isin(unseen).to_numpy() & column.notna().to_numpy()
        return is_unseen, f"{summarize_list([repr(word) for word in unseen])}, which training did not meet"


def column_spec(column: NumericColumn | CategoricalColumn) -> dict[str, Any]:
    """A column as JSON; what it holds says which kind it is."""
    if isinstance(column, NumericColumn):
        optional_fields = {"comma": column.comma_meaning, "shift": column.offset}
        return {"name": column.name, "median": column.median, "missing": column.has_missing} | {
            k: v for k, v in optional_fields.items() if v
        }
    return {
        "name": column.name,
        "values": list(column.values),
        "other": column.has_other,
        "missing": column.has_missing,
    }


def column_from_spec(spec: Mapping[str, Any]) -> NumericColumn | CategoricalColumn:
    """The column that `column_spec` wrote."""
    if "values" in spec:
        return CategoricalColumn(spec["name"], tuple(spec["values"]), spec["other"], spec["missing"])
    return NumericColumn(spec["name"], spec["median"], spec["missing"], spec.get("comma", ""), spec.get("shift", 0.0))


def infer_column(column: "Series", offset: float | None = None) -> tuple[NumericColumn | CategoricalColumn | None, str]:
    """How a column is encoded, and what to say of it; None: it is left out. `offset` is what to subtract, where that
    is known already."""
    name, n = str(column.name), int(column.notna().sum())
    if n == 0:
        return None, f"column {name!r} is empty: left out"
    if str(column.dtype).startswith("datetime"):
        return None, f"column {name!r} holds dates: left out"
    numbers = to_numeric_or_none(column)
    if numbers is not None:
        finite = numbers.replace([np.inf, -np.inf], np.nan)
        offset = find_offset(finite.to_numpy(np.float64)) if offset is None else offset
        median = float(finite.median()) if finite.notna().any() else 0.0
        return NumericColumn(
            name, median, bool(numbers.isna().any()), offset=offset
        ), f"column {name!r} {describe_offset(offset)}" if offset else ""
    strings = to_strings(column.dropna())
    counts = strings.value_counts()
    if strings.str.match(DATE_PATTERN).mean() > 0.9 and len(counts) > MAX_CATEGORIES:
        return None, f"column {name!r} holds dates: left out"
    if len(counts) > max(10, n / 2):
        distinct_note = f"{len(counts)} different in {n} rows"
        return None, f"column {name!r} holds free text, {distinct_note}: left out (--text {name} learns from it)"
    common_values = sorted(counts.index, key=lambda value: (-counts[value], value))[:MAX_CATEGORIES]
    num_rare = len(counts) - len(common_values)
    note = (
        f"column {name!r} holds {len(counts)} categories: the {num_rare} rarest are one, '(other)'" if num_rare else ""
    )
    return CategoricalColumn(name, tuple(sorted(common_values)), num_rare > 0, bool(column.isna().any())), note


def to_strings(column: "Series") -> "Series":
    """The values as words; missing ones read as an empty word."""
    import pandas as pd

    strings = [
        "" if is_missing else str(v).strip() for v, is_missing in zip(column.astype(object), column.isna(), strict=True)
    ]
    return pd.Series(strings, index=column.index, name=column.name, dtype=object)


def _normalize_category(word: str) -> str:
    """What two spellings of a category share: case does not matter, and 3.0 is 3."""
    return str(float(word)) if is_number(word) else word.casefold()


def describe_numbers(column: "Series") -> list[str]:
    """What to say of a column of numbers, in all rows of the table."""
    numbers = to_numeric(column)
    unread = column[numbers.isna() & column.notna()]
    notes = [f"column {column.name!r} {rounding_note}"] if (rounding_note := describe_rounding(numbers)) else []
    if len(unread):
        first = f"first {unread.iloc[0]!r} in line {unread.index[0]}"
        notes.append(
            f"column {column.name!r} holds {format_count(len(unread), 'cell')} not read as a number, {first}: taken as "
            "missing"
        )
    if bool((numbers % 1 == 0).all()) and numbers.is_unique:        # NaN is no whole number
        count_note = " and counts up" if bool((numbers.diff().iloc[1:] == 1).all()) else ""
        if count_note or ROW_ID_PATTERN.fullmatch(str(column.name).strip()):
            notes.append(f"column {column.name!r} is different in every row{count_note}: leave it out if it names rows")
    return notes


def describe_rounding(numbers: "Series") -> str:
    """What to say where numbers are so large beside their differences that even float64 rounds these away."""
    finite = numbers[numbers.abs() <= MAX_FLOAT32].to_numpy(np.float64)
    if len(finite) == 0 or not finite.std() > 0:
        return ""
    step = float(np.spacing(np.abs(finite).max()))
    median = float(np.median(finite))
    if step <= MAX_ROUNDING_SHARE * float((finite - median).std()):
        return ""
    return (
        f"lies so near {median:.10g} that double precision rounds it to steps of {step:g}; subtract {median:.10g} in "
        "the file"
    )


def to_numeric_or_none(column: "Series", *, allow_few: bool = True) -> "Series | None":
    """The column as numbers; None where it is not one of numbers.

    Words count as missing: a tenth of the cells at most among many different numbers, a twentieth among few, if
    `allow_few`.
    """
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or isinstance(column.dtype, pd.CategoricalDtype):
        return None
    numbers = to_numeric(column)
    is_present = column.notna()
    num_unread = (numbers.isna() & is_present).sum()
    if num_unread == 0:
        return numbers
    max_text_share = (
        0.1 if numbers.nunique() > MAX_CLASS_NUMBERS else 0.05 if allow_few and numbers.nunique() > 1 else 0
    )
    return numbers if num_unread <= max_text_share * is_present.sum() else None
