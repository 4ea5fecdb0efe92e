"""Non-maximum suppression (NMS): of boxes that overlap, the one with the highest score stays.

A box is (x1, y1, x2, y2). A detection is six numbers: box, score, class; padding has class −1.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from didact.metrics.detection import MAX_DETECTIONS, box_iou

_NMS_CANDIDATES = 400    # highest scores of an image, over all anchors and classes, that enter NMS
_MIN_SCORE = 0.01        # least score of a detection
MIN_SHOWN_SCORE = 0.3   # least score of a detection that is listed or drawn
_DUPLICATE_IOU = 0.5     # overlap above which boxes of two classes are taken for one object


def nms(boxes: Tensor, scores: Tensor, *, threshold: float = 0.5, classes: Tensor | None = None) -> Tensor:
    """Indices of the boxes that stay, best first: a box goes if its IoU with a better one (of its class) that stays
    exceeds the threshold."""
    order = scores.argsort(descending=True, stable=True)
    return order[nms_mask(boxes[order], None if classes is None else classes[order], threshold=threshold)]


def nms_mask(boxes: Tensor, classes: Tensor | None = None, *, threshold: float = 0.5) -> Tensor:
    """Which boxes stay, boxes sorted by falling score: (…, N, 4), (…, N) -> (…, N)."""
    suppresses = box_iou(boxes, boxes) > threshold
    if classes is not None:
        suppresses &= classes[..., :, None] == classes[..., None, :]
    return _greedy_keep(suppresses)


def batched_nms(boxes: Tensor, scores: Tensor, *, nms_iou: float = 0.5) -> Tensor:
    """The detections of each image, best first: boxes (B, A, 4), scores (B, A, K) -> (B, 100, 6), padded with class −1.

    NMS runs within each class; an anchor may give detections of several classes.
    """
    K = scores.shape[2]
    score, index = scores.flatten(1).topk(min(_NMS_CANDIDATES, scores[0].numel()))                  # (B, P)
    box = boxes.gather(1, (index // K)[..., None].expand(-1, -1, 4)).clamp(0, 1)
    label = index % K
    keep = (nms_mask(box, label, threshold=nms_iou) & (score >= _MIN_SCORE))[..., None]
    detections = torch.cat([box * keep, score[..., None] * keep, torch.where(keep, label[..., None], -1)], dim=2)
    order = (~keep).byte().argsort(dim=1, stable=True)[:, :MAX_DETECTIONS]      # those that stay, by falling score
    detections = detections.gather(1, order.expand(-1, -1, 6))
    # a small model has fewer than MAX_DETECTIONS candidates
    return F.pad(detections, (0, 0, 0, MAX_DETECTIONS - detections.shape[1]), value=-1.0)


def confident_detections(detected: Tensor, *, min_score: float = MIN_SHOWN_SCORE) -> Tensor:
    """Detections (D, 6) of an image to show, best first: one class per object. mAP counts all detections instead."""
    confident = detected[(detected[:, 5] >= 0) & (detected[:, 4] >= min_score)]
    confident = confident[confident[:, 4].argsort(descending=True, stable=True)]
    boxes, classes = confident[:, :4], confident[:, 5]
    return confident[_greedy_keep((box_iou(boxes, boxes) > _DUPLICATE_IOU) & (classes[:, None] != classes))]


def _greedy_keep(suppresses: Tensor) -> Tensor:
    """Greedy NMS for all images at once: `suppresses` (…, N, N), boxes sorted by falling score -> (…, N).

    A box stays iff no better box that stays suppresses it. Applied to all boxes at once, this rule reaches its fixed
    point after as many rounds as the longest chain of suppressions, not after N; the result is the greedy one.
    """
    suppresses = suppresses.triu(diagonal=1).float()                      # row suppresses column
    keep = torch.ones(suppresses.shape[:-1], dtype=torch.bool, device=suppresses.device)
    while True:
        # any() over a bool is slower than this product
        next_keep = (keep[..., None, :].to(suppresses.dtype) @ suppresses)[..., 0, :] == 0
        if torch.equal(next_keep, keep):
            return keep
        keep = next_keep
