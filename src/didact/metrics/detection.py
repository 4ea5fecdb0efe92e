"""Boxes against boxes: overlap, suppression of repeats, and average precision as COCO counts it.

A box is x1, y1, x2, y2. Of a split, detections are (N, D, 6): box, score, class; truths (N, G, 5): box, class. Rows that
fill up an image with fewer have class −1.
"""

import numpy as np
import torch
from torch import Tensor

# NumPy's, as in COCO's own code: torch rounds some of these the other way, and recalls of 7 in 10 then count elsewhere
THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10).tolist())
RECALLS = torch.from_numpy(np.linspace(0, 1, 101))
SURE = 0.3   # score from which a detection is told to people or drawn
ALIKE = 0.5  # overlap from which boxes of two classes are two names for one thing
LIMIT = 100  # detections of an image that count, the most confident first


def area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    """|A ∩ B| / |A ∪ B| of every pair: (…, N, 4), (…, M, 4) -> (…, N, M); 0 where both are empty."""
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = a[..., :, None, :].unbind(-1), b[..., None, :, :].unbind(-1)
    width = torch.minimum(ax2, bx2) - torch.maximum(ax1, bx1)
    both = width.clamp_(min=0) * (torch.minimum(ay2, by2) - torch.maximum(ay1, by1)).clamp_(min=0)
    either = area(a)[..., :, None] + area(b)[..., None, :] - both
    return torch.where(either > 0, both / either, 0.0)


def nms(boxes: Tensor, scores: Tensor, *, threshold: float = 0.5, classes: Tensor | None = None) -> Tensor:
    """Indices of the boxes that stay, best first: each that overlaps a better one that stays (of its class) by more than that goes."""
    order = scores.argsort(descending=True, stable=True)
    return order[staying(boxes[order], None if classes is None else classes[order], threshold=threshold)]


def staying(boxes: Tensor, classes: Tensor | None = None, *, threshold: float = 0.5) -> Tensor:
    """Which boxes no better one suppresses, the best first in each image: (…, N, 4), (…, N) -> (…, N).

    A box stays iff no better one that stays suppresses it. Asked of all boxes at once until nothing changes, this settles after as
    many rounds as the longest chain of suppressions, not as there are boxes; the answer is the greedy one.
    """
    near = box_iou(boxes, boxes) > threshold
    if classes is not None:
        near &= classes[..., :, None] == classes[..., None, :]
    return settled(near)


def shown(detected: Tensor, *, sure: float = SURE) -> Tensor:
    """What people are told of an image's detections (D, 6), the surest first: each thing by its likeliest name. mAP counts them all."""
    there = detected[(detected[:, 5] >= 0) & (detected[:, 4] >= sure)]
    there = there[there[:, 4].argsort(descending=True, stable=True)]
    box, kind = there[:, :4], there[:, 5]
    return there[settled((box_iou(box, box) > ALIKE) & (kind[:, None] != kind))]


def settled(near: Tensor) -> Tensor:
    """Which of those in a row stay, where `near` says who would suppress whom if it came first: (…, N, N) -> (…, N)."""
    near = near.triu(diagonal=1).float()                      # row suppresses column
    stays = torch.ones(near.shape[:-1], dtype=torch.bool, device=near.device)
    while True:
        next_stays = (stays[..., None, :].to(near.dtype) @ near)[..., 0, :] == 0   # any() over a bool is slower than this product
        if torch.equal(next_stays, stays):
            return stays
        stays = next_stays


def matches(detected: Tensor, truth: Tensor, thresholds: Tensor) -> Tensor:
    """Which detections are right at each threshold: (N, D, 6) by falling score, (N, G, 5) -> (N, T, D).

    Each takes the truth of its class that it overlaps most among those not yet taken: one object is found once.
    """
    right = torch.zeros(len(detected), len(thresholds), detected.shape[1], dtype=torch.bool)
    free = torch.ones(len(detected), len(thresholds), truth.shape[1], dtype=torch.bool)
    same = detected[..., :, None, 5] == truth[..., None, :, 4]
    overlaps = torch.where(same & (truth[..., None, :, 4] >= 0), box_iou(detected[..., :4], truth[..., :4]), -1.0)   # (N, D, G)
    possible = (overlaps >= thresholds.min()).any(2).any(0)   # ranks at which any image has something to find
    for d in possible.nonzero()[:, 0].tolist():               # in turn, as each may take what the next would; all images at once
        best, which = torch.where(free, overlaps[:, d, None], -1.0).max(dim=2)
        right[:, :, d] = best >= thresholds
        free.scatter_(2, which[..., None], free.gather(2, which[..., None]) & ~right[:, :, d, None])
    return right


def interpolated(right: Tensor, total: int) -> Tensor:
    """Mean over recalls 0, 0.01 … 1 of the best precision at that recall or beyond: (T, D) by falling score -> (T,)."""
    hits = right.double().cumsum(1)
    precision = hits / torch.arange(1, right.shape[1] + 1)
    precision = precision.flip(1).cummax(1).values.flip(1)     # the envelope
    recall = hits / total
    at = torch.searchsorted(recall, RECALLS.expand(len(right), -1).contiguous())
    return torch.nn.functional.pad(precision, (0, 1)).gather(1, at).mean(1)   # a recall never reached counts 0


def average_precision(
    detected: Tensor, truth: Tensor, classes: int, *, thresholds: tuple[float, ...] = THRESHOLDS, limit: int = LIMIT
) -> Tensor:
    """AP of each class at each threshold, (T, K), nan for a class without a truth.  Lin et al. 2014 (COCO), all areas; Everingham 2010.

    mAP@0.5 is `[0].nanmean()`, mAP@[.5:.95] `.nanmean()`. Computed on the host: matching goes detection by detection.
    """
    detected, truth, at = detected.detach().cpu().double(), truth.detach().cpu().double(), torch.tensor(thresholds, dtype=torch.float64)
    best = detected[..., 4].masked_fill(detected[..., 5] < 0, -torch.inf).argsort(dim=1, descending=True, stable=True)
    detected = detected.gather(1, best[..., None].expand_as(detected))
    right = matches(detected, truth.flip(1), at).movedim(1, 0)   # (T, N, D); flipped, as COCO takes the last of equals
    ap = torch.full((len(thresholds), classes), torch.nan, dtype=torch.float64)
    for k in range(classes):
        total, mine = int((truth[..., 4] == k).sum()), detected[..., 5] == k
        mine &= mine.cumsum(1) <= limit                       # COCO counts the limit for each class apart
        order = detected[..., 4][mine].argsort(descending=True, stable=True)
        if total:
            ap[:, k] = interpolated(right[:, mine][:, order], total)
    return ap
