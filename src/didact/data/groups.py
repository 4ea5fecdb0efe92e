"""Groups of a table's rows by one of its columns, for metrics by group and fairness."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from didact.data.core import Data, Split, TensorSplit
from didact.data.storage import PinnedSplit
from didact.data.tables.columns import CategoricalColumn, NumericColumn
from didact.data.tables.offsets import format_plain
from didact.data.tables.table import TableEncoder
from didact.errors import UsageError, look_up

_MAX_NUMBER_GROUPS = 10      # different numbers with a group each; more are divided at the median


@dataclass(frozen=True)
class Groups:
    """Their names, and the group of each row: (N, features) -> (N,)."""

    names: tuple[str, ...]
    assign_rows: Callable[[Tensor], Tensor]


def make_groups(data: Data, column: str, flag: str) -> Groups:
    """A group for each category or each of a few numbers; other numbers are divided at the median of training rows."""
    if not isinstance(data.encoder, TableEncoder) or data.kind != "table":
        raise UsageError(f"{flag} expects a column of a table, but {data.name!r} holds {data.kind}")
    columns = data.encoder.columns
    grouping_column = look_up("column", column, {c.name: c for c in columns})
    start = sum(len(c.feature_names) for c in columns[: columns.index(grouping_column)])

    def select_features(x: Tensor) -> Tensor:
        return x[:, start : start + len(grouping_column.feature_names)]

    row_groups = (
        _group_by_category(grouping_column, select_features)
        if isinstance(grouping_column, CategoricalColumn)
        else _group_by_number(grouping_column, select_features, select_features(get_column(data.train)))
    )
    if len(row_groups.assign_rows(get_column(data.train)).unique()) < 2:
        raise UsageError(
            f"{flag} {column}: all training rows are of one group, {row_groups.names[0]!r}; choose another column"
        )
    return row_groups


def get_column(split: Split, name: str = "x") -> Tensor:
    """A column of a split in memory, by default its encoded rows."""
    in_memory = split.split if isinstance(split, PinnedSplit) else split
    assert isinstance(in_memory, TensorSplit)
    return in_memory.columns[name]


def _group_by_category(column: CategoricalColumn, select_features: Callable[[Tensor], Tensor]) -> Groups:
    names = [feature.removeprefix(f"{column.name}=") for feature in column.feature_names]
    return Groups(
        _make_unique([*names, "(unknown)"]),
        lambda x: torch.where(select_features(x).sum(1) > 0.5, select_features(x).argmax(1), len(names)),
    )


def _group_by_number(column: NumericColumn, select_features: Callable[[Tensor], Tensor], train: Tensor) -> Groups:
    """The last group is that of rows without a number, or with one unseen in training."""
    present = train[train[:, 1] < 0.5, 0] if column.has_missing else train[:, 0]
    values = present.unique()                                                                    # sorted
    value_texts = [format_plain(float(v) + column.offset) for v in values[: _MAX_NUMBER_GROUPS + 1]]
    if len(values) <= _MAX_NUMBER_GROUPS:
        names = [f"{column.name}={value}" for value in value_texts]

        def assign_number(x: Tensor) -> Tensor:
            matches = select_features(x)[:, :1] == values.to(x.device)
            return torch.where(matches.any(1), matches.long().argmax(1), len(names))
    else:
        median = present.quantile(0.5, interpolation="lower")
        is_strict = bool((present > median).any())      # else more than half of the rows have the largest value
        threshold = format_plain(float(median) + column.offset)
        names = (
            [f"{column.name} ≤ {threshold}", f"{column.name} > {threshold}"]
            if is_strict
            else [f"{column.name} < {threshold}", f"{column.name} ≥ {threshold}"]
        )

        def assign_number(x: Tensor) -> Tensor:
            value = select_features(x)[:, 0]
            return (value > median.to(x.device) if is_strict else value >= median.to(x.device)).long()

    def assign_rows(x: Tensor) -> Tensor:
        return (
            torch.where(select_features(x)[:, 1] > 0.5, len(names), assign_number(x))
            if column.has_missing
            else assign_number(x)
        )

    return Groups((*names, f"{column.name} missing" if column.has_missing else "(unknown)"), assign_rows)


def _make_unique(names: Sequence[str]) -> tuple[str, ...]:
    """Primes behind names that a file uses too."""
    return tuple(name + "′" * names[:i].count(name) for i, name in enumerate(names))
