"""Time series: a window of the past, and what came next. Splits follow time, so that nobody learns from the future."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from didact.data.assemble import assemble
from didact.data.core import SPLITS, Absent, Batch, Data, Decode, Resident
from didact.data.delimited import read_csv, stem
from didact.data.fetch import File, read, source
from didact.data.table import as_numbers
from didact.errors import UsageError, nearest

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

    def read(self, inputs: Sequence[str]) -> tuple[list[str], Batch]:
        """CSV files with the column, or values written 12.1,11.8,…"""
        rows = [self.values(text)[-self.window :] for text in inputs]
        for text, row in zip(inputs, rows, strict=True):
            if len(row) < self.window:
                raise UsageError(f"a window is {self.window} values of {self.column!r}, got {len(row)} in {text!r}")
        return list(inputs), {"x": torch.tensor(rows)[..., None]}

    def values(self, text: str) -> list[float]:
        if os.path.isfile(text):                   # a Path would complain of a name as long as a window
            return column_of(Path(text), self.column)
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
    """One's own CSV file, its rows in the order of time: the named column, or the last one of numbers."""
    frame = read_csv(path, columns=1)
    numeric = [str(name) for name in frame.columns if as_numbers(frame[name]) is not None]
    if not numeric:
        raise UsageError(f"{path} has no column of numbers: a time series needs one")
    column = target or numeric[-1]
    values = column_of(path, column)
    window = max(1, min(window, len(values) // 10 - horizon))      # of a short series; `ahead` cuts what a recipe asks for
    return series(stem(path), values, column, window=window, horizon=horizon)


def column_of(path: Path, column: str) -> list[float]:
    """A column of numbers; a missing value takes the one before it."""
    frame = read_csv(path, columns=1)
    if column not in frame.columns:
        raise UsageError(f"{path} has no column {column!r}; {nearest(column, map(str, frame.columns))}")
    numbers = as_numbers(frame[column])
    if numbers is None:
        raise UsageError(f"column {column!r} of {path} is not numbers: a time series needs some; choose another with --target")
    return finite([float(v) for v in numbers.ffill().bfill()], column, str(path))


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
