"""Against scikit-learn and torchmetrics, over random masks with absent classes."""

import pytest
import sklearn.metrics as sk
import torch
import torchmetrics.functional.classification as tm
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from didact import metrics

K = 5


def masks(seed, present, *, n=3):
    g = torch.Generator().manual_seed(seed)
    y, predicted = (torch.randint(0, present, (n, 6, 9), generator=g) for _ in range(2))
    return torch.where(torch.rand(n, 6, 9, generator=g) < 0.5, y, predicted), y


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, K))
def test_the_sum_over_examples_is_the_metric_of_all_pixels(seed, present):
    predicted, y = masks(seed, present)
    each = metrics.confusions(predicted, y, K)
    assert each.shape == (3, K, K)
    for i in range(3):
        assert each[i].tolist() == sk.confusion_matrix(y[i].flatten(), predicted[i].flatten(), labels=range(K)).tolist()
    counts = each.sum(0)
    occurs = torch.isin(torch.arange(K), torch.cat([y.flatten(), predicted.flatten()]))
    ious = torch.tensor(sk.jaccard_score(y.flatten(), predicted.flatten(), labels=range(K), average=None, zero_division=0))
    f1 = torch.tensor(sk.f1_score(y.flatten(), predicted.flatten(), labels=range(K), average=None, zero_division=0))
    assert_close(metrics.iou(counts)[occurs], ious[occurs])
    assert metrics.iou(counts)[~occurs].isnan().all()
    assert_close(metrics.dice(counts)[occurs], f1[occurs])
    assert_close(metrics.mean_iou(counts).float(), tm.multiclass_jaccard_index(predicted, y, K, average="macro"))
    assert_close(metrics.pixel_accuracy(counts), torch.tensor(sk.accuracy_score(y.flatten(), predicted.flatten()), dtype=torch.float64))


def test_dice_and_iou_tell_the_same():
    predicted, y = masks(3, K)
    counts = metrics.confusions(predicted, y, K)
    assert_close(metrics.dice(counts), 2 * metrics.iou(counts) / (1 + metrics.iou(counts)))


def test_by_hand():
    y, predicted = torch.tensor([[[0, 0, 1, 1]]]), torch.tensor([[[0, 1, 1, 1]]])
    counts = metrics.confusions(predicted, y, 3)[0]
    assert metrics.iou(counts).tolist() == pytest.approx([1 / 2, 2 / 3, float("nan")], nan_ok=True)
    assert float(metrics.mean_iou(counts)) == pytest.approx(7 / 12)
    assert float(metrics.pixel_accuracy(counts)) == 0.75
