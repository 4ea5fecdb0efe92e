"""Objectives of images with more to predict than a class.

    detection       bounding boxes: SSD and YOLO losses, hard negative mining
    segmentation    a class for each pixel: cross-entropy and Dice loss
    restoration     denoising, deblurring, colorization
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from didact.objectives.vision.detection import DetectionObjective as DetectionObjective
    from didact.objectives.vision.detection import SSDObjective as SSDObjective
    from didact.objectives.vision.detection import YOLOObjective as YOLOObjective
    from didact.objectives.vision.restoration import RestorationObjective as RestorationObjective
    from didact.objectives.vision.segmentation import SegmentationObjective as SegmentationObjective
    from didact.objectives.vision.segmentation import dice_loss as dice_loss

_EXPORTS = {
    "DetectionObjective": "detection",
    "RestorationObjective": "restoration",
    "SSDObjective": "detection",
    "SegmentationObjective": "segmentation",
    "YOLOObjective": "detection",
    "dice_loss": "segmentation",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"didact.objectives.vision.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
