"""Semantic segmentation: a class for each pixel."""

from typing import Annotated, Literal

import torch

from didact.data.core import Data
from didact.data.images.augment_masks import make_mask_augmentations
from didact.layers.conv.reflect_pad import ReflectPadded
from didact.models.vision.unet import UNet
from didact.objectives.vision.segmentation import SegmentationObjective
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import choose_epochs
from didact.registry import create_model, recipe
from didact.training.experiment import Experiment

_TARGET_STEPS = 1_350   # where no epochs are given
# from so many parameters on, AdamW's rate for small networks, 5e-3, would make the loss 10⁶ at step 2
_LARGE_NUM_PARAMETERS = 5_000_000
_ModelName = Literal["unet_mini", "unet", "unet_2015", "unet_small", "unet_tiny"]
_Architecture = Annotated[
    _ModelName,
    "architecture: unet (Ronneberger's), unet_2015 (without padding, as published), unet_tiny (Lhotte's), or a small "
    "one",
]
_UNetChannels = Annotated[
    tuple[int, ...] | None,
    Range(1),
    "channels at each resolution, the highest first, each half as large (the model's own if not given)",
]
Norm = Annotated[Literal["none", "batch"] | None, "normalization after each convolution (the model's own if not given)"]
_MaskAugment = Annotated[tuple[str, ...], "augmentations of images and masks: flip, crop, zoom, jitter, noise"]


@recipe(
    data="shapes",
    accepts=("masks",),
    tasks=("segmentation",),
    chapter="convolutions",
    abilities=("segment",),
    sources=("Gaba 12.1.2", "Fleuret 6.4", "Lhotte 7.2"),
)
def segmentation(
    data: Data,
    *,
    model: _Architecture = "unet_mini",
    channels: _UNetChannels = None,
    norm: Norm = None,
    dice_weight: Annotated[float, Range(0), "weight of the Dice loss added to cross-entropy"] = 1.0,
    augment: _MaskAugment = ("flip",),
    optimizer: a.Optimizer = "adamw",
    lr: a.OptionalLearningRate = None,
    weight_decay: a.WeightDecay = 1e-2,
    rho: a.SAMRadius = 0.05,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = None,
    ema: a.EMADecay = None,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.BatchSize = 8,
) -> Experiment:
    """Semantic segmentation with a U-Net.

    Down by convolutions and pooling, up by transposed convolutions, with skip connections; cross-entropy of each pixel
    plus Dice. The output of unet_2015 is smaller than its input: images are padded by reflection, as in the paper.
    Pixels of class 255 are ignored.
    """
    epochs, evaluate_every, notes = choose_epochs(data, batch_size, epochs, steps=_TARGET_STEPS, min_epochs=12)
    model_options = {name: value for name, value in (("widths", channels), ("norm", norm)) if value is not None}
    network: UNet = create_model(
        model, num_classes=data.num_classes, channels=data.shape[0], mean=data.mean, std=data.std, **model_options
    )
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    default_lr = 1e-3 if sum(p.numel() for p in network.parameters()) >= _LARGE_NUM_PARAMETERS else 5e-3
    return Experiment(
        data=data,
        objective=SegmentationObjective(
            network if network.padded else ReflectPadded(network), data.class_names, dice_weight=dice_weight
        ),
        optimizer=make_optimizer(
            optimizer, lr=default_lr if lr is None and optimizer == "adamw" else lr, weight_decay=weight_decay, rho=rho
        ),
        schedule=make_schedule(schedule),
        augment=make_mask_augmentations(augment),
        clip_norm=clip_norm,
        ema=ema,
        patience=patience,
        epochs=epochs,
        batch_size=batch_size,
        evaluate_every=evaluate_every,
        notes=notes,
    )
