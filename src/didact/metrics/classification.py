"""Metrics of classification: accuracy, precision, recall, F1, AUROC, calibration."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot


def accuracy(scores: Tensor, y: Tensor) -> Tensor:
    """The fraction of examples whose highest score is the true class's; scores (N, K), y (N,)."""
    return (scores.argmax(dim=-1) == y).double().mean()


def top_k_accuracy(scores: Tensor, y: Tensor, k: int = 5) -> Tensor:
    """The fraction of examples whose true class is among the k highest scores; 1 where there are no more than k
    classes.
    """
    top_classes = scores.topk(min(k, scores.shape[-1]), dim=-1).indices  # (N, k)
    return (top_classes == y[:, None]).any(dim=-1).double().mean()


def precision(counts: Tensor) -> Tensor:
    """TP / (TP + FP) of each class of a confusion matrix; 0 for a class that is never predicted."""
    return counts.diagonal().double() / counts.sum(dim=0).clamp(min=1)


def recall(counts: Tensor) -> Tensor:
    """TP / (TP + FN) of each class of a confusion matrix; 0 for a class that is absent."""
    return counts.diagonal().double() / counts.sum(dim=1).clamp(min=1)


def f1(counts: Tensor) -> Tensor:
    """2 TP / (2 TP + FP + FN) of each class of a confusion matrix: the harmonic mean of precision and recall."""
    return 2 * counts.diagonal().double() / (counts.sum(dim=0) + counts.sum(dim=1)).clamp(min=1)


def macro_average(values: Tensor, counts: Tensor) -> Tensor:
    """The mean of a per-class metric over the classes that occur, true or predicted, in the confusion matrix."""
    occurs = counts.sum(dim=0) + counts.sum(dim=1) > 0
    return (values * occurs).sum() / occurs.sum()


def auroc(scores: Tensor, y: Tensor) -> Tensor:
    """P(s₊ > s₋) + ½ P(s₊ = s₋): area under the ROC curve as the rank statistic U / (n₊ n₋), exact with ties.

    scores (N,) with y (N,) in {0, 1}; or scores (N, K), one class against the rest, with y (N,) classes or (N, K)
    labels: the mean over the classes for which it is defined. NaN where all examples are positive, or none.  Mann and
    Whitney 1947; Hanley and McNeil 1982.
    """
    if scores.ndim == 1:
        return _auroc_by_row(scores[None], y[None])[0]
    truth = one_hot(y, scores.shape[1]) if y.ndim == 1 else y
    return _auroc_by_row(scores.T, truth.T).nanmean()


def _auroc_by_row(scores: Tensor, y: Tensor) -> Tensor:
    """AUROC of each row: (K, N), (K, N) -> (K,)."""
    scores, y = scores.contiguous(), y.long()
    sorted_scores = scores.sort(dim=-1).values
    num_below = torch.searchsorted(sorted_scores, scores)
    num_not_above = torch.searchsorted(sorted_scores, scores, right=True)
    # equal scores share the mean of their ranks; doubled, it stays an integer
    twice_rank = num_below + num_not_above + 1
    num_positive = y.sum(dim=-1)
    num_negative = y.shape[-1] - num_positive
    twice_u = (twice_rank * y).sum(dim=-1) - num_positive * (num_positive + 1)
    return twice_u.double() / (2 * num_positive * num_negative).double()


def calibration_error(probabilities: Tensor, y: Tensor, bins: int = 15) -> Tensor:
    """ECE = Σ_b n_b/N |accuracy_b − confidence_b| over equal bins of the top probability.  Guo et al. 2017, eq. 3."""
    confidence, correct, _ = _calibration_bins(probabilities, y, bins)
    return (correct - confidence).abs().sum() / len(y)


def calibration_curve(probabilities: Tensor, y: Tensor, bins: int = 15) -> tuple[Tensor, Tensor, Tensor]:
    """Mean confidence, accuracy and number of examples of each bin; the means of an empty bin are NaN."""
    confidence, correct, counts = _calibration_bins(probabilities, y, bins)
    return confidence / counts, correct / counts, counts.long()


def _calibration_bins(probabilities: Tensor, y: Tensor, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over each bin ((b−1)/M, b/M] of: confidence, correct predictions, ones."""
    confidence, predicted = probabilities.double().max(dim=-1)
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=y.device)
    bin_index = torch.bucketize(confidence, edges[1:-1])
    # (M, N): a matrix product sums in a fixed order, scatter_add of floats on a GPU does not
    membership = (bin_index == torch.arange(bins, device=y.device)[:, None]).double()
    return membership @ confidence, membership @ (predicted == y).double(), membership.sum(dim=-1)


def multilabel_accuracy(predicted: Tensor, y: Tensor) -> Tensor:
    """The fraction of all labels (N, K) that are right; not of examples with every label right."""
    return (predicted == y).double().mean()


def multilabel_f1(predicted: Tensor, y: Tensor) -> Tensor:
    """The mean over labels of 2 TP / (2 TP + FP + FN); a label that is neither true nor predicted counts 0."""
    predicted, y = predicted.long(), y.long()
    both = (predicted * y).sum(dim=0)
    return (2 * both.double() / (predicted.sum(dim=0) + y.sum(dim=0)).clamp(min=1)).mean()
