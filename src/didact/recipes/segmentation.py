"""A class for every pixel."""

from typing import Annotated, Literal

import torch

from didact.data.core import Data
from didact.data.paired import augmentations
from didact.models.unet import UNet
from didact.objectives.segmentation import Segment
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.registry import recipe
from didact.train.experiment import Experiment

Levels = Annotated[tuple[int, ...], Range(1), "channels at each resolution, the finest first; each halves the image once more"]
Norm = Annotated[Literal["none", "batch"], "normalisation after each convolution"]
Moves = Annotated[tuple[str, ...], "changes to images and their masks: flip, crop, zoom, jitter, noise"]


@recipe(
    data="shapes", accepts=("masks",), tasks=("segmentation",), chapter="convolutions", abilities=("segment",),
    sources=("Gaba 12.1", "Fleuret 6.4", "Lhotte 7.2"),
)
def segmentation(
    data: Data, *,
    widths: Levels = (8, 16, 32, 64), norm: Norm = "batch",
    dice: Annotated[float, Range(0), "weight of the Dice loss beside cross-entropy"] = 1.0, augment: Moves = ("flip",),
    optimizer: a.Optimizer = "adamw", lr: a.OptionalRate = None, weight_decay: a.Decay = 1e-2, schedule: a.ScheduleName = "warmup_cosine",
    clip_norm: a.Clip = None, ema: a.Average = None, patience: a.Patience = None, epochs: a.Epochs = 12, batch: a.BatchSize = 8,
) -> Experiment:
    """A U-Net that says of each pixel what it belongs to.

    Down by convolutions and halvings, up by transposed convolutions, bridges between; cross-entropy of each pixel plus Dice.
    """
    network = UNet(widths=widths, classes=data.classes, channels=data.shape[0], norm=norm, mean=data.mean, std=data.std)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as GPUs like it
    return Experiment(
        data=data,
        objective=Segment(network, data.labels, dice=dice),
        optimizer=make(optimizer, lr=5e-3 if lr is None and optimizer == "adamw" else lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        augment=augmentations(augment),
        clip_norm=clip_norm, ema=ema, patience=patience,
        epochs=epochs, batch=batch,
    )
