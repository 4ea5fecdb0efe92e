"""Time series: a window of the past, and what came next. Splits follow time, so that nobody learns from the future."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from didact.data.assemble import assemble
from didact.data.columns import as_numbers
from didact.data.core import SPLITS, Absent, Batch, Data, Decode, Given, Resident
from didact.data.delimited import is_table, read_csv, stem
from didact.data.fetch import File, read, source
from didact.errors import UsageError, nearest

if TYPE_CHECKING:
    from pandas import DataFrame, Series

WINDOW = 30   # past values that are read (Gaba Ex 5.3)
LARGEST = torch.finfo(torch.float32).max
HOME = "https://raw.githubusercontent.com/jbrownlee/Datasets/master"
MINIMUM = File(
    "melbourne-daily-min-temperatures.csv", "8b9de63ed6789492bf497625e7f9beb96a63d367b4b0a21754006f749fa5e5da",
    f"{HOME}/daily-min-temperatures.csv",
)


@dataclass(frozen=True)
class SeriesEncoder:
    """The last `window` values of a column."""

    column: str
    window: int = WINDOW

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {}

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """CSV files with the column, or values written 12.1,11.8,…"""
        rows = [self.values(text)[-self.window :] for text in inputs]
        for text, row in zip(inputs, rows, strict=True):
            if len(row) < self.window:
                raise UsageError(f"a window is {self.window} values of {self.column!r}, got {len(row)} in {str(text)!r}")
        return list(map(str, inputs)), {"x": torch.tensor(rows)[..., None]}

    def values(self, text: Given) -> list[float]:
        if isinstance(text, Path) or is_table(text):
            return column_of(Path(text), self.column)[0]
        try:
            found = [float(value) for value in text.split(",")]
        except ValueError:
            raise UsageError(f"expected a CSV file or values separated by commas, got {text!r}") from None
        return finite(found, self.column, text)

    def spec(self) -> dict[str, Any]:
        return {"kind": "series", "column": self.column, "window": self.window}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "SeriesEncoder":
        return cls(spec["column"], spec["window"])


def series(name: str, values: Sequence[float], column: str, *, window: int = WINDOW, horizon: int = 1, notes: Sequence[str] = ()) -> Data:
    """x (N, window, 1) and the `horizon` values behind it, y (N,) or (N, horizon). Seven tenths to learn from, then validation, then test.

    Windows that would reach across a border are left out: what is judged was in nobody's past.
    """
    s, span = torch.tensor(values, dtype=torch.float32), window + horizon
    if len(s) < 10 * span:
        raise UsageError(f"{name!r} holds {len(s)} values of {column!r}; at least {10 * span} make windows of {window} + {horizon}")
    cuts = [0, int(0.7 * len(s)), int(0.85 * len(s)), len(s)]
    parts = [s[a:b].unfold(0, span, 1) for a, b in pairwise(cuts)]      # each (n, span)
    rows = torch.cat(parts)
    x, y = rows[:, :window, None].contiguous(), rows[:, window:].contiguous()
    indices = dict(zip(SPLITS, torch.arange(len(rows)).split([len(p) for p in parts]), strict=True))
    return assemble(
        name, "series", {"x": x, "y": y[:, 0] if horizon == 1 else y}, task="regression" if horizon == 1 else "forecast",
        target=column, names=(column,), encoder=SeriesEncoder(column, window), indices=indices,
        notes=[f"{len(s):,} values of {column!r} in windows of {window}, split in the order of time", *notes],
    )


def ahead(data: Data, *, window: int = WINDOW, horizon: int = 1) -> Data:
    """The same series in windows of another length, each with the `horizon` values behind it: y (N, horizon). The borders stay."""
    if not isinstance(data.encoder, SeriesEncoder):
        raise UsageError(f"windows are cut from a time series, but {data.name!r} is {data.kind}: give a CSV file with a column of numbers")
    parts: dict[str, Any] = {}
    for part in SPLITS:
        split = data.split(part)
        rows = len(split) + data.encoder.window - window - (horizon - 1)
        if rows < 1:
            long = f"{part} part of {data.name!r} has {rows + window + horizon - 1} values"
            raise UsageError(f"the {long}, but a window takes {window} + {horizon}; choose a smaller --window or --horizon")
        parts[part] = Absent(rows)
        if isinstance(split, Resident):
            s = torch.cat([split.columns["x"][0, :, 0], split.columns["y"]])       # windows begin one day after the other
            spans = s.unfold(0, window + horizon, 1)
            parts[part] = Resident({"x": spans[:, :window, None].contiguous(), "y": spans[:, window:].contiguous()})
    return replace(data, shape=(window, 1), encoder=replace(data.encoder, window=window), **parts)


def load(path: Path, *, target: str | None = None, window: int = WINDOW, horizon: int = 1) -> Data:
    """One's own CSV file: the named column, or the last one of numbers, in the order of the dates beside it or else of the rows."""
    frame = read_csv(path, columns=1)
    numeric = [str(name) for name in frame.columns if as_numbers(frame[name]) is not None]
    if not numeric:
        raise UsageError(f"{path} has no column of numbers: a time series needs one")
    column = target or numeric[-1]
    values, notes = column_of(path, column)
    window = max(1, min(window, len(values) // 10 - horizon))      # of a short series; `ahead` cuts what a recipe asks for
    return series(stem(path), values, column, window=window, horizon=horizon, notes=notes)


def column_of(path: Path, column: str) -> tuple[list[float], list[str]]:
    """A column of numbers in the order of time, and what was done to it: a missing value takes the one before it."""
    frame, notes = in_time(read_csv(path, columns=1))
    if column not in frame.columns:
        raise UsageError(f"{path} has no column {column!r}; {nearest(column, map(str, frame.columns))}")
    numbers = as_numbers(frame[column])
    if numbers is None:
        raise UsageError(f"column {column!r} of {path} is not numbers: a time series needs some; choose another with --target")
    missing = int(numbers.isna().sum())
    lacking = f"{missing:,} of {len(numbers):,} values of {column!r} are missing"
    if missing > len(numbers) / 2:
        raise UsageError(f"{lacking} in {path}: a time series needs at least half of them; choose another column with --target")
    if missing:
        notes.append(f"{lacking}: filled with the one before, and scored as if measured")
    return finite([float(v) for v in numbers.ffill().bfill()], column, str(path)), notes


def in_time(frame: "DataFrame") -> tuple["DataFrame", list[str]]:
    """The rows from the oldest to the newest, by a column of dates if there is one, and what is said of it."""
    found = [(name, when) for name in frame.columns for when in dates(frame[name])]
    if not found or any(when.is_monotonic_increasing and when.is_unique for _, when in found):
        return frame, []
    name, when = min(found, key=lambda each: (not each[1].is_monotonic_increasing, not each[1].is_monotonic_decreasing, each[1].hasnans))
    same, stay = int(when.duplicated(keep=False).sum()), "stay in the order of the file"
    told = [f"{same:,} of {len(when):,} rows share their date in {name!r} with another: those {stay}"] if same else []
    if when.is_monotonic_increasing:
        return frame, told
    if when.hasnans:
        return frame, [f"{int(when.isna().sum()):,} of {len(when):,} rows have no date in {name!r}: all {stay}"]
    if when.is_monotonic_decreasing:                         # turned round, rows of one date come into their order as well
        return frame[::-1], [f"sorted by {name!r}: the file has the newest first"]
    if sum(other == name for other, _ in found) > 1:
        return frame, [f"the dates in {name!r} may have the day or the month first: the rows {stay}; write them as 2020-01-31"]
    return frame.iloc[when.argsort(kind="stable")], [f"sorted by {name!r}: the rows of the file are not in the order of time", *told]


def dates(column: "Series") -> list["Series"]:
    """The ways to read a column as dates: none, one, or two where 3/4 may be in March or in April."""
    import pandas as pd
    from pandas.tseries.api import guess_datetime_format

    words = column.dropna().astype(str).str.strip()
    if words.nunique() < 2 or (as_numbers(column) is not None and not words.str.fullmatch(r"(19|20)\d{6}").all()):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                      # of a day that stands first where a month was expected: both are tried
        guessed = [guess_datetime_format(words.iloc[0], dayfirst=first) for first in (False, True)]
    for forms in ["ISO8601"], dict.fromkeys(filter(None, guessed)):
        read = [pd.to_datetime(words, format=form, utc=True, errors="coerce") for form in forms]
        if whole := [when.reindex(column.index) for when in read if when.notna().all()]:
            return whole
    return []


def finite(values: list[float], column: str, where: str) -> list[float]:
    """Refuse what would make every forecast behind it no number."""
    wrong = next((k for k, v in enumerate(values) if not abs(v) <= LARGEST), None)
    if wrong is not None:
        raise UsageError(f"the values of {column!r} must be finite, but number {wrong + 1} is {values[wrong]:g} in {where!r}; put it right")
    return values


@source(kind="series", task="regression", licence="no licence stated; Australian Bureau of Meteorology", files=(MINIMUM,))
def temperatures(seed: int = 0) -> Data:
    """Lowest temperature of 3,650 days in Melbourne, 1981 to 1990: thirty days, and the next (Gaba Ex 5.3)."""
    import pandas as pd

    (raw,) = read("temperatures", (MINIMUM,))
    return series("temperatures", pd.read_csv(StringIO(raw.decode()))["Temp"].tolist(), "minimum")


@source(kind="series", task="regression", licence="made by didact")
def waves(seed: int = 0) -> Data:
    """2,000 days of a made season with noise: y = 10 sin(2πt/365) + 3 sin(2πt/29) + e."""
    t = torch.arange(2000)
    noise = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    y = 10 * torch.sin(2 * torch.pi * t / 365) + 3 * torch.sin(2 * torch.pi * t / 29) + noise
    return series("waves", y.tolist(), "value")
