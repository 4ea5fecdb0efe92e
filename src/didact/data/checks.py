"""Data checks: what is wrong is refused before the first step; imbalance, duplicates and the like are noted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from didact.data.core import SPLITS, Data, Split, TensorSplit
from didact.errors import UsageError

_MAX_CLASS_RATIO = 3        # most to least frequent class, above which it is noted
_MAX_LISTED_NAMES = 5       # names listed before "and 3 more"
_HASHED_BYTES = 2**24       # of inputs that are copied at once to be hashed


def validate(name: str, n: int, columns: Mapping[str, Tensor], *, task: str, class_names: Sequence[str] = ()) -> None:
    """Refuse data that cannot be learned from. "x" may be absent: a streamed dataset has not read it yet."""
    x, y = columns.get("x"), columns.get("y")
    if n < 3:
        raise UsageError(f"{name!r} holds {n} examples, but three splits need at least 3")
    if x is not None and x.is_floating_point() and not (finite := x.flatten(1).isfinite().all(1)).all():
        rows = (~finite).nonzero()[:, 0]
        raise UsageError(f"the inputs of {name!r} must be finite, but {len(rows)} of {n} rows are not, first {rows[0]}")
    if y is None:
        return
    if y.is_floating_point() and not y.isfinite().all():
        num_bad = int((~y.isfinite()).sum())
        raise UsageError(f"the targets of {name!r} must be finite, but {num_bad} are NaN or infinite")
    if task == "regression" and bool((y == y[0]).all()):
        raise UsageError(f"the target of {name!r} is {float(y.flatten()[0]):g} in every row: there is nothing to learn")
    if task in ("binary", "multiclass"):
        _validate_classes(name, y, class_names)


def _validate_classes(name: str, y: Tensor, class_names: Sequence[str]) -> None:
    """Every class needs an example in each of the three splits."""
    if len(class_names) < 2:
        raise UsageError(
            f"{name!r} holds only one class, {summarize_list(class_names)!r}: a classifier needs at least two"
        )
    if len(y) < len(class_names):
        raise UsageError(f"{name!r} holds {len(y)} examples of {len(class_names)} classes: fewer examples than classes")
    counts = torch.bincount(y.long(), minlength=len(class_names)).tolist()
    too_few = [f"{label!r} ({count})" for label, count in zip(class_names, counts, strict=True) if count < 3]
    if too_few:
        raise UsageError(
            f"every class of {name!r} needs 3 examples, one for each split; too few of: {summarize_list(too_few)};"
            " add some or leave the class out"
        )


def add_health_notes(data: Data) -> Data:
    """The same data with notes on what one should know before training on it."""
    notes = list(data.notes)
    if data.task in ("binary", "multiclass"):
        absent_classes = {
            part: [data.class_names[k] for k, c in enumerate(data.class_counts[part]) if c == 0] for part in SPLITS
        }
        if absent_classes["train"]:
            raise UsageError(f"{data.name!r} has no training example of: {summarize_list(absent_classes['train'])}")
        notes += [
            f"no {part} example of: {summarize_list(absent_classes[part])}"
            for part in SPLITS[1:]
            if absent_classes[part]
        ]
        ratio = compute_imbalance(data)
        if ratio > _MAX_CLASS_RATIO:
            counts = data.class_counts["train"]
            most_frequent, least_frequent = counts.index(max(counts)), counts.index(min(counts))
            notes.append(
                f"imbalanced: {data.class_names[most_frequent]!r} is {ratio:.1f} times as frequent as "
                f"{data.class_names[least_frequent]!r}"
                f" ({counts[most_frequent]:,} to {counts[least_frequent]:,} in training)"
            )
    duplicate_counts = count_duplicates(data)
    if duplicate_counts is None:
        notes.append("duplicates across splits were not counted: the examples are read during training")
    else:
        notes += _describe_duplicates(duplicate_counts)
    constant_features = find_constant_features(data)
    if constant_features:
        names_text = (
            f": {summarize_list([data.feature_names[i] for i in constant_features])}"
            if len(data.feature_names) == data.num_features
            else ""
        )
        notes.append(f"{len(constant_features)} of {data.num_features} inputs never change in training{names_text}")
    return replace(data, notes=tuple(notes), duplicates=duplicate_counts)


def compute_imbalance(data: Data) -> float:
    """Training examples of the most frequent class for each one of the least frequent; 1 where there are no classes."""
    counts = data.class_counts.get("train", ())
    return max(counts) / max(1, min(counts)) if counts else 1.0


def count_duplicates(data: Data) -> dict[str, int] | None:
    """Validation and test examples whose stored input is in training too; None where inputs are not in memory."""
    train = _hash_inputs(data.train)
    if train is None:
        return None
    train.sort()
    counts = {}
    for part in SPLITS[1:]:
        hashes = _hash_inputs(data.split(part))
        if hashes is None:
            hashes = train[:0]
        is_found = train.searchsorted(hashes) < train.searchsorted(hashes, side="right")
        counts[part] = int(is_found.sum())
    return counts


def _describe_duplicates(duplicate_counts: Mapping[str, int]) -> list[str]:
    """A note on them, if there are any."""
    note = (
        f"{duplicate_counts['validation']:,} validation and {duplicate_counts['test']:,} test examples also occur in "
        "training"
    )
    return [note] if any(duplicate_counts.values()) else []


def refresh_duplicates(data: Data) -> Data:
    """The same data with its duplicates counted again, where they had been counted."""
    if data.duplicates is None:
        return data
    old_notes, duplicate_counts = _describe_duplicates(data.duplicates), count_duplicates(data) or {}
    return replace(
        data,
        duplicates=duplicate_counts,
        notes=(*(note for note in data.notes if note not in old_notes), *_describe_duplicates(duplicate_counts)),
    )


def _hash_inputs(split: Split) -> NDArray[np.int64] | None:
    """64 bits for each stored input; None where they are not in memory."""
    if not isinstance(split, TensorSplit):
        return None
    x = split.columns["x"].cpu().flatten(1).contiguous().numpy()
    rows = x.view(np.dtype((np.void, x.shape[1] * x.itemsize))).ravel()     # one item a row
    hashes = np.empty(len(rows), dtype=np.int64)
    step = max(1, _HASHED_BYTES // rows.itemsize)
    for start in range(0, len(rows), step):
        chunk = rows[start : start + step].tolist()
        hashes[start : start + step] = np.fromiter(map(hash, chunk), np.int64, len(chunk))
    return hashes


def find_constant_features(data: Data) -> list[int]:
    """Inputs that are the same in all training examples. A bag of words is stored as word ids: nothing to compare."""
    if data.kind not in ("table", "images") or not isinstance(data.train, TensorSplit):
        return []
    x = data.train.columns["x"].flatten(1)
    if len(x) < 2:
        return []
    columns = (x[:256] == x[0]).all(0).nonzero()[:, 0]   # few are left to compare in the other rows
    columns = columns[(x[:, columns] == x[0, columns]).all(0)]
    return [int(i) for i in columns]


def summarize_list(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    num_more = len(names) - _MAX_LISTED_NAMES
    return ", ".join(names[:_MAX_LISTED_NAMES]) + (f" and {num_more} more" if num_more > 0 else "")


def summarize_health(data: Data) -> dict[str, Any]:
    """The health report as JSON, for the command line and the run's page."""
    # where folds pool training and validation rows, the split is told as it was loaded
    is_pooled = data.train is data.validation and bool(data.indices)
    sizes = {part: len(data.indices[part] if is_pooled else data.split(part)) for part in SPLITS}
    return {
        "name": data.name,
        "kind": data.kind,
        "task": data.task,
        "target": data.target,
        "shape": list(data.shape),
        "splits": sizes,
        "classes": dict(zip(data.class_names, data.class_counts.get("train", ()), strict=False)),
        "counts": {part: list(counts) for part, counts in data.class_counts.items()},
        "imbalance": round(compute_imbalance(data), 3),
        "duplicates": data.duplicates,
        "constant": len(find_constant_features(data)),
        "fingerprint": data.fingerprint,
        "notes": list(data.notes),
    }
