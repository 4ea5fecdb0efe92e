"""Likelihoods p(y | out): what a network's outputs say about a target.

A likelihood defines how many outputs the network has, turns (B, outputs) into a loss per example, a mode, a mean or a
sample, and computes the metrics of a split. `loss` is for training; `eval_loss` is the same without label smoothing and
class weights, so that validation losses are comparable (the course's are not: its validation loss is smoothed, Gaba
3.10).
"""

from typing import Literal

import torch
from torch import Generator, Tensor, nn


def at_least_float32(out: Tensor) -> Tensor:
    """At least float32: half precision holds a network's outputs, but not their logarithms and squares."""
    return out if out.dtype == torch.float64 else out.float()


def to_floats(values: dict[str, Tensor]) -> dict[str, float]:
    """All metrics to the host in one transfer."""
    return dict(zip(values, torch.stack([v.double() for v in values.values()]).tolist(), strict=True))


class Likelihood(nn.Module):
    """p(y | out)."""

    task: str
    monitor: str                            # the metric that chooses the best weights
    monitor_mode: Literal["max", "min"]
    num_outputs: int                        # outputs of the network for each example

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        """The training loss, (B, outputs), targets -> (B,)."""
        raise NotImplementedError

    def mean_loss(self, out: Tensor, y: Tensor) -> Tensor:
        """The mean over the batch; PyTorch may have one kernel for it where `loss` needs two."""
        return self.loss(out, y).mean()

    def eval_loss(self, out: Tensor, y: Tensor) -> Tensor:
        """The loss without what only helps training: (B,)."""
        return self.loss(out, y)

    def mode(self, out: Tensor) -> Tensor:
        """The likeliest target."""
        raise NotImplementedError

    def mean(self, out: Tensor) -> Tensor:
        """The expected target; of classes, their probabilities."""
        raise NotImplementedError

    def std(self, out: Tensor) -> Tensor | None:
        """The predicted standard deviation, in the targets' units; None where the network predicts none."""
        return None

    def probabilities(self, out: Tensor) -> Tensor:
        """The probability of each class or label."""
        raise NotImplementedError

    def log_p(self, out: Tensor) -> Tensor:
        """The logarithms of the probabilities of all classes."""
        raise NotImplementedError

    def sample(self, out: Tensor, generator: Generator | None = None) -> Tensor:
        """One sample of the target for each example."""
        raise NotImplementedError

    def compute_metrics(self, out: Tensor, y: Tensor) -> dict[str, float]:
        """All metrics of a split."""
        raise NotImplementedError
