"""How a model is judged: pure functions of a whole split's rows, so that neither batches nor processes can change them.

Each returns a tensor on the rows' device and never waits for the host; `float()` of it is the caller's.
"""

from didact.metrics.classification import (
    accuracy,
    auroc,
    calibration_curve,
    calibration_error,
    confusion,
    f1,
    macro,
    multilabel_accuracy,
    multilabel_f1,
    precision,
    recall,
    top_k,
)
from didact.metrics.regression import coverage, mae, r2, rmse

__all__ = [
    "accuracy",
    "auroc",
    "calibration_curve",
    "calibration_error",
    "confusion",
    "coverage",
    "f1",
    "macro",
    "mae",
    "multilabel_accuracy",
    "multilabel_f1",
    "precision",
    "r2",
    "recall",
    "rmse",
    "top_k",
]
