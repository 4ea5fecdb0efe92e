"""Read time series from tables: one column, several side by side (wide), or many series below each other (long).

    wide    date, a, b, c             --target b: one series, the others may be covariates; --target a,b: two series
    long    date, place, value        rows share their dates, and `place` says whose value it is: a series each
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from didact.data.tables.columns import convert_quantities, to_numeric_or_none
from didact.data.tables.imputation import fill_forward
from didact.data.tables.offsets import MAX_FLOAT32
from didact.data.tables.read_table import read_table
from didact.data.time_series.dates import (
    DateColumns,
    describe_gaps,
    find_date_columns,
    find_time_index,
    infer_step,
    sort_by_time,
)
from didact.errors import UsageError, suggest_nearest

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MIN_ROWS_PER_SERIES = 8         # on average, of a column that names series


@dataclass(frozen=True)
class SeriesLayout:
    """Which columns of a table are read, and how."""

    targets: tuple[str, ...]                  # several: each is a series of its own
    covariates: tuple[str, ...] = ()          # other columns of numbers
    series_column: str = ""                   # names the series of a row, in the long form

    @property
    def columns(self) -> tuple[str, ...]:
        """The channels of a series: the target first."""
        return ("value", *self.covariates) if len(self.targets) > 1 else (*self.targets, *self.covariates)


@dataclass(frozen=True)
class SeriesTable:
    """The series of a table by name: values (T, channels) in the order of time, and their dates where known."""

    layout: SeriesLayout
    values: Mapping[str, Tensor]
    times: Mapping[str, "Series | None"]
    notes: list[str] = field(default_factory=list)


def read_series(path: Path, *, target: str | None = None, layout: SeriesLayout | None = None) -> SeriesTable:
    """The series of a file in the order of their dates or else of the rows, with missing values filled.

    Where no layout is given it is found: the target is the named column or the last one of numbers.
    """
    frame = convert_quantities(read_table(path, min_columns=1))
    date_columns = find_date_columns(frame)
    layout = layout or find_layout(path, frame, date_columns, target)
    for name in (*layout.targets, *layout.covariates, *filter(None, [layout.series_column])):
        if name not in frame.columns:
            raise UsageError(f"{path} has no column {name!r}; {suggest_nearest(name, map(str, frame.columns))}")
    numbers = {name: _read_numbers(path, frame, name) for name in layout.targets}
    notes = [*frame.attrs.get("notes", ())]
    notes += [note for name in layout.targets for note in _describe_missing(path, name, numbers[name])]
    for name in layout.covariates:
        if (column := to_numeric_or_none(frame[name])) is None:
            raise UsageError(f"column {name!r} of {path} is not numbers, as it was in training")
        numbers[name] = column.fillna(0) if column.isna().all() else column
    values, times = dict[str, Tensor](), dict[str, "Series | None"]()
    for name, rows, order_notes in _split_series(frame, date_columns, layout.series_column):
        time_index = find_time_index(rows, date_columns)
        notes += order_notes
        for target_name in layout.targets:
            series_name = name if len(layout.targets) == 1 else f"{name} {target_name}".strip()
            channels = [fill_forward(numbers[c].loc[rows.index]) for c in (target_name, *layout.covariates)]
            if channels[0].isna().any():
                notes.append(f"series {series_name!r} has no value of {target_name!r}: left out")
                continue
            _require_finite(channels[0].tolist(), target_name, str(path))
            values[series_name] = torch.tensor(
                [channel.fillna(0).tolist() for channel in channels], dtype=torch.float64
            ).T.float()
            times[series_name] = time_index
    if not values:
        raise UsageError(f"no series of {path} has a value of {', '.join(layout.targets)}: a time series needs some")
    gap_notes = [note for index in times.values() if index is not None
                 for note in describe_gaps(index, infer_step(index))]
    return SeriesTable(layout, values, times, [*dict.fromkeys((*notes, *gap_notes[:1]))])


def find_layout(path: Path, frame: "DataFrame", date_columns: DateColumns, target: str | None) -> SeriesLayout:
    """The targets, the covariates, and the column that names the series where rows share their dates."""
    date_names = {name for name, _ in date_columns}
    numeric = [str(name) for name in frame.columns if to_numeric_or_none(frame[name]) is not None]
    if not numeric:
        raise UsageError(f"{path} has no column of numbers: a time series needs one")
    measured = [name for name in numeric if name not in date_names] or numeric
    targets: tuple[str, ...] = (measured[-1],) if target is None else (target,)
    if target is not None and target not in frame.columns and "," in target:
        targets = tuple(name.strip() for name in target.split(",") if name.strip()) or (target,)
        if len(set(targets)) < len(targets):
            raise UsageError(f"--target {target} names a column twice; name each once")
    series_column = _find_series_column(frame, date_columns, {*targets, *date_names})
    covariates = () if len(targets) > 1 else tuple(
        name for name in measured if name not in (*targets, series_column) and _is_usable(frame[name])
    )
    return SeriesLayout(targets, covariates, series_column)


def _is_usable(column: "Series") -> bool:
    """Whether a covariate has values, finite in float32."""
    numbers = to_numeric_or_none(column)
    return numbers is not None and bool(numbers.notna().any() and numbers.dropna().abs().le(MAX_FLOAT32).all())


def _find_series_column(frame: "DataFrame", date_columns: DateColumns, excluded: set[str]) -> str:
    """The column within each of whose values no date occurs twice; "" where the dates are those of one series."""
    if not date_columns or any(times.is_unique for _, times in date_columns):
        return ""
    _, times = date_columns[0]
    candidates = [name for name in map(str, frame.columns) if name not in excluded]
    is_text = {name: to_numeric_or_none(frame[name]) is None for name in candidates}
    for name in sorted(candidates, key=lambda name: not is_text[name]):
        # numbers in a file that is sorted by date may be the hours of a day
        if not is_text[name] and times.is_monotonic_increasing:
            continue
        num_series = frame[name].nunique()
        if (
            1 < num_series <= len(frame) / MIN_ROWS_PER_SERIES
            and frame[name].notna().all()
            and not times.groupby(frame[name]).apply(lambda group: group.duplicated().any()).any()
        ):
            return name
    return ""


def _split_series(
    frame: "DataFrame", date_columns: DateColumns, series_column: str
) -> list[tuple[str, "DataFrame", list[str]]]:
    """The rows of each series in the order of time, with notes."""
    if not series_column:
        return [("", *sort_by_time(frame, date_columns))]
    groups = []
    for name, rows in frame.groupby(frame[series_column].astype(str), sort=False):
        own_dates = [(column, times.loc[rows.index]) for column, times in date_columns]
        sorted_rows, notes = sort_by_time(rows, own_dates)
        groups.append((str(name), sorted_rows, notes))
    return groups


def _read_numbers(path: Path, frame: "DataFrame", column: str) -> "Series":
    numbers = to_numeric_or_none(frame[column])
    if numbers is None:
        raise UsageError(
            f"column {column!r} of {path} is not numbers: a time series needs some; choose another with --target"
        )
    return numbers


def _describe_missing(path: Path, column: str, numbers: "Series") -> list[str]:
    """A note on missing values; refused where most are."""
    num_missing = int(numbers.isna().sum())
    missing_text = f"{num_missing:,} of {len(numbers):,} values of {column!r} are missing"
    if num_missing > len(numbers) / 2:
        raise UsageError(
            f"{missing_text} in {path}: a time series needs at least half of them; choose another column with --target"
        )
    return [f"{missing_text}: filled with the one before, and scored as if measured"] if num_missing else []


def _require_finite(values: Sequence[float], column: str, source_name: str) -> Sequence[float]:
    """Refuse values that are not finite in float32."""
    first_bad = next((k for k, v in enumerate(values) if not abs(v) <= MAX_FLOAT32), None)
    if first_bad is not None:
        raise UsageError(
            f"the values of {column!r} must be finite, but number {first_bad + 1} is {values[first_bad]:g} in "
            f"{source_name!r}; correct it"
        )
    return values


def parse_values(text: str, column: str) -> list[float]:
    """Values written 12.1,11.8,…"""
    try:
        numbers = [float(value) for value in text.split(",")]
    except ValueError:
        raise UsageError(f"expected a file or values separated by commas, got {text!r}") from None
    return list(_require_finite(numbers, column, text))


