"""Numeric and categorical columns of a table: how the kind is inferred, and how cells become features."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from didact.data.checks import summarize_list
from didact.data.tables.cell_readings import (
    CellReading,
    DatePart,
    Duration,
    Quantity,
    describe_quantity,
    infer_date_format,
    infer_quantity,
    reading_from_spec,
    reading_to_spec,
    unfold_dates,
)
from didact.data.tables.csv_reader import is_number, to_numeric
from didact.data.tables.imputation import fit_median, impute_median
from didact.data.tables.offsets import MAX_FLOAT32, describe_offset, find_offset, format_offset_name, subtract_offset
from didact.errors import UsageError, format_count

if TYPE_CHECKING:
    from pandas import DataFrame, Series

_MAX_CATEGORIES = 50             # values of a category with a feature of their own; the rarer share '(other)'
MAX_CLASS_NUMBERS = 20          # different whole numbers, above which they are no classes
_ROW_ID_PATTERN = re.compile(r"(.*[_ ])?(id|index|row|nr|number)", re.IGNORECASE)
_MIN_IDENTIFIER_SHARE = 0.95    # of the rows, with a text of one word that no other row has
_MAX_ROUNDING_SHARE = 0.01      # of a column's standard deviation: rounding to float64 above it is noted

Features = NDArray[np.float32]


@dataclass(frozen=True)
class NumericColumn:
    """A column of numbers. Missing ones are the median; `has_missing`: a 0/1 feature says which.

    `comma_meaning` is that of commas in the file. `offset` is subtracted, in double precision, from numbers far from
    zero and near each other. `reading` makes numbers of cells that are none, as amounts and dates; `source` is the
    column of the file, where that has another name.
    """

    name: str
    median: float = 0.0
    has_missing: bool = False
    comma_meaning: str = ""
    offset: float = 0.0
    reading: CellReading | None = None
    source: str = ""

    @property
    def source_name(self) -> str:
        """The column of the file: a date makes several columns of numbers."""
        return self.source or self.name

    @property
    def expected_cells(self) -> str:
        """What a message says of the cells."""
        kinds = {DatePart: "dates as in training", Duration: "durations", Quantity: "numbers"}
        return "numbers" if self.reading is None else kinds[type(self.reading)]

    def to_numbers(self, column: "Series") -> "Series":
        """The cells as float64."""
        return to_numeric(column) if self.reading is None else self.reading.to_numbers(column)

    @property
    def feature_names(self) -> tuple[str, ...]:
        value = format_offset_name(self.name, self.offset)
        return (value, f"{self.name} missing") if self.has_missing else (value,)

    def encode(self, column: "Series") -> Features:
        """(N, 1) numbers, or (N, 2) with which of them are missing."""
        values = self.to_numbers(column).to_numpy(np.float64)
        for i in np.flatnonzero(np.abs(values) > MAX_FLOAT32)[:1]:
            cell_text = f"{column.iloc[i]} in line {column.index[i]}"
            raise UsageError(f"column {self.name!r} must hold finite numbers, got {cell_text}")
        filled, is_missing = impute_median(values, self.median)
        value = subtract_offset(filled, self.offset)
        return np.stack((value, is_missing.astype(np.float32)) if self.has_missing else (value,), axis=1)

    def find_unseen(self, column: "Series") -> tuple[NDArray[np.bool_], str]:
        """Which cells are no numbers, and a note on them."""
        is_unseen = (column.notna() & self.to_numbers(column).isna()).to_numpy()
        return is_unseen, f"{format_count(int(is_unseen.sum()), 'cell')} not read as a number, taken as missing"


@dataclass(frozen=True)
class CategoricalColumn:
    """A column of categories, one-hot encoded. An unseen value is '(other)', or all zeros where training had none; a
    missing one is '(missing)' or all zeros."""

    name: str
    values: tuple[str, ...]
    has_other: bool = False
    has_missing: bool = False

    @property
    def source_name(self) -> str:
        return self.name

    @property
    def feature_names(self) -> tuple[str, ...]:
        extra = ("(other)",) * self.has_other + ("(missing)",) * self.has_missing
        return tuple(f"{self.name}={value}" for value in self.values + extra)

    def to_category_ids(self, cells: Sequence[str]) -> list[int]:
        """The index of each among the values; −1 where it is unseen and there is no '(other)'."""
        ids = {_normalize_category(v): i for i, v in enumerate(self.values)} | {v: i for i, v in enumerate(self.values)}
        other_id = len(self.values) if self.has_other else -1
        return [ids.get(w, ids.get(_normalize_category(w), other_id)) for w in cells]

    def encode(self, column: "Series") -> Features:
        """(N, features), one-hot."""
        import pandas as pd

        codes, unique_texts = pd.factorize(to_strings(column))
        ids = np.array(self.to_category_ids(unique_texts.tolist()))[codes]
        ids[column.isna().to_numpy()] = len(self.feature_names) - 1 if self.has_missing else -1
        return np.eye(len(self.feature_names) + 1, dtype=np.float32)[ids, :-1]   # -1, unseen, is the row of zeros

    def find_unseen(self, column: "Series") -> tuple[NDArray[np.bool_], str]:
        """Which cells hold values that training data did not, and a note on them."""
        cells, is_present = to_strings(column), column.notna()
        words = list(dict.fromkeys(cells[is_present]))
        unseen = [word for word, i in zip(words, self.to_category_ids(words), strict=True) if i == -1]
        is_unseen = (cells.isin(unseen) & is_present).to_numpy()
        return is_unseen, f"{summarize_list([repr(word) for word in unseen])}, unseen in training"


Column = NumericColumn | CategoricalColumn


def column_spec(column: Column) -> dict[str, Any]:
    """A column as JSON; its keys say which kind it is."""
    if isinstance(column, NumericColumn):
        optional_fields: dict[str, Any] = {"comma": column.comma_meaning, "shift": column.offset}
        if column.reading is not None:
            optional_fields |= {"reading": reading_to_spec(column.reading), "source": column.source}
        return {"name": column.name, "median": column.median, "missing": column.has_missing} | {
            k: v for k, v in optional_fields.items() if v
        }
    return {
        "name": column.name,
        "values": list(column.values),
        "other": column.has_other,
        "missing": column.has_missing,
    }


def column_from_spec(spec: Mapping[str, Any]) -> Column:
    """The column that `column_spec` wrote."""
    if "values" in spec:
        return CategoricalColumn(spec["name"], tuple(spec["values"]), spec["other"], spec["missing"])
    reading = reading_from_spec(spec["reading"]) if "reading" in spec else None
    return NumericColumn(
        spec["name"], spec["median"], spec["missing"], spec.get("comma", ""), spec.get("shift", 0.0), reading,
        spec.get("source", ""),
    )  # fmt: skip


def infer_columns(column: "Series") -> tuple[list[Column], list[str]]:
    """How a column of the file is encoded, and notes: dates as several columns of numbers, or none where it is left
    out."""
    if (quantity := find_quantity(column)) is not None:
        return [_fit_numeric(str(column.name), quantity.to_numbers(column), quantity)], []
    if (date := infer_date_format(column)) is not None:
        return _unfold_date_column(column, *date)
    inferred, note = infer_column(column)
    return [inferred] if inferred else [], [note] if note else []


def find_quantity(column: "Series", **options: Any) -> Quantity | Duration | None:
    """How amounts are read, where that reads more cells than there are plain numbers."""
    quantity = infer_quantity(column, **options)
    if quantity is None:
        return None
    num_plain = int(to_numeric(column).notna().sum())
    return quantity if int(quantity.to_numbers(column).notna().sum()) > num_plain else None


def convert_quantities(frame: "DataFrame") -> "DataFrame":
    """The table with columns of amounts, percentages and numbers with units as numbers, and notes on them."""
    converted = frame.copy(deep=False)
    notes = list(frame.attrs.get("notes", ()))
    for name in frame.columns:
        quantity = find_quantity(frame[name])
        if isinstance(quantity, Quantity):                # durations may be times of the day
            converted[name] = quantity.to_numbers(frame[name])
            notes.append(describe_quantity(frame[name], quantity))
    converted.attrs = {**frame.attrs, "notes": notes}
    return converted


def _fit_numeric(name: str, numbers: "Series", reading: CellReading | None = None, source: str = "") -> NumericColumn:
    """A column of numbers with the median and the offset of these."""
    values = numbers.to_numpy(np.float64)
    return NumericColumn(
        name, fit_median(values), bool(np.isnan(values).any()), offset=find_offset(values), reading=reading,
        source=source,
    )  # fmt: skip


def _unfold_date_column(
    column: "Series", date_format: str, order_note: str
) -> tuple[list[Column], list[str]]:
    """The parts of dates that change, as numbers; the first alone says where a date is missing."""
    name = str(column.name)
    parts = unfold_dates(column, date_format)
    if not parts:
        return [], [f"column {name!r} holds one date: left out"]
    columns = [_fit_numeric(f"{name} ({part.part})", part.to_numbers(column), part, name) for part in parts]
    columns = [columns[0], *(replace(other, has_missing=False) for other in columns[1:])]
    parts_text = ", ".join(part.part for part in parts)
    return [*columns], [f"column {name!r} holds dates, unfolded into {parts_text}{order_note}"]


def infer_column(column: "Series") -> tuple[Column | None, str]:
    """How a column is encoded, None where it is left out, and a note."""
    name, n = str(column.name), int(column.notna().sum())
    if n == 0:
        return None, f"column {name!r} is empty: left out"
    numbers = to_numeric_or_none(column)
    if numbers is not None:
        numeric = _fit_numeric(name, numbers)
        return numeric, f"column {name!r} {describe_offset(numeric.offset)}" if numeric.offset else ""
    counts = to_strings(column.dropna()).value_counts()
    if len(counts) > max(10, n / 2):
        distinct_note = f"{len(counts)} different in {n} rows"
        if len(counts) >= _MIN_IDENTIFIER_SHARE * n and not any(" " in str(word) for word in counts.index[:100]):
            return None, f"column {name!r} holds identifiers, {distinct_note}: left out"
        return None, f"column {name!r} holds free text, {distinct_note}: left out (--text {name} learns from it)"
    common_values = sorted(counts.index, key=lambda value: (-counts[value], value))[:_MAX_CATEGORIES]
    num_rare = len(counts) - len(common_values)
    note = f"column {name!r} holds {len(counts)} categories: the {num_rare} rarest share '(other)'" if num_rare else ""
    return CategoricalColumn(name, tuple(sorted(common_values)), num_rare > 0, bool(column.isna().any())), note


def to_strings(column: "Series") -> "Series":
    """The cells as text, without spaces around it; missing ones are empty."""
    import pandas as pd

    cells = column.astype(object)
    if pd.api.types.infer_dtype(cells) == "string":       # each different text once; else 1, 1.0 and True were the same
        codes, words = pd.factorize(cells)
        strings = np.array([*(word.strip() for word in words), ""], dtype=object)[codes]     # −1 is missing, the last
    else:
        is_missing = column.isna()
        strings = ["" if no else str(v).strip() for v, no in zip(cells, is_missing, strict=True)]
    return pd.Series(strings, index=column.index, name=column.name, dtype=object)


def _normalize_category(word: str) -> str:
    """What two spellings of a category share: case does not matter, and 3.0 is 3."""
    return str(float(word)) if is_number(word) else word.casefold()


def describe_numbers(column: "Series") -> list[str]:
    """Notes on a column of numbers, over all rows of the table."""
    numbers = to_numeric(column)
    values = numbers.to_numpy(np.float64)
    unread = column[np.isnan(values) & column.notna()] if column.dtype == object else column[:0]
    notes = [f"column {column.name!r} {rounding_note}"] if (rounding_note := describe_rounding(numbers)) else []
    if len(unread):
        first = f"first {unread.iloc[0]!r} in line {unread.index[0]}"
        notes.append(
            f"column {column.name!r} holds {format_count(len(unread), 'cell')} not read as a number, {first}: taken as "
            "missing"
        )
    # NaN is no whole number
    if np.array_equal(values, np.floor(values)) and len(np.unique(values)) == len(values):
        count_note = " and counts up" if bool((np.diff(values) == 1).all()) else ""
        if count_note or _ROW_ID_PATTERN.fullmatch(str(column.name).strip()):
            differs = f"column {column.name!r} is different in every row{count_note}"
            notes.append(f"{differs}: leave it out if it is a row number or ID")
    return notes


def describe_rounding(numbers: "Series") -> str:
    """A note where numbers are so large beside their differences that even float64 rounds these away."""
    values = numbers.to_numpy(np.float64)
    finite = values[np.abs(values) <= MAX_FLOAT32]
    if len(finite) == 0 or not finite.std() > 0:
        return ""
    step = float(np.spacing(np.abs(finite).max()))
    median = float(np.median(finite))
    if step <= _MAX_ROUNDING_SHARE * float((finite - median).std()):
        return ""
    return (
        f"lies so near {median:.10g} that double precision rounds it to steps of {step:g}; subtract {median:.10g} in "
        "the file"
    )


def to_numeric_or_none(column: "Series", *, allow_few: bool = True) -> "Series | None":
    """The column as numbers; None where it is not numeric.

    Words count as missing: at most a tenth of the cells among more than 20 different numbers, and, with `allow_few`, a
    twentieth among fewer.
    """
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or isinstance(column.dtype, pd.CategoricalDtype):
        return None
    numbers = to_numeric(column)
    if pd.api.types.is_numeric_dtype(column):
        return numbers
    is_present = column.notna()
    num_unread = (numbers.isna() & is_present).sum()
    if num_unread == 0:
        return numbers
    max_text_share = (
        0.1 if numbers.nunique() > MAX_CLASS_NUMBERS else 0.05 if allow_few and numbers.nunique() > 1 else 0
    )
    return numbers if num_unread <= max_text_share * is_present.sum() else None
