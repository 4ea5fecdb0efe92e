"""Classes that are not equally frequent: weigh them in the loss, repeat the rare, or thin out the frequent.

And groups of people in which they are not: draw the training rows so that a group says nothing of the class.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from didact.data.core import Absent, Data, Resident
from didact.data.groups import features, groups
from didact.data.health import recounted
from didact.data.stream import Streamed
from didact.errors import UsageError


def class_weights(data: Data) -> Tensor:
    """w_k = N / (K n_k): mean 1 over the training examples, and every class weighs the same in the sum."""
    n = torch.tensor(frequencies(data), dtype=torch.float64)
    return (n.sum() / (len(n) * n)).float()


def oversample(data: Data, seed: int = 0) -> Data:
    """Repeat training rows until every class is as frequent as the most frequent; no row is lost."""
    most = max(frequencies(data))

    def repeat(rows: Tensor, generator: torch.Generator) -> Tensor:
        return repeated(rows, most, generator)

    return chosen(data, repeat, seed, f"oversampled: {most:,} training examples of each class, the rarer ones repeated")


def undersample(data: Data, seed: int = 0) -> Data:
    """Keep as many training rows of every class as the least frequent one has, drawn at random."""
    least = min(frequencies(data))

    def thin(rows: Tensor, generator: torch.Generator) -> Tensor:
        return rows[torch.randperm(len(rows), generator=generator)[:least]]

    return chosen(data, thin, seed, f"undersampled: {least:,} training examples of each class, the others left out")


def independent(data: Data, column: str, seed: int = 0) -> Data:
    """As if group and class were independent: n_a n_y / n training rows of each group and class, repeated or left out.

    P(A, Y) becomes P(A) P(Y) up to rounding, while P(A) and P(Y) stay.  Kamiran and Calders 2012, uniform sampling; Gaba exercise 12.5.
    """
    if data.task not in ("binary", "multiclass"):
        raise UsageError(f"--reweigh is for classes, but the targets of {data.name!r} are {data.task}; leave it out")
    if isinstance(data.train, Absent):
        return data
    told = groups(data, column, "--reweigh")
    group, y = told.of(features(data.train)).cpu(), features(data.train, "y").cpu().long()
    joint = torch.stack([torch.bincount(y[group == k], minlength=data.classes) for k in range(len(told.names))])   # (groups, classes)
    lacking = ((joint == 0) & (joint.sum(1, keepdim=True) > 0)).nonzero()
    if len(lacking):
        name, label = told.names[int(lacking[0, 0])], data.labels[int(lacking[0, 1])]
        raise UsageError(f"--reweigh {column}: {name!r} has no training row of class {label!r} to be repeated; choose another column")

    def drawn(rows: Tensor, generator: torch.Generator) -> Tensor:
        """Of the rows of one class."""
        present = group[rows].unique()
        wanted = shared(len(rows), joint[present].sum(1).double())
        return torch.cat([repeated(rows[group[rows] == k], n, generator) for k, n in zip(present, wanted, strict=True)])

    note = f"training rows drawn so that {column!r} says nothing of {data.target!r}: some are repeated, others left out"
    return chosen(data, drawn, seed, note)


def shared(count: int, weights: Tensor) -> list[int]:
    """A number in whole parts that are as the weights, by largest remainders."""
    exact = count * weights / weights.sum()
    parts = exact.floor().long()
    parts[(exact - parts).argsort(descending=True)[: count - int(parts.sum())]] += 1
    return parts.tolist()


def repeated(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """So many of the rows, each as often as the others, or once more."""
    whole, rest = divmod(count, len(rows))
    return torch.cat([rows.repeat(whole), rows[torch.randperm(len(rows), generator=generator)[:rest]]])


def frequencies(data: Data) -> tuple[int, ...]:
    """n_k, the training examples of each class."""
    if data.task not in ("binary", "multiclass"):
        raise UsageError(f"only classes can be balanced, but the targets of {data.name!r} are {data.task}")
    return data.counts["train"]


def chosen(data: Data, choose: Callable[[Tensor, torch.Generator], Tensor], seed: int, note: str) -> Data:
    """The data with some rows of its training split, class by class.

    `indices` stay those of the split: a resumed run loads by them and balances again.
    """
    train = data.train
    if isinstance(train, Absent):  # a run rebuilt from its folder: nothing is trained, so nothing is balanced
        return data
    assert isinstance(train, Resident | Streamed)
    y = train.columns["y"].cpu().long()
    generator = torch.Generator().manual_seed(seed)
    rows = torch.cat([choose((y == k).nonzero()[:, 0], generator) for k in range(data.classes)]).sort().values
    counts = tuple(torch.bincount(y[rows], minlength=data.classes).tolist())
    picked = train.pick(rows.to(train.columns["y"].device))
    return recounted(replace(data, train=picked, counts={**data.counts, "train": counts}, notes=(*data.notes, note)))
