"""From columns of examples to Data: split, measure, examine. Every source ends here."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from didact.data.checks import add_health_notes, validate
from didact.data.core import SPLITS, Batch, Data, Encoder, SourceLocator, TensorSplit
from didact.data.split import train_val_test_split
from didact.data.storage import FileSplit
from didact.errors import UsageError

CLASSIFICATION_TASKS = ("binary", "multiclass")
STATISTICS_SAMPLE_SIZE = 4096  # images of a streamed set that are read to measure it


def build_data(
    name: str,
    kind: str,
    columns: Batch | FileSplit,
    *,
    task: str,
    class_names: Sequence[str] = (),
    feature_names: Sequence[str] = (),
    target: str = "y",
    target_offset: float = 0.0,
    encoder: Encoder | None = None,
    source: Mapping[str, Any] | None = None,
    test_indices: Tensor | None = None,
    fractions: tuple[float, float] | None = None,
    indices: Mapping[str, Tensor] | None = None,
    locator: SourceLocator | None = None,
    seed: int = 0,
    standardize: bool = True,
    notes: Sequence[str] = (),
    fingerprint: str = "",
) -> Data:
    """Split the rows, take mean and deviation of the training part alone, and tell what looks unhealthy.

    `columns` holds every row, stored small ("x" and "y"), or streams them; `test` the row numbers of a test split that
    the set brings; `indices` a whole split made before.
    `y` is (N,) int64 for classes, (N,) float32 for regression and binary 0/1 int64, (N, K) float32 for multilabel.
    """
    all_rows = columns if isinstance(columns, FileSplit) else TensorSplit(columns, encoder.decoders if encoder else {})
    y = all_rows.columns.get("y")
    validate(name, len(all_rows), all_rows.columns, task=task, class_names=class_names)
    indices = split_indices(
        name, len(all_rows), y, task=task, test_indices=test_indices, fractions=fractions, indices=indices, seed=seed
    )
    splits = {part: all_rows.subset(indices[part]) for part in SPLITS}
    example = all_rows.batch(indices["train"][:1])["x"]
    mean, std = compute_mean_std(splits["train"]) if standardize else (torch.zeros(1), torch.ones(1))
    target_mean, target_std = _compute_target_mean_std(splits["train"], task)
    data = Data(
        name=name,
        kind=kind,
        task=task,
        shape=tuple(example.shape[1:]),
        class_names=tuple(class_names),
        feature_names=tuple(feature_names),
        target=target,
        target_offset=target_offset,
        mean=mean,
        std=std,
        target_mean=target_mean,
        target_std=target_std,
        encoder=encoder,
        source=dict(source or {"name": name}),
        indices=indices,
        locator=locator,
        class_counts={part: _count_classes(splits[part], task, len(class_names)) for part in SPLITS},
        fingerprint=fingerprint or _compute_fingerprint(all_rows),
        notes=tuple(notes),
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
    """The rows of each split: those given, or a new seeded division, stratified where the targets are classes."""
    if indices is not None:
        rows = torch.cat([indices[part] for part in SPLITS])
        if len(rows) != n or not 0 <= int(rows.min()) <= int(rows.max()) < n:
            raise UsageError(
                f"{name!r} now holds {n} examples, but {len(rows)} when it was split: it has changed since"
            )
        return {part: indices[part] for part in SPLITS}
    if fractions is None:
        fractions = (0.15, 0.15) if test_indices is None else (0.1, 0.0)
    return train_val_test_split(
        n, y if task in CLASSIFICATION_TASKS else None, test_indices=test_indices, fractions=fractions, seed=seed
    )


def resplit(data: Data, indices: Mapping[str, Tensor]) -> Data:
    """The same examples in the split that a run kept, measured anew. What was learned by the encoder stays."""
    splits = [split for part in SPLITS if isinstance(split := data.split(part), TensorSplit)]
    assert len(splits) == len(SPLITS), "only resident sets come by name"
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
        target_mean=target_mean,
        target_std=target_std,
        indices=new_indices,
        class_counts={part: _count_classes(parts[part], data.task, data.num_classes) for part in SPLITS},
        train=parts["train"],
        validation=parts["validation"],
        test=parts["test"],
    )


def compute_mean_std(split: TensorSplit | FileSplit, chunk_size: int = 4096) -> tuple[Tensor, Tensor]:
    """Mean and deviation of the decoded inputs: by channel for images (C, 1, 1), by feature otherwise.

    They are summed about the first example, so that a constant feature deviates by exactly 0 and a large mean costs
    no digits. Of a streamed split, evenly spaced examples are read.
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
    return (origin[0] + shift).float(), torch.where(std > 0, std, 1.0)  # a constant feature is centred, not blown up


def compute_uint8_mean_std(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same of images kept as bytes, exactly and quickly: there are only 256 levels to count in each channel."""
    level = torch.arange(256, dtype=torch.float64) / 255
    # (C, 256)
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in x.unbind(1)]).double()
    share = counts / counts.sum(1, keepdim=True)
    mean = share @ level
    std = (share * (level - mean[:, None]).square()).sum(1).sqrt()
    std = torch.where(std > 0, std, 1.0)
    return mean[:, None, None].float(), std[:, None, None].float()


def _compute_target_mean_std(split: TensorSplit | FileSplit, task: str) -> tuple[float, float]:
    """Mean and deviation of the training targets of a regression; 0 and 1 otherwise."""
    y = split.columns.get("y")
    if task != "regression" or y is None:
        return 0.0, 1.0
    return float(y.double().mean()), float(y.double().std(correction=0)) or 1.0


def _count_classes(split: TensorSplit | FileSplit, task: str, num_classes: int) -> tuple[int, ...]:
    """Examples of each class; of each label, where an example may carry several; pixels or boxes, where each has a
    class of its own."""
    y = split.columns.get("y")
    if y is None or not num_classes or task == "language":
        return ()
    # a mask's void is none
    counts = y.sum(0) if task == "multilabel" else torch.bincount(y[y >= 0].long(), minlength=num_classes)[:num_classes]
    return tuple(int(c) for c in counts)


def _compute_fingerprint(split: TensorSplit | FileSplit) -> str:
    """Sixteen hexadecimal digits that change when any example does; of a streamed file, when its name or size does."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(split.columns):
        column = split.columns[name].contiguous()
        digest.update(f"{name}{column.dtype}{tuple(column.shape)}".encode())
        digest.update(column.numpy().data)
    if isinstance(split, FileSplit):
        for file in split.files:
            digest.update(f"{os.path.basename(file)} {os.path.getsize(file)}\n".encode())
    return digest.hexdigest()
