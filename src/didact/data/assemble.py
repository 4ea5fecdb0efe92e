"""From columns of examples to Data: split, measure, examine. Every source ends here."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from didact.data.core import SPLITS, Batch, Data, Encoder, Resident, Whence
from didact.data.health import examine, refuse
from didact.data.splitting import three_way
from didact.data.stream import Streamed
from didact.errors import UsageError

CLASSIFICATION = ("binary", "multiclass")
SAMPLE = 4096  # images of a streamed set that are read to measure it


def assemble(
    name: str,
    kind: str,
    columns: Batch | Streamed,
    *,
    task: str,
    labels: Sequence[str] = (),
    names: Sequence[str] = (),
    target: str = "y",
    target_shift: float = 0.0,
    encoder: Encoder | None = None,
    source: Mapping[str, Any] | None = None,
    test: Tensor | None = None,
    fractions: tuple[float, float] | None = None,
    indices: Mapping[str, Tensor] | None = None,
    whence: Whence | None = None,
    seed: int = 0,
    standardise: bool = True,
    notes: Sequence[str] = (),
    fingerprint: str = "",
) -> Data:
    """Split the rows, take mean and deviation of the training part alone, and tell what looks unhealthy.

    `columns` holds every row, stored small ("x" and "y"), or streams them; `test` the row numbers of a test split that
    the set brings; `indices` a whole split made before.
    `y` is (N,) int64 for classes, (N,) float32 for regression and binary 0/1 int64, (N, K) float32 for multilabel.
    """
    whole = columns if isinstance(columns, Streamed) else Resident(columns, encoder.decoders if encoder else {})
    y = whole.columns.get("y")
    refuse(name, len(whole), whole.columns, task=task, labels=labels)
    indices = divide(name, len(whole), y, task=task, test=test, fractions=fractions, indices=indices, seed=seed)
    splits = {part: whole.pick(indices[part]) for part in SPLITS}
    example = whole.batch(indices["train"][:1])["x"]
    mean, std = moments(splits["train"]) if standardise else (torch.zeros(1), torch.ones(1))
    target_mean, target_std = target_moments(splits["train"], task)
    data = Data(
        name=name,
        kind=kind,
        task=task,
        shape=tuple(example.shape[1:]),
        labels=tuple(labels),
        names=tuple(names),
        target=target,
        target_shift=target_shift,
        mean=mean,
        std=std,
        target_mean=target_mean,
        target_std=target_std,
        encoder=encoder,
        source=dict(source or {"name": name}),
        indices=indices,
        whence=whence,
        counts={part: class_counts(splits[part], task, len(labels)) for part in SPLITS},
        fingerprint=fingerprint or fingerprint_of(whole),
        notes=tuple(notes),
        train=splits["train"],
        validation=splits["validation"],
        test=splits["test"],
    )
    return examine(data)


def divide(
    name: str,
    n: int,
    y: Tensor | None,
    *,
    task: str,
    test: Tensor | None = None,
    fractions: tuple[float, float] | None = None,
    indices: Mapping[str, Tensor] | None = None,
    seed: int = 0,
) -> dict[str, Tensor]:
    """The rows of each split: those given, or a new seeded division, stratified where the targets are classes."""
    if indices is not None:
        rows = torch.cat([indices[part] for part in SPLITS])
        if len(rows) != n or not 0 <= int(rows.min()) <= int(rows.max()) < n:
            raise UsageError(f"{name!r} now holds {n} examples, but {len(rows)} when it was split: it has changed since")
        return {part: indices[part] for part in SPLITS}
    if fractions is None:
        fractions = (0.15, 0.15) if test is None else (0.1, 0.0)
    return three_way(n, y if task in CLASSIFICATION else None, test=test, fractions=fractions, seed=seed)


def rearrange(data: Data, indices: Mapping[str, Tensor]) -> Data:
    """The same examples in the split that a run kept, measured anew. What was learned by the encoder stays."""
    splits = [split for part in SPLITS if isinstance(split := data.split(part), Resident)]
    assert len(splits) == len(SPLITS), "only resident sets come by name"
    order = torch.cat([data.indices[part] for part in SPLITS]).argsort()
    columns = {name: torch.cat([split.columns[name] for split in splits])[order] for name in splits[0].columns}
    kept = divide(data.name, len(order), columns.get("y"), task=data.task, indices=indices)
    parts = {part: Resident(columns, splits[0].decoders).pick(kept[part]) for part in SPLITS}
    standardised = data.mean.numel() > 1 or float(data.std.flatten()[0]) != 1
    mean, std = moments(parts["train"]) if standardised else (data.mean, data.std)
    target_mean, target_std = target_moments(parts["train"], data.task)
    return replace(
        data,
        mean=mean,
        std=std,
        target_mean=target_mean,
        target_std=target_std,
        indices=kept,
        counts={part: class_counts(parts[part], data.task, data.classes) for part in SPLITS},
        train=parts["train"],
        validation=parts["validation"],
        test=parts["test"],
    )


def moments(split: Resident | Streamed, chunk: int = 4096) -> tuple[Tensor, Tensor]:
    """Mean and deviation of the decoded inputs: by channel for images (C, 1, 1), by feature otherwise.

    They are summed about the first example, so that a constant feature deviates by exactly 0 and a large mean costs
    no digits. Of a streamed split, evenly spaced examples are read.
    """
    if isinstance(split, Resident) and split.columns["x"].dtype == torch.uint8 and split.columns["x"].ndim == 4:
        return byte_moments(split.columns["x"])
    rows = torch.arange(len(split))
    if isinstance(split, Streamed) and len(rows) > SAMPLE:
        rows = torch.linspace(0, len(split) - 1, SAMPLE).long()
    x = split.batch(rows[:1])["x"].double()
    axes = (0, 2, 3) if x.ndim == 4 else (0,)
    origin = x.mean(axes, keepdim=True)
    total = square = torch.zeros_like(origin)
    n = 0
    for index in torch.split(rows, chunk if isinstance(split, Resident) else 256):
        x = split.batch(index)["x"].double() - origin
        total, square = total + x.sum(axes, keepdim=True), square + x.square().sum(axes, keepdim=True)
        n += x.numel() // total.numel()
    shift = (total / n)[0]
    std = ((square / n)[0] - shift.square()).clamp(min=0).sqrt().float()
    return (origin[0] + shift).float(), torch.where(std > 0, std, 1.0)  # a constant feature is centred, not blown up


def byte_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same of images kept as bytes, exactly and quickly: there are only 256 levels to count in each channel."""
    level = torch.arange(256, dtype=torch.float64) / 255
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in x.unbind(1)]).double()  # (C, 256)
    share = counts / counts.sum(1, keepdim=True)
    mean = share @ level
    std = (share * (level - mean[:, None]).square()).sum(1).sqrt()
    std = torch.where(std > 0, std, 1.0)
    return mean[:, None, None].float(), std[:, None, None].float()


def target_moments(split: Resident | Streamed, task: str) -> tuple[float, float]:
    """Mean and deviation of the training targets of a regression; 0 and 1 otherwise."""
    y = split.columns.get("y")
    if task != "regression" or y is None:
        return 0.0, 1.0
    return float(y.double().mean()), float(y.double().std(correction=0)) or 1.0


def class_counts(split: Resident | Streamed, task: str, classes: int) -> tuple[int, ...]:
    """Examples of each class; of each label, where an example may carry several; pixels or boxes, where each has a class of its own."""
    y = split.columns.get("y")
    if y is None or not classes or task == "language":
        return ()
    counts = y.sum(0) if task == "multilabel" else torch.bincount(y[y >= 0].long(), minlength=classes)[:classes]  # a mask's void is none
    return tuple(int(c) for c in counts)


def fingerprint_of(whole: Resident | Streamed) -> str:
    """Sixteen hexadecimal digits that change when any example does; of a streamed file, when its name or size does."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(whole.columns):
        column = whole.columns[name].contiguous()
        digest.update(f"{name}{column.dtype}{tuple(column.shape)}".encode())
        digest.update(column.numpy().data)
    if isinstance(whole, Streamed):
        for file in whole.files:
            digest.update(f"{os.path.basename(file)} {os.path.getsize(file)}\n".encode())
    return digest.hexdigest()
