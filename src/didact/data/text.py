"""Texts as words, stored in their order: a plain network reads which of them occur (a bag), a recurrent one reads them one by one."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didact.data.assemble import assemble, divide
from didact.data.columns import texts
from didact.data.core import SPLITS, Batch, Data, Decode, Given, Resident
from didact.data.delimited import ENDINGS, is_table, lines_of, read_csv, stem
from didact.data.health import refuse
from didact.data.readers import meant_as_files
from didact.data.table import Task, choose_target, shifts_of, targets
from didact.errors import UsageError, counted, nearest

WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")   # letters and digits; an apostrophe inside stays: don't
LONGEST = 1000                              # words that are kept of one text


def words(text: str) -> list[str]:
    """The lower-cased words of a text, line-break marks of web pages left out."""
    return WORD.findall(text.replace("<br />", " ").lower())


@dataclass(frozen=True)
class BagEncoder:
    """x_v = 1 if word v occurs in the text, else 0. Stored as the numbers of its words, V behind the end, V + 1 for an unknown one."""

    names: tuple[str, ...]                  # the V words, the most common first
    column: str = "text"                    # where a table holds the texts

    @classmethod
    def fit(cls, texts: Sequence[str], vocabulary: int = 10000, *, column: str = "text") -> "BagEncoder":
        """The words that most texts hold; those of a single text cannot be learned from, unless there are no others."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(set(words(text)))
        kept = [word for word, count in counts.items() if count > 1] or list(counts)
        if not kept:
            raise UsageError(f"none of the {len(texts)} texts of column {column!r} holds a word; choose another with --text")
        return cls(tuple(sorted(kept, key=lambda word: (-counts[word], word))[:vocabulary]), column)

    @cached_property
    def number(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.names)}

    def encode(self, texts: Sequence[str]) -> Tensor:
        """(N, L): the numbers of the first `LONGEST` words of each text, in two bytes each where they fit."""
        number, pad = self.number, len(self.names)
        rows = [[number.get(w, pad + 1) for w in words(text)[:LONGEST]] for text in texts]
        x = np.full((len(rows), max(1, max(map(len, rows), default=0))), pad, dtype=np.int16 if pad < 2**15 - 2 else np.int32)
        for i, row in enumerate(rows):
            x[i, : len(row)] = row
        return torch.from_numpy(x)

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": self.presence}

    def presence(self, x: Tensor) -> Tensor:
        """(B, L) word numbers -> (B, V) zeros and ones; padding and unknown words fall into two columns that are cut off."""
        size = len(self.names)
        return torch.zeros(len(x), size + 2, device=x.device).scatter_(1, x.long(), 1.0)[:, :size]

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """Texts as they are; as paths, text files or CSV files with the column of texts."""
        names: list[str] = []
        found: list[str] = []
        for text in inputs:
            if isinstance(text, Path) and is_table(text.name):
                frame = read_csv(text, columns=1)      # new texts have no label beside them
                found += list(texts_of(frame, self.column, text))
                names += [f"{text}:{line}" for line in frame.index]
                continue
            if text == "-":
                raise UsageError("expected a text, got '-': standard input is not read; save it to a file, and give --from FILE")
            if isinstance(text, str) and not text.strip():
                raise UsageError(f"expected a text, got {text!r}")
            found.append(read_txt(text) if isinstance(text, Path) else text)
            names.append(str(text))
        return names, {"x": self.encode(found)}

    def doubts(self, inputs: Sequence[Given]) -> list[str]:
        """Texts that may be meant as files."""
        return meant_as_files(inputs, (*ENDINGS, ".txt"))

    def spec(self) -> dict[str, Any]:
        return {"kind": "bag", "names": list(self.names), "column": self.column}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "BagEncoder":
        return cls(tuple(spec["names"]), spec["column"])


@dataclass(frozen=True)
class SequenceEncoder(BagEncoder):
    """The same words one by one: <pad> 0 behind the end, <unk> 1, from 2 the `vocabulary` most common; at most `length` of a text."""

    vocabulary: int = 10_000
    length: int = 256

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": self.order}

    def order(self, x: Tensor) -> Tensor:
        """(B, L) word numbers -> (B, at most `length`) tokens."""
        x, end = x[:, : self.length].long(), len(self.names)
        return torch.where(x == end, 0, torch.where(x < self.vocabulary, x + 2, 1))


def in_order(data: Data, *, vocabulary: int = 10_000, length: int = 256) -> Data:
    """Texts that were loaded as bags, read word by word instead; what is stored serves both."""
    bag = data.encoder
    if not isinstance(bag, BagEncoder):
        raise UsageError(f"{data.name!r} does not hold texts with labels: give a CSV file and --text COLUMN")
    encoder = SequenceEncoder(bag.names, bag.column, min(vocabulary, len(bag.names)), length)
    held = (data.split(part) for part in SPLITS)
    train, validation, test = (replace(s, decoders=encoder.decoders) if isinstance(s, Resident) else s for s in held)
    names = ("<pad>", "<unk>", *bag.names[: encoder.vocabulary])
    return replace(data, shape=(length,), encoder=encoder, names=names, train=train, validation=validation, test=test)


def read_txt(path: Path) -> str:
    """A text file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"cannot read the text {path}: {why}; expected UTF-8 text, or a CSV file with a column of texts") from None


def texts_of(frame: Any, column: str, path: Path) -> Any:
    """The column of texts; a missing text is an empty one."""
    if column not in frame.columns:
        raise UsageError(f"{path} has no column {column!r} of texts; {nearest(column, map(str, frame.columns))}")
    return texts(frame[column])


def load(
    path: Path, *, text: str, target: str | None = None, task: Task | None = None, seed: int = 0,
    indices: Mapping[str, Tensor] | None = None, before: Data | None = None,
) -> Data:
    """A CSV file with a column of texts as Data. The vocabulary is that of the training texts. `before`: what a run kept of these data."""
    frame, name = read_csv(path), stem(path)
    found = texts_of(frame, text, path)
    if target == text:
        raise UsageError(f"--text and --target are the same column, {text!r}: choose another to be predicted")
    target, notes = choose_target(frame, target, path, but=text)
    asked = targets(frame, target, task, shifts_of(before))
    refuse(name, len(asked.y), {"y": asked.y}, task=asked.task, labels=asked.labels)
    indices = divide(name, len(found), asked.y, task=asked.task, indices=indices, seed=seed)
    encoder = BagEncoder.fit(list(found.iloc[indices["train"].numpy()]), column=text)
    x = encoder.encode(list(found))
    empty = int((x >= len(encoder.names)).all(1).sum())
    notes = (*notes, asked.said, f"{len(encoder.names):,} different words, at most {x.shape[1]} of them in one text")
    if empty:
        notes += (f"no known word in {counted(empty, 'text')}",)
    return assemble(
        name, "text", {"x": x, "y": asked.y}, task=asked.task, labels=asked.labels, names=encoder.names, target=target,
        target_shift=asked.shift, encoder=encoder, indices=indices, whence=lines_of(path, frame.index), standardise=False, notes=notes,
    )
