"""What people are told of detections: each thing once, by its likeliest name."""

import torch

from didact import metrics
from didact.metrics.detection import MIN_SHOWN_SCORE, confident_detections

SQUARE, SHIFTED, DISTANT = [0.1, 0.1, 0.5, 0.5], [0.12, 0.1, 0.52, 0.5], [0.6, 0.6, 0.9, 0.9]


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
    """a over b over c, and a apart from c: without b, c stays."""
    a, b, c = [0.0, 0.0, 0.4, 0.4], [0.1, 0.0, 0.5, 0.4], [0.2, 0.0, 0.6, 0.4]
    assert confident_detections(make_detections((a, 0.9, 0), (b, 0.8, 1), (c, 0.7, 2)))[:, 5].tolist() == [0, 2]


def test_confident_detections_keep_overlapping_boxes_of_one_class():
    """A crowd that was trained with --overlap 0.9 is told whole."""
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
