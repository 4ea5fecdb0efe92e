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
LIMIT = 100  # detections of an image that count, the most confident first


def area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    """|A ∩ B| / |A ∪ B| of every pair: (…, N, 4), (…, M, 4) -> (…, N, M); 0 where both are empty."""
    low = torch.maximum(a[..., :, None, :2], b[..., None, :, :2])
    high = torch.minimum(a[..., :, None, 2:], b[..., None, :, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    either = area(a)[..., :, None] + area(b)[..., None, :] - both
    return torch.where(either > 0, both / either, 0.0)


def nms(boxes: Tensor, scores: Tensor, *, threshold: float = 0.5, classes: Tensor | None = None) -> Tensor:
    """Indices of the boxes that stay, best first: each that overlaps a better one that stays (of its class) by more than that goes.

    A box stays iff no better one that stays suppresses it. Asked of all boxes at once until nothing changes, this settles after as
    many rounds as the longest chain of suppressions, not as there are boxes; the answer is the greedy one.
    """
    order = scores.argsort(descending=True, stable=True)
    near = box_iou(boxes[order], boxes[order]) > threshold
    if classes is not None:
        near &= classes[order][:, None] == classes[order][None, :]
    near = near.triu(diagonal=1)                              # row suppresses column
    stays = torch.ones(len(order), dtype=torch.bool, device=boxes.device)
    while True:
        next_stays = ~(near & stays[:, None]).any(0)
        if torch.equal(next_stays, stays):
            return order[stays]
        stays = next_stays


def matches(detected: Tensor, truth: Tensor, thresholds: Tensor) -> Tensor:
    """Which detections of one image and class are right at each threshold: (D, 4) by falling score, (G, 4) -> (T, D).

    Each takes the truth that it overlaps most among those not yet taken: one object is found once.
    """
    right = torch.zeros(len(thresholds), len(detected), dtype=torch.bool)
    free = torch.ones(len(thresholds), len(truth), dtype=torch.bool)
    each = torch.arange(len(thresholds))
    overlaps = box_iou(detected, truth)
    for d in range(len(detected) if len(truth) else 0):
        best, which = torch.where(free, overlaps[d], -1.0).max(dim=1)
        right[:, d] = best >= thresholds
        free[each, which] &= ~right[:, d]
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
    ap = torch.full((len(thresholds), classes), torch.nan, dtype=torch.float64)
    for k in range(classes):
        total = int((truth[..., 4] == k).sum())
        if not total:
            continue
        scores, right = [torch.zeros(0, dtype=torch.float64)], [torch.zeros(len(thresholds), 0, dtype=torch.bool)]
        for found, order, there in zip(detected, best, truth, strict=True):
            mine = found[order][found[order, 5] == k][:limit]   # COCO counts the limit for each class apart
            scores.append(mine[:, 4])
            right.append(matches(mine[:, :4], there[there[:, 4] == k][:, :4].flip(0), at))   # COCO: of equals, the last
        order = torch.cat(scores).argsort(descending=True, stable=True)
        ap[:, k] = interpolated(torch.cat(right, dim=1)[:, order], total)
    return ap
