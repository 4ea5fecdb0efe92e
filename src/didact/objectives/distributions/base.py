"""What a network's numbers may say about a target: the contract of every likelihood.

A likelihood says how many numbers the network gives, turns (B, outputs) into a loss per example, a mode, a mean or a
sample, and judges a whole split. `loss` is what is trained; `judge` is the same without label smoothing and class
weights, so that validation losses are comparable (the course's were not: its validation loss is smoothed, Gaba 3.10).
"""

from typing import Literal

import torch
from torch import Generator, Tensor, nn


def at_least_float32(out: Tensor) -> Tensor:
    """At least float32: half precision holds a network's outputs, not their logarithms and squares."""
    return out if out.dtype == torch.float64 else out.float()


def to_floats(values: dict[str, Tensor]) -> dict[str, float]:
    """All metrics to the host in one transfer."""
    return dict(zip(values, torch.stack([v.double() for v in values.values()]).tolist(), strict=True))


class Likelihood(nn.Module):
    """p(y | out)."""

    task: str
    monitor: str                                # the headline metric
    monitor_mode: Literal["max", "min"]
    num_outputs: int                              # numbers that the network gives for each example

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        """(B, outputs), targets -> (B,), what is minimised."""
        raise NotImplementedError

    def mean_loss(self, out: Tensor, y: Tensor) -> Tensor:
        """The batch's mean, for which PyTorch may have one kernel where `loss` needs two."""
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
        """The predicted deviation of a number, in the targets' units; None where the network does not say."""
        return None

    def probabilities(self, out: Tensor) -> Tensor:
        """Of each class or label."""
        raise NotImplementedError

    def log_p(self, out: Tensor) -> Tensor:
        """Logarithms of the probabilities of all classes."""
        raise NotImplementedError

    def sample(self, out: Tensor, generator: Generator | None = None) -> Tensor:
        """One target drawn for each example."""
        raise NotImplementedError

    def compute_metrics(self, out: Tensor, y: Tensor) -> dict[str, float]:
        """Every metric of a whole split."""
        raise NotImplementedError
