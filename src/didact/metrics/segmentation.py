"""Metrics of segmentation masks, from confusion matrices: rows the true class, columns the predicted one.

Counts of several images add up: those of a split are the sum over its examples, whatever the batches were.
"""

from torch import Tensor


def iou(counts: Tensor) -> Tensor:
    """Intersection over union |A ∩ B| / |A ∪ B| = TP / (TP + FP + FN) of each class, (…, K, K) -> (…, K).

    NaN for a class that is neither true nor predicted.
    """
    intersection, sizes = _intersection_and_sizes(counts)
    return intersection / (sizes - intersection)


def dice(counts: Tensor) -> Tensor:
    """Dice coefficient 2 |A ∩ B| / (|A| + |B|) = 2 IoU / (1 + IoU) of each class: the F1 of its pixels; NaN as for
    `iou`.
    """
    intersection, sizes = _intersection_and_sizes(counts)
    return 2 * intersection / sizes


def mean_iou(counts: Tensor) -> Tensor:
    """IoU, averaged over the classes that are true or predicted."""
    return iou(counts).nanmean(dim=-1)


def pixel_accuracy(counts: Tensor) -> Tensor:
    """The fraction of pixels that are right; a large background makes it high."""
    return counts.diagonal(dim1=-2, dim2=-1).sum(-1).double() / counts.sum((-2, -1))


def _intersection_and_sizes(counts: Tensor) -> tuple[Tensor, Tensor]:
    """|A ∩ B| and |A| + |B| of each class."""
    counts = counts.double()
    return counts.diagonal(dim1=-2, dim2=-1), counts.sum(-1) + counts.sum(-2)
