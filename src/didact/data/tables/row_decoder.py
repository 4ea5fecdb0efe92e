"""Whole rows of a table: their columns with the target, and encoded rows written as text again."""

import csv
import io
from collections.abc import Sequence
from datetime import datetime, timedelta

import torch
import torch.nn.functional as F
from torch import Tensor

from didact.data.core import Batch, Data, TensorSplit
from didact.data.tables.cell_readings import DatePart
from didact.data.tables.columns import CategoricalColumn, NumericColumn
from didact.data.tables.offsets import format_exact
from didact.data.tables.table import TableEncoder
from didact.errors import UsageError

_MAX_DECIMALS = 6
UNLIMITED_DECIMALS = -1           # of numbers with more decimals: written with six significant digits

Column = NumericColumn | CategoricalColumn


def get_row_columns(data: Data, *, joint: bool) -> tuple[Column, ...]:
    """The columns that make an encoded row; with `joint` the target behind them."""
    if not isinstance(data.encoder, TableEncoder):
        raise UsageError(
            f"{data.name!r} does not say what its columns are: give a CSV file, or one of the tables known by name"
        )
    return data.encoder.columns + (get_target_columns(data) if joint else ())


def get_target_columns(data: Data) -> tuple[Column, ...]:
    """The target as columns: numeric, of classes, or of several labels that are yes or no."""
    if data.task == "regression":
        return (NumericColumn(data.target, offset=data.target_offset),)
    if data.task == "multilabel":
        return tuple(CategoricalColumn(label, ("0", "1")) for label in data.class_names)
    return (CategoricalColumn(data.target, data.class_names),) if data.class_names else ()


def concat_target(batch: Batch, task: str, num_classes: int) -> Tensor:
    """Inputs and targets as one encoded row, in their own units less the offsets."""
    x, y = batch["x"], batch["y"]
    if task == "multilabel":
        return torch.cat([x, torch.stack([1 - y, y], dim=2).flatten(1)], dim=1)
    return torch.cat([x, F.one_hot(y, num_classes).to(x.dtype) if num_classes else y[:, None].to(x.dtype)], dim=1)


def get_training_rows(data: Data, *, joint: bool) -> Tensor | None:
    """All encoded training rows; None where a run is rebuilt without its data."""
    if not isinstance(data.train, TensorSplit):
        return None
    batch = data.train.batch(torch.arange(len(data.train), device=data.train.device))
    return concat_target(batch, data.task, data.num_classes) if joint and "y" in batch else batch["x"]


def infer_decimals(values: Tensor) -> int:
    """How many decimals these numbers have; UNLIMITED_DECIMALS where there are more than six."""
    v = values.double()
    tolerance = 2.0**-21 * v.abs() + 1e-9         # what is left of a decimal number in float32
    for d in range(_MAX_DECIMALS + 1):
        if bool(((v * 10**d).round() / 10**d - v).abs().le(tolerance).all()):
            return d
    return UNLIMITED_DECIMALS


def decode_rows(columns: Sequence[Column], x: Tensor, num_decimals: Sequence[int]) -> list[list[str]]:
    """Encoded rows (N, F) as text, a list for each: numbers with the decimals of their feature, categories by name."""
    column_texts: list[list[str]] = []
    start = 0
    for column in columns:
        part = x[:, start : start + len(column.feature_names)].double().cpu()
        if isinstance(column, NumericColumn):
            is_missing = part[:, 1] > 0.5 if column.has_missing else torch.zeros(len(part), dtype=torch.bool)
            values = zip((part[:, 0] + column.offset).tolist(), is_missing.tolist(), strict=True)
            column_texts.append(
                ["" if no else _format_number(value, num_decimals[start], column.offset) for value, no in values]
            )
        else:
            names = column.values + ("(other)",) * column.has_other + ("",) * column.has_missing
            column_texts.append([names[k] for k in part.argmax(1).tolist()])
        start += len(column.feature_names)
    return [list(row) for row in zip(*column_texts, strict=True)]


def join_date_parts(columns: Sequence[Column], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The names of the file's columns and the rows as it has them: of the parts of a date its days, as a date."""
    has_time = {
        c.source_name for c in columns if isinstance(c, NumericColumn) and _get_date_part(c).startswith("hour")
    }
    names, chosen = [], []
    for i, column in enumerate(columns):
        part = _get_date_part(column)
        if part in ("", "days"):
            names.append(column.source_name)
            chosen.append((i, part and (_format_time if column.source_name in has_time else _format_date)))
    return names, [[to_text(row[i]) if to_text and row[i] else row[i] for i, to_text in chosen] for row in rows]


def _get_date_part(column: Column) -> str:
    """days, year, …; empty where the column is no part of a date."""
    reading = column.reading if isinstance(column, NumericColumn) else None
    return reading.part if isinstance(reading, DatePart) else ""


def _format_time(days: str) -> str:
    """Days since 1970 as a date and a time, to the minute."""
    return (datetime(1970, 1, 1) + timedelta(minutes=round(1440 * float(days)))).isoformat(" ")


def _format_date(days: str) -> str:
    return (datetime(1970, 1, 1) + timedelta(days=round(float(days)))).date().isoformat()


def _format_number(value: float, num_decimals: int, offset: float = 0.0) -> str:
    if num_decimals == UNLIMITED_DECIMALS:
        return format_exact(value, offset).replace(",", "") if offset else f"{value:.6g}"
    return f"{round(value, num_decimals) + 0.0:.{num_decimals}f}"  # + 0: no −0


def rows_to_csv(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A CSV file with a header line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()
