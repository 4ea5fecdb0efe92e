"""Segmentation metrics against scikit-learn and torchmetrics, on random masks with absent classes."""

import pytest
import sklearn.metrics as sk
import torch
import torchmetrics.functional.classification as tm
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from didact import metrics

NUM_CLASSES = 5


def make_masks(seed, present_classes, *, n=3):
    g = torch.Generator().manual_seed(seed)
    y, predicted = (torch.randint(0, present_classes, (n, 6, 9), generator=g) for _ in range(2))
    return torch.where(torch.rand(n, 6, 9, generator=g) < 0.5, y, predicted), y


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, NUM_CLASSES))
def test_metrics_of_summed_confusion_matrices_equal_references(seed, present_classes):
    predicted, y = make_masks(seed, present_classes)
    per_image = metrics.confusion_matrices(predicted, y, NUM_CLASSES)
    assert per_image.shape == (3, NUM_CLASSES, NUM_CLASSES)
    for i in range(3):
        assert (
            per_image[i].tolist()
            == sk.confusion_matrix(y[i].flatten(), predicted[i].flatten(), labels=range(NUM_CLASSES)).tolist()
        )
    counts = per_image.sum(0)
    occurs = torch.isin(torch.arange(NUM_CLASSES), torch.cat([y.flatten(), predicted.flatten()]))
    ious = torch.tensor(
        sk.jaccard_score(y.flatten(), predicted.flatten(), labels=range(NUM_CLASSES), average=None, zero_division=0)
    )
    f1 = torch.tensor(
        sk.f1_score(y.flatten(), predicted.flatten(), labels=range(NUM_CLASSES), average=None, zero_division=0)
    )
    assert_close(metrics.iou(counts)[occurs], ious[occurs])
    assert metrics.iou(counts)[~occurs].isnan().all()
    assert_close(metrics.dice(counts)[occurs], f1[occurs])
    assert_close(
        metrics.mean_iou(counts).float(), tm.multiclass_jaccard_index(predicted, y, NUM_CLASSES, average="macro")
    )
    assert_close(
        metrics.pixel_accuracy(counts),
        torch.tensor(sk.accuracy_score(y.flatten(), predicted.flatten()), dtype=torch.float64),
    )


def test_dice_follows_from_iou():
    predicted, y = make_masks(3, NUM_CLASSES)
    counts = metrics.confusion_matrices(predicted, y, NUM_CLASSES)
    assert_close(metrics.dice(counts), 2 * metrics.iou(counts) / (1 + metrics.iou(counts)))


def test_iou_and_pixel_accuracy_by_hand():
    y, predicted = torch.tensor([[[0, 0, 1, 1]]]), torch.tensor([[[0, 1, 1, 1]]])
    counts = metrics.confusion_matrices(predicted, y, 3)[0]
    assert metrics.iou(counts).tolist() == pytest.approx([1 / 2, 2 / 3, float("nan")], nan_ok=True)
    assert float(metrics.mean_iou(counts)) == pytest.approx(7 / 12)
    assert float(metrics.pixel_accuracy(counts)) == 0.75
