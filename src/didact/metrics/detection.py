"""Metrics of object detection: IoU of boxes, and average precision as in COCO.

A box is x1, y1, x2, y2. Detections of a split are (N, D, 6): box, score, class; ground truth is (N, G, 5): box, class.
Padding rows of images with fewer have class −1.
"""

import numpy as np
import torch
from torch import Tensor

# NumPy's linspace, as in COCO's own code: torch rounds some levels the other way, which moves recalls such as 7 in 10
_IOU_THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10).tolist())
_RECALL_LEVELS = torch.from_numpy(np.linspace(0, 1, 101))
MAX_DETECTIONS = 100  # per image, those of the highest scores


def box_area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    """|A ∩ B| / |A ∪ B| of every pair: (…, N, 4), (…, M, 4) -> (…, N, M); 0 where both are empty."""
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = a[..., :, None, :].unbind(-1), b[..., None, :, :].unbind(-1)
    overlap_width = torch.minimum(ax2, bx2) - torch.maximum(ax1, bx1)
    intersection = overlap_width.clamp_(min=0) * (torch.minimum(ay2, by2) - torch.maximum(ay1, by1)).clamp_(min=0)
    union = box_area(a)[..., :, None] + box_area(b)[..., None, :] - intersection
    return torch.where(union > 0, intersection / union, 0.0)


def _match_detections(detected: Tensor, truth: Tensor, thresholds: Tensor) -> Tensor:
    """Which detections are correct at each threshold: (N, D, 6) by falling score, (N, G, 5) -> (N, T, D).

    Each takes the unmatched ground-truth box of its class with the largest IoU: one object is found once.
    """
    correct = torch.zeros(len(detected), len(thresholds), detected.shape[1], dtype=torch.bool)
    unmatched = torch.ones(len(detected), len(thresholds), truth.shape[1], dtype=torch.bool)
    same_class = detected[..., :, None, 5] == truth[..., None, :, 4]
    # (N, D, G)
    overlaps = torch.where(same_class & (truth[..., None, :, 4] >= 0), box_iou(detected[..., :4], truth[..., :4]), -1.0)
    matchable = (overlaps >= thresholds.min()).any(2).any(0)   # ranks at which any image can have a match
    # rank after rank, since a match is gone for the next; all images at once
    for d in matchable.nonzero()[:, 0].tolist():
        best, truth_index = torch.where(unmatched, overlaps[:, d, None], -1.0).max(dim=2)
        correct[:, :, d] = best >= thresholds
        unmatched.scatter_(
            2, truth_index[..., None], unmatched.gather(2, truth_index[..., None]) & ~correct[:, :, d, None]
        )
    return correct


def _interpolated_precision(correct: Tensor, num_truths: int) -> Tensor:
    """Mean over recalls 0, 0.01 … 1 of the best precision at that recall or beyond: (T, D) by falling score -> (T,)."""
    hits = correct.double().cumsum(1)
    precision = hits / torch.arange(1, correct.shape[1] + 1)
    precision = precision.flip(1).cummax(1).values.flip(1)     # the envelope
    recall = hits / num_truths
    index = torch.searchsorted(recall, _RECALL_LEVELS.expand(len(correct), -1).contiguous())
    return torch.nn.functional.pad(precision, (0, 1)).gather(1, index).mean(1)   # a recall never reached counts 0


def average_precision(
    detected: Tensor,
    truth: Tensor,
    num_classes: int,
    *,
    thresholds: tuple[float, ...] = _IOU_THRESHOLDS,
    max_detections: int = MAX_DETECTIONS,
) -> Tensor:
    """AP of each class at each threshold, (T, K), NaN for a class without ground truth.  Lin et al. 2014 (COCO), all
    areas; Everingham 2010.

    mAP@0.5 is `[0].nanmean()`, mAP@[.5:.95] `.nanmean()`. Computed on the host: matching goes detection by detection.
    """
    detected, truth = detected.detach().cpu().double(), truth.detach().cpu().double()
    threshold_tensor = torch.tensor(thresholds, dtype=torch.float64)
    valid_scores = detected[..., 4].masked_fill(detected[..., 5] < 0, -torch.inf)
    by_score = valid_scores.argsort(dim=1, descending=True, stable=True)
    detected = detected.gather(1, by_score[..., None].expand_as(detected))
    # (T, N, D); flipped, as COCO takes the last of equals
    correct = _match_detections(detected, truth.flip(1), threshold_tensor).movedim(1, 0)
    ap = torch.full((len(thresholds), num_classes), torch.nan, dtype=torch.float64)
    for k in range(num_classes):
        num_truths, of_class = int((truth[..., 4] == k).sum()), detected[..., 5] == k
        # COCO's limit is per class
        of_class &= of_class.cumsum(1) <= max_detections
        order = detected[..., 4][of_class].argsort(descending=True, stable=True)
        if num_truths:
            ap[:, k] = _interpolated_precision(correct[:, of_class][:, order], num_truths)
    return ap
