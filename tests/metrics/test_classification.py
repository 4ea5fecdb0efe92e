"""Classification metrics against scikit-learn and torchmetrics, on random examples with ties, absent classes and a
single class.
"""

import warnings

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
import torchmetrics.functional.classification as tm
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from didact import metrics

SEEDS = st.integers(0, 2**32 - 1)


def to_float64(value):
    return torch.as_tensor(value, dtype=torch.float64)


def make_scores(seed, *, n=37, classes=7, present_classes=None):
    """Coarse scores with many ties, and targets of the first `present_classes` only."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 6, (n, classes), generator=generator) / 4
    return scores, torch.randint(0, present_classes or classes, (n,), generator=generator)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 7), st.integers(1, 40))
def test_confusion_matrix_and_macro_averages_equal_references(seed, present_classes, n):
    scores, y = make_scores(seed, n=n, present_classes=present_classes)
    predicted = scores.argmax(-1)
    counts = metrics.confusion_matrix(predicted, y, 7)
    assert counts.tolist() == sk.confusion_matrix(y, predicted, labels=range(7)).tolist()
    assert counts.tolist() == tm.multiclass_confusion_matrix(predicted, y, 7).tolist()
    assert_close(metrics.accuracy(scores, y), to_float64(sk.accuracy_score(y, predicted)))
    for metric, sklearn_metric, torchmetrics_metric in (
        (metrics.precision, sk.precision_score, tm.multiclass_precision),
        (metrics.recall, sk.recall_score, tm.multiclass_recall),
        (metrics.f1, sk.f1_score, tm.multiclass_f1_score),
    ):
        per_class = metric(counts)
        assert_close(
            per_class, to_float64(sklearn_metric(y, predicted, labels=range(7), average=None, zero_division=0))
        )
        assert_close(per_class.float(), torchmetrics_metric(predicted, y, 7, average="none"))
        assert_close(
            metrics.macro_average(per_class, counts),
            to_float64(sklearn_metric(y, predicted, average="macro", zero_division=0)),
        )
        assert_close(
            metrics.macro_average(per_class, counts).float(), torchmetrics_metric(predicted, y, 7, average="macro")
        )


def test_confusion_matrix_rows_are_true_and_columns_predicted():
    counts = metrics.confusion_matrix(torch.tensor([1, 1, 2]), torch.tensor([0, 0, 2]), 3)
    assert counts.tolist() == [[0, 2, 0], [0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("k", [1, 2, 5])
def test_top_k_accuracy_equals_references(k):
    torch.manual_seed(k)
    scores, y = torch.randn(101, 9), torch.randint(9, (101,))
    assert_close(
        metrics.top_k_accuracy(scores, y, k), to_float64(sk.top_k_accuracy_score(y, scores, k=k, labels=range(9)))
    )
    assert_close(
        metrics.top_k_accuracy(scores, y, k).float(), tm.multiclass_accuracy(scores, y, 9, top_k=k, average="micro")
    )


def test_top_k_accuracy_of_fewer_classes_is_one():
    assert metrics.top_k_accuracy(torch.randn(8, 3), torch.randint(3, (8,)), 5) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_auroc_with_ties_equals_references(pairs):
    scores, y = torch.tensor([s / 7 for s, _ in pairs]), torch.tensor([int(b) for _, b in pairs])
    if y.min() == y.max():
        assert metrics.auroc(scores, y).isnan()
    else:
        assert_close(metrics.auroc(scores, y), to_float64(sk.roc_auc_score(y, scores)))
        assert_close(metrics.auroc(scores, y).float(), tm.binary_auroc(scores.sigmoid(), y))


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_auroc_of_classes_is_one_against_the_rest(seed):
    scores, y = make_scores(seed, n=90, classes=4)
    p = scores.double().softmax(-1)
    expected = sk.roc_auc_score(y, p, multi_class="ovr", average="macro")
    assert_close(metrics.auroc(p, y), to_float64(expected))
    assert_close(metrics.auroc(p, y).float(), tm.multiclass_auroc(p, y, 4).float())


def test_auroc_leaves_absent_classes_out():
    scores, y = make_scores(3, n=60, classes=5, present_classes=3)
    expected = np.mean([sk.roc_auc_score(y == k, scores[:, k]) for k in range(3)])
    assert_close(metrics.auroc(scores, y), to_float64(expected))
    assert metrics.auroc(scores, torch.zeros_like(y)).isnan()  # one class: no pair to order


def test_auroc_of_many_examples_is_exact():
    torch.manual_seed(0)
    scores, y = torch.randn(300_000).half(), torch.randint(2, (300_000,))
    assert_close(metrics.auroc(scores, y), to_float64(sk.roc_auc_score(y, scores.float())), atol=1e-12, rtol=0)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.floats(0.1, 3), st.sampled_from([1, 10, 15]))
def test_calibration_error_equals_torchmetrics(seed, sharpness, bins):
    # no sharper: torchmetrics rounds to float32 and gives a confidence of exactly 1 a bin of its own
    generator = torch.Generator().manual_seed(seed)
    p = (sharpness * torch.randn(200, 4, generator=generator, dtype=torch.float64)).softmax(-1)
    y = torch.randint(4, (200,), generator=generator)
    expected = tm.multiclass_calibration_error(p, y, 4, n_bins=bins)
    assert_close(metrics.calibration_error(p, y, bins).float(), expected, atol=1e-6, rtol=0)


def test_calibration_curve_by_hand():
    p = torch.tensor([[0.6, 0.4], [0.4, 0.6], [0.9, 0.1], [1.0, 0.0]])  # bins of 0.2: (.4, .6], (.8, 1]
    y = torch.tensor([0, 0, 0, 1])
    confidence, bin_accuracy, count = metrics.calibration_curve(p.double().round(decimals=6), y, bins=5)
    assert count.tolist() == [0, 0, 2, 0, 2]
    assert_close(confidence, to_float64([np.nan, np.nan, 0.6, np.nan, 0.95]), equal_nan=True)
    assert_close(bin_accuracy, to_float64([np.nan, np.nan, 0.5, np.nan, 0.5]), equal_nan=True)
    assert_close(metrics.calibration_error(p, y, bins=5), to_float64(0.5 * 0.1 + 0.5 * 0.45), atol=1e-6, rtol=0)


def test_calibrated_probabilities_have_no_calibration_error():
    torch.manual_seed(1)
    p = torch.randn(200_000, 3, dtype=torch.float64).softmax(-1)
    y = torch.multinomial(p, 1)[:, 0]
    assert metrics.calibration_error(p, y) < 0.01
    assert metrics.calibration_error((3 * p.log()).softmax(-1), y) > 0.1  # sharpened: overconfident


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.floats(0, 1))
def test_multilabel_metrics_equal_references(seed, share):
    generator = torch.Generator().manual_seed(seed)
    predicted = torch.randint(2, (23, 5), generator=generator)
    y = (torch.rand(23, 5, generator=generator) < share).float()
    predicted[:, 4] = 0
    y[:, 4] = 0  # a label that never occurs
    assert_close(metrics.multilabel_accuracy(predicted, y), to_float64(1 - sk.hamming_loss(y, predicted)))
    f1 = metrics.multilabel_f1(predicted, y)
    assert_close(f1, to_float64(sk.f1_score(y, predicted, average="macro", zero_division=0)))
    assert_close(f1.float(), tm.multilabel_f1_score(predicted, y.long(), 5))


def test_multilabel_auroc_is_over_defined_labels():
    torch.manual_seed(2)
    scores, y = torch.randn(50, 4), torch.randint(2, (50, 4)).float()
    assert_close(metrics.auroc(scores, y), to_float64(sk.roc_auc_score(y, scores, average="macro")))
    y[:, 0] = 1
    assert_close(metrics.auroc(scores, y), to_float64(sk.roc_auc_score(y[:, 1:], scores[:, 1:], average="macro")))


def test_no_metric_warns_on_a_single_example():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores, y = make_scores(0, n=1)
        counts = metrics.confusion_matrix(scores.argmax(-1), y, 7)
        assert 0 <= metrics.macro_average(metrics.f1(counts), counts) <= 1
        assert metrics.auroc(scores, y).isnan()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_no_metric_synchronizes_with_the_host():
    scores, y = (t.cuda() for t in make_scores(0, n=90))
    labels = (scores > 0.5).long()
    torch.cuda.set_sync_debug_mode("error")
    try:
        counts = metrics.confusion_matrix(scores.argmax(-1), y, 7)
        results = [
            *(
                metrics.macro_average(metric(counts), counts)
                for metric in (metrics.precision, metrics.recall, metrics.f1)
            ),
            *(metric(scores, y) for metric in (metrics.accuracy, metrics.top_k_accuracy, metrics.auroc)),
            metrics.calibration_error(scores.softmax(-1), y),
            *(metric(labels, labels) for metric in (metrics.multilabel_accuracy, metrics.multilabel_f1, metrics.auroc)),
            *(metric(scores[:, 0], scores[:, 1]) for metric in (metrics.mae, metrics.rmse, metrics.r2)),
            metrics.coverage(scores[:, 0], scores[:, 1], scores[:, 2]),
        ]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    scores, y, labels = scores.cpu(), y.cpu(), labels.cpu()
    assert_close(results[5].cpu(), metrics.auroc(scores, y))
    assert_close(results[6].cpu(), metrics.calibration_error(scores.softmax(-1), y), atol=1e-6, rtol=0)
