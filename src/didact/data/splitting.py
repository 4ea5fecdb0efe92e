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
    v, t = shares(sizes, fractions if test is None else (fractions[0], 0.0))
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    rank = torch.arange(len(rows)) - first                       # 0, 1, … within each class
    t, v = t.repeat_interleave(sizes), v.repeat_interleave(sizes)
    return {
        "train": shuffled[rank >= t + v].sort().values,
        "validation": shuffled[(rank >= t) & (rank < t + v)].sort().values,
        "test": (shuffled[rank < t] if test is None else test).sort().values,
    }


def shares(sizes: Tensor, fractions: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """How many rows of each class go to validation and to test; training keeps at least one of each.

    What rounding takes from one class it gives to the next: ten classes of 5 rows at 0.15 give 8 rows, not 0 or 10.
    """
    parts = 1 + sum(f > 0 for f in fractions)
    counts = []
    left = sizes - 1                                             # what may be given away
    for still, fraction in ((parts - 2, fractions[1]), (0, fractions[0])):
        edges = (sizes.cumsum(0) * fraction + 0.5).floor().long()
        least = ((sizes >= parts) & (fraction > 0)).long()
        most = (left - still * least).clamp(min=0)
        counts.append(edges.diff(prepend=edges.new_zeros(1)).maximum(least).minimum(most))
        left = left - counts[-1]
    t, v = counts
    return v, t
