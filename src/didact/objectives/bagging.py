"""Bagging: networks trained on bootstrap samples; where they disagree, the prediction is uncertain."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.objectives.abilities import MeanAndStd
from didact.objectives.distributions.base import Likelihood
from didact.objectives.supervised import Supervised, weigh_loss


class Bagging(Supervised):
    """min of mean_m mean_i c_mi ℓ(f_m(x_i), y_i), c_m a bootstrap of the examples.  Breiman 1996; Van Schependom 3.3.3.

    c_mi counts how often a sample of N examples with replacement has example i: a weight instead of a copy of the data.
    """

    def __init__(self, networks: Sequence[nn.Module], likelihood: Likelihood, *, num_examples: int):
        super().__init__(nn.ModuleList(networks), likelihood)
        self.networks = list(networks)  # the same modules as a plain list, for type checkers
        bootstraps = torch.randint(max(1, num_examples), (len(networks), max(1, num_examples)))
        self.counts: Tensor
        self.register_buffer(
            "counts",
            torch.stack(
                [torch.bincount(bootstrap, minlength=max(1, num_examples)) for bootstrap in bootstraps]
            ).float(),
        )

    def member_outputs(self, batch: Batch) -> Tensor:
        """(M, B, outputs)."""
        return torch.stack([network(batch["x"]) for network in self.networks])

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        counts = self.counts[:, batch["row"]]                                          # (M, B)
        losses = [self.likelihood.loss(out, batch["y"]) for out in self.member_outputs(batch)]
        return {"loss": weigh_loss(counts * torch.stack(losses), batch)}

    def evaluate_batch(self, batch: Batch) -> Batch:
        out = self.combine_outputs(self.member_outputs(batch))
        return self.collect_outputs(out, batch)

    def draw(self, batch: Batch) -> Tensor:
        return self.likelihood.sample(self.combine_outputs(self.member_outputs(batch)))

    def combine_outputs(self, member_outputs: Tensor) -> Tensor:
        """(M, B, outputs) -> (B, outputs): the mean prediction, as outputs of the likelihood."""
        return member_outputs.mean(0)


class BaggedClassify(Bagging):
    """Classification by the mean of the members' probabilities, turned back into logits."""

    def combine_outputs(self, member_outputs: Tensor) -> Tensor:
        p = torch.stack([self.likelihood.probabilities(out) for out in member_outputs]).mean(0).clamp(1e-7, 1 - 1e-7)
        return (
            p.logit()[:, 1:]
            if member_outputs.shape[-1] == 1
            else (p.logit() if self.likelihood.task == "multilabel" else p.log())
        )

    def classify(self, batch: Batch) -> Tensor:
        return self.likelihood.probabilities(self.combine_outputs(self.member_outputs(batch)))


class BaggedRegress(Bagging):
    """Regression: the mean of the members and their standard deviation."""

    def regress(self, batch: Batch) -> MeanAndStd:
        means = torch.stack([self.likelihood.mean(out) for out in self.member_outputs(batch)])  # (M, B)
        return MeanAndStd(means.mean(0), means.std(0) if len(means) > 1 else None)
