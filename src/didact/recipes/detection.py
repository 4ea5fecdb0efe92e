"""What is where on an image."""

from math import ceil
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

import didact.models  # noqa: F401 (registers the families)
from didact.data.boxed import augmentations
from didact.data.core import Data, Resident
from didact.data.stream import Hosted, Streamed
from didact.errors import UsageError
from didact.layers.anchors import cluster, default_sizes
from didact.objectives.detection import Detect, SSDDetect, YOLODetect
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.registry import create, recipe
from didact.train.experiment import Experiment, OfBudget

SMALL = 128   # side up to which the tiny networks are chosen
FEW = 1_000   # training images below which they are zoomed and coloured too
STEPS = {True: 1_080, False: 2_400}   # of a tiny network or another, where no epochs are given
LEVELS = {"ssd": 3, "ssd_tiny": 2, "yolo": 1, "yolo_tiny": 1}   # maps with anchors of their own
Model = Annotated[Literal["ssd", "yolo"], "boxes at cells of several maps, or of one grid"]
Size = Annotated[Literal["auto", "tiny", "base"], "of the network (chosen from the size of the images if auto)"]
Anchors = Annotated[int, Range(1, 20), "typical sizes of boxes at each cell, found in the training boxes by k-means"]
Moves = Annotated[
    tuple[str, ...] | None,
    "changes to images and their boxes: flip, flips (upside down too), zoom, jitter, noise (chosen from the data's size if not given)",
]


@recipe(
    data="scatter", accepts=("boxes",), tasks=("detection",), chapter="convolutions", abilities=("detect",),
    sources=("Gaba 12.1.1", "Fleuret 6.3"),
)
def detection(
    data: Data, *,
    model: Model = "ssd", network: Size = "auto", anchors: Anchors = 3,
    overlap: Annotated[float, Range(0, 1), "IoU above which a box is a repeat of a better one of its class"] = 0.5,
    augment: Moves = None,
    optimizer: a.Optimizer = "adamw", lr: a.OptionalRate = None, weight_decay: a.Decay = 1e-2, schedule: a.ScheduleName = "warmup_cosine",
    clip_norm: a.Clip = 5.0, ema: a.Average = 0.995, patience: a.Patience = None, epochs: a.OptionalEpochs = None, batch: a.BatchSize = 16,
) -> Experiment:
    """Boxes around things and what they are: an SSD of several maps, or a YOLO of one grid.

    At each cell so many boxes of typical sizes: matched to the true ones, corrected by a network, repeats suppressed.
    Measured on scatter, test split, seed 0, a minute on one core: mAP@0.5 0.880 (ssd), 0.882 (yolo).
    """
    tiny = network == "tiny" or (network == "auto" and max(data.shape[1:]) <= SMALL)
    name = f"{model}_tiny" if tiny else model
    moves = augment if augment is not None else ("flip",) if len(data.train) >= FEW else ("flip", "zoom", "jitter")
    passes = epochs or max(8, ceil(STEPS[tiny] / ceil(len(data.train) / batch)))
    sizes, notes = typical(data, LEVELS[name], anchors)
    changed = f"changed by {', '.join(moves) or 'nothing'}"
    told = OfBudget(f"network {name}, {passes} epochs, {changed}", otherwise=f"network {name}, {changed}")
    made: nn.Module = create(
        name, classes=data.classes, channels=data.shape[0], size=data.shape[1:], sizes=sizes, mean=data.mean, std=data.std
    )
    made = made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    objective: type[Detect] = SSDDetect if model == "ssd" else YOLODetect
    return Experiment(
        data=data,
        objective=objective(made, data.labels, overlap=overlap),
        optimizer=make(optimizer, lr=lr or rate(optimizer, tiny), weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        augment=augmentations(moves),
        clip_norm=clip_norm, ema=ema, patience=patience, epochs=passes, batch=batch, notes=(told, *notes),
    )


def rate(optimizer: str, tiny: bool) -> float | None:
    """AdamW takes larger steps with fewer weights; other rules have their own."""
    return (3e-3 if tiny else 1e-3) if optimizer == "adamw" else None


def typical(data: Data, levels: int, count: int) -> tuple[Tensor, tuple[str, ...]]:
    """Anchor sizes (levels, count, 2) from the training boxes, small ones for the fine maps; each class counts alike.

    A run that is rebuilt has no boxes at hand; its anchors come with its weights, in place of those that are made here.
    """
    split = data.train.split if isinstance(data.train, Hosted) else data.train
    if not isinstance(split, Resident | Streamed):
        return default_sizes(levels, count), ()
    y, box = split.columns["y"].cpu(), split.columns["box"].cpu()
    there = y >= 0
    if not there.any():
        raise UsageError(f"no training image of {data.name!r} shows anything: there is nothing to learn; split it another way")
    sizes, k = (box[..., 2:] - box[..., :2])[there], y[there]
    weights = (1 / torch.bincount(k, minlength=data.classes).clamp(min=1))[k]
    found = cluster(sizes, levels * count, weights=weights).view(levels, count, 2)
    pixels = (found * torch.tensor([data.shape[2], data.shape[1]])).round().long().view(-1, 2).tolist()
    return found, (f"anchors by k-means of {len(sizes):,} training boxes: {', '.join(f'{w}×{h}' for w, h in pixels)} pixels",)
