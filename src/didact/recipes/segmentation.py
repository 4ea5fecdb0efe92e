"""A class for every pixel."""

from typing import Annotated, Literal

import torch

from didact.data.core import Data
from didact.data.paired import augmentations
from didact.layers.margin import Whole
from didact.models.unet import UNet
from didact.objectives.segmentation import Segment
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.common import passes
from didact.registry import create, recipe
from didact.train.experiment import Experiment

STEPS = 1_350   # where no number of epochs is given
LARGE = 5_000_000   # parameters from which 5e-3, AdamW's rate for small ones, would make the loss 10⁶ at step 2
Names = Literal["unet_mini", "unet", "unet_2015", "unet_small", "unet_tiny"]
Family = Annotated[Names, "the U-Net: Ronneberger's (unet; unet_2015 without padding, as printed), Lhotte's (unet_tiny), or a small one"]
Levels = Annotated[tuple[int, ...] | None, Range(1), "channels at each resolution, the finest first, each half as large; or the model's"]
Norm = Annotated[Literal["none", "batch"] | None, "normalisation after each convolution; or the model's"]
Moves = Annotated[tuple[str, ...], "changes to images and their masks: flip, crop, zoom, jitter, noise"]


@recipe(
    data="shapes", accepts=("masks",), tasks=("segmentation",), chapter="convolutions", abilities=("segment",),
    sources=("Gaba 12.1.2", "Fleuret 6.4", "Lhotte 7.2"),
)
def segmentation(
    data: Data, *,
    model: Family = "unet_mini", widths: Levels = None, norm: Norm = None,
    dice: Annotated[float, Range(0), "weight of the Dice loss beside cross-entropy"] = 1.0, augment: Moves = ("flip",),
    optimizer: a.Optimizer = "adamw", lr: a.OptionalRate = None, weight_decay: a.Decay = 1e-2, schedule: a.ScheduleName = "warmup_cosine",
    clip_norm: a.Clip = None, ema: a.Average = None, patience: a.Patience = None, epochs: a.OptionalEpochs = None,
    batch: a.BatchSize = 8,
) -> Experiment:
    """A U-Net that says of each pixel what it belongs to.

    Down by convolutions and halvings, up by transposed convolutions, bridges between; cross-entropy of each pixel plus Dice.
    unet_2015 says less than it sees: a margin is mirrored around the image, as in the paper. Pixels of 255 do not count.
    """
    epochs, evaluate_every, notes = passes(data, batch, epochs, steps=STEPS, least=12)
    own = {name: value for name, value in (("widths", widths), ("norm", norm)) if value is not None}
    network: UNet = create(model, classes=data.classes, channels=data.shape[0], mean=data.mean, std=data.std, **own)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as GPUs like it
    chosen = 1e-3 if sum(p.numel() for p in network.parameters()) >= LARGE else 5e-3
    return Experiment(
        data=data,
        objective=Segment(network if network.padded else Whole(network), data.labels, dice=dice),
        optimizer=make(optimizer, lr=chosen if lr is None and optimizer == "adamw" else lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        augment=augmentations(augment),
        clip_norm=clip_norm, ema=ema, patience=patience,
        epochs=epochs, batch=batch, evaluate_every=evaluate_every, notes=notes,
    )
