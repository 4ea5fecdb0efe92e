"""Classes that are not equally frequent: weigh them in the loss, repeat the rare, or thin out the frequent."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from didact.data.core import Absent, Data, Resident
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
        whole, rest = divmod(most, len(rows))
        return torch.cat([rows.repeat(whole), rows[torch.randperm(len(rows), generator=generator)[:rest]]])

    return chosen(data, repeat, seed, f"oversampled: {most:,} training examples of each class, the rarer ones repeated")


def undersample(data: Data, seed: int = 0) -> Data:
    """Keep as many training rows of every class as the least frequent one has, drawn at random."""
    least = min(frequencies(data))

    def thin(rows: Tensor, generator: torch.Generator) -> Tensor:
        return rows[torch.randperm(len(rows), generator=generator)[:least]]

    return chosen(data, thin, seed, f"undersampled: {least:,} training examples of each class, the others left out")


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
