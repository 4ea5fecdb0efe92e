"""Time series: windows of past values and the next ones. Splits follow time: the past trains, the future tests."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from didact.data.build import Examples, build_data
from didact.data.core import SPLITS, Batch, Data, Decode, Given, MissingSplit, TensorSplit
from didact.data.datasets.download import RemoteFile, read_files, register_dataset
from didact.data.tables.columns import to_numeric_or_none
from didact.data.tables.imputation import fill_forward
from didact.data.tables.offsets import MAX_FLOAT32
from didact.data.tables.read_table import read_table
from didact.data.tables.table_file import STANDARD_INPUT, dataset_name, is_table_path
from didact.errors import UsageError, suggest_nearest

if TYPE_CHECKING:
    from pandas import DataFrame, Series

DEFAULT_WINDOW = 30   # past values in an input (Gaba Ex 5.3)
_HOME_URL = "https://raw.githubusercontent.com/jbrownlee/Datasets/master"
_MELBOURNE_FILE = RemoteFile(
    "melbourne-daily-min-temperatures.csv", "8b9de63ed6789492bf497625e7f9beb96a63d367b4b0a21754006f749fa5e5da",
    f"{_HOME_URL}/daily-min-temperatures.csv",
)


@dataclass(frozen=True)
class SeriesEncoder:
    """The last `window` values of a column as an input."""

    column: str
    window: int = DEFAULT_WINDOW

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {}

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """CSV files with the column, or values written 12.1,11.8,…"""
        rows = [self.parse_values(text)[-self.window :] for text in inputs]
        for text, row in zip(inputs, rows, strict=True):
            if len(row) < self.window:
                raise UsageError(
                    f"a window is {self.window} values of {self.column!r}, got {len(row)} in {str(text)!r}"
                )
        return list(map(str, inputs)), {"x": torch.tensor(rows)[..., None]}

    def parse_values(self, text: Given) -> list[float]:
        if isinstance(text, Path) or text == STANDARD_INPUT or is_table_path(text):
            return _read_column(Path(text), self.column)[0]
        try:
            numbers = [float(value) for value in text.split(",")]
        except ValueError:
            raise UsageError(f"expected a file or values separated by commas, got {text!r}") from None
        return _require_finite(numbers, self.column, text)

    def spec(self) -> dict[str, Any]:
        return {"kind": "series", "column": self.column, "window": self.window}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "SeriesEncoder":
        return cls(spec["column"], spec["window"])


def build_series(
    name: str,
    values: Sequence[float],
    column: str,
    *,
    window: int = DEFAULT_WINDOW,
    horizon: int = 1,
    notes: Sequence[str] = (),
) -> Data:
    """x (N, window, 1) and the `horizon` values behind it, y (N,) or (N, horizon).

    The first 70 % are for training, then validation, then test; windows across a border are left out.
    """
    s, span = torch.tensor(values, dtype=torch.float32), window + horizon
    if len(s) < 10 * span:
        raise UsageError(
            f"{name!r} holds {len(s)} values of {column!r}; at least {10 * span} make windows of {window} + {horizon}"
        )
    bounds = [0, int(0.7 * len(s)), int(0.85 * len(s)), len(s)]
    parts = [s[a:b].unfold(0, span, 1) for a, b in pairwise(bounds)]      # each (n, span)
    rows = torch.cat(parts)
    x, y = rows[:, :window, None].contiguous(), rows[:, window:].contiguous()
    indices = dict(zip(SPLITS, torch.arange(len(rows)).split([len(p) for p in parts]), strict=True))
    return build_data(
        Examples(
            name,
            "series",
            {"x": x, "y": y[:, 0] if horizon == 1 else y},
            task="regression" if horizon == 1 else "forecast",
            target=column,
            feature_names=(column,),
            encoder=SeriesEncoder(column, window),
            notes=[f"{len(s):,} values of {column!r} in windows of {window}, split in the order of time", *notes],
        ),
        indices=indices,
    )


def with_horizon(data: Data, *, window: int = DEFAULT_WINDOW, horizon: int = 1) -> Data:
    """The same series in windows of another length, each with the `horizon` values behind it: y (N, horizon).

    The borders of the splits stay.
    """
    if not isinstance(data.encoder, SeriesEncoder):
        raise UsageError(
            f"windows are cut from a time series, but {data.name!r} is {data.kind}: give a CSV file with a column of "
            "numbers"
        )
    parts: dict[str, Any] = {}
    for part in SPLITS:
        split = data.split(part)
        rows = len(split) + data.encoder.window - window - (horizon - 1)
        if rows < 1:
            length_text = f"{part} part of {data.name!r} has {rows + window + horizon - 1} values"
            raise UsageError(
                f"the {length_text}, but a window takes {window} + {horizon}; choose a smaller --window or --horizon"
            )
        parts[part] = MissingSplit(rows)
        if isinstance(split, TensorSplit):
            # windows begin one day after the other
            s = torch.cat([split.columns["x"][0, :, 0], split.columns["y"]])
            spans = s.unfold(0, window + horizon, 1)
            parts[part] = TensorSplit({"x": spans[:, :window, None].contiguous(), "y": spans[:, window:].contiguous()})
    return replace(data, shape=(window, 1), encoder=replace(data.encoder, window=window), **parts)


def load_series(path: Path, *, target: str | None = None, window: int = DEFAULT_WINDOW, horizon: int = 1) -> Data:
    """A CSV file: the named column or the last numeric one, in the order of a column of dates or else of the rows."""
    frame = read_table(path, min_columns=1)
    numeric = [str(name) for name in frame.columns if to_numeric_or_none(frame[name]) is not None]
    if not numeric:
        raise UsageError(f"{path} has no column of numbers: a time series needs one")
    column = target or numeric[-1]
    values, notes = _read_column(path, column)
    # shorter for a short series; `with_horizon` cuts the windows that a recipe asks for
    window = max(1, min(window, len(values) // 10 - horizon))
    return build_series(dataset_name(path), values, column, window=window, horizon=horizon, notes=notes)


def _read_column(path: Path, column: str) -> tuple[list[float], list[str]]:
    """A column of numbers in the order of time, missing ones filled, and notes."""
    frame, notes = _sort_by_time(read_table(path, min_columns=1))
    if column not in frame.columns:
        raise UsageError(f"{path} has no column {column!r}; {suggest_nearest(column, map(str, frame.columns))}")
    numbers = to_numeric_or_none(frame[column])
    if numbers is None:
        raise UsageError(
            f"column {column!r} of {path} is not numbers: a time series needs some; choose another with --target"
        )
    num_missing = int(numbers.isna().sum())
    missing_text = f"{num_missing:,} of {len(numbers):,} values of {column!r} are missing"
    if num_missing > len(numbers) / 2:
        raise UsageError(
            f"{missing_text} in {path}: a time series needs at least half of them; choose another column with --target"
        )
    if num_missing:
        notes.append(f"{missing_text}: filled with the one before, and scored as if measured")
    return _require_finite([float(v) for v in fill_forward(numbers)], column, str(path)), notes


def _sort_by_time(frame: "DataFrame") -> tuple["DataFrame", list[str]]:
    """The rows from the oldest to the newest, by a column of dates if there is one, and notes."""
    date_columns = [(name, times) for name in frame.columns for times in _parse_dates(frame[name])]
    if not date_columns or any(times.is_monotonic_increasing and times.is_unique for _, times in date_columns):
        return frame, []
    name, times = min(
        date_columns,
        key=lambda each: (not each[1].is_monotonic_increasing, not each[1].is_monotonic_decreasing, each[1].hasnans),
    )
    num_tied, order_text = int(times.duplicated(keep=False).sum()), "stay in the order of the file"
    tie_notes = (
        [f"{num_tied:,} of {len(times):,} rows share their date in {name!r} with another: those {order_text}"]
        if num_tied
        else []
    )
    if times.is_monotonic_increasing:
        return frame, tie_notes
    if times.hasnans:
        return frame, [f"{int(times.isna().sum()):,} of {len(times):,} rows have no date in {name!r}: all {order_text}"]
    # reversed, rows of one date come into their order as well
    if times.is_monotonic_decreasing:
        return frame[::-1], [f"sorted by {name!r}: the file has the newest first"]
    if sum(other == name for other, _ in date_columns) > 1:
        return frame, [
            f"the dates in {name!r} may have the day or the month first: the rows {order_text}; write them as "
            "2020-01-31"
        ]
    return frame.iloc[times.argsort(kind="stable")], [
        f"sorted by {name!r}: the rows of the file are not in the order of time",
        *tie_notes,
    ]


def _parse_dates(column: "Series") -> list["Series"]:
    """The readings of a column as dates: none, one, or two where 3/4 may be in March or in April."""
    import pandas as pd
    from pandas.tseries.api import guess_datetime_format

    strings = column.dropna().astype(str).str.strip()
    if strings.nunique() < 2 or (
        to_numeric_or_none(column) is not None and not strings.str.fullmatch(r"(19|20)\d{6}").all()
    ):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")         # of a day before the month: both orders are tried
        guessed_formats = [guess_datetime_format(strings.iloc[0], dayfirst=first) for first in (False, True)]
    for formats in ["ISO8601"], dict.fromkeys(filter(None, guessed_formats)):
        parsed = [pd.to_datetime(strings, format=date_format, utc=True, errors="coerce") for date_format in formats]
        if complete := [times.reindex(column.index) for times in parsed if times.notna().all()]:
            return complete
    return []


def _require_finite(values: list[float], column: str, source_name: str) -> list[float]:
    """Refuse values that are not finite in float32."""
    first_bad = next((k for k, v in enumerate(values) if not abs(v) <= MAX_FLOAT32), None)
    if first_bad is not None:
        raise UsageError(
            f"the values of {column!r} must be finite, but number {first_bad + 1} is {values[first_bad]:g} in "
            f"{source_name!r}; correct it"
        )
    return values


@register_dataset(
    kind="series",
    task="regression",
    license="no license stated; Australian Bureau of Meteorology",
    files=(_MELBOURNE_FILE,),
)
def temperatures(seed: int = 0) -> Data:
    """Minimum temperature of 3,650 days in Melbourne, 1981 to 1990: thirty days, and the next (Gaba Ex 5.3)."""
    import pandas as pd

    (raw,) = read_files("temperatures", (_MELBOURNE_FILE,))
    return build_series("temperatures", pd.read_csv(StringIO(raw.decode()))["Temp"].tolist(), "minimum")


@register_dataset(kind="series", task="regression", license="made by didact")
def waves(seed: int = 0) -> Data:
    """2,000 days of a synthetic season with noise: y = 10 sin(2πt/365) + 3 sin(2πt/29) + e."""
    t = torch.arange(2000)
    noise = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    y = 10 * torch.sin(2 * torch.pi * t / 365) + 3 * torch.sin(2 * torch.pi * t / 29) + noise
    return build_series("waves", y.tolist(), "value")
