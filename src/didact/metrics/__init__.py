"""Metrics: pure functions of the outputs for a whole split, independent of batches and processes.

    classification, confusion_matrix    accuracy, precision, recall, F1, AUROC, calibration
    regression                          MAE, RMSE, R², coverage
    segmentation, detection             IoU, Dice; average precision
    images, generative                  PSNR, SSIM; FID, KID, precision and recall, coverage of classes
    text                                BLEU
    fairness, similarity, information   group fairness; cosine similarity; mutual information by binning

Each returns a tensor on the device of its input and never waits for the host; `float()` is up to the caller.
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
from didact.metrics.fairness import fairness_gaps, group_rates
from didact.metrics.generative import (
    gaussian_frechet_distance,
    inception_score,
    kernel_distance,
    manifold_precision_recall,
)
from didact.metrics.images import psnr, ssim
from didact.metrics.regression import coverage, mae, r2, rmse
from didact.metrics.segmentation import dice, iou, mean_iou, pixel_accuracy
from didact.metrics.similarity import cosine
from didact.metrics.text import bleu

__all__ = [
    "accuracy", "auroc", "average_precision", "bleu", "box_iou", "calibration_curve", "calibration_error",
    "confusion_matrices", "confusion_matrix", "cosine", "coverage", "dice", "f1", "fairness_gaps",
    "gaussian_frechet_distance", "group_rates", "inception_score", "iou", "kernel_distance", "macro_average", "mae",
    "manifold_precision_recall", "mean_iou", "multilabel_accuracy", "multilabel_f1", "pixel_accuracy", "precision",
    "psnr", "r2", "recall", "rmse", "ssim", "top_k_accuracy",
]  # fmt: skip
