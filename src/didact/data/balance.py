"""Class imbalance: class weights for the loss, oversampling and undersampling.

And reweighing (Kamiran and Calders): training rows resampled so that group and class are independent.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from didact.data.checks import refresh_duplicates
from didact.data.core import Data, MissingSplit, TensorSplit
from didact.data.groups import get_column, make_groups
from didact.data.storage import FileSplit
from didact.errors import UsageError


def class_weights(data: Data) -> Tensor:
    """w_k = N / (K n_k): mean 1 over the training examples, and every class weighs the same in the sum."""
    n = torch.tensor(_training_class_counts(data), dtype=torch.float64)
    return (n.sum() / (len(n) * n)).float()


def oversample(data: Data, seed: int = 0) -> Data:
    """Oversampling: training examples are repeated until every class is as frequent as the most frequent one."""
    max_count = max(_training_class_counts(data))

    def repeat_rows(rows: Tensor, generator: torch.Generator) -> Tensor:
        return _repeat_evenly(rows, max_count, generator)

    return resample_by_class(
        data, repeat_rows, seed, f"oversampled: {max_count:,} training examples of each class, the rarer ones repeated"
    )


def undersample(data: Data, seed: int = 0) -> Data:
    """Undersampling: a random choice of training examples, as many of every class as the least frequent one has."""
    min_count = min(_training_class_counts(data))

    def drop_rows(rows: Tensor, generator: torch.Generator) -> Tensor:
        return rows[torch.randperm(len(rows), generator=generator)[:min_count]]

    return resample_by_class(
        data, drop_rows, seed, f"undersampled: {min_count:,} training examples of each class, the others left out"
    )


def reweigh_groups(data: Data, column: str, seed: int = 0) -> Data:
    """Reweighing: n_a n_y / n training rows of each group and class, repeated or left out.

    P(A, Y) becomes P(A) P(Y) up to rounding, while P(A) and P(Y) stay.  Kamiran and Calders 2012, uniform sampling;
    Gaba exercise 12.5.
    """
    if data.task not in ("binary", "multiclass"):
        raise UsageError(f"--reweigh is for classes, but the targets of {data.name!r} are {data.task}; leave it out")
    if isinstance(data.train, MissingSplit):
        return data
    row_groups = make_groups(data, column, "--reweigh")
    group, y = row_groups.assign_rows(get_column(data.train)).cpu(), get_column(data.train, "y").cpu().long()
    # (groups, classes)
    joint = torch.stack(
        [torch.bincount(y[group == k], minlength=data.num_classes) for k in range(len(row_groups.names))]
    )
    missing = ((joint == 0) & (joint.sum(1, keepdim=True) > 0)).nonzero()
    if len(missing):
        name, label = row_groups.names[int(missing[0, 0])], data.class_names[int(missing[0, 1])]
        raise UsageError(
            f"--reweigh {column}: {name!r} has no training row of class {label!r} to be repeated; choose another column"
        )

    def resample_class(rows: Tensor, generator: torch.Generator) -> Tensor:
        """Of the rows of one class."""
        present_groups = group[rows].unique()
        counts = apportion_counts(len(rows), joint[present_groups].sum(1).double())
        return torch.cat(
            [_repeat_evenly(rows[group[rows] == k], n, generator) for k, n in zip(present_groups, counts, strict=True)]
        )

    note = f"training rows resampled so that {column!r} and {data.target!r} are independent"
    return resample_by_class(data, resample_class, seed, note)


def apportion_counts(count: int, weights: Tensor) -> list[int]:
    """A count divided in proportion to the weights, by largest remainders."""
    quotas = count * weights / weights.sum()
    counts = quotas.floor().long()
    counts[(quotas - counts).argsort(descending=True)[: count - int(counts.sum())]] += 1
    return counts.tolist()


def _repeat_evenly(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` of the rows, each equally often or once more."""
    repeats, remainder = divmod(count, len(rows))
    return torch.cat([rows.repeat(repeats), rows[torch.randperm(len(rows), generator=generator)[:remainder]]])


def _training_class_counts(data: Data) -> tuple[int, ...]:
    """n_k, the training examples of each class."""
    if data.task not in ("binary", "multiclass"):
        raise UsageError(f"only classes can be balanced, but the targets of {data.name!r} are {data.task}")
    return data.class_counts["train"]


def resample_by_class(
    data: Data, choose_rows: Callable[[Tensor, torch.Generator], Tensor], seed: int, note: str
) -> Data:
    """The data with a choice of its training examples, class by class.

    `indices` stay those of the split: a resumed run loads by them and resamples again.
    """
    train = data.train
    if isinstance(train, MissingSplit):  # a run loaded from its folder: nothing is trained
        return data
    assert isinstance(train, TensorSplit | FileSplit)
    y = train.columns["y"].cpu().long()
    generator = torch.Generator().manual_seed(seed)
    rows = torch.cat([choose_rows((y == k).nonzero()[:, 0], generator) for k in range(data.num_classes)]).sort().values
    counts = tuple(torch.bincount(y[rows], minlength=data.num_classes).tolist())
    resampled = train.subset(rows.to(train.columns["y"].device))
    return refresh_duplicates(
        replace(data, train=resampled, class_counts={**data.class_counts, "train": counts}, notes=(*data.notes, note))
    )
