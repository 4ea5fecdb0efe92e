"""Judging a split: rows of every example, then metrics of the whole."""

import torch

from didact.data.core import Batch, Split
from didact.objectives.abilities import abilities
from didact.objectives.core import Objective
from didact.objectives.walks import SHOWN, seeded
from didact.run import Run
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
def gallery(objective: Objective, split: Split) -> Batch:
    """The objective's pictures, made of a few examples of a split, the same each time; none for most objectives.

    They are drawn, not the first ones: files are often sorted.
    """
    some = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))[: objective.pictured]
    mode = objective.training
    objective.eval()
    found = objective.gallery(split.decode(next(iter(split.batches([some])))))
    objective.train(mode)
    return {name: grid.float().cpu().contiguous() for name, grid in found.items()}


@torch.no_grad()
def glimpse(objective: Objective, run: Run, step: int) -> None:
    """What a model that draws images makes of the same noise at this step, kept as bytes beside what it made of it before.

    A resumed run comes to the same steps again and finds what was kept before it was stopped.
    """
    if "sample" not in abilities(objective):
        return
    mode = objective.training
    objective.eval()
    drawn = objective.sample(SHOWN, seeded(next(objective.parameters())))  # type: ignore[operator]
    objective.train(mode)
    if drawn.ndim == 4:
        kept = run.load("glimpses") if run.has("glimpses.safetensors") else {}
        run.save("glimpses", kept | {f"{step}": (drawn.float().clamp(0, 1) * 255).round().byte().cpu().contiguous()})
