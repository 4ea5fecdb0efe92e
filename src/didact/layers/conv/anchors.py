"""Anchor boxes of detectors: boxes of typical sizes at every cell of every feature map, which the network corrects.

Sizes and boxes are fractions of the image, independent of its pixels. An anchor is (center x, center y, width, height),
a box (x1, y1, x2, y2).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from didact.metrics.detection import box_area, box_iou

_ASPECT_RATIOS = (1.0, 2.0, 0.5, 3.0, 1 / 3)
_VARIANCES = (0.1, 0.2)         # scales of offsets and log sizes: targets then have a standard deviation of about one
_MAX_LOG_SIZE_RATIO = 4.0       # predicted log sizes are clamped there, or one bad step would give infinity


def default_sizes(levels: int, count: int, *, low: float = 0.2, high: float = 0.9) -> Tensor:
    """(levels, count, 2): s_l = low + (high − low) l / (L − 1), sides s √r and s / √r for aspect ratios r.

    Liu et al. 2016 (SSD), eq. 4. Beyond the number of ratios these begin again with boxes a quarter larger.
    """
    s = torch.linspace(low, high, levels)[:, None] * torch.tensor(
        [1.25 ** (i // len(_ASPECT_RATIOS)) for i in range(count)]
    )
    r = torch.tensor([_ASPECT_RATIOS[i % len(_ASPECT_RATIOS)] for i in range(count)]).sqrt()
    return torch.stack([s * r, s / r], dim=-1)


def kmeans_iou(sizes: Tensor, k: int, *, weights: Tensor | None = None, max_iterations: int = 50) -> Tensor:
    """k typical (w, h) of (N, 2), the smallest first: k-means with the distance 1 − IoU of boxes with one center.

    It starts from boxes evenly spaced by area and moves each mean to the weighted mean of its cluster, so that nothing
    is random.  Redmon & Farhadi 2017, sec. 2.
    """
    weights = torch.ones(len(sizes)) if weights is None else weights
    by_area = sizes[sizes.prod(1).argsort(stable=True)]
    means = by_area[torch.linspace(0, len(sizes) - 1, 2 * k + 1)[1::2].round().long()]
    for _ in range(max_iterations):
        membership = (shape_iou(sizes, means).argmax(1)[:, None] == torch.arange(k)) * weights[:, None]   # (N, k)
        new_means = (membership.T @ sizes) / membership.sum(0)[:, None].clamp(min=1e-12)
        new_means = torch.where(membership.sum(0)[:, None] > 0, new_means, means)    # an empty cluster keeps its mean
        if torch.equal(new_means, means):
            break
        means = new_means
    return means[means.prod(1).argsort(stable=True)]


def shape_iou(a: Tensor, b: Tensor) -> Tensor:
    """IoU of every pair of sizes, as if the boxes had one center: (…, N, 2), (…, M, 2) -> (…, N, M)."""
    (aw, ah), (bw, bh) = a[..., :, None, :].unbind(-1), b[..., None, :, :].unbind(-1)
    intersection = torch.minimum(aw, bw) * torch.minimum(ah, bh)
    return intersection / (a.prod(-1)[..., :, None] + b.prod(-1)[..., None, :] - intersection)


def anchor_grid(map_sizes: Sequence[tuple[int, int]], sizes: Tensor) -> Tensor:
    """(A, 4) anchors: for each map (H, W), row by row, all sizes of its level at each cell's center.  sizes: (levels,
    k, 2).
    """
    anchors_by_level = []
    for (height, width), level_sizes in zip(map_sizes, sizes, strict=True):
        y, x = torch.meshgrid((torch.arange(height) + 0.5) / height, (torch.arange(width) + 0.5) / width, indexing="ij")
        # (H, W, k, 2)
        centers = torch.stack([x, y], dim=-1)[:, :, None].expand(-1, -1, len(level_sizes), -1)
        anchors_by_level.append(torch.cat([centers, level_sizes.expand(height, width, -1, -1)], dim=-1).reshape(-1, 4))
    return torch.cat(anchors_by_level)


def to_corners(anchors: Tensor) -> Tensor:
    """(cx, cy, w, h) -> (x1, y1, x2, y2)."""
    center, size = anchors[..., :2], anchors[..., 2:]
    return torch.cat([center - size / 2, center + size / 2], dim=-1)


def encode_boxes(boxes: Tensor, anchors: Tensor) -> Tensor:
    """t = ((g_c − d_c) / d_s / 0.1, log(g_s / d_s) / 0.2), the regression targets that turn anchor d into box g.  SSD,
    eq. 2.
    """
    center, size = (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]
    offset = (center - anchors[..., :2]) / anchors[..., 2:] / _VARIANCES[0]
    return torch.cat([offset, (size.clamp(min=1e-6) / anchors[..., 2:]).log() / _VARIANCES[1]], dim=-1)


def decode_boxes(offsets: Tensor, anchors: Tensor) -> Tensor:
    """The inverse of `encode_boxes`: the boxes of predicted offsets."""
    center = anchors[..., :2] + offsets[..., :2] * _VARIANCES[0] * anchors[..., 2:]
    size = anchors[..., 2:] * (offsets[..., 2:] * _VARIANCES[1]).clamp(max=_MAX_LOG_SIZE_RATIO).exp()
    return to_corners(torch.cat([center, size], dim=-1))


def match_anchors(anchors: Tensor, boxes: Tensor, valid: Tensor, *, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
    """Match anchors to ground-truth boxes: index of each anchor's box, and whether it has one; (A, 4), (B, M, 4), (B,
    M) -> (B, A) twice.

    Among the `valid` boxes an anchor takes the one with the largest IoU if that reaches the threshold; in addition each
    box takes the anchor with which its own IoU is largest, however small (of two boxes with the same best anchor, the
    one of larger IoU).  SSD, sec. 2.2.
    """
    overlap = box_iou(to_corners(anchors), boxes).masked_fill(~valid[:, None], -1.0)                    # (B, A, M)
    best_anchor = overlap.argmax(1, keepdim=True)                                                           # (B, 1, M)
    is_best_anchor = torch.arange(len(anchors), device=boxes.device)[:, None] == best_anchor
    overlap = torch.where(is_best_anchor & valid[:, None], overlap + 2, overlap)    # above every IoU
    max_overlap, owner = overlap.max(2)
    return owner, max_overlap >= threshold


def generalized_iou(a: Tensor, b: Tensor) -> Tensor:
    """GIoU = IoU − |C ∖ (A ∪ B)| / |C| of each pair of rows, C the smallest box around both: −1 … 1.

    It has a gradient for disjoint boxes, which IoU has not.  Rezatofighi et al. 2019, alg. 1.
    """
    intersection = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    union = box_area(a) + box_area(b) - intersection
    enclosing = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    # padding rows are empty boxes
    union, enclosing = union.clamp(min=1e-9), enclosing.clamp(min=1e-9)
    return intersection / union - (enclosing - union) / enclosing
