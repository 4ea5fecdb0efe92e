"""Rows of a table told apart by one of its columns: the people, places or kinds that a model is asked to treat alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from didact.data.centring import exact
from didact.data.columns import Category, Number
from didact.data.core import Data, Resident, Split
from didact.data.stream import Hosted
from didact.data.table import TableEncoder
from didact.errors import UsageError, pick

FEW = 10      # different numbers that are a group each; more are halved


@dataclass(frozen=True)
class Groups:
    """What they are called, and which one each row is of: (N, features) -> (N,)."""

    names: tuple[str, ...]
    of: Callable[[Tensor], Tensor]


def groups(data: Data, column: str, flag: str) -> Groups:
    """Of a category one for each value, of a few numbers too; other numbers are halved at the median of the training rows."""
    if not isinstance(data.encoder, TableEncoder) or data.kind != "table":
        raise UsageError(f"{flag} expects a column of a table, but {data.name!r} holds {data.kind}")
    columns = data.encoder.columns
    chosen = pick("column", column, {c.name: c for c in columns})
    at = sum(len(c.features) for c in columns[: columns.index(chosen)])

    def own(x: Tensor) -> Tensor:
        return x[:, at : at + len(chosen.features)]

    found = of_names(chosen, own) if isinstance(chosen, Category) else of_numbers(chosen, own, own(features(data.train)))
    if len(found.of(features(data.train)).unique()) < 2:
        raise UsageError(f"{flag} {column}: all training rows are of one group, {found.names[0]!r}; choose another column")
    return found


def features(split: Split, name: str = "x") -> Tensor:
    """A column of a table, which always fits into memory: by default its encoded rows."""
    held = split.split if isinstance(split, Hosted) else split
    assert isinstance(held, Resident)
    return held.columns[name]


def of_names(column: Category, own: Callable[[Tensor], Tensor]) -> Groups:
    names = [feature.removeprefix(f"{column.name}=") for feature in column.features]
    return Groups(distinct([*names, "(unknown)"]), lambda x: torch.where(own(x).sum(1) > 0.5, own(x).argmax(1), len(names)))


def of_numbers(column: Number, own: Callable[[Tensor], Tensor], train: Tensor) -> Groups:
    """The last group is that of rows without a number, or with one that training did not meet."""
    known = train[train[:, 1] < 0.5, 0] if column.missing else train[:, 0]
    values = known.unique()                                                                    # sorted
    told = [exact(float(v) + column.shift) for v in values[: FEW + 1]]
    if len(values) <= FEW:
        names = [f"{column.name}={value}" for value in told]

        def number(x: Tensor) -> Tensor:
            same = own(x)[:, :1] == values.to(x.device)
            return torch.where(same.any(1), same.long().argmax(1), len(names))
    else:
        middle = known.quantile(0.5, interpolation="lower")
        above = bool((known > middle).any())      # else more than half of the rows have the largest value
        cut = exact(float(middle) + column.shift)
        names = [f"{column.name} ≤ {cut}", f"{column.name} > {cut}"] if above else [f"{column.name} < {cut}", f"{column.name} ≥ {cut}"]

        def number(x: Tensor) -> Tensor:
            value = own(x)[:, 0]
            return (value > middle.to(x.device) if above else value >= middle.to(x.device)).long()

    def of(x: Tensor) -> Tensor:
        return torch.where(own(x)[:, 1] > 0.5, len(names), number(x)) if column.missing else number(x)

    return Groups((*names, f"{column.name} missing" if column.missing else "(unknown)"), of)


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """A file may have a value that is called as didact calls those without one."""
    return tuple(name + "′" * names[:i].count(name) for i, name in enumerate(names))
