"""Bagging: networks trained on bootstrap samples; where they disagree, the prediction is uncertain."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.objectives.distributions.base import Likelihood
from didact.objectives.ensemble import Ensemble, EnsembleClassify, EnsembleRegress
from didact.objectives.supervised import weigh_loss


class Bagging(Ensemble):
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


class BaggedClassify(Bagging, EnsembleClassify):
    """Classification by the mean of the members' probabilities."""


class BaggedRegress(Bagging, EnsembleRegress):
    """Regression: the mean of the members and their standard deviation."""
