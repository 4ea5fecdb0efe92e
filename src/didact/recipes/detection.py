"""Object detection: bounding boxes and their classes."""

from math import ceil
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

import didact.models  # noqa: F401 (registers the families)
from didact.data.core import Data, TensorSplit
from didact.data.images.augment_boxes import make_box_augmentations
from didact.data.storage import FileSplit, PinnedSplit
from didact.errors import UsageError
from didact.layers.conv.anchors import default_sizes, kmeans_iou
from didact.objectives.vision.detection import DetectionObjective, SSDObjective, YOLOObjective
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, Range
from didact.recipes import _hyperparameters as a
from didact.registry import create_model, recipe
from didact.training.experiment import BudgetNote, Experiment

_MAX_TINY_SIDE = 128   # side of an image up to which the tiny networks are chosen
_SMALL_TRAIN_SIZE = 1_000   # with fewer training images, zoom and jitter are default augmentations too
_TARGET_STEPS = {True: 1_080, False: 2_400}   # of a tiny network, of another, where no epochs are given
_NUM_ANCHOR_MAPS = {"ssd": 3, "ssd_tiny": 2, "yolo": 1, "yolo_tiny": 1}   # feature maps, each with anchors of its own
_Model = Annotated[Literal["ssd", "yolo"], "detector: SSD (several feature maps) or YOLO (one grid)"]
_ModelSize = Annotated[Literal["auto", "tiny", "base"], "size of the network (by the size of the images if auto)"]
_NumAnchors = Annotated[
    int, Range(1, 20), "number of anchor boxes per cell; their sizes come from the training boxes by k-means"
]
_BoxAugment = Annotated[
    tuple[str, ...] | None,
    "augmentations of images and boxes: flip, flips (vertical too), zoom, jitter, noise (chosen from the data's "
    "size if not given)",
]


@recipe(
    data="scatter",
    accepts=("boxes",),
    tasks=("detection",),
    chapter="convolutions",
    abilities=("detect",),
    sources=("Gaba 12.1.1", "Fleuret 6.3"),
)
def detection(
    data: Data,
    *,
    model: _Model = "ssd",
    model_size: _ModelSize = "auto",
    anchors: _NumAnchors = 3,
    nms_iou: Annotated[
        float, Range(0, 1), "IoU threshold of non-maximum suppression (NMS)", Aliases("iou_threshold")
    ] = 0.5,
    augment: _BoxAugment = None,
    optimizer: a.Optimizer = "adamw",
    lr: a.OptionalLearningRate = None,
    weight_decay: a.WeightDecay = 1e-2,
    rho: a.SAMRadius = 0.05,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 5.0,
    ema: a.EMADecay = 0.995,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.BatchSize = 16,
) -> Experiment:
    """Object detection with SSD or YOLO.

    Anchor boxes of typical sizes at each cell are matched to the true boxes, corrected by the network, and filtered by
    non-maximum suppression. Measured on scatter, test split, seed 0, a minute on one core: mAP@0.5 0.880 (ssd), 0.882
    (yolo).
    """
    is_tiny = model_size == "tiny" or (model_size == "auto" and max(data.shape[1:]) <= _MAX_TINY_SIDE)
    model_name = f"{model}_tiny" if is_tiny else model
    augment_names = (
        augment
        if augment is not None
        else ("flip",)
        if len(data.train) >= _SMALL_TRAIN_SIZE
        else ("flip", "zoom", "jitter")
    )
    num_epochs = epochs or max(8, ceil(_TARGET_STEPS[is_tiny] / ceil(len(data.train) / batch_size)))
    anchor_sizes, notes = cluster_anchor_sizes(data, _NUM_ANCHOR_MAPS[model_name], anchors)
    augment_note = f"augmentations: {', '.join(augment_names) or 'none'}"
    note = BudgetNote(
        f"network {model_name}, {num_epochs} epochs, {augment_note}",
        without_budget=f"network {model_name}, {augment_note}",
    )
    detector: nn.Module = create_model(
        model_name,
        num_classes=data.num_classes,
        channels=data.shape[0],
        size=data.shape[1:],
        sizes=anchor_sizes,
        mean=data.mean,
        std=data.std,
    )
    detector = detector.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    objective: type[DetectionObjective] = SSDObjective if model == "ssd" else YOLOObjective
    return Experiment(
        data=data,
        objective=objective(detector, data.class_names, nms_iou=nms_iou),
        optimizer=make_optimizer(
            optimizer, lr=lr or _default_lr(optimizer, is_tiny), weight_decay=weight_decay, rho=rho
        ),
        schedule=make_schedule(schedule),
        augment=make_box_augmentations(augment_names),
        clip_norm=clip_norm, ema=ema, patience=patience, epochs=num_epochs, batch_size=batch_size, notes=(note, *notes),
    )


def _default_lr(optimizer: str, is_tiny: bool) -> float | None:
    """AdamW takes larger steps with fewer weights; other optimizers have their own default."""
    return (3e-3 if is_tiny else 1e-3) if optimizer == "adamw" else None


def cluster_anchor_sizes(data: Data, num_levels: int, num_anchors: int) -> tuple[Tensor, tuple[str, ...]]:
    """Anchor sizes (levels, count, 2) from the training boxes, small ones for the fine maps; classes have equal weight.

    A run that is rebuilt without data gets its anchors with its weights, in place of the default ones here.
    """
    split = data.train.split if isinstance(data.train, PinnedSplit) else data.train
    if not isinstance(split, TensorSplit | FileSplit):
        return default_sizes(num_levels, num_anchors), ()
    y, boxes = split.columns["y"].cpu(), split.columns["box"].cpu()
    is_box = y >= 0
    if not is_box.any():
        raise UsageError(
            f"no training image of {data.name!r} has a box: there is nothing to learn; choose another --split-seed"
        )
    sizes, labels = (boxes[..., 2:] - boxes[..., :2])[is_box], y[is_box]
    weights = (1 / torch.bincount(labels, minlength=data.num_classes).clamp(min=1))[labels]
    anchor_sizes = kmeans_iou(sizes, num_levels * num_anchors, weights=weights).view(num_levels, num_anchors, 2)
    pixels = (anchor_sizes * torch.tensor([data.shape[2], data.shape[1]])).round().long().view(-1, 2).tolist()
    return anchor_sizes, (
        f"anchors by k-means of {len(sizes):,} training boxes: {', '.join(f'{w}×{h}' for w, h in pixels)} pixels",
    )
