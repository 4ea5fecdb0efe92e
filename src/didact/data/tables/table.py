"""A person's own table: a CSV file of numbers and categories, understood and turned into features.

    number    -> its value, the median where it is missing, and a 0/1 feature that says so
    category  -> one 0/1 feature for each of its values
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from didact.data.build import Examples, build_data, split_indices
from didact.data.checks import summarize_list, validate
from didact.data.core import Batch, Data, Decode, Given
from didact.data.tables.columns import (
    MAX_CLASS_NUMBERS,
    CategoricalColumn,
    NumericColumn,
    column_from_spec,
    column_spec,
    describe_numbers,
    describe_rounding,
    infer_column,
    to_numeric_or_none,
    to_strings,
)
from didact.data.tables.csv_reader import (
    dataset_name,
    is_csv_path,
    is_number,
    make_line_locator,
    parse_row,
    read_csv,
    to_numeric,
)
from didact.data.tables.decimal_commas import strip_commas
from didact.data.tables.offsets import MAX_FLOAT32, describe_offset, find_offset, subtract_offset
from didact.errors import UsageError, format_count, suggest_nearest

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Task = Literal["classes", "number"]
Offsets = Mapping[str, float]        # what is subtracted from columns before they are rounded, where it is something
YES_NO = {"1": 1, "1.0": 1, "yes": 1, "true": 1, "0": 0, "0.0": 0, "no": 0, "false": 0}


def load_table(
    path: Path,
    *,
    target: str | None = None,
    task: Task | None = None,
    seed: int = 0,
    indices: Mapping[str, Tensor] | None = None,
    run_data: Data | None = None,
) -> Data:
    """A CSV file as Data. What fills and encodes it is learned from the training rows alone.

    Where no target is named (or "": none) and the last column cannot be one, all columns are inputs and the first
    note says why: enough for
    a model that learns them together, and a recipe that needs a target refuses in those words. `before`: what a run
    kept of these data.
    """
    frame = read_csv(path, min_columns=1, text_columns=target_columns(target))
    name, offsets = dataset_name(path), get_stored_offsets(run_data)
    try:
        target_name, notes = choose_target(frame, target, path)
        target_values = read_target(frame, target_name, task, offsets)
        validate(
            name,
            len(target_values.y),
            {"y": target_values.y},
            task=target_values.task,
            class_names=target_values.class_names,
        )
    except UsageError as why:
        if target or task:
            raise
        try:
            return _load_without_target(frame, path, str(why), seed=seed, indices=indices, offsets=offsets)
        except UsageError:
            raise why from None                # what is wrong with the target is nearer to what was meant
    indices = split_indices(name, len(frame), target_values.y, task=target_values.task, indices=indices, seed=seed)
    encoder, x = TableEncoder.from_frame(frame, target_name, indices["train"], offsets)
    return build_data(
        Examples(
            name,
            "table",
            {"x": x, "y": target_values.y},
            task=target_values.task,
            class_names=target_values.class_names,
            feature_names=encoder.feature_names,
            target=target_name,
            target_offset=target_values.offset,
            encoder=encoder,
            locator=make_line_locator(path, frame.index),
            notes=(*notes, target_values.note, *frame.attrs["notes"], *encoder.notes),
        ),
        indices=indices,
    )


def get_stored_offsets(run_data: Data | None) -> Offsets | None:
    """What a run subtracted from its columns and its target; older ones, from none. None where there was no run: it
    is to be found."""
    if run_data is None:
        return None
    columns = run_data.encoder.columns if isinstance(run_data.encoder, TableEncoder) else ()
    return {column.name: column.offset for column in columns if isinstance(column, NumericColumn)} | {
        run_data.target: run_data.target_offset
    }


def _load_without_target(
    frame: "DataFrame",
    path: Path,
    reason: str,
    *,
    seed: int,
    indices: Mapping[str, Tensor] | None,
    offsets: Offsets | None,
) -> Data:
    """All columns as inputs, and why none is the target."""
    name = dataset_name(path)
    indices = split_indices(name, len(frame), None, task="none", indices=indices, seed=seed)
    encoder, x = TableEncoder.from_frame(frame, "", indices["train"], offsets)
    return build_data(
        Examples(
            name,
            "table",
            {"x": x},
            task="none",
            feature_names=encoder.feature_names,
            target="",
            encoder=encoder,
            locator=make_line_locator(path, frame.index),
            notes=(reason, *frame.attrs["notes"], *encoder.notes),
        ),
        indices=indices,
    )


@dataclass(frozen=True)
class TableEncoder:
    """Rows of a table -> (N, features) float32, the same way for training and for `predict`."""

    columns: tuple[NumericColumn | CategoricalColumn, ...]
    target: str = "y"
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_frame(
        cls, frame: "DataFrame", target: str, rows: Tensor | None = None, offsets: Offsets | None = None
    ) -> tuple["TableEncoder", Tensor]:
        """Learn medians and categories from `rows` (all, if None), and offsets where none are given, and encode the
        whole frame."""
        train_frame = frame if rows is None else frame.iloc[rows.numpy()]
        target_names = {target} if target in frame else set(target.split(","))
        columns: list[NumericColumn | CategoricalColumn] = []
        notes: list[str] = []
        for name in frame.columns:
            if name not in target_names:
                column, note = infer_column(train_frame[name], None if offsets is None else offsets.get(name, 0.0))
                if isinstance(column, NumericColumn):
                    column = replace(column, comma_meaning=frame.attrs.get("commas", {}).get(name, ""))
                    notes += describe_numbers(frame[name])
                columns += [column] if column else []
                notes += [note] if note else []
        if not columns:
            reason = "; ".join(notes) or "there is none"
            raise UsageError(
                f"no column{f' beside the target {target!r}' if target else ''} can be learned from: {reason}"
            )
        encoder = cls(tuple(columns), target, tuple(notes))
        kinds = [sum(isinstance(c, kind) for c in columns) for kind in (NumericColumn, CategoricalColumn)]
        columns_note = (
            f"{format_count(kinds[0], 'column')} of numbers and {kinds[1]} of categories make "
            f"{format_count(len(encoder.feature_names), 'feature')}"
        )
        return cls(encoder.columns, target, (columns_note, *notes)), encoder.encode(frame)

    @classmethod
    def numeric(cls, feature_names: Sequence[str], target: str = "y") -> "TableEncoder":
        """A table of numbers alone, none of them missing."""
        return cls(tuple(NumericColumn(name) for name in feature_names), target)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {}

    def encode(self, frame: "DataFrame") -> Tensor:
        return torch.from_numpy(np.concatenate([column.encode(frame[column.name]) for column in self.columns], axis=1))

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """CSV files, or single rows written `a=1,b=2` or as JSON objects."""
        named_frames = list(self._read_frames(inputs))
        return [name for names, _ in named_frames for name in names], {
            "x": torch.cat([self.encode(frame) for _, frame in named_frames])
        }

    def describe_unseen_inputs(self, inputs: Sequence[Given]) -> list[str]:
        """Cells of numbers that are none, and names that training did not meet, with the first row in which it is
        so."""
        notes = []
        for names, frame in self._read_frames(inputs):
            for column in self.columns:
                is_unseen, description = column.find_unseen(frame[column.name])
                if is_unseen.any():
                    notes.append(
                        f"column {column.name!r} holds {description}; first in {names[int(is_unseen.argmax())]}"
                    )
        return notes

    def _read_frames(self, inputs: Sequence[Given]) -> Iterator[tuple[list[str], "DataFrame"]]:
        """What each row is called, and the rows as text."""
        import pandas as pd

        for text in inputs:
            if isinstance(text, Path) or (is_csv_path(text) and ("=" not in text or os.path.exists(text))):
                commas = {
                    c.name: c.comma_meaning for c in self.columns if isinstance(c, NumericColumn) and c.comma_meaning
                }
                categories = {c.name for c in self.columns if isinstance(c, CategoricalColumn)}
                frame = read_csv(
                    Path(text),
                    min_columns=min(2, len(self.columns)),
                    comma_meanings=commas,
                    text_columns=categories,
                )
                self._check_has_columns(frame.columns, str(text))
                self._check_numeric_columns(frame, str(text))
                yield [f"{text}:{line}" for line in frame.index], frame
            else:
                row = parse_row(text)
                self._check_has_columns(row, text)
                row |= {
                    c.name: strip_commas(str(row[c.name]), c.comma_meaning)
                    for c in self.columns
                    if isinstance(c, NumericColumn) and c.comma_meaning and row[c.name]
                }
                frame = pd.DataFrame([{c.name: row[c.name] for c in self.columns}], index=[1], dtype=object)
                self._check_numeric_cells(row)
                yield [text], frame

    def _check_has_columns(self, available: Sequence[str] | Mapping[str, Any], source: str) -> None:
        """Every column is needed; a value may be empty, a column not."""
        missing = [column.name for column in self.columns if column.name not in available]
        if missing:
            extra = [name for name in available if name not in {c.name for c in self.columns} and name != self.target]
            hint = suggest_nearest(missing[0], extra) if extra else "an unknown value may be left empty"
            raise UsageError(f"{source!r} lacks the column {summarize_list([repr(name) for name in missing])}; {hint}")

    def _check_numeric_columns(self, frame: "DataFrame", source: str) -> None:
        """A column of a file in which no cell at all is a number was written in another way than in training."""
        for column in self.columns:
            present = frame[column.name].dropna()
            if isinstance(column, NumericColumn) and len(present) and to_numeric(present).isna().all():
                cell = f"{present.iloc[0]!r} in line {present.index[0]}"
                raise UsageError(
                    f"column {column.name!r} of {source} expects numbers, got {cell}; an unknown value may be left "
                    "empty"
                )

    def _check_numeric_cells(self, row: Mapping[str, Any]) -> None:
        """In a file a word among numbers counts as missing, as in training; in a row that was typed it is a mistake."""
        for column in self.columns:
            value = row[column.name]
            if isinstance(column, NumericColumn) and value is not None and not is_number(str(value)):
                raise UsageError(f"column {column.name!r} expects a number, got {value!r}")

    def spec(self) -> dict[str, Any]:
        return {"kind": "table", "target": self.target, "columns": [column_spec(column) for column in self.columns]}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "TableEncoder":
        return cls(tuple(column_from_spec(column) for column in spec["columns"]), spec["target"])


class Target(NamedTuple):
    """What is to be learned, and what to say of it; `offset` was subtracted from y."""

    task: str
    y: Tensor
    class_names: tuple[str, ...]
    note: str
    offset: float = 0.0


def read_target(frame: "DataFrame", target: str, task: Task | None = None, offsets: Offsets | None = None) -> Target:
    """A column as the target, or several with commas between; `task` says what numbers mean where the rows should
    not decide."""
    if target not in frame:
        if task:
            raise UsageError(
                f"--task is for one target, but --target {target} names several of yes and no; leave out --task {task}"
            )
        return _read_multilabel_target(frame[target.split(",")])
    offset = None if offsets is None else offsets.get(target, 0.0)
    return _read_single_target(frame[target], task, frame.attrs.get("missing", {}).get(target, ""), offset)


def _read_single_target(
    column: "Series", task: Task | None = None, missing_word: str = "", offset: float | None = None
) -> Target:
    """One column; `missing_word` is a word of the file that was read as missing, `offset` what to subtract, where
    that is known already.

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
            f"{first}{missing_note};"
            " fill it in or delete those rows"
        )
    numbers = to_numeric_or_none(column, allow_few=False)     # a rare word is a rare class
    if numbers is None or (task == "classes" and numbers.isna().any()):
        _require_numeric(column, task)
        return _encode_classes(name, to_strings(column), sorted(set(to_strings(column))))
    for is_wrong, kind in ((numbers.isna(), "a number"), (numbers.abs() > MAX_FLOAT32, "finite")):
        if is_wrong.any():
            i = int(is_wrong.to_numpy().argmax())
            raise UsageError(f"the target {name!r} must be {kind}, got {column.iloc[i]!r} in line {column.index[i]}")
    counts = numbers.value_counts()
    if task == "classes" or (task is None and _looks_categorical(numbers, counts)):
        return _read_class_numbers(name, numbers, task)
    return _read_regression_target(name, numbers, counts, task, offset)


def _looks_categorical(numbers: "Series", counts: "Series") -> bool:
    """Whether numbers look like those of classes: two of them, or a few whole ones that are each frequent."""
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
    """Numbers as what is predicted, less what they share where that is large."""
    rounding_note = describe_rounding(numbers)
    if rounding_note and len(counts) <= MAX_CLASS_NUMBERS:
        raise UsageError(f"the target {name!r} {rounding_note}")
    values = numbers.to_numpy(np.float64)
    offset = find_offset(values) if offset is None else offset
    rounding_note = rounding_note or (f"{describe_offset(offset)}; answers have it again" if offset else "")
    could_be_classes = (
        bool((numbers % 1 == 0).all()) and counts.min() >= 3 and len(counts) <= max(MAX_CLASS_NUMBERS, len(numbers) / 2)
    )
    task_note = ", as --task says" if task else "; --task classes reads classes" if could_be_classes else ""
    summary = f"target {name!r}: {len(counts)} different numbers, read as regression{task_note}" + (
        rounding_note and f"; it {rounding_note}"
    )
    return Target("regression", torch.from_numpy(subtract_offset(values, offset)), (), summary, offset)


def _require_numeric(column: "Series", task: Task | None) -> None:
    """Words are no numbers, whoever asks."""
    if task == "number":
        unread = column[to_numeric(column).isna()]
        raise UsageError(
            f"--task number expects numbers, but the target {column.name!r} holds {unread.iloc[0]!r} in line "
            f"{unread.index[0]};"
            " leave it out, or choose another column with --target"
        )


def _read_multilabel_target(frame: "DataFrame") -> Target:
    """Columns of yes and no, any number of which may be true of a row: y is (N, K)."""
    columns = []
    for name in frame.columns:
        values = to_strings(frame[name]).str.lower().map(YES_NO)
        if values.isna().any():
            i = int(values.isna().to_numpy().argmax())
            raise UsageError(
                f"several targets are each yes or no (1 or 0), but {name!r} is {frame[name].iloc[i]!r} in line "
                f"{frame.index[i]};"
                " name one column, or write 1 and 0"
            )
        if values.nunique() < 2:
            raise UsageError(
                f"the target {name!r} is the same in every row: there is nothing to tell apart; leave it out of "
                "--target"
            )
        columns.append(torch.from_numpy(values.to_numpy(np.float32)))
    labels = tuple(str(name) for name in frame.columns)
    note = f"targets {summarize_list(labels)}: each yes or no, read as multi-label classification"
    return Target("multilabel", torch.stack(columns, dim=1), labels, note)


def _encode_classes(name: str, cells: "Series", class_names: Sequence[str]) -> Target:
    """Words as class numbers, in the order of `labels`."""
    if len(class_names) < 2:
        raise UsageError(
            f"the target {name!r} is {class_names[0]!r} in every row: at least two classes can be told apart"
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


def target_columns(target: str | None) -> set[str | int]:
    """The columns that may be the target, whose cells are needed as they stand: those named, or the last one."""
    return {-1} if target is None else {target, *target.split(",")}


def choose_target(
    frame: "DataFrame", target: str | None, path: Path, *, excluded: str | None = None
) -> tuple[str, tuple[str, ...]]:
    """The named column, or several with commas between; the last one, and a note, where none is named."""
    columns = [str(name) for name in frame.columns if name != excluded]
    if target == "":
        raise UsageError(f"no column of {path} is the target")
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
