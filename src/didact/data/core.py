"""Data: three splits of examples and what they are; the same for built-in datasets, public ones and one's own files.

A batch is an index operation on tensors on the device. `select` gathers stored examples, `decode` makes of them what
the network reads (bytes become numbers in [0, 1], word lists become counts): stored small, widened batch by batch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

# named columns of equal length: "x" the input, "y" the target, "row" the index of the example, "weight" in the loss
Batch = dict[str, Tensor]
Decode = Callable[[Tensor], Tensor]
# an input as a user gives it: a Path is a file; a str is read by the encoder, as a text where it reads texts
Given = str | Path
SourceLocator = Callable[[int], str]  # example i of the source -> the file or line where it can be found
TextReader = Callable[[], Sequence[str]]  # the texts of all examples, in the order of the source

SPLITS = ("train", "validation", "test")
IGNORE_LABEL = 255  # in a mask: a pixel of no class, which neither the loss nor a metric counts (VOC's void)


class Split(Protocol):
    """What the training loop needs of a split, in memory or read from files."""

    def __len__(self) -> int: ...

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Batch]:
        """The stored examples of each chunk of indices, in order, on the split's device."""

    def decode(self, stored: Batch) -> Batch:
        """Stored examples -> what the objective reads. Fixed shapes, no host synchronization: it may be captured."""

    def to(self, device: torch.device) -> "Split": ...


@dataclass(frozen=True)
class TensorSplit:
    """A split whose columns are tensors on the device."""

    columns: Mapping[str, Tensor]
    decoders: Mapping[str, Decode] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def select(self, index: Tensor) -> Batch:
        stored = {name: column.index_select(0, index) for name, column in self.columns.items()}
        return {**stored, "row": index}

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Batch]:
        index = torch.cat(list(chunks)).to(self.device)  # one transfer, not one a batch
        return map(self.select, index.split([len(chunk) for chunk in chunks]))

    @property
    def device(self) -> torch.device:
        return next(iter(self.columns.values())).device

    def decode(self, stored: Batch) -> Batch:
        return {name: self.decoders[name](v) if name in self.decoders else v for name, v in stored.items()}

    def to(self, device: torch.device) -> Self:
        return replace(self, columns={name: column.to(device) for name, column in self.columns.items()})

    def subset(self, index: Tensor) -> Self:
        """The split made of these examples; one may be taken more than once."""
        return replace(self, columns={name: column[index] for name, column in self.columns.items()})

    def batch(self, index: Tensor) -> Batch:
        """A few decoded examples."""
        return self.decode(self.select(index))


@dataclass(frozen=True)
class MissingSplit:
    """A split of known size without its examples: of a run that is loaded from its folder alone."""

    num_rows: int

    def __len__(self) -> int:
        return self.num_rows

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Batch]:
        raise LookupError("the examples of this split are not loaded")

    def decode(self, stored: Batch) -> Batch:
        return stored

    def to(self, device: torch.device) -> Self:
        return self


def uint8_to_unit(x: Tensor) -> Tensor:
    """Bytes 0 … 255 -> numbers 0 … 1."""
    return x * (1 / 255)  # one pass: bytes times a float are floats


class Encoder(Protocol):
    """How inputs become stored columns; saved in the run, so that `predict` encodes new ones the same way."""

    @property
    def decoders(self) -> Mapping[str, Decode]:
        """How its stored columns are decoded, batch by batch."""

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """A name for each example and the columns (without targets), from file names, rows or texts."""

    def spec(self) -> dict[str, Any]:
        """What rebuilds the encoder, as JSON."""


@runtime_checkable
class DetectsUnseenInputs(Protocol):
    """An encoder that notices inputs unlike those of training: noted beside the predictions, which are made anyway."""

    def describe_unseen_inputs(self, inputs: Sequence[Given]) -> list[str]:
        """A line for each value that training data did not hold, or that may be meant otherwise."""


@runtime_checkable
class KnowsForecastDates(Protocol):
    """An encoder of time series that knows when the values that are forecast will be."""

    def list_forecast_dates(self, inputs: Sequence[Given]) -> list[list[str] | None]:
        """For each example of `read`, the dates of what follows it; None where they are not known."""


def describe_unseen_inputs(encoder: Encoder, inputs: Sequence[Given]) -> list[str]:
    """What an encoder notes of these inputs; nothing of one that does not look."""
    return encoder.describe_unseen_inputs(inputs) if isinstance(encoder, DetectsUnseenInputs) else []


@dataclass(frozen=True)
class Data:
    """Three splits and what they are."""

    name: str
    kind: str                               # table, images, text, …
    task: str                               # regression, binary, multiclass, multilabel, none
    shape: tuple[int, ...]                  # of one decoded input: (features,) or (channels, height, width)
    train: Split
    validation: Split
    test: Split
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()     # of a table, or the words of a text
    mean: Tensor = field(default_factory=lambda: torch.zeros(1))  # of the training inputs, broadcasting over `shape`
    std: Tensor = field(default_factory=lambda: torch.ones(1))
    # of each feature of a table, from the training rows: see `compute_bin_edges`
    bin_edges: tuple[tuple[float, ...], ...] = ()
    target_mean: float = 0.0                # of the training targets as they are stored, for regression
    target_std: float = 1.0
    target_offset: float = 0.0              # subtracted from targets far from zero before rounding; predictions add it
    target: str = "y"                       # name of the target
    encoder: Encoder | None = None
    source: Mapping[str, Any] = field(default_factory=dict)   # what loads it again: name or path and options
    indices: Mapping[str, Tensor] = field(default_factory=dict)  # of each split, in the order of the source
    locator: SourceLocator | None = None    # of one's own files alone
    text_reader: TextReader | None = None   # of texts with labels, as they were before they were tokenized
    class_counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # examples of each class, by split
    duplicates: Mapping[str, int] | None = None  # validation and test examples that are in training; None: not counted
    notes: tuple[str, ...] = ()             # what was inferred and what looks unhealthy: printed before the first step
    fingerprint: str = ""

    @property
    def num_features(self) -> int:
        """Size of one input: the product of its shape."""
        return prod(self.shape)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def locate_examples(self, part: str, rows: Sequence[int]) -> list[str]:
        """The files or lines of these examples of a split; empty where there is no locator."""
        return [] if self.locator is None else [self.locator(int(self.indices[part][row])) for row in rows]

    def read_texts(self, part: str) -> list[str]:
        """The texts of a split as it was loaded, before tokenization; empty where they are not at hand."""
        if self.text_reader is None or part not in self.indices:
            return []
        texts = self.text_reader()
        return [texts[row] for row in self.indices[part].tolist()]

    def split(self, name: str) -> Split:
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]

    def to(self, device: torch.device) -> "Data":
        train, validation, test = (self.split(name).to(device) for name in SPLITS)
        return replace(self, train=train, validation=validation, test=test)
