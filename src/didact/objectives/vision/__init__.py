"""Objectives of images with more to predict than a class.

    detection       bounding boxes: SSD and YOLO losses, hard negative mining
    segmentation    a class for each pixel: cross-entropy and Dice loss
    restoration     denoising, deblurring, colorization
"""

from typing import TYPE_CHECKING

from didact.lazy import make_lazy_getattr

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

__getattr__ = make_lazy_getattr(__name__, _EXPORTS)
