"""Train, validation and test split: seeded, stratified by class."""

import torch
from torch import Tensor


def train_val_test_split(
    n: int,
    strata: Tensor | None = None,
    *,
    test_indices: Tensor | None = None,
    fractions: tuple[float, float] = (0.15, 0.15),
    seed: int = 0,
) -> dict[str, Tensor]:
    """Indices of train, validation and test; `fractions` are those of validation and test among all n examples.

    A test split that the dataset comes with (`test_indices`) stays as it is, and validation is taken from the rest.
    With `strata` (class numbers) every split holds each class in proportion, to within one example, and a class with
    three examples or more is in all of them.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = torch.arange(n)
    if test_indices is not None:
        rows = rows[~torch.isin(rows, test_indices)]
    shuffled = rows[torch.randperm(len(rows), generator=generator)]
    classes = torch.zeros(n, dtype=torch.long) if strata is None else strata.long()
    shuffled = shuffled[classes[shuffled].argsort(stable=True)]
    sizes = torch.bincount(classes[shuffled])
    counts = torch.tensor(_allocate_rows(sizes.tolist(), fractions if test_indices is None else (fractions[0], 0.0)))
    v, t, _ = counts.repeat_interleave(sizes, dim=0).unbind(1)
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    rank = torch.arange(len(rows)) - first                       # 0, 1, … within each class
    return {
        "train": shuffled[rank >= t + v].sort().values,
        "validation": shuffled[(rank >= t) & (rank < t + v)].sort().values,
        "test": (shuffled[rank < t] if test_indices is None else test_indices).sort().values,
    }


def _allocate_rows(sizes: list[int], fractions: tuple[float, float]) -> list[tuple[int, ...]]:
    """Examples of each class for validation, test and training: its share rounded down or up, by largest remainder.

    What rounding takes from a split in one class it gives back in the next: ten classes of 10 at 0.15 give 15.
    """
    fraction = (*fractions, 1 - sum(fractions))
    parts = [p for p in range(3) if fraction[p] > 0]
    debts = [0.0] * 3
    counts = []
    for n in sizes:
        allocation = [int(n * f) for f in fraction]
        quotas = [o + n * f for o, f in zip(debts, fraction, strict=True)]
        for part in sorted(parts, key=lambda p: allocation[p] - quotas[p])[: n - sum(allocation)]:
            allocation[part] += 1
        for part in parts if n >= len(parts) else [2] * (n > 0):
            # every split sees every class; training before all
            if allocation[part] == 0:
                allocation[allocation.index(max(allocation))] -= 1
                allocation[part] = 1
        debts = [d - k for d, k in zip(quotas, allocation, strict=True)]
        counts.append(tuple(allocation))
    return counts
