"""From columns of examples to Data: split, compute statistics, check. Every dataset and file format ends here."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from didact.data.bin_edges import BinEdges, compute_bin_edges
from didact.data.checks import add_health_notes, validate
from didact.data.core import SPLITS, Batch, Data, Encoder, SourceLocator, TensorSplit, TextReader
from didact.data.split import train_val_test_split
from didact.data.storage import FileSplit
from didact.errors import UsageError

CLASSIFICATION_TASKS = ("binary", "multiclass")
STATISTICS_SAMPLE_SIZE = 4096  # images of a streamed dataset that are read for its statistics


@dataclass(frozen=True)
class Examples:
    """All examples of a dataset before they are split, and what they are.

    `columns` holds them as stored ("x" and "y"), or reads them from files. "y" is (N,) int64 for classes, (N,) float32
    for a regression, (N, K) float32 for several labels.
    """

    name: str
    kind: str                                # table, images, text, …
    columns: Batch | FileSplit
    task: str                                # regression, binary, multiclass, multilabel, none, …
    class_names: Sequence[str] = ()
    feature_names: Sequence[str] = ()
    target: str = "y"
    target_offset: float = 0.0
    encoder: Encoder | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    locator: SourceLocator | None = None
    text_reader: TextReader | None = None
    notes: Sequence[str] = ()
    standardize: bool = True                 # inputs are standardized by the mean and deviation of the training split
    fingerprint: str = ""                    # of files; else computed from the columns


def build_data(
    examples: Examples,
    *,
    indices: Mapping[str, Tensor] | None = None,
    test_indices: Tensor | None = None,
    fractions: tuple[float, float] | None = None,
    seed: int = 0,
) -> Data:
    """Split the examples, compute the statistics of the training split alone, and add notes on the data's health.

    `indices` is a whole split made before; `test_indices` the test split that the dataset comes with; `fractions` those
    of validation and test.
    """
    e = examples
    decoders = e.encoder.decoders if e.encoder else {}
    all_examples = e.columns if isinstance(e.columns, FileSplit) else TensorSplit(e.columns, decoders)
    n, y = len(all_examples), all_examples.columns.get("y")
    validate(e.name, n, all_examples.columns, task=e.task, class_names=e.class_names)
    indices = split_indices(
        e.name, n, y, task=e.task, test_indices=test_indices, fractions=fractions, indices=indices, seed=seed
    )
    splits = {part: all_examples.subset(indices[part]) for part in SPLITS}
    first = all_examples.batch(indices["train"][:1])["x"]
    mean, std = compute_mean_std(splits["train"]) if e.standardize else (torch.zeros(1), torch.ones(1))
    target_mean, target_std = _compute_target_mean_std(splits["train"], e.task)
    data = Data(
        name=e.name,
        kind=e.kind,
        task=e.task,
        shape=tuple(first.shape[1:]),
        class_names=tuple(e.class_names),
        feature_names=tuple(e.feature_names),
        target=e.target,
        target_offset=e.target_offset,
        mean=mean,
        std=std,
        bin_edges=_compute_bin_edges(splits["train"], e.kind),
        target_mean=target_mean,
        target_std=target_std,
        encoder=e.encoder,
        source=dict(e.source or {"name": e.name}),
        indices=indices,
        locator=e.locator,
        text_reader=e.text_reader,
        class_counts={part: _count_classes(splits[part], e.task, len(e.class_names)) for part in SPLITS},
        fingerprint=e.fingerprint or _compute_fingerprint(all_examples),
        notes=tuple(e.notes),
        train=splits["train"],
        validation=splits["validation"],
        test=splits["test"],
    )
    return add_health_notes(data)


def split_indices(
    name: str,
    n: int,
    y: Tensor | None,
    *,
    task: str,
    test_indices: Tensor | None = None,
    fractions: tuple[float, float] | None = None,
    indices: Mapping[str, Tensor] | None = None,
    seed: int = 0,
) -> dict[str, Tensor]:
    """The examples of each split: those given, or a new seeded split, stratified where the targets are classes."""
    if indices is not None:
        rows = torch.cat([indices[part] for part in SPLITS])
        if len(rows) != n or not 0 <= int(rows.min()) <= int(rows.max()) < n:
            raise UsageError(
                f"{name!r} now holds {n} examples, but {len(rows)} when it was split: it has changed since"
            )
        return {part: indices[part] for part in SPLITS}
    if fractions is None:
        fractions = (0.15, 0.15) if test_indices is None else (0.1, 0.0)
    strata = y if task in CLASSIFICATION_TASKS else None
    return train_val_test_split(n, strata, test_indices=test_indices, fractions=fractions, seed=seed)


def resplit(data: Data, indices: Mapping[str, Tensor]) -> Data:
    """The same examples in the split of a run, with its statistics. The encoder stays as it was fitted."""
    splits = [split for part in SPLITS if isinstance(split := data.split(part), TensorSplit)]
    assert len(splits) == len(SPLITS), "datasets known by name are in memory"
    order = torch.cat([data.indices[part] for part in SPLITS]).argsort()
    columns = {name: torch.cat([split.columns[name] for split in splits])[order] for name in splits[0].columns}
    new_indices = split_indices(data.name, len(order), columns.get("y"), task=data.task, indices=indices)
    parts = {part: TensorSplit(columns, splits[0].decoders).subset(new_indices[part]) for part in SPLITS}
    is_standardized = data.mean.numel() > 1 or float(data.std.flatten()[0]) != 1
    mean, std = compute_mean_std(parts["train"]) if is_standardized else (data.mean, data.std)
    target_mean, target_std = _compute_target_mean_std(parts["train"], data.task)
    return replace(
        data,
        mean=mean,
        std=std,
        bin_edges=_compute_bin_edges(parts["train"], data.kind),
        target_mean=target_mean,
        target_std=target_std,
        indices=new_indices,
        class_counts={part: _count_classes(parts[part], data.task, data.num_classes) for part in SPLITS},
        train=parts["train"],
        validation=parts["validation"],
        test=parts["test"],
    )


def compute_mean_std(split: TensorSplit | FileSplit, chunk_size: int = 4096) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the decoded inputs: by channel for images (C, 1, 1), by feature otherwise.

    They are summed about the first example, so that a constant feature has a deviation of exactly 0 and a large mean
    costs no digits. Of a streamed split, evenly spaced examples are read.
    """
    if isinstance(split, TensorSplit) and split.columns["x"].dtype == torch.uint8 and split.columns["x"].ndim == 4:
        return compute_uint8_mean_std(split.columns["x"])
    rows = torch.arange(len(split))
    if isinstance(split, FileSplit) and len(rows) > STATISTICS_SAMPLE_SIZE:
        rows = torch.linspace(0, len(split) - 1, STATISTICS_SAMPLE_SIZE).long()
    x = split.batch(rows[:1])["x"].double()
    axes = (0, 2, 3) if x.ndim == 4 else (0,)
    origin = x.mean(axes, keepdim=True)
    total = square = torch.zeros_like(origin)
    n = 0
    for index in torch.split(rows, chunk_size if isinstance(split, TensorSplit) else 256):
        x = split.batch(index)["x"].double() - origin
        total, square = total + x.sum(axes, keepdim=True), square + x.square().sum(axes, keepdim=True)
        n += x.numel() // total.numel()
    shift = (total / n)[0]
    std = ((square / n)[0] - shift.square()).clamp(min=0).sqrt().float()
    return (origin[0] + shift).float(), torch.where(std > 0, std, 1.0)  # a constant feature is centered, not scaled


def compute_uint8_mean_std(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same for images stored as bytes, exactly and quickly: there are only 256 levels to count in each channel."""
    level = torch.arange(256, dtype=torch.float64) / 255
    # (C, 256)
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in x.unbind(1)]).double()
    share = counts / counts.sum(1, keepdim=True)
    mean = share @ level
    std = (share * (level - mean[:, None]).square()).sum(1).sqrt()
    std = torch.where(std > 0, std, 1.0)
    return mean[:, None, None].float(), std[:, None, None].float()


def _compute_target_mean_std(split: TensorSplit | FileSplit, task: str) -> tuple[float, float]:
    """Mean and standard deviation of the training targets of a regression; 0 and 1 otherwise."""
    y = split.columns.get("y")
    if task != "regression" or y is None:
        return 0.0, 1.0
    return float(y.double().mean()), float(y.double().std(correction=0)) or 1.0


def _compute_bin_edges(split: TensorSplit | FileSplit, kind: str) -> BinEdges:
    """Of a table alone: a row of numbers, each with a meaning of its own."""
    is_table = kind == "table" and isinstance(split, TensorSplit) and split.columns["x"].ndim == 2
    return compute_bin_edges(split.columns["x"]) if is_table else ()


def _count_classes(split: TensorSplit | FileSplit, task: str, num_classes: int) -> tuple[int, ...]:
    """Examples of each class; of each label, where an example may have several; pixels or boxes, where each has a
    class of its own."""
    y = split.columns.get("y")
    if y is None or not num_classes or task == "language":
        return ()
    if task == "multilabel":
        counts = y.sum(0)
    else:                                     # a mask's IGNORE_LABEL is no class
        counts = torch.bincount(y[y >= 0].long(), minlength=num_classes)[:num_classes]
    return tuple(int(c) for c in counts)


def _compute_fingerprint(split: TensorSplit | FileSplit) -> str:
    """Sixteen hexadecimal digits that change when any example does; of streamed files, when a name or size does."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(split.columns):
        column = split.columns[name].contiguous()
        digest.update(f"{name}{column.dtype}{tuple(column.shape)}".encode())
        digest.update(column.numpy().data)
    if isinstance(split, FileSplit):
        for file in split.files:
            digest.update(os.fsencode(f"{os.path.basename(file)} {os.path.getsize(file)}\n"))
    return digest.hexdigest()
