"""Normalizing flows: a density that can be computed exactly, and drawn from."""

from typing import Annotated, Literal

from didact.data.core import Data
from didact.data.load import forbid
from didact.data.rows import training_rows
from didact.layers.coder import Shape
from didact.models.realnvp import MonotoneFlow, MultiScaleRealNVP, NormalizingFlow, RealNVP, halvings
from didact.objectives.core import Objective
from didact.objectives.likelihood import ImageFlow
from didact.objectives.row_flow import RowFlow
from didact.objectives.rows import Rows
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.common import budget
from didact.recipes.gan import shape_of
from didact.registry import recipe
from didact.train.experiment import Experiment


@recipe(
    data="moons", accepts=("table", "images"), chapter="generative", kind="generative", abilities=("sample", "walk", "encode", "tabulate"),
    sources=("Groudiev 12.1", "Groudiev 12.2", "Groudiev 12.3"), grid={"couplings": (2, 4, 8)},
)
def realnvp(
    data: Data, *,
    network: Annotated[
        Literal["plain", "multiscale"] | None, "of images: all numbers go all the way, or half are done at each size (this if not given)"
    ] = None,
    scales: Annotated[int | None, Range(1), "sizes of multiscale, each half of the last (3, or as many as there are, if not given)"] = None,
    couplings: Annotated[int | None, Range(2), "steps of the flow, of images on each mask at each size (6 or 4 if not given)"] = None,
    hidden: Annotated[int, Range(1), "units or channels of the networks that say how to stretch"] = 64,
    levels: Annotated[int, Range(2, 256), "levels of a pixel that are told apart"] = 16,
    joint: Annotated[bool | None, "of a table: learn the target as one more column (yes for one's own file, if not given)"] = None,
    lr: a.OptionalRate = None, weight_decay: a.Decay = 1e-4, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 10.0,
    patience: a.Patience = None, epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """RealNVP: steps that can be undone exactly turn data into Gaussian noise; the likelihood follows from how they change volume.

    log p(x) = log N(f(x); 0, I) + log |det df/dx|; y = m x + (1 − m)(x e^s + t). In nats of rows; of images
    in bits per dimension, −log p(x) / (D log 2), D the numbers of an image. One column alone has nothing to couple: f is then one
    rising curve, Φ⁻¹ of the share of a mixture that lies below x.
    """
    epochs, batch, notes = budget(data, epochs, batch)
    objective: Objective
    if data.kind == "table":
        forbid(f"{data.name!r} is a table", network=network, scales=scales, levels=None if levels == 16 else levels)
        objective = of_rows(data, joint="path" in data.source if joint is None else joint, hidden=hidden, steps=couplings or 6)
    else:
        forbid(f"{data.name!r} holds images", joint=joint)
        objective = ImageFlow(of_images(shape_of(data), network, scales, hidden, couplings or 4), data.shape, levels=levels)
    return Experiment(
        data=data, objective=objective, schedule=make_schedule(schedule),
        optimizer=make("adamw", lr=lr or (5e-3 if data.kind == "table" else 1e-3), weight_decay=weight_decay),
        clip_norm=clip_norm, patience=patience, epochs=epochs, batch=batch, notes=notes,
    )


def of_rows(data: Data, *, joint: bool, hidden: int, steps: int) -> RowFlow:
    """The flow of a table's rows, with a number for each of its columns; of one alone, a curve that rises."""
    rows = Rows(data, joint=joint)
    flow = MonotoneFlow() if rows.width == 1 else RealNVP(shape=(rows.width,), hidden=hidden, steps=steps)
    return RowFlow(flow, rows, training_rows(data, joint=rows.joint))


def of_images(shape: Shape, network: str | None, scales: int | None, hidden: int, steps: int) -> NormalizingFlow:
    """The flow that was asked for, with as many scales as the images allow."""
    if network == "plain":
        forbid("--network plain has one way for all numbers", scales=scales)
        return RealNVP(shape=shape, hidden=hidden, steps=steps)
    return MultiScaleRealNVP(shape=shape, hidden=hidden, steps=steps, scales=scales or min(3, 1 + halvings(*shape[1:])))
