"""Average precision against a second, plain implementation and cases worked by hand; against COCO's own code where it is installed."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from didact import metrics
from overlapping import overlap


def boxes(n, generator, side=20.0):
    corner = torch.rand(n, 2, generator=generator) * side
    return torch.cat([corner, corner + 1 + torch.rand(n, 2, generator=generator) * side], dim=1)


def test_iou_of_pairs():
    g = torch.Generator().manual_seed(0)
    a, b = boxes(7, g), boxes(5, g)
    assert_close(metrics.box_iou(a, b), torch.tensor([[overlap(p, q) for q in b.tolist()] for p in a.tolist()]))
    assert_close(metrics.box_iou(torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[1.0, 1, 3, 3], [5, 5, 6, 6], [1, 1, 1, 1]])),
                 torch.tensor([[1 / 7, 0, 0]]))
    empty = torch.ones(1, 4)
    assert metrics.box_iou(empty, empty).tolist() == [[0.0]]


def greedy(b, scores, threshold, classes):
    kept = []
    for i in sorted(range(len(b)), key=lambda i: -scores[i]):
        if all(classes[i] != classes[j] or overlap(b[i], b[j]) <= threshold for j in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(5))
def test_suppression_is_the_greedy_one(seed, threshold):
    g = torch.Generator().manual_seed(seed)
    b, scores, classes = boxes(60, g), torch.rand(60, generator=g), torch.randint(3, (60,), generator=g)
    apart = metrics.nms(b, scores, threshold=threshold, classes=classes).tolist()
    assert apart == greedy(b.tolist(), scores.tolist(), threshold, classes.tolist())
    assert metrics.nms(b, scores, threshold=threshold).tolist() == greedy(b.tolist(), scores.tolist(), threshold, [0] * 60)


def test_a_chain_of_suppressions():
    """a hides b, b would hide c: c stays, since b does not."""
    row = torch.tensor([[0.0, 0, 10, 10], [4, 0, 14, 10], [8, 0, 18, 10]])
    assert metrics.nms(row, torch.tensor([0.9, 0.8, 0.7]), threshold=0.3).tolist() == [0, 2]
    assert metrics.nms(torch.zeros(0, 4), torch.zeros(0)).tolist() == []


def plain(detected, truth, k, threshold):
    """AP by loops: match, walk down the scores, take the best precision at each of 101 recalls or beyond."""
    found = []
    for image, there in zip(detected.tolist(), truth.tolist(), strict=True):
        free = [t[:4] for t in there if t[4] == k]
        for d in sorted((d for d in image if d[5] == k), key=lambda d: -d[4]):
            best = max(free, key=lambda t: overlap(d[:4], t), default=None)
            hit = best is not None and overlap(d[:4], best) >= threshold
            if hit:
                free.remove(best)
            found.append((d[4], hit))
    total = sum(t[4] == k for there in truth.tolist() for t in there)
    if not total:
        return float("nan")
    found.sort(key=lambda f: -f[0])
    hits = np.cumsum([hit for _, hit in found])
    points = [(h / total, h / (i + 1)) for i, h in enumerate(hits)]
    return np.mean([max((p for r, p in points if r >= level), default=0.0) for level in np.linspace(0, 1, 101)])


def some(seed, classes=3):
    """Truths, and detections that are some of them moved a little beside some that are made up; filled up with class -1."""
    g = torch.Generator().manual_seed(seed)
    n, d, t = 6, 9, 5
    truth = torch.cat([boxes(n * t, g), torch.randint(-1, classes, (n * t, 1), generator=g)], 1).view(n, t, 5).double()
    detected = torch.cat([boxes(n * d, g), torch.rand(n * d, 1, generator=g), torch.randint(-1, classes, (n * d, 1), generator=g)], 1)
    detected = detected.view(n, d, 6).double()
    detected[:, :t, :4] = truth[:, :, :4] + 2 * torch.randn(n, t, 4, generator=g)
    detected[:, :t, 5] = truth[:, :, 4]
    detected[..., 2:4] = torch.maximum(detected[..., 2:4], detected[..., :2] + 0.5)
    return detected, truth


@pytest.mark.parametrize("seed", range(8))
def test_average_precision_as_by_loops(seed):
    detected, truth = some(seed)
    ap = metrics.average_precision(detected, truth, 4)                    # the fourth class has no truth
    assert ap.shape == (10, 4) and ap[:, 3].isnan().all()
    expected = [[plain(detected, truth, k, t) for k in range(3)] for t in np.linspace(0.5, 0.95, 10)]
    np.testing.assert_allclose(ap[:, :3], expected, atol=1e-12)
    assert 0 < float(ap.nanmean()) < 1


@pytest.mark.parametrize("seed", range(3))
def test_as_coco(seed):
    """pycocotools' own evaluation of the same boxes."""
    pytest.importorskip("pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def listed(rows, k):  # of image n, box by box: COCO counts images, boxes and classes from 1 and boxes by corner and size
        sized = torch.cat([rows[..., :2], rows[..., 2:4] - rows[..., :2], rows[..., 4:]], dim=2)
        boxes = ((n + 1, r) for n, image in enumerate(sized.tolist()) for r in image if r[k] >= 0)
        return [{"image_id": n, "category_id": int(r[k]) + 1, "bbox": r[:4], "score": r[4], "area": r[2] * r[3]} for n, r in boxes]

    detected, truth = some(seed)
    there = COCO()
    there.dataset = {
        "images": [{"id": n + 1} for n in range(len(truth))], "categories": [{"id": k + 1} for k in range(3)],
        "annotations": [{**row, "id": i + 1, "iscrowd": 0} for i, row in enumerate(listed(truth, 4))],
    }
    there.createIndex()
    found = COCOeval(there, there.loadRes(listed(detected, 5)), "bbox")
    found.evaluate()
    found.accumulate()
    found.summarize()
    ap = metrics.average_precision(detected, truth, 3)
    assert float(ap.nanmean()) == pytest.approx(found.stats[0], abs=1e-9)
    assert float(ap[0].nanmean()) == pytest.approx(found.stats[1], abs=1e-9)


def one(*rows):
    return torch.tensor([rows], dtype=torch.float64)


def test_by_hand():
    there = one((0, 0, 10, 10, 0), (20, 0, 30, 10, 0))
    right, wrong = (0, 0, 10, 10, 0.9, 0), (50, 50, 60, 60, 0.8, 0)
    other = (20, 0, 30, 10, 0.7, 0)
    ap = lambda *d: metrics.average_precision(one(*d), there, 1)[0].item()  # noqa: E731
    assert ap(right, other) == 1
    # found, missed, found: precision 1 up to recall 0.5 (51 of 101 levels), then 2/3
    assert ap(right, wrong, other) == pytest.approx((51 + 50 * 2 / 3) / 101)
    assert ap(right, (0, 0, 10, 10, 0.8, 0)) == pytest.approx(51 / 101)            # found twice is found once
    assert ap((0, 0, 0, 0, 0, -1)) == 0
    # IoU 0.8 counts up to that threshold: seven of ten
    near = metrics.average_precision(one((0, 0, 10, 8, 0.5, 0)), one((0, 0, 10, 10, 0)), 1)
    assert near[:, 0].tolist() == [1.0] * 7 + [0.0] * 3
    assert metrics.average_precision(torch.zeros(1, 0, 6), there, 1).tolist() == [[0.0]] * 10


def test_each_image_counts_its_first_hundred():
    wrong = torch.tensor([50.0, 50, 60, 60, 0.9, 0]).repeat(100, 1)
    detected = torch.cat([wrong, torch.tensor([[0.0, 0, 10, 10, 0.5, 0]])])[None]
    there = one((0, 0, 10, 10, 0))
    assert metrics.average_precision(detected, there, 1)[0].item() == 0
    assert metrics.average_precision(detected[:, 1:], there, 1)[0].item() == pytest.approx(1 / 100)     # the hundredth still counts
    assert metrics.average_precision(detected, there, 1, limit=200)[0].item() == pytest.approx(1 / 101)


def test_nothing_there_and_nothing_found():
    assert metrics.average_precision(torch.zeros(2, 0, 6), torch.zeros(2, 0, 5), 2).isnan().all()
    assert metrics.average_precision(torch.zeros(2, 3, 6), torch.full((2, 1, 5), -1.0), 2).isnan().all()
