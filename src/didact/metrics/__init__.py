"""How a model is judged: pure functions of a whole split's rows, so that neither batches nor processes can change them.

Each returns a tensor on the rows' device and never waits for the host; `float()` of it is the caller's.
"""

from didact.metrics.classification import (
    accuracy,
    auroc,
    calibration_curve,
    calibration_error,
    f1,
    macro_average,
    multilabel_accuracy,
    multilabel_f1,
    precision,
    recall,
    top_k_accuracy,
)
from didact.metrics.confusion_matrix import confusion_matrices, confusion_matrix
from didact.metrics.detection import average_precision, box_iou
from didact.metrics.images import psnr, ssim
from didact.metrics.regression import coverage, mae, r2, rmse
from didact.metrics.segmentation import dice, iou, mean_iou, pixel_accuracy
from didact.metrics.text import bleu

__all__ = [
    "accuracy", "auroc", "average_precision", "bleu", "box_iou", "calibration_curve", "calibration_error",
    "confusion_matrices", "confusion_matrix", "coverage", "dice", "f1", "iou", "macro_average", "mae", "mean_iou",
    "multilabel_accuracy", "multilabel_f1", "pixel_accuracy", "precision", "psnr", "r2", "recall", "rmse",
    "ssim", "top_k_accuracy",
]
