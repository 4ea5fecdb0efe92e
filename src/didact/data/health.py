"""Is the data fit to learn from? What is wrong is refused before the first step; what looks unhealthy is told."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from didact.data.core import SPLITS, Data, Resident, Split
from didact.errors import UsageError

IMBALANCED = 3  # most to least frequent class, above which it is said
NAMED = 5       # names listed before "…"


def refuse(name: str, n: int, columns: Mapping[str, Tensor], *, task: str, labels: Sequence[str] = ()) -> None:
    """Stop at what no split or network could repair. Of n examples `x` may be absent: a streamed set has not read it yet."""
    x, y = columns.get("x"), columns.get("y")
    if n < 3:
        raise UsageError(f"{name!r} holds {n} examples, but three splits need at least 3")
    if x is not None and x.is_floating_point() and not (finite := x.flatten(1).isfinite().all(1)).all():
        rows = (~finite).nonzero()[:, 0]
        raise UsageError(f"the inputs of {name!r} must be finite, but {len(rows)} of {n} rows are not, first {rows[0]}")
    if y is None:
        return
    if y.is_floating_point() and not y.isfinite().all():
        bad = int((~y.isfinite()).sum())
        raise UsageError(f"the targets of {name!r} must be finite, but {bad} are NaN or infinite")
    if task == "regression" and bool((y == y[0]).all()):
        raise UsageError(f"the target of {name!r} is {float(y.flatten()[0]):g} in every row: there is nothing to learn")
    if task in ("binary", "multiclass"):
        refuse_classes(name, y, labels)


def refuse_classes(name: str, y: Tensor, labels: Sequence[str]) -> None:
    """Every class must be able to stand in all three splits."""
    if len(labels) < 2:
        raise UsageError(f"{name!r} holds only one class, {listed(labels)!r}: at least two can be told apart")
    if len(y) < len(labels):
        raise UsageError(f"{name!r} holds {len(y)} examples of {len(labels)} classes: fewer examples than classes")
    counts = torch.bincount(y.long(), minlength=len(labels)).tolist()
    few = [f"{label!r} ({count})" for label, count in zip(labels, counts, strict=True) if count < 3]
    if few:
        raise UsageError(
            f"every class of {name!r} needs 3 examples, one for each split; too few of: {listed(few)};"
            " add some or leave the class out"
        )


def examine(data: Data) -> Data:
    """The same data with notes on what a person should know before training on it."""
    notes = list(data.notes)
    if data.task in ("binary", "multiclass"):
        absent = {part: [data.labels[k] for k, c in enumerate(data.counts[part]) if c == 0] for part in SPLITS}
        if absent["train"]:
            raise UsageError(f"{data.name!r} has no training example of: {listed(absent['train'])}")
        notes += [f"no {part} example of: {listed(absent[part])}" for part in SPLITS[1:] if absent[part]]
        ratio = imbalance(data)
        if ratio > IMBALANCED:
            counts = data.counts["train"]
            most, least = counts.index(max(counts)), counts.index(min(counts))
            notes.append(
                f"imbalanced: {data.labels[most]!r} is {ratio:.1f} times as frequent as {data.labels[least]!r}"
                f" ({counts[most]:,} to {counts[least]:,} in training)"
            )
    twice = duplicates(data)
    if twice is None:
        notes.append("duplicates across splits were not looked for: the examples are streamed")
    else:
        notes += shared(twice)
    still = constant(data)
    if still:
        where = f": {listed([data.names[i] for i in still])}" if len(data.names) == data.features else ""
        notes.append(f"{len(still)} of {data.features} inputs never change in training{where}")
    return replace(data, notes=tuple(notes), duplicates=twice)


def imbalance(data: Data) -> float:
    """Training examples of the most frequent class for each one of the least frequent; 1 where there are no classes."""
    counts = data.counts.get("train", ())
    return max(counts) / max(1, min(counts)) if counts else 1.0


def duplicates(data: Data) -> dict[str, int] | None:
    """Validation and test examples whose stored input also stands in training; None where inputs are not in memory."""
    train = digests(data.train)
    if train is None:
        return None
    known = set(train)
    return {part: sum(d in known for d in digests(data.split(part)) or ()) for part in SPLITS[1:]}


def shared(twice: Mapping[str, int]) -> list[str]:
    """What is said of them, if there are any."""
    told = f"{twice['validation']:,} validation and {twice['test']:,} test examples also stand in training"
    return [told] if any(twice.values()) else []


def recounted(data: Data) -> Data:
    """The same data with the duplicates of the training rows that are left, where they had been looked for."""
    if data.duplicates is None:
        return data
    before, twice = shared(data.duplicates), duplicates(data) or {}
    return replace(data, duplicates=twice, notes=(*(note for note in data.notes if note not in before), *shared(twice)))


def digests(split: Split) -> list[bytes] | None:
    """Eight bytes for each stored input: 70,000 images of 784 bytes take a fifth of a second."""
    if not isinstance(split, Resident):
        return None
    rows = split.columns["x"].cpu().flatten(1).contiguous().numpy()
    return [blake2b(row, digest_size=8).digest() for row in rows]


def constant(data: Data) -> list[int]:
    """Inputs that are the same in all training rows. A bag of words is stored as word numbers: nothing to compare."""
    if data.kind not in ("table", "images") or not isinstance(data.train, Resident):
        return []
    x = data.train.columns["x"].flatten(1)
    if len(x) < 2:
        return []
    still = (x[:256] == x[0]).all(0).nonzero()[:, 0]   # few are left to compare in the other rows
    still = still[(x[:, still] == x[0, still]).all(0)]
    return [int(i) for i in still]


def listed(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def summary(data: Data) -> dict[str, Any]:
    """The health report as JSON, for the command line and the run's page."""
    return {
        "name": data.name,
        "kind": data.kind,
        "task": data.task,
        "target": data.target,
        "shape": list(data.shape),
        "splits": {part: len(data.split(part)) for part in SPLITS},
        "classes": dict(zip(data.labels, data.counts.get("train", ()), strict=False)),
        "counts": {part: list(counts) for part, counts in data.counts.items()},
        "imbalance": round(imbalance(data), 3),
        "duplicates": data.duplicates,
        "constant": len(constant(data)),
        "fingerprint": data.fingerprint,
        "notes": list(data.notes),
    }
