"""Normalizing flows: exact densities of table rows or images, which can be sampled."""

from typing import Annotated, Literal

from didact.data.core import Data
from didact.data.load import reject_options
from didact.data.tables.row_decoder import get_training_rows
from didact.layers.autoencoder_blocks import Shape
from didact.models.generative.realnvp import MonotoneFlow, MultiScaleRealNVP, NormalizingFlow, RealNVP, count_halvings
from didact.objectives.base import Objective
from didact.objectives.generative.flow import ImageFlowObjective
from didact.objectives.generative.table_flow import TableFlow
from didact.objectives.generative.table_rows import RowLayout
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, Range
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import choose_budget
from didact.recipes.gan import get_image_shape
from didact.registry import recipe
from didact.training.experiment import Experiment


@recipe(
    data="moons",
    accepts=("table", "images"),
    chapter="generative",
    kind="generative",
    abilities=("sample", "walk", "encode", "tabulate"),
    sources=("Groudiev 12.1", "Groudiev 12.2", "Groudiev 12.3"),
    grid={"num_couplings": (2, 4, 8)},
)
def realnvp(
    data: Data,
    *,
    network: Annotated[
        Literal["plain", "multiscale"] | None,
        "for images: a single scale, or the multiscale architecture, which factors out half at each (the default)",
    ] = None,
    num_scales: Annotated[
        int | None,
        Range(1),
        "number of scales, each half as large as the last (3, or as many as the images allow, if not given)",
    ] = None,
    num_couplings: Annotated[
        int | None,
        Range(2),
        "number of coupling layers; for images, of each mask at each scale (6 for tables, 4 for images if not given)",
    ] = None,
    hidden: Annotated[
        int, Range(1), "units or channels of the networks that compute scale and shift", Aliases("hidden_size")
    ] = 64,
    levels: Annotated[int, Range(2, 256), "gray levels per pixel"] = 16,
    joint: Annotated[
        bool | None, "for tables: model features and target jointly (yes for your own file if not given)"
    ] = None,
    lr: a.OptionalLearningRate = None,
    weight_decay: a.WeightDecay = 1e-4,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 10.0,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """RealNVP: a normalizing flow of images or table rows.

    log p(x) = log N(f(x); 0, I) + log |det df/dx|; y = m x + (1 − m)(x e^s + t), invertible steps that map data to
    Gaussian noise. In nats for rows; for images in bits per dimension, −log p(x) / (D log 2), D the numbers of an
    image. A single column has nothing to couple: f is then one monotone curve, Φ⁻¹ of the CDF of a mixture at x.
    """
    epochs, batch_size, notes = choose_budget(data, epochs, batch_size)
    objective: Objective
    if data.kind == "table":
        reject_options(
            f"{data.name!r} is a table", network=network, num_scales=num_scales, levels=None if levels == 16 else levels
        )
        objective = _make_table_flow(
            data,
            joint="path" in data.source if joint is None else joint,
            hidden=hidden,
            num_couplings=num_couplings or 6,
        )
    else:
        reject_options(f"{data.name!r} is images", joint=joint)
        objective = ImageFlowObjective(
            make_image_flow(get_image_shape(data), network, num_scales, hidden, num_couplings or 4),
            data.shape,
            levels=levels,
        )
    return Experiment(
        data=data, objective=objective, schedule=make_schedule(schedule),
        optimizer=make_optimizer("adamw", lr=lr or (5e-3 if data.kind == "table" else 1e-3), weight_decay=weight_decay),
        clip_norm=clip_norm, patience=patience, epochs=epochs, batch_size=batch_size, notes=notes,
    )


def _make_table_flow(data: Data, *, joint: bool, hidden: int, num_couplings: int) -> TableFlow:
    """The flow of the rows of a table; for a single column, a monotone curve."""
    layout = RowLayout(data, joint=joint)
    flow = (
        MonotoneFlow()
        if layout.flat_width == 1
        else RealNVP(shape=(layout.flat_width,), hidden=hidden, num_couplings=num_couplings)
    )
    return TableFlow(flow, layout, get_training_rows(data, joint=layout.joint))


def make_image_flow(
    shape: Shape, network: str | None, num_scales: int | None, hidden: int, num_couplings: int
) -> NormalizingFlow:
    """The flow of images, with as many scales as their size allows."""
    if network == "plain":
        reject_options("--network plain has a single scale", num_scales=num_scales)
        return RealNVP(shape=shape, hidden=hidden, num_couplings=num_couplings)
    return MultiScaleRealNVP(
        shape=shape,
        hidden=hidden,
        num_couplings=num_couplings,
        num_scales=num_scales or min(3, 1 + count_halvings(*shape[1:])),
    )
