"""Judging a split: rows of every example, then metrics of the whole."""

import torch

from didact.data.core import Batch, Split
from didact.objectives.core import Objective
from didact.train.distributed import Group
from didact.train.precision import Precision


@torch.no_grad()
def judge(objective: Objective, split: Split, *, batch: int, precision: Precision, group: Group | None = None) -> Batch:
    """The rows of a whole split, in its order, on the device. Neither batch size nor number of processes changes them."""
    group = group or Group()
    mode = objective.training
    objective.eval()
    mine = group.part(torch.arange(len(split)))
    found: list[Batch] = []
    for stored in split.batches(mine.split(batch)):
        with precision.autocast():
            rows = objective.judge(split.decode(stored))
        found.append({name: column.float() if column.is_floating_point() else column for name, column in rows.items()})
    objective.train(mode)
    rows = {name: torch.cat([f[name] for f in found]) for name in found[0]}
    return group.collect(rows, len(split))


@torch.no_grad()
def gallery(objective: Objective, split: Split, *, rows: int = 64) -> Batch:
    """The objective's pictures, made of the first examples of a split; none for most objectives."""
    mode = objective.training
    objective.eval()
    found = objective.gallery(split.decode(next(iter(split.batches([torch.arange(min(rows, len(split)))])))))
    objective.train(mode)
    return {name: grid.float().cpu().contiguous() for name, grid in found.items()}
