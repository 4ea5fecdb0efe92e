"""A person's own table: a CSV file of numbers and categories, read, understood and turned into features.

    number    -> its value, the median where it is missing, and a 0/1 feature that says so
    category  -> one 0/1 feature for each of its values
"""

import csv
import gzip
import io
import json
import lzma
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from didact.data.assemble import assemble, divide
from didact.data.core import Batch, Data, Decode
from didact.data.health import listed, refuse
from didact.errors import UsageError, nearest

if TYPE_CHECKING:
    from pandas import DataFrame, Series

SUFFIXES = (".csv", ".tsv")
CATEGORIES = 50     # values of a category that get a feature of their own; the rarer share '(other)'
FEW = 20            # at most so many whole numbers can be class numbers
MISSING = ("", "?", "NA", "NaN", "nan")   # in a row that was typed; pandas knows more in files
DELIMITERS = ",;\t|"
DATE = r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}"
BIGGEST = float(np.finfo(np.float32).max)


def load(path: Path, *, target: str | None = None, seed: int = 0, indices: Mapping[str, Tensor] | None = None) -> Data:
    """A CSV file as Data. What fills and encodes it is learned from the training rows alone."""
    frame, name = read_csv(path), stem(path)
    target, notes = choose_target(frame, target, path)
    task, y, labels, said = targets(frame[target])
    refuse(name, {"y": y}, task=task, labels=labels)
    indices = divide(name, len(frame), y, task=task, indices=indices, seed=seed)
    encoder, x = TableEncoder.from_frame(frame, target, indices["train"])
    return assemble(
        name, "table", {"x": x, "y": y}, task=task, labels=labels, names=encoder.names, target=target, encoder=encoder,
        indices=indices, notes=(*notes, said, *encoder.notes),
    )


@dataclass(frozen=True)
class Number:
    """A column of numbers; `missing` where training rows lacked some, which then has a feature of its own."""

    name: str
    median: float = 0.0
    missing: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} missing") if self.missing else (self.name,)

    def encode(self, column: "Series") -> np.ndarray:
        values = parsed(column).to_numpy(np.float64)
        for i in np.flatnonzero(np.abs(values) > BIGGEST)[:1]:
            where = f"{column.iloc[i]} in line {column.index[i]}"
            raise UsageError(f"column {self.name!r} must hold finite numbers, got {where}")
        lacking = np.isnan(values)
        filled = np.where(lacking, self.median, values)
        return np.stack((filled, lacking) if self.missing else (filled,), axis=1).astype(np.float32)


@dataclass(frozen=True)
class Category:
    """A column of names. Where training met no rare value, an unseen one is all zeros; so is a missing one."""

    name: str
    values: tuple[str, ...]
    other: bool = False
    missing: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        extra = ("(other)",) * self.other + ("(missing)",) * self.missing
        return tuple(f"{self.name}={value}" for value in self.values + extra)

    def encode(self, column: "Series") -> np.ndarray:
        known = {value.casefold(): i for i, value in enumerate(self.values)} | {v: i for i, v in enumerate(self.values)}
        other = len(self.values) if self.other else -1
        words, each = np.unique(texts(column).to_numpy(str), return_inverse=True)
        numbers = np.array([known.get(w, known.get(w.casefold(), other)) for w in words.tolist()])[each]
        numbers[column.isna().to_numpy()] = len(self.features) - 1 if self.missing else -1
        return np.eye(len(self.features) + 1, dtype=np.float32)[numbers, :-1]   # -1, unseen, is the row of zeros


@dataclass(frozen=True)
class TableEncoder:
    """Rows of a table -> (N, features) float32, the same way for training and for `predict`."""

    columns: tuple[Number | Category, ...]
    target: str = "y"
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_frame(cls, frame: "DataFrame", target: str, rows: Tensor | None = None) -> tuple["TableEncoder", Tensor]:
        """Learn medians and categories from `rows` (all, if None) and encode the whole frame."""
        seen = frame if rows is None else frame.iloc[rows.numpy()]
        columns: list[Number | Category] = []
        notes: list[str] = []
        for name in frame.columns:
            if name != target:
                column, note = understand(seen[name])
                columns += [column] if column else []
                notes += [note] if note else []
        if not columns:
            why = "; ".join(notes) or "there is none"
            raise UsageError(f"no column beside the target {target!r} can be learned from: {why}")
        encoder = cls(tuple(columns), target, tuple(notes))
        kinds = [sum(isinstance(c, kind) for c in columns) for kind in (Number, Category)]
        told = f"{kinds[0]} columns of numbers and {kinds[1]} of categories make {len(encoder.names)} features"
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

    def read(self, inputs: Sequence[str]) -> tuple[list[str], Batch]:
        """CSV files, or single rows written `a=1,b=2` or as JSON objects."""
        import pandas as pd

        names: list[str] = []
        parts: list[Tensor] = []
        for text in inputs:
            if is_table(text) and ("=" not in text or os.path.exists(text)):
                frame = read_csv(Path(text))
                names += [f"{text}:{line}" for line in frame.index]
                self.check(frame.columns, text)
            else:
                row = read_row(text)
                self.check(row, text)
                frame = pd.DataFrame([{c.name: row[c.name] for c in self.columns}], index=[1], dtype=object)
                self.check_numbers(row)
                names.append(text)
            parts.append(self.encode(frame))
        return names, {"x": torch.cat(parts)}

    def check(self, given: Sequence[str] | Mapping[str, Any], where: str) -> None:
        """Every column is needed; a value may be empty, a column not."""
        lacking = [column.name for column in self.columns if column.name not in given]
        if lacking:
            spare = [name for name in given if name not in {c.name for c in self.columns} and name != self.target]
            hint = nearest(lacking[0], spare) if spare else "an unknown value may be left empty"
            raise UsageError(f"{where!r} lacks the column {listed([repr(name) for name in lacking])}; {hint}")

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


def column_spec(column: Number | Category) -> dict[str, Any]:
    """A column as JSON; what it holds says which kind it is."""
    if isinstance(column, Number):
        return {"name": column.name, "median": column.median, "missing": column.missing}
    return {"name": column.name, "values": list(column.values), "other": column.other, "missing": column.missing}


def column_from_spec(spec: Mapping[str, Any]) -> Number | Category:
    """The column that `column_spec` wrote."""
    if "values" in spec:
        return Category(spec["name"], tuple(spec["values"]), spec["other"], spec["missing"])
    return Number(spec["name"], spec["median"], spec["missing"])


def understand(column: "Series") -> tuple[Number | Category | None, str]:
    """How a column is encoded, and what to say of it; None: it is left out."""
    name, n = str(column.name), int(column.notna().sum())
    if n == 0:
        return None, f"column {name!r} is empty: left out"
    if str(column.dtype).startswith("datetime"):
        return None, f"column {name!r} holds dates: left out"
    numbers = as_numbers(column)
    if numbers is not None:
        wrong = int((numbers.isna() & column.notna()).sum())
        note = f"column {name!r} holds {wrong} values that are not numbers: they count as missing" if wrong else ""
        finite = numbers.replace([np.inf, -np.inf], np.nan)
        return Number(name, float(finite.median()) if finite.notna().any() else 0.0, bool(numbers.isna().any())), note
    words = texts(column.dropna())
    counts = words.value_counts()
    if words.str.match(DATE).mean() > 0.9 and len(counts) > CATEGORIES:
        return None, f"column {name!r} holds dates: left out"
    if len(counts) > max(10, n / 2):
        different = f"{len(counts)} different in {n} rows"
        return None, f"column {name!r} holds free text, {different}: left out (--text {name} learns from it)"
    common = sorted(counts.index, key=lambda value: (-counts[value], value))[:CATEGORIES]
    rare = len(counts) - len(common)
    note = f"column {name!r} holds {len(counts)} categories: the {rare} rarest are one, '(other)'" if rare else ""
    return Category(name, tuple(sorted(common)), rare > 0, bool(column.isna().any())), note


def texts(column: "Series") -> "Series":
    """The values as words; missing ones read as an empty word."""
    import pandas as pd

    words = ["" if gone else str(v).strip() for v, gone in zip(column.astype(object), column.isna(), strict=True)]
    return pd.Series(words, index=column.index, name=column.name, dtype=object)


def parsed(column: "Series") -> "Series":
    """The values as numbers, NaN where they are none."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return column.astype("float64")
    words = column.astype(str) if pd.api.types.is_bool_dtype(column) else column.astype(object)
    return pd.to_numeric(words, errors="coerce").astype("float64")


def as_numbers(column: "Series") -> "Series | None":
    """The column as numbers; None where it is not one of numbers. Few words among many numbers count as missing."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or isinstance(column.dtype, pd.CategoricalDtype):
        return None
    numbers = parsed(column)
    present = column.notna()
    wrong = (numbers.isna() & present).sum()
    return numbers if wrong == 0 or (wrong <= 0.1 * present.sum() and numbers.nunique() > FEW) else None


def targets(column: "Series") -> tuple[str, Tensor, tuple[str, ...], str]:
    """Task, y, class names and what to say of it.

    Words are classes; so are at most 20 different whole numbers, each frequent; any two values are a binary task.
    """
    name, n = str(column.name), len(column)
    lacking = column.isna()
    if lacking.all():
        raise UsageError(f"the target {name!r} holds no value in any of the {n} rows; choose another with --target")
    if lacking.any():
        first = column.index[lacking.to_numpy()][0]
        raise UsageError(
            f"the target {name!r} is missing in {int(lacking.sum())} of {n} rows, first in line {first};"
            " fill it in or delete those rows"
        )
    numbers = as_numbers(column)
    if numbers is None:
        return classes(name, texts(column), sorted(set(texts(column))))
    for wrong, kind in ((numbers.isna(), "a number"), (numbers.abs() > BIGGEST, "finite")):
        if wrong.any():
            i = int(wrong.to_numpy().argmax())
            raise UsageError(f"the target {name!r} must be {kind}, got {column.iloc[i]!r} in line {column.index[i]}")
    counts = numbers.value_counts()
    whole = bool((numbers % 1 == 0).all())
    if len(counts) <= 2 or (whole and len(counts) <= FEW and 5 * len(counts) <= n and counts.min() >= 3):
        words = {value: f"{value:.0f}" if whole else f"{value:g}" for value in sorted(counts.index)}
        return classes(name, numbers.map(words), list(words.values()))
    y = torch.from_numpy(numbers.to_numpy(np.float32))
    return "regression", y, (), f"target {name!r}: {len(counts)} different numbers, read as regression"


def classes(name: str, words: "Series", labels: Sequence[str]) -> tuple[str, Tensor, tuple[str, ...], str]:
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
    return task, y, tuple(labels), f"target {name!r}: {len(labels)} classes, read as {task} classification"


def choose_target(
    frame: "DataFrame", target: str | None, path: Path, *, but: str | None = None
) -> tuple[str, tuple[str, ...]]:
    """The named column; the last one, and a note, where none is named."""
    columns = [str(name) for name in frame.columns if name != but]
    if target is None:
        return columns[-1], (f"no --target given: the last column, {columns[-1]!r}",)
    if target not in columns:
        raise UsageError(f"{path} has no column {target!r} to be the target; {nearest(target, columns)}")
    return target, ()


def is_table(text: str) -> bool:
    """Whether a person's word means a CSV file, there or not."""
    return Path(text.lower().removesuffix(".gz").removesuffix(".xz")).suffix in SUFFIXES


def stem(path: Path) -> str:
    """What the data is called: the file's name up to the first dot."""
    return path.name.split(".")[0] or path.name


def read_row(text: str) -> dict[str, Any]:
    """One row, typed: `a=1,b=2` or {"a": 1, "b": 2}; an empty value is a missing one."""
    if text.lstrip().startswith("{"):
        try:
            row: dict[str, Any] = json.loads(text)
        except json.JSONDecodeError as error:
            raise UsageError(f"a row in braces must be JSON, got {text!r}: {error}") from None
        return row
    pairs = [part.split("=", 1) for part in re.split(r",(?=[^,=]+=)", text)]
    if any(len(pair) != 2 for pair in pairs):
        raise UsageError(f"expected a CSV file, a row as 'column=value,…' or a JSON object, got {text!r}")
    return {name.strip(): None if value.strip() in MISSING else value.strip() for name, value in pairs}


def read_csv(path: Path) -> "DataFrame":
    """All values as text, missing ones NaN; the index holds the lines of the file, so that messages can name them."""
    import pandas as pd

    text = read_text(path)
    delimiter = sniff(text)
    names, lines = walk(path, text, delimiter)
    frame = pd.read_csv(
        io.StringIO(text), sep=delimiter, header=0, names=names, index_col=False, dtype=object, skipinitialspace=True,
        na_values=["?"],
    )
    frame.index = pd.Index(lines)
    if delimiter != ",":                       # there a comma may be a decimal point
        for name in names:
            have = frame[name].dropna().str
            if have.fullmatch(r"\s*-?\d+(,\d+)?\s*").all() and have.contains(",").any():
                frame[name] = frame[name].str.replace(",", ".")
    first = frame[names[0]]
    if names[0] == "column 1" and list(parsed(first) - parsed(first).iloc[0]) == list(range(len(frame))):
        return frame.drop(columns="column 1")  # the row numbers that pandas writes
    return frame


def read_text(path: Path) -> str:
    """The file, unpacked where it is packed, as UTF-8."""
    try:
        raw = path.read_bytes()
        if path.suffix.lower() == ".gz":
            raw = gzip.decompress(raw)
        elif path.suffix.lower() == ".xz":
            raw = lzma.decompress(raw)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not raw.strip():
        raise UsageError(f"{path} is empty: expected a line of column names and rows below it")
    if b"\0" in raw:
        raise UsageError(f"{path} is not a text file: expected a CSV table, saved as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError(f"{path} is not UTF-8 text (line {line}): save the table as CSV in UTF-8") from None


def sniff(text: str) -> str:
    """The delimiter that divides the first lines most evenly."""

    def score(delimiter: str) -> tuple[bool, int, int]:
        try:
            reader = csv.reader(io.StringIO(text[:100_000], newline=""), delimiter=delimiter)
            rows = [len(row) for row in islice(reader, 20) if row]
        except csv.Error:
            return False, 0, 0
        return rows[0] > 1, rows.count(rows[0]), rows[0]

    return max(DELIMITERS, key=score)


def walk(path: Path, text: str, delimiter: str) -> tuple[list[str], list[int]]:
    """Column names and the line on which each row begins; refuses a table that is none."""
    rows = numbered(path, text, delimiter)
    _, header = next(rows)
    names = [name.strip() or f"column {i}" for i, name in enumerate(header, 1)]
    if len(names) < 2:
        raise UsageError(f"{path} has only one column, {names[0]!r}: expected columns separated by , ; tab or |")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"{path} has two columns named {twice!r}: give each its own name")
    if all(is_number(name) for name in names) and names != [str(i) for i in range(len(names))]:
        raise UsageError(f"the first line of {path} must name the columns, got numbers: {listed(names)}")
    lines = []
    for line, row in rows:
        if len(row) != len(names):
            raise UsageError(f"line {line} of {path} has {len(row)} fields, but the first line names {len(names)}")
        lines.append(line)
    if not lines:
        raise UsageError(f"{path} has column names but no rows")
    return names, lines


def numbered(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows with the lines on which they begin; empty lines are passed over."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(f"line {line} of {path} cannot be read: {error}; is a quotation mark not closed?") from None


def is_number(word: str) -> bool:
    """Whether a word reads as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True
