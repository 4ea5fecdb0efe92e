"""A table's whole row: which columns it has, what is usual in them, and how a new one is written in the table's own words."""

import csv
import io
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from didact.data.centring import full
from didact.data.columns import Category, Number
from didact.data.core import Batch, Data, Resident
from didact.data.table import TableEncoder
from didact.errors import UsageError

DECIMALS = 6        # at most; numbers with more are written with six digits
FREE = -1           # stands for them

Column = Number | Category


def columns_of(data: Data, *, joint: bool) -> tuple[Column, ...]:
    """The columns that make an encoded row; with the target behind them, where it is learned together with them."""
    if not isinstance(data.encoder, TableEncoder):
        raise UsageError(f"{data.name!r} does not say what its columns are: give a CSV file, or one of the tables known by name")
    return data.encoder.columns + (target_columns(data) if joint else ())


def target_columns(data: Data) -> tuple[Column, ...]:
    """The target as columns like the others: of numbers, of classes, or of several that are yes or no."""
    if data.task == "regression":
        return (Number(data.target, shift=data.target_shift),)
    if data.task == "multilabel":
        return tuple(Category(label, ("0", "1")) for label in data.labels)
    return (Category(data.target, data.labels),) if data.labels else ()


def joined(batch: Batch, data_task: str, classes: int) -> Tensor:
    """Inputs and targets as one encoded row, in their own units (but for what is subtracted from numbers far from zero)."""
    x, y = batch["x"], batch["y"]
    if data_task == "multilabel":
        return torch.cat([x, torch.stack([1 - y, y], dim=2).flatten(1)], dim=1)
    return torch.cat([x, F.one_hot(y, classes).to(x.dtype) if classes else y[:, None].to(x.dtype)], dim=1)


def training_rows(data: Data, *, joint: bool) -> Tensor | None:
    """All encoded training rows; None where a run is rebuilt without its data."""
    if not isinstance(data.train, Resident):
        return None
    batch = data.train.batch(torch.arange(len(data.train), device=data.train.device))
    return joined(batch, data.task, data.classes) if joint and "y" in batch else batch["x"]


def decimals(values: Tensor) -> int:
    """Behind the point of each of them; FREE where there are more than six."""
    v = values.double()
    near = 2.0**-21 * v.abs() + 1e-9         # what is left of a decimal number in float32
    for d in range(DECIMALS + 1):
        if bool(((v * 10**d).round() / 10**d - v).abs().le(near).all()):
            return d
    return FREE


def written(columns: Sequence[Column], x: Tensor, places: Sequence[int]) -> list[list[str]]:
    """Encoded rows (N, F) as text, a list for each: numbers with as many decimals as their feature has, categories by name."""
    found: list[list[str]] = []
    at = 0
    for column in columns:
        part = x[:, at : at + len(column.features)].double().cpu()
        if isinstance(column, Number):
            gone = part[:, 1] > 0.5 if column.missing else torch.zeros(len(part), dtype=torch.bool)
            values = zip((part[:, 0] + column.shift).tolist(), gone.tolist(), strict=True)
            found.append(["" if no else told(value, places[at], column.shift) for value, no in values])
        else:
            names = column.values + ("(other)",) * column.other + ("",) * column.missing
            found.append([names[k] for k in part.argmax(1).tolist()])
        at += len(column.features)
    return [list(row) for row in zip(*found, strict=True)]


def told(value: float, places: int, shift: float = 0.0) -> str:
    if places == FREE:
        return full(value, shift).replace(",", "") if shift else f"{value:.6g}"
    return f"{round(value, places) + 0.0:.{places}f}"  # + 0: no −0


def as_csv(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A CSV file with a line of names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()
