"""Bagging: networks that each saw another draw of the data; where they disagree, none of them knows."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.objectives.abilities import Predictive
from didact.objectives.distribution import Likelihood
from didact.objectives.supervised import Supervised


class Bagging(Supervised):
    """min of mean_m mean_i c_mi ℓ(f_m(x_i), y_i), with c_m a bootstrap of the rows.  Breiman 1996; Van Schependom 3.3.3.

    c_mi counts how often a draw of N rows with replacement takes row i; it stands for the draw without copying data.
    """

    def __init__(self, networks: Sequence[nn.Module], likelihood: Likelihood, *, rows: int):
        super().__init__(nn.ModuleList(networks), likelihood)
        self.networks = list(networks)  # the same ones, as a plain list that types know how to walk
        draws = torch.randint(max(1, rows), (len(networks), max(1, rows)))
        self.counts: Tensor
        self.register_buffer("counts", torch.stack([torch.bincount(d, minlength=max(1, rows)) for d in draws]).float())

    def members(self, batch: Batch) -> Tensor:
        """(M, B, outputs)."""
        return torch.stack([network(batch["x"]) for network in self.networks])

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        counts = self.counts[:, batch["row"]]                                          # (M, B)
        losses = [self.likelihood.loss(out, batch["y"]) for out in self.members(batch)]
        return {"loss": (counts * torch.stack(losses)).mean()}

    def judge(self, batch: Batch) -> Batch:
        out = self.combined(self.members(batch))
        return {"loss": self.likelihood.judge(out, batch["y"]), "output": out, "y": batch["y"]}

    def draw(self, batch: Batch) -> Tensor:
        return self.likelihood.sample(self.combined(self.members(batch)))

    def combined(self, outs: Tensor) -> Tensor:
        """(M, B, outputs) -> (B, outputs): the mean prediction, as outputs of the likelihood."""
        return outs.mean(0)


class BaggedClassify(Bagging):
    """Members vote with their probabilities; the mean is read back as logits."""

    def combined(self, outs: Tensor) -> Tensor:
        p = torch.stack([self.likelihood.probabilities(out) for out in outs]).mean(0).clamp(1e-7, 1 - 1e-7)
        return p.logit()[:, 1:] if outs.shape[-1] == 1 else (p.logit() if self.likelihood.task == "multilabel" else p.log())

    def classify(self, batch: Batch) -> Tensor:
        return self.likelihood.probabilities(self.combined(self.members(batch)))


class BaggedRegress(Bagging):
    """The mean of the members, and how far they are apart."""

    def regress(self, batch: Batch) -> Predictive:
        means = torch.stack([self.likelihood.mean(out) for out in self.members(batch)])  # (M, B)
        return Predictive(means.mean(0), means.std(0) if len(means) > 1 else None)  # one alone cannot disagree
