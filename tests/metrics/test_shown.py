"""What people are told of detections: each thing once, by its likeliest name."""

import torch

from didact import metrics
from didact.metrics.detection import SURE, shown

SQUARE, SHIFTED, APART = [0.1, 0.1, 0.5, 0.5], [0.12, 0.1, 0.52, 0.5], [0.6, 0.6, 0.9, 0.9]


def found(*rows):
    return torch.tensor([[*box, score, kind] for box, score, kind in rows])


def test_one_thing_has_one_name():
    """SHIFTED overlaps SQUARE by 0.38 / 0.42 of either side: IoU 0.905."""
    detected = found((SQUARE, 0.6, 0), (SHIFTED, 0.9, 1), (APART, 0.5, 0), (SQUARE, 0.35, 2), (APART, SURE - 0.01, 1), (SQUARE, 0.0, -1))
    told = shown(detected)
    assert told[:, 5].tolist() == [1, 0] and torch.equal(told[0], detected[1]) and torch.equal(told[1], detected[2])


def test_what_falls_suppresses_no_other():
    """a over b over c, and a apart from c: without b, c stays."""
    a, b, c = [0.0, 0.0, 0.4, 0.4], [0.1, 0.0, 0.5, 0.4], [0.2, 0.0, 0.6, 0.4]
    assert shown(found((a, 0.9, 0), (b, 0.8, 1), (c, 0.7, 2)))[:, 5].tolist() == [0, 2]


def test_repeats_of_a_class_are_the_objectives_business():
    """A crowd that was trained with --overlap 0.9 is told whole."""
    assert len(shown(found((SQUARE, 0.9, 0), (SHIFTED, 0.8, 0)))) == 2


def test_average_precision_counts_them_all():
    detected = found((SHIFTED, 0.9, 1), (SQUARE, 0.6, 0))
    truth = torch.tensor([[*SQUARE, 0.0]])
    ap = metrics.average_precision(detected[None], truth[None], 2)
    assert ap[0, 0] == 1 and len(shown(detected)) == 1


def test_how_sure_is_asked():
    detected = found((SQUARE, 0.6, 0), (APART, 0.2, 1))
    assert len(shown(detected, sure=0.1)) == 2 and len(shown(detected, sure=0.7)) == 0
