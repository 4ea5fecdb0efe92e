"""Evaluation of a split: outputs of every example first, then metrics of the whole split."""

import torch
from torch import Tensor

from didact.data.core import Batch, Split
from didact.objectives.abilities import abilities
from didact.objectives.base import Objective
from didact.progress import ProgressCallback, ignore_progress
from didact.run import Run
from didact.samplers.latent import GRID_SIZE, seeded_generator
from didact.training.distributed.process_group import Group
from didact.training.precision import Precision


@torch.no_grad()
def evaluate_split(
    objective: Objective,
    split: Split,
    *,
    batch_size: int,
    precision: Precision,
    group: Group | None = None,
    rows: Tensor | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> Batch:
    """The outputs of a whole split, in its order, on the device, whatever the batch size and number of processes; or of
    some of its `rows`.
    """
    group = group or Group()
    mode = objective.training
    objective.eval()
    rows = torch.arange(len(split)) if rows is None else rows
    indices = group.shard(rows)
    chunks: list[Batch] = []
    num_done = 0
    for stored in split.batches(indices.split(batch_size)):
        with precision.autocast():
            outputs = objective.evaluate_batch(split.decode(stored))
        chunks.append(
            {name: column.float() if column.is_floating_point() else column for name, column in outputs.items()}
        )
        num_done = min(len(rows), num_done + batch_size * group.world_size)
        on_progress(num_done, len(rows))
    objective.train(mode)
    outputs = {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}
    return group.gather_rows(outputs, len(rows))


@torch.no_grad()
def make_gallery(objective: Objective, split: Split) -> Batch:
    """The objective's pictures of a few examples of a split, always the same ones; most objectives have none.

    The examples are chosen at random, since files are often sorted.
    """
    index = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))[: objective.gallery_size]
    mode = objective.training
    objective.eval()
    grids = objective.gallery(split.decode(next(iter(split.batches([index])))))
    objective.train(mode)
    return {name: grid.float().cpu().contiguous() for name, grid in grids.items()}


@torch.no_grad()
def save_training_samples(objective: Objective, run: Run, step: int) -> None:
    """Samples of a generative model at this step from the same noise as before, added to the run as bytes.

    A resumed run comes to the same steps again and replaces their samples.
    """
    if "sample" not in abilities(objective):
        return
    mode = objective.training
    objective.eval()
    samples = objective.sample(GRID_SIZE, seeded_generator(next(objective.parameters())))  # type: ignore[operator]
    objective.train(mode)
    if samples.ndim == 4:
        earlier = run.load("training_samples") if run.has("training_samples.safetensors") else {}
        run.save(
            "training_samples",
            earlier | {f"{step}": (samples.float().clamp(0, 1) * 255).round().byte().cpu().contiguous()},
        )
