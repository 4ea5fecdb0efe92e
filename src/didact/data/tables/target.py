"""The target of a table: which column it is, and whether it holds classes, a number, or several labels."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from didact.data.checks import summarize_list, validate
from didact.data.tables.columns import (
    MAX_CLASS_NUMBERS,
    describe_rounding,
    find_quantity,
    to_numeric_or_none,
    to_strings,
)
from didact.data.tables.csv_reader import to_numeric
from didact.data.tables.offsets import MAX_FLOAT32, describe_offset, find_offset, subtract_offset
from didact.errors import UsageError, suggest_nearest

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Task = Literal["classes", "number"]
Offsets = Mapping[str, float]        # what is subtracted from columns before they are rounded
_YES_WORDS = ("1", "1.0", "yes", "y", "true", "t", "on", "x", "ja", "oui", "sí", "si", "sim", "да")
_NO_WORDS = ("0", "0.0", "no", "n", "false", "f", "off", "nein", "nee", "nej", "non", "não", "нет")
_LABEL_VALUES = dict.fromkeys(_YES_WORDS, 1) | dict.fromkeys(_NO_WORDS, 0)


class Target(NamedTuple):
    """What is predicted, and a note on it; `offset` was subtracted from y."""

    task: str
    y: Tensor
    class_names: tuple[str, ...]
    note: str
    offset: float = 0.0


def target_columns(target: str | None) -> set[str | int]:
    """The columns that may be the target, whose cells are needed as text: those named, or the last one."""
    return {-1} if target is None else {target, *target.split(",")}


def choose_target(
    frame: "DataFrame", target: str | None, path: Path, *, excluded: str | None = None
) -> tuple[str, tuple[str, ...]]:
    """The named column, or several with commas between; the last one, and a note, where none is named."""
    columns = [str(name) for name in frame.columns if name != excluded]
    if target == "":
        raise UsageError(f"no column of {path} is the target")
    if not columns:
        missing = "no column is left" if excluded is None else f"{excluded!r} is the only column"
        raise UsageError(f"{path} has no target: {missing}; give it a column with what to learn")
    if len(columns) == 1 and excluded is None:
        raise UsageError(f"{path} has only one column, {columns[0]!r}: expected columns separated by , ; tab or |")
    if target is None:
        return columns[-1], (f"no --target given: the last column, {columns[-1]!r}",)
    if target in columns:
        return target, ()
    parts = target.split(",")
    if len(set(parts)) < len(parts):
        raise UsageError(f"--target {target} names a column twice; name each once")
    for name in parts:
        if name not in columns:
            raise UsageError(f"{path} has no column {name!r} to be the target; {suggest_nearest(name, columns)}")
    return target, ()


def read_labeled_rows(
    frame: "DataFrame", target: str, name: str, task: Task | None = None, offsets: Offsets | None = None
) -> tuple[NDArray[np.bool_], Target]:
    """Which rows have a target, and their targets; the note says how many have none.

    Refused where what remains cannot be learned from.
    """
    columns = [target] if target in frame else target.split(",")
    is_missing = frame[columns].isna().any(axis=1).to_numpy()
    labeled = frame[~is_missing] if is_missing.any() and not is_missing.all() else frame
    try:
        values = read_target(labeled, target, task, offsets)
        validate(name, len(values.y), {"y": values.y}, task=values.task, class_names=values.class_names)
    except UsageError as error:
        if labeled is frame:
            raise
        raise UsageError(f"{_describe_missing(frame, target, is_missing)}; without them, {error}") from None
    if labeled is frame:
        return ~is_missing, values
    left_out_note = f"{_describe_missing(frame, target, is_missing)}: left out"
    return ~is_missing, values._replace(note=f"{left_out_note}; {values.note}")


def _describe_missing(frame: "DataFrame", target: str, is_missing: NDArray[np.bool_]) -> str:
    """In how many rows the target is missing, and where first."""
    word = frame.attrs.get("missing", {}).get(target, "")
    word_note = f" ({word!r} is read as missing: where it is a class, write another word)" if word else ""
    unit, first = frame.attrs.get("unit", "line"), frame.index[is_missing][0]
    return (
        f"the target {target!r} is missing in {int(is_missing.sum()):,} of {len(frame):,} rows, first in {unit} "
        f"{first}{word_note}"
    )


def read_target(frame: "DataFrame", target: str, task: Task | None = None, offsets: Offsets | None = None) -> Target:
    """One column as the target, or several with commas between; `task` says how numbers are read, else they decide."""
    if target not in frame:
        if task:
            raise UsageError(
                f"--task is for one target, but --target {target} names several labels; leave out --task {task}"
            )
        return _read_multilabel_target(frame[target.split(",")])
    offset = None if offsets is None else offsets.get(target, 0.0)
    return _read_single_target(frame[target], task, frame.attrs.get("missing", {}).get(target, ""), offset)


def _read_single_target(
    column: "Series", task: Task | None = None, missing_word: str = "", offset: float | None = None
) -> Target:
    """One column. `missing_word` is a word of the file that was read as missing, `offset` that of a run.

    Words are classes; so are at most 20 different whole numbers, each frequent; any two values are a binary task.
    """
    name, n = str(column.name), len(column)
    is_missing = column.isna()
    missing_note = (
        f" ({missing_word!r} is read as missing: where it is a class, write another word)" if missing_word else ""
    )
    if is_missing.all():
        raise UsageError(
            f"the target {name!r} holds no value in any of the {n} rows{missing_note}; choose another with --target"
        )
    if is_missing.any():
        first = column.index[is_missing.to_numpy()][0]
        raise UsageError(
            f"the target {name!r} is missing in {int(is_missing.sum())} of {n} rows, first in line "
            f"{first}{missing_note}; fill it in or delete those rows"
        )
    amounts, amounts_note = (None, "") if task == "classes" else _read_amounts(column)
    # a rare word is a rare class
    numbers = to_numeric_or_none(column, allow_few=False) if amounts is None else amounts
    if numbers is None or (task == "classes" and numbers.isna().any()):
        _require_numeric(column, task)
        return _encode_classes(name, to_strings(column), sorted(set(to_strings(column))))
    for is_wrong, expected in ((numbers.isna(), "a number"), (numbers.abs() > MAX_FLOAT32, "finite")):
        if is_wrong.any():
            i = int(is_wrong.to_numpy().argmax())
            raise UsageError(
                f"the target {name!r} must be {expected}, got {column.iloc[i]!r} in line {column.index[i]}"
            )
    counts = numbers.value_counts()
    if task == "classes" or (task is None and _looks_categorical(numbers, counts)):
        return _read_class_numbers(name, numbers, task)
    target = _read_regression_target(name, numbers, counts, task, offset)
    return target._replace(note=target.note + amounts_note)


def _read_amounts(column: "Series") -> "tuple[Series | None, str]":
    """Amounts such as $1,200 as numbers, and a note; None where they are none, or a few classes."""
    quantity = find_quantity(column, min_share=1.0)
    if quantity is None:
        return None, ""
    numbers = quantity.to_numbers(column)
    if _looks_categorical(numbers, numbers.value_counts()):
        return None, ""
    return numbers, f"; {column.iloc[0]!r} is read as {numbers.iloc[0]:.15g}"


def _looks_categorical(numbers: "Series", counts: "Series") -> bool:
    """Whether numbers look like classes: two of them, or a few whole ones that are each frequent."""
    is_whole = bool((numbers % 1 == 0).all())
    return len(counts) <= 2 or (
        is_whole and len(counts) <= MAX_CLASS_NUMBERS and 5 * len(counts) <= len(numbers) and counts.min() >= 3
    )


def _read_class_numbers(name: str, numbers: "Series", task: Task | None) -> Target:
    """Each different number as a class."""
    distinct = sorted(numbers.unique())
    if len(distinct) > max(MAX_CLASS_NUMBERS, len(numbers) / 2):
        count_text = f"{len(distinct)} different numbers in {len(numbers)} rows"
        raise UsageError(
            f"--task classes: the target {name!r} holds {count_text}, too many to be classes; leave it out"
        )
    is_whole = bool((numbers % 1 == 0).all())
    names_by_value = {value: f"{value:.0f}" if is_whole else f"{value:.15g}" for value in distinct}
    target = _encode_classes(name, numbers.map(names_by_value), list(names_by_value.values()))
    return target._replace(note=target.note + (", as --task says" if task else "; --task number reads a number"))


def _read_regression_target(
    name: str, numbers: "Series", counts: "Series", task: Task | None, offset: float | None
) -> Target:
    """Numbers as a regression target, less their offset where that is large."""
    rounding_note = describe_rounding(numbers)
    if rounding_note and len(counts) <= MAX_CLASS_NUMBERS:
        raise UsageError(f"the target {name!r} {rounding_note}")
    values = numbers.to_numpy(np.float64)
    offset = find_offset(values) if offset is None else offset
    rounding_note = rounding_note or (f"{describe_offset(offset)}; predictions have it added again" if offset else "")
    could_be_classes = (
        bool((numbers % 1 == 0).all()) and counts.min() >= 3 and len(counts) <= max(MAX_CLASS_NUMBERS, len(numbers) / 2)
    )
    task_note = ", as --task says" if task else "; --task classes reads classes" if could_be_classes else ""
    summary = f"target {name!r}: {len(counts)} different numbers, read as regression{task_note}" + (
        rounding_note and f"; it {rounding_note}"
    )
    return Target("regression", torch.from_numpy(subtract_offset(values, offset)), (), summary, offset)


def _require_numeric(column: "Series", task: Task | None) -> None:
    """Refuse to read words as numbers."""
    if task == "number":
        unread = column[to_numeric(column).isna()]
        raise UsageError(
            f"--task number expects numbers, but the target {column.name!r} holds {unread.iloc[0]!r} in line "
            f"{unread.index[0]}; leave it out, or choose another column with --target"
        )


def _read_multilabel_target(frame: "DataFrame") -> Target:
    """Columns of yes and no, any number of which may be true of a row: y is (N, K)."""
    columns = []
    for name in frame.columns:
        if frame[name].isna().all():
            raise UsageError(f"the target {name!r} holds no value in any of the {len(frame)} rows; leave it out")
        values = to_strings(frame[name]).str.lower().map(_LABEL_VALUES)
        if values.isna().any():
            i = int(values.isna().to_numpy().argmax())
            raise UsageError(
                f"several targets are each yes or no (1 or 0), but {name!r} is {frame[name].iloc[i]!r} in line "
                f"{frame.index[i]}; name one column, or write 1 and 0"
            )
        if values.nunique() < 2:
            raise UsageError(
                f"the target {name!r} is the same in every row: there is nothing to learn; leave it out of --target"
            )
        columns.append(torch.from_numpy(values.to_numpy(np.float32)))
    labels = tuple(str(name) for name in frame.columns)
    note = f"targets {summarize_list(labels)}: each yes or no, read as multi-label classification"
    return Target("multilabel", torch.stack(columns, dim=1), labels, note)


def _encode_classes(name: str, cells: "Series", class_names: Sequence[str]) -> Target:
    """Words as class numbers, in the order of `class_names`."""
    if len(class_names) < 2:
        raise UsageError(
            f"the target {name!r} is {class_names[0]!r} in every row: a classifier needs at least two classes"
        )
    if len(class_names) > max(MAX_CLASS_NUMBERS, len(cells) / 2):
        raise UsageError(
            f"the target {name!r} holds {len(class_names)} texts in {len(cells)} rows, neither classes nor numbers;"
            " choose another with --target"
        )
    class_ids = {label: k for k, label in enumerate(class_names)}
    y = torch.tensor([class_ids[word] for word in cells])
    task = "binary" if len(class_names) == 2 else "multiclass"
    return Target(
        task, y, tuple(class_names), f"target {name!r}: {len(class_names)} classes, read as {task} classification"
    )
