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

from didact.data.assemble import assemble, divide
from didact.data.centring import BIGGEST, centre, centred, near
from didact.data.columns import (
    FEW,
    Category,
    Number,
    as_numbers,
    coarse,
    column_from_spec,
    column_spec,
    number_notes,
    texts,
    understand,
)
from didact.data.commas import plain
from didact.data.core import Batch, Data, Decode, Given
from didact.data.delimited import is_number, is_table, lines_of, parsed, read_csv, read_row, stem
from didact.data.health import listed, refuse
from didact.errors import UsageError, counted, nearest

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Task = Literal["classes", "number"]
Shifts = Mapping[str, float]        # what is subtracted from columns before they are rounded, where it is something
YES_NO = {"1": 1, "1.0": 1, "yes": 1, "true": 1, "0": 0, "0.0": 0, "no": 0, "false": 0}


def load(
    path: Path, *, target: str | None = None, task: Task | None = None, seed: int = 0, indices: Mapping[str, Tensor] | None = None,
    before: Data | None = None,
) -> Data:
    """A CSV file as Data. What fills and encodes it is learned from the training rows alone.

    Where no target is named (or "": none) and the last column cannot be one, all columns are inputs and the first note says why: enough for
    a model that learns them together, and a recipe that needs a target refuses in those words. `before`: what a run kept of these data.
    """
    frame, name, shifts = read_csv(path, columns=1), stem(path), shifts_of(before)
    try:
        chosen, notes = choose_target(frame, target, path)
        asked = targets(frame, chosen, task, shifts)
        refuse(name, len(asked.y), {"y": asked.y}, task=asked.task, labels=asked.labels)
    except UsageError as why:
        if target or task:
            raise
        try:
            return without_target(frame, path, str(why), seed=seed, indices=indices, shifts=shifts)
        except UsageError:
            raise why from None                # what is wrong with the target is nearer to what was meant
    indices = divide(name, len(frame), asked.y, task=asked.task, indices=indices, seed=seed)
    encoder, x = TableEncoder.from_frame(frame, chosen, indices["train"], shifts)
    return assemble(
        name, "table", {"x": x, "y": asked.y}, task=asked.task, labels=asked.labels, names=encoder.names, target=chosen,
        target_shift=asked.shift, encoder=encoder, indices=indices, whence=lines_of(path, frame.index),
        notes=(*notes, asked.said, *frame.attrs["notes"], *encoder.notes),
    )


def shifts_of(before: Data | None) -> Shifts | None:
    """What a run subtracted from its columns and its target; older ones, from none. None where there was no run: it is to be found."""
    if before is None:
        return None
    columns = before.encoder.columns if isinstance(before.encoder, TableEncoder) else ()
    return {column.name: column.shift for column in columns if isinstance(column, Number)} | {before.target: before.target_shift}


def without_target(
    frame: "DataFrame", path: Path, why: str, *, seed: int, indices: Mapping[str, Tensor] | None, shifts: Shifts | None
) -> Data:
    """All columns as inputs, and why none is the target."""
    name = stem(path)
    indices = divide(name, len(frame), None, task="none", indices=indices, seed=seed)
    encoder, x = TableEncoder.from_frame(frame, "", indices["train"], shifts)
    return assemble(
        name, "table", {"x": x}, task="none", names=encoder.names, target="", encoder=encoder, indices=indices,
        whence=lines_of(path, frame.index), notes=(why, *frame.attrs["notes"], *encoder.notes),
    )


@dataclass(frozen=True)
class TableEncoder:
    """Rows of a table -> (N, features) float32, the same way for training and for `predict`."""

    columns: tuple[Number | Category, ...]
    target: str = "y"
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_frame(
        cls, frame: "DataFrame", target: str, rows: Tensor | None = None, shifts: Shifts | None = None
    ) -> tuple["TableEncoder", Tensor]:
        """Learn medians and categories from `rows` (all, if None), and shifts where none are given, and encode the whole frame."""
        seen = frame if rows is None else frame.iloc[rows.numpy()]
        asked = {target} if target in frame else set(target.split(","))
        columns: list[Number | Category] = []
        notes: list[str] = []
        for name in frame.columns:
            if name not in asked:
                column, note = understand(seen[name], None if shifts is None else shifts.get(name, 0.0))
                if isinstance(column, Number):
                    column = replace(column, comma=frame.attrs.get("commas", {}).get(name, ""))
                    notes += number_notes(frame[name])
                columns += [column] if column else []
                notes += [note] if note else []
        if not columns:
            why = "; ".join(notes) or "there is none"
            raise UsageError(f"no column{f' beside the target {target!r}' if target else ''} can be learned from: {why}")
        encoder = cls(tuple(columns), target, tuple(notes))
        kinds = [sum(isinstance(c, kind) for c in columns) for kind in (Number, Category)]
        told = f"{counted(kinds[0], 'column')} of numbers and {kinds[1]} of categories make {counted(len(encoder.names), 'feature')}"
        return cls(encoder.columns, target, (told, *notes)), encoder.encode(frame)

    @classmethod
    def numeric(cls, names: Sequence[str], target: str = "y") -> "TableEncoder":
        """A table of numbers alone, none of them missing."""
        return cls(tuple(Number(name) for name in names), target)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.features)

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {}

    def encode(self, frame: "DataFrame") -> Tensor:
        return torch.from_numpy(np.concatenate([column.encode(frame[column.name]) for column in self.columns], axis=1))

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """CSV files, or single rows written `a=1,b=2` or as JSON objects."""
        found = list(self.frames(inputs))
        return [name for names, _ in found for name in names], {"x": torch.cat([self.encode(frame) for _, frame in found])}

    def doubts(self, inputs: Sequence[Given]) -> list[str]:
        """Cells of numbers that are none, and names that training did not meet, with the first row in which it is so."""
        found = []
        for names, frame in self.frames(inputs):
            for column in self.columns:
                wrong, said = column.doubt(frame[column.name])
                if wrong.any():
                    found.append(f"column {column.name!r} holds {said}; first in {names[int(wrong.argmax())]}")
        return found

    def frames(self, inputs: Sequence[Given]) -> Iterator[tuple[list[str], "DataFrame"]]:
        """What each row is called, and the rows as text."""
        import pandas as pd

        for text in inputs:
            if isinstance(text, Path) or (is_table(text) and ("=" not in text or os.path.exists(text))):
                commas = {c.name: c.comma for c in self.columns if isinstance(c, Number) and c.comma}
                frame = read_csv(Path(text), columns=min(2, len(self.columns)), commas=commas)
                self.check(frame.columns, str(text))
                self.check_columns(frame, str(text))
                yield [f"{text}:{line}" for line in frame.index], frame
            else:
                row = read_row(text)
                self.check(row, text)
                row |= {c.name: plain(str(row[c.name]), c.comma) for c in self.columns if isinstance(c, Number) and c.comma and row[c.name]}
                frame = pd.DataFrame([{c.name: row[c.name] for c in self.columns}], index=[1], dtype=object)
                self.check_numbers(row)
                yield [text], frame

    def check(self, given: Sequence[str] | Mapping[str, Any], where: str) -> None:
        """Every column is needed; a value may be empty, a column not."""
        lacking = [column.name for column in self.columns if column.name not in given]
        if lacking:
            spare = [name for name in given if name not in {c.name for c in self.columns} and name != self.target]
            hint = nearest(lacking[0], spare) if spare else "an unknown value may be left empty"
            raise UsageError(f"{where!r} lacks the column {listed([repr(name) for name in lacking])}; {hint}")

    def check_columns(self, frame: "DataFrame", where: str) -> None:
        """A column of a file in which no cell at all is a number was written in another way than in training."""
        for column in self.columns:
            have = frame[column.name].dropna()
            if isinstance(column, Number) and len(have) and parsed(have).isna().all():
                cell = f"{have.iloc[0]!r} in line {have.index[0]}"
                raise UsageError(f"column {column.name!r} of {where} expects numbers, got {cell}; an unknown value may be left empty")

    def check_numbers(self, row: Mapping[str, Any]) -> None:
        """In a file a word among numbers counts as missing, as in training; in a row that was typed it is a mistake."""
        for column in self.columns:
            value = row[column.name]
            if isinstance(column, Number) and value is not None and not is_number(str(value)):
                raise UsageError(f"column {column.name!r} expects a number, got {value!r}")

    def spec(self) -> dict[str, Any]:
        return {"kind": "table", "target": self.target, "columns": [column_spec(column) for column in self.columns]}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "TableEncoder":
        return cls(tuple(column_from_spec(column) for column in spec["columns"]), spec["target"])


class Target(NamedTuple):
    """What is to be learned, and what to say of it; `shift` was subtracted from y."""

    task: str
    y: Tensor
    labels: tuple[str, ...]
    said: str
    shift: float = 0.0


def targets(frame: "DataFrame", target: str, task: Task | None = None, shifts: Shifts | None = None) -> Target:
    """A column as the target, or several with commas between; `task` says what numbers mean where the rows should not decide."""
    if target not in frame:
        if task:
            raise UsageError(f"--task is for one target, but --target {target} names several of yes and no; leave out --task {task}")
        return several(frame[target.split(",")])
    shift = None if shifts is None else shifts.get(target, 0.0)
    return one_target(frame[target], task, frame.attrs.get("missing", {}).get(target, ""), shift)


def one_target(column: "Series", task: Task | None = None, gap: str = "", shift: float | None = None) -> Target:
    """One column; `gap` is a word of the file that was read as missing, `shift` what to subtract, where that is known already.

    Words are classes; so are at most 20 different whole numbers, each frequent; any two values are a binary task.
    """
    name, n = str(column.name), len(column)
    lacking = column.isna()
    read = f" ({gap!r} is read as missing: where it is a class, write another word)" if gap else ""
    if lacking.all():
        raise UsageError(f"the target {name!r} holds no value in any of the {n} rows{read}; choose another with --target")
    if lacking.any():
        first = column.index[lacking.to_numpy()][0]
        raise UsageError(
            f"the target {name!r} is missing in {int(lacking.sum())} of {n} rows, first in line {first}{read};"
            " fill it in or delete those rows"
        )
    numbers = as_numbers(column, few=False)     # a rare word is a rare class
    if numbers is None or (task == "classes" and numbers.isna().any()):
        refuse_words(column, task)
        return classes(name, texts(column), sorted(set(texts(column))))
    for wrong, kind in ((numbers.isna(), "a number"), (numbers.abs() > BIGGEST, "finite")):
        if wrong.any():
            i = int(wrong.to_numpy().argmax())
            raise UsageError(f"the target {name!r} must be {kind}, got {column.iloc[i]!r} in line {column.index[i]}")
    if task == "classes" or (task is None and few(numbers)):
        return numbered(name, numbers, task)
    return measured(name, numbers, task, shift)


def few(numbers: "Series") -> bool:
    """Whether numbers look like those of classes: two of them, or a few whole ones that are each frequent."""
    counts = numbers.value_counts()
    whole = bool((numbers % 1 == 0).all())
    return len(counts) <= 2 or (whole and len(counts) <= FEW and 5 * len(counts) <= len(numbers) and counts.min() >= 3)


def numbered(name: str, numbers: "Series", task: Task | None) -> Target:
    """Each different number as a class."""
    different = sorted(numbers.unique())
    if len(different) > max(FEW, len(numbers) / 2):
        many = f"{len(different)} different numbers in {len(numbers)} rows"
        raise UsageError(f"--task classes: the target {name!r} holds {many}, too many to be classes; leave it out")
    whole = bool((numbers % 1 == 0).all())
    words = {value: f"{value:.0f}" if whole else f"{value:.15g}" for value in different}
    found = classes(name, numbers.map(words), list(words.values()))
    return found._replace(said=found.said + (", as --task says" if task else "; --task number reads a number"))


def measured(name: str, numbers: "Series", task: Task | None, shift: float | None) -> Target:
    """Numbers as what is predicted, less what they share where that is large."""
    counts, said = numbers.value_counts(), coarse(numbers)
    if said and len(counts) <= FEW:
        raise UsageError(f"the target {name!r} {said}")
    values = numbers.to_numpy(np.float64)
    shift = centre(values) if shift is None else shift
    said = said or (f"{near(shift)}; answers have it again" if shift else "")
    could = bool((numbers % 1 == 0).all()) and counts.min() >= 3 and len(counts) <= max(FEW, len(numbers) / 2)
    chosen = ", as --task says" if task else "; --task classes reads classes" if could else ""
    told = f"target {name!r}: {len(counts)} different numbers, read as regression{chosen}" + (said and f"; it {said}")
    return Target("regression", torch.from_numpy(centred(values, shift)), (), told, shift)


def refuse_words(column: "Series", task: Task | None) -> None:
    """Words are no numbers, whoever asks."""
    if task == "number":
        word = column[parsed(column).isna()]
        raise UsageError(
            f"--task number expects numbers, but the target {column.name!r} holds {word.iloc[0]!r} in line {word.index[0]};"
            " leave it out, or choose another column with --target"
        )


def several(frame: "DataFrame") -> Target:
    """Columns of yes and no, any number of which may be true of a row: y is (N, K)."""
    columns = []
    for name in frame.columns:
        values = texts(frame[name]).str.lower().map(YES_NO)
        if values.isna().any():
            i = int(values.isna().to_numpy().argmax())
            raise UsageError(
                f"several targets are each yes or no (1 or 0), but {name!r} is {frame[name].iloc[i]!r} in line {frame.index[i]};"
                " name one column, or write 1 and 0"
            )
        if values.nunique() < 2:
            raise UsageError(f"the target {name!r} is the same in every row: there is nothing to tell apart; leave it out of --target")
        columns.append(torch.from_numpy(values.to_numpy(np.float32)))
    labels = tuple(str(name) for name in frame.columns)
    said = f"targets {listed(labels)}: each yes or no, read as multi-label classification"
    return Target("multilabel", torch.stack(columns, dim=1), labels, said)


def classes(name: str, words: "Series", labels: Sequence[str]) -> Target:
    """Words as class numbers, in the order of `labels`."""
    if len(labels) < 2:
        raise UsageError(f"the target {name!r} is {labels[0]!r} in every row: at least two classes can be told apart")
    if len(labels) > max(FEW, len(words) / 2):
        raise UsageError(
            f"the target {name!r} holds {len(labels)} texts in {len(words)} rows, neither classes nor numbers;"
            " choose another with --target"
        )
    number = {label: k for k, label in enumerate(labels)}
    y = torch.tensor([number[word] for word in words])
    task = "binary" if len(labels) == 2 else "multiclass"
    return Target(task, y, tuple(labels), f"target {name!r}: {len(labels)} classes, read as {task} classification")


def choose_target(
    frame: "DataFrame", target: str | None, path: Path, *, but: str | None = None
) -> tuple[str, tuple[str, ...]]:
    """The named column, or several with commas between; the last one, and a note, where none is named."""
    columns = [str(name) for name in frame.columns if name != but]
    if target == "":
        raise UsageError(f"no column of {path} is the target")
    if len(columns) == 1 and but is None:
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
            raise UsageError(f"{path} has no column {name!r} to be the target; {nearest(name, columns)}")
    return target, ()
