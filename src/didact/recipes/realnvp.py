"""Normalizing flows: a density that can be computed exactly, and drawn from."""

from typing import Annotated

import torch

from didact.data.core import Data
from didact.models.realnvp import RealNVP
from didact.objectives.core import Objective
from didact.objectives.likelihood import Flow, ImageFlow
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.common import budget
from didact.registry import recipe
from didact.train.experiment import Experiment


@recipe(
    data="moons", accepts=("table", "images"), chapter="generative", kind="generative", abilities=("sample",),
    sources=("Groudiev 12.1", "Groudiev 12.2", "Groudiev 12.3"), grid={"couplings": (2, 4, 8)},
)
def realnvp(
    data: Data, *,
    couplings: Annotated[int, Range(2), "steps of the flow, of images at each size"] = 6,
    hidden: Annotated[int, Range(1), "units or channels of the networks that say how to stretch"] = 64,
    levels: Annotated[int, Range(2, 256), "levels of a pixel that are told apart"] = 16,
    lr: a.OptionalRate = None, weight_decay: a.Decay = 1e-4, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 10.0,
    patience: a.Patience = None, epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """RealNVP: steps that can be undone exactly turn data into Gaussian noise; the likelihood follows from how they change volume.

    log p(x) = log N(f(x); 0, I) + log |det df/dx|; y = m x + (1 − m)(x e^s + t). In nats of rows, in bits per dimension of images.
    """
    epochs, batch, notes = budget(data, epochs, batch)
    network = RealNVP(shape=data.shape, hidden=hidden, steps=couplings)
    objective: Objective
    if data.kind == "table":
        objective = Flow(network, data.mean, torch.where(data.std > 0, data.std, torch.ones_like(data.std)))
    else:
        objective = ImageFlow(network, data.shape, levels=levels)
    return Experiment(
        data=data, objective=objective, schedule=make_schedule(schedule),
        optimizer=make("adamw", lr=lr or (5e-3 if data.kind == "table" else 1e-3), weight_decay=weight_decay),
        clip_norm=clip_norm, patience=patience, epochs=epochs, batch=batch, notes=notes,
    )
