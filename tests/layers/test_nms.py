"""Non-maximum suppression: against the greedy algorithm, and one class for each object that is shown."""

import pytest
import torch
from torch.testing import assert_close

from didact import metrics
from didact.layers.nms import MIN_SHOWN_SCORE, batched_nms, confident_detections, nms
from didact.metrics.detection import MAX_DETECTIONS
from helpers.box_iou import box_iou

SQUARE, SHIFTED, DISTANT = [0.1, 0.1, 0.5, 0.5], [0.12, 0.1, 0.52, 0.5], [0.6, 0.6, 0.9, 0.9]


def random_boxes(n, generator, side=20.0):
    corner = torch.rand(n, 2, generator=generator) * side
    return torch.cat([corner, corner + 1 + torch.rand(n, 2, generator=generator) * side], dim=1)


def greedy_nms(b, scores, threshold, classes):
    kept_indices = []
    for i in sorted(range(len(b)), key=lambda i: -scores[i]):
        if all(classes[i] != classes[j] or box_iou(b[i], b[j]) <= threshold for j in kept_indices):
            kept_indices.append(i)
    return kept_indices


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(5))
def test_nms_equals_the_greedy_algorithm(seed, threshold):
    g = torch.Generator().manual_seed(seed)
    b, scores, classes = random_boxes(60, g), torch.rand(60, generator=g), torch.randint(3, (60,), generator=g)
    kept_indices = nms(b, scores, threshold=threshold, classes=classes).tolist()
    assert kept_indices == greedy_nms(b.tolist(), scores.tolist(), threshold, classes.tolist())
    assert nms(b, scores, threshold=threshold).tolist() == greedy_nms(
        b.tolist(), scores.tolist(), threshold, [0] * 60
    )


def test_nms_of_a_chain_keeps_the_last_box():
    """a suppresses b, b would suppress c: c stays, since b does not."""
    chain = torch.tensor([[0.0, 0, 10, 10], [4, 0, 14, 10], [8, 0, 18, 10]])
    assert nms(chain, torch.tensor([0.9, 0.8, 0.7]), threshold=0.3).tolist() == [0, 2]
    assert nms(torch.zeros(0, 4), torch.zeros(0)).tolist() == []


def greedy_detections(boxes, scores, threshold):
    """The greedy algorithm in each class, then all detections by falling score."""
    detections = []
    for k in range(scores.shape[1]):
        kept_boxes = []
        for s, box in sorted(zip(scores[:, k].tolist(), boxes.tolist(), strict=True), key=lambda pair: -pair[0]):
            if s >= 0.01 and all(box_iou(box, other) <= threshold for other, _ in kept_boxes):
                kept_boxes.append((box, s))
        detections += [(*box, s, k) for box, s in kept_boxes]
    return sorted(detections, key=lambda row: -row[4])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threshold", [0.2, 0.5])
def test_batched_nms_matches_greedy_detections(seed, threshold):
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(3, 60, 2, generator=g) * 0.6
    boxes, scores = (
        torch.cat([corner, corner + 0.3], dim=2),
        torch.rand(3, 60, 2, generator=g) * (torch.rand(3, 60, 2, generator=g) < 0.7),
    )
    detections = batched_nms(boxes, scores, nms_iou=threshold)
    assert detections.shape == (3, MAX_DETECTIONS, 6)
    for b in range(3):
        valid_detections = detections[b][detections[b, :, 5] >= 0]
        assert_close(
            valid_detections,
            torch.tensor(greedy_detections(boxes[b], scores[b], threshold)[:MAX_DETECTIONS]),
            atol=1e-6,
            rtol=0,
        )
        assert (detections[b, len(valid_detections):, 5] == -1).all()


def make_detections(*rows):
    return torch.tensor([[*box, score, label] for box, score, label in rows])


def test_confident_detections_keep_one_class_per_object():
    """SHIFTED overlaps SQUARE by 0.38 / 0.42 of either side: IoU 0.905."""
    detected = make_detections(
        (SQUARE, 0.6, 0),
        (SHIFTED, 0.9, 1),
        (DISTANT, 0.5, 0),
        (SQUARE, 0.35, 2),
        (DISTANT, MIN_SHOWN_SCORE - 0.01, 1),
        (SQUARE, 0.0, -1),
    )
    shown_boxes = confident_detections(detected)
    assert (
        shown_boxes[:, 5].tolist() == [1, 0]
        and torch.equal(shown_boxes[0], detected[1])
        and torch.equal(shown_boxes[1], detected[2])
    )


def test_suppressed_detection_suppresses_no_other():
    """a overlaps b, b overlaps c, a does not overlap c: without b, c stays."""
    a, b, c = [0.0, 0.0, 0.4, 0.4], [0.1, 0.0, 0.5, 0.4], [0.2, 0.0, 0.6, 0.4]
    assert confident_detections(make_detections((a, 0.9, 0), (b, 0.8, 1), (c, 0.7, 2)))[:, 5].tolist() == [0, 2]


def test_confident_detections_keep_overlapping_boxes_of_one_class():
    """A crowd that was trained with --nms-iou 0.9 is shown as a whole."""
    assert len(confident_detections(make_detections((SQUARE, 0.9, 0), (SHIFTED, 0.8, 0)))) == 2


def test_average_precision_counts_suppressed_classes_too():
    detected = make_detections((SHIFTED, 0.9, 1), (SQUARE, 0.6, 0))
    truth = torch.tensor([[*SQUARE, 0.0]])
    ap = metrics.average_precision(detected[None], truth[None], 2)
    assert ap[0, 0] == 1 and len(confident_detections(detected)) == 1


def test_confident_detections_respect_the_minimum_score():
    detected = make_detections((SQUARE, 0.6, 0), (DISTANT, 0.2, 1))
    assert (
        len(confident_detections(detected, min_score=0.1)) == 2
        and len(confident_detections(detected, min_score=0.7)) == 0
    )
