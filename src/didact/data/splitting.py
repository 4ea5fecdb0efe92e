"""Three-way splits: stratified, seeded, and the test rows kept apart from the start."""

import torch
from torch import Tensor


def three_way(
    n: int,
    strata: Tensor | None = None,
    *,
    test: Tensor | None = None,
    fractions: tuple[float, float] = (0.15, 0.15),
    seed: int = 0,
) -> dict[str, Tensor]:
    """Row numbers of train, validation and test; `fractions` are those of validation and test among all n rows.

    Where the set comes with a test split of its own (`test`), it stays as it is and validation is cut from the rest.
    With `strata` (class numbers) every split holds each class in proportion, to within one row, and a class with a row
    for each split is in all of them.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = torch.arange(n)
    if test is not None:
        rows = rows[~torch.isin(rows, test)]
    shuffled = rows[torch.randperm(len(rows), generator=generator)]
    classes = torch.zeros(n, dtype=torch.long) if strata is None else strata.long()
    shuffled = shuffled[classes[shuffled].argsort(stable=True)]
    sizes = torch.bincount(classes[shuffled])
    taken = torch.tensor(shares(sizes.tolist(), fractions if test is None else (fractions[0], 0.0)))
    v, t, _ = taken.repeat_interleave(sizes, dim=0).unbind(1)
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    rank = torch.arange(len(rows)) - first                       # 0, 1, … within each class
    return {
        "train": shuffled[rank >= t + v].sort().values,
        "validation": shuffled[(rank >= t) & (rank < t + v)].sort().values,
        "test": (shuffled[rank < t] if test is None else test).sort().values,
    }


def shares(sizes: list[int], fractions: tuple[float, float]) -> list[tuple[int, ...]]:
    """Rows of each class for validation, test and training: its share rounded down or up, whichever is owed most.

    What rounding takes from a split in one class it gives back in the next: ten classes of 10 rows at 0.15 give 15.
    """
    fraction = (*fractions, 1 - sum(fractions))
    parts = [p for p in range(3) if fraction[p] > 0]
    owed = [0.0] * 3
    counts = []
    for n in sizes:
        take = [int(n * f) for f in fraction]
        due = [o + n * f for o, f in zip(owed, fraction, strict=True)]
        for part in sorted(parts, key=lambda p: take[p] - due[p])[: n - sum(take)]:
            take[part] += 1
        for part in parts if n >= len(parts) else [2] * (n > 0):
            if take[part] == 0:                                  # every split sees every class; training before all
                take[take.index(max(take))] -= 1
                take[part] = 1
        owed = [d - k for d, k in zip(due, take, strict=True)]
        counts.append(tuple(take))
    return counts
