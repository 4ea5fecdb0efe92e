"""Groudiev, chapter 1: machine learning pipeline."""

import torch

from didact import metrics
from didact.claims.forms import CorrectedClaim, Equal
from didact.claims.registry import claim


@claim("CE01", Equal(), correction="1[y ≠ y′] counts mistakes: it is the 0–1 loss, and accuracy is 1 minus its mean")
def accuracy() -> CorrectedClaim:
    """the mean of 1[y ≠ y′] against didact's accuracy; corrected: 1 minus it"""
    scores, y = torch.randn(50, 4), torch.randint(4, (50,))
    loss = (scores.argmax(1) != y).double().mean()
    return CorrectedClaim((loss, metrics.accuracy(scores, y)), (1 - loss, metrics.accuracy(scores, y)))
