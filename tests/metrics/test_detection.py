"""Average precision against a second, plain implementation and cases worked out by hand; against COCO's own code where
it is installed.
"""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from didact import metrics
from helpers.box_iou import box_iou


def random_boxes(n, generator, side=20.0):
    corner = torch.rand(n, 2, generator=generator) * side
    return torch.cat([corner, corner + 1 + torch.rand(n, 2, generator=generator) * side], dim=1)


def test_box_iou_of_pairs():
    g = torch.Generator().manual_seed(0)
    a, b = random_boxes(7, g), random_boxes(5, g)
    assert_close(metrics.box_iou(a, b), torch.tensor([[box_iou(p, q) for q in b.tolist()] for p in a.tolist()]))
    assert_close(
        metrics.box_iou(torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[1.0, 1, 3, 3], [5, 5, 6, 6], [1, 1, 1, 1]])),
        torch.tensor([[1 / 7, 0, 0]]),
    )
    empty = torch.ones(1, 4)
    assert metrics.box_iou(empty, empty).tolist() == [[0.0]]


def average_precision_by_loops(detected, truth, k, threshold):
    """AP by loops: match, walk down the scores, take the best precision at each of 101 recalls or beyond."""
    scored_hits = []
    for image, image_truth in zip(detected.tolist(), truth.tolist(), strict=True):
        unmatched = [t[:4] for t in image_truth if t[4] == k]
        for d in sorted((d for d in image if d[5] == k), key=lambda d: -d[4]):
            best = max(unmatched, key=lambda t: box_iou(d[:4], t), default=None)
            hit = best is not None and box_iou(d[:4], best) >= threshold
            if hit:
                unmatched.remove(best)
            scored_hits.append((d[4], hit))
    total = sum(t[4] == k for image_truth in truth.tolist() for t in image_truth)
    if not total:
        return float("nan")
    scored_hits.sort(key=lambda f: -f[0])
    hits = np.cumsum([hit for _, hit in scored_hits])
    points = [(h / total, h / (i + 1)) for i, h in enumerate(hits)]
    return np.mean([max((p for r, p in points if r >= level), default=0.0) for level in np.linspace(0, 1, 101)])


def make_detections(seed, classes=3):
    """Ground truth, and detections: some ground-truth boxes moved a little, some random; padded with class -1."""
    g = torch.Generator().manual_seed(seed)
    n, d, t = 6, 9, 5
    truth = (
        torch.cat([random_boxes(n * t, g), torch.randint(-1, classes, (n * t, 1), generator=g)], 1)
        .view(n, t, 5)
        .double()
    )
    detected = torch.cat(
        [
            random_boxes(n * d, g),
            torch.rand(n * d, 1, generator=g),
            torch.randint(-1, classes, (n * d, 1), generator=g),
        ],
        1,
    )
    detected = detected.view(n, d, 6).double()
    detected[:, :t, :4] = truth[:, :, :4] + 2 * torch.randn(n, t, 4, generator=g)
    detected[:, :t, 5] = truth[:, :, 4]
    detected[..., 2:4] = torch.maximum(detected[..., 2:4], detected[..., :2] + 0.5)
    return detected, truth


@pytest.mark.parametrize("seed", range(8))
def test_average_precision_equals_loops(seed):
    detected, truth = make_detections(seed)
    ap = metrics.average_precision(detected, truth, 4)                    # the fourth class has no truth
    assert ap.shape == (10, 4) and ap[:, 3].isnan().all()
    expected = [
        [average_precision_by_loops(detected, truth, k, t) for k in range(3)] for t in np.linspace(0.5, 0.95, 10)
    ]
    np.testing.assert_allclose(ap[:, :3], expected, atol=1e-12)
    assert 0 < float(ap.nanmean()) < 1


@pytest.mark.parametrize("seed", range(3))
def test_average_precision_equals_pycocotools(seed):
    """pycocotools' evaluation of the same boxes."""
    pytest.importorskip("pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    # of image n, box by box: COCO counts images, boxes and classes from 1 and boxes by corner and size
    def to_coco_annotations(images, k):
        xywh_images = torch.cat([images[..., :2], images[..., 2:4] - images[..., :2], images[..., 4:]], dim=2)
        boxes = ((n + 1, r) for n, image in enumerate(xywh_images.tolist()) for r in image if r[k] >= 0)
        return [
            {"image_id": n, "category_id": int(r[k]) + 1, "bbox": r[:4], "score": r[4], "area": r[2] * r[3]}
            for n, r in boxes
        ]

    detected, truth = make_detections(seed)
    coco = COCO()
    coco.dataset = {
        "images": [{"id": n + 1} for n in range(len(truth))], "categories": [{"id": k + 1} for k in range(3)],
        "annotations": [{**row, "id": i + 1, "iscrowd": 0} for i, row in enumerate(to_coco_annotations(truth, 4))],
    }
    coco.createIndex()
    evaluation = COCOeval(coco, coco.loadRes(to_coco_annotations(detected, 5)), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    ap = metrics.average_precision(detected, truth, 3)
    assert float(ap.nanmean()) == pytest.approx(evaluation.stats[0], abs=1e-9)
    assert float(ap[0].nanmean()) == pytest.approx(evaluation.stats[1], abs=1e-9)


def make_image(*detections):
    return torch.tensor([detections], dtype=torch.float64)


def test_average_precision_by_hand():
    truth = make_image((0, 0, 10, 10, 0), (20, 0, 30, 10, 0))
    first_hit, miss = (0, 0, 10, 10, 0.9, 0), (50, 50, 60, 60, 0.8, 0)
    second_hit = (20, 0, 30, 10, 0.7, 0)
    ap = lambda *d: metrics.average_precision(make_image(*d), truth, 1)[0].item()  # noqa: E731
    assert ap(first_hit, second_hit) == 1
    # found, missed, found: precision 1 up to recall 0.5 (51 of 101 levels), then 2/3
    assert ap(first_hit, miss, second_hit) == pytest.approx((51 + 50 * 2 / 3) / 101)
    assert ap(first_hit, (0, 0, 10, 10, 0.8, 0)) == pytest.approx(51 / 101)            # found twice is found once
    assert ap((0, 0, 0, 0, 0, -1)) == 0
    # IoU 0.8 counts up to that threshold: seven of ten
    ap_by_threshold = metrics.average_precision(make_image((0, 0, 10, 8, 0.5, 0)), make_image((0, 0, 10, 10, 0)), 1)
    assert ap_by_threshold[:, 0].tolist() == [1.0] * 7 + [0.0] * 3
    assert metrics.average_precision(torch.zeros(1, 0, 6), truth, 1).tolist() == [[0.0]] * 10


def test_average_precision_counts_100_detections_per_image():
    misses = torch.tensor([50.0, 50, 60, 60, 0.9, 0]).repeat(100, 1)
    detected = torch.cat([misses, torch.tensor([[0.0, 0, 10, 10, 0.5, 0]])])[None]
    truth = make_image((0, 0, 10, 10, 0))
    assert metrics.average_precision(detected, truth, 1)[0].item() == 0
    # the hundredth still counts
    assert metrics.average_precision(detected[:, 1:], truth, 1)[0].item() == pytest.approx(1 / 100)
    assert metrics.average_precision(detected, truth, 1, max_detections=200)[0].item() == pytest.approx(1 / 101)


def test_average_precision_without_boxes_is_nan():
    assert metrics.average_precision(torch.zeros(2, 0, 6), torch.zeros(2, 0, 5), 2).isnan().all()
    assert metrics.average_precision(torch.zeros(2, 3, 6), torch.full((2, 1, 5), -1.0), 2).isnan().all()
