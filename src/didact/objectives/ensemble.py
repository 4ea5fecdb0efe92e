"""Ensembles: the mean prediction of several networks; how far they disagree is the uncertainty of the mean."""

import torch
from torch import Tensor

from didact.data.core import Batch
from didact.models.tabular.ensemble import TabularEnsemble
from didact.objectives.abilities import MeanAndStd
from didact.objectives.distributions.base import Likelihood
from didact.objectives.supervised import Supervised, weigh_loss


class Ensemble(Supervised):
    """f(x) = mean of f_k(x): of the members' probabilities, or of the numbers that they predict."""

    def member_outputs(self, batch: Batch) -> Tensor:
        """(K, B, outputs)."""
        raise NotImplementedError

    def combine_outputs(self, member_outputs: Tensor) -> Tensor:
        """(K, B, outputs) -> (B, outputs): the mean prediction, as outputs of the likelihood."""
        if self.likelihood.task == "regression":
            return member_outputs.mean(0)
        p = torch.stack([self.likelihood.probabilities(out) for out in member_outputs]).mean(0).clamp(1e-7, 1 - 1e-7)
        if self.likelihood.task == "multilabel":
            return p.logit()
        return p.logit()[:, 1:] if member_outputs.shape[-1] == 1 else p.log()

    def evaluate_batch(self, batch: Batch) -> Batch:
        return self.collect_outputs(self.combine_outputs(self.member_outputs(batch)), batch)

    def draw(self, batch: Batch) -> Tensor:
        return self.likelihood.sample(self.combine_outputs(self.member_outputs(batch)))


class EnsembleClassify(Ensemble):
    """Classification by the mean of the members' probabilities."""

    def classify(self, batch: Batch) -> Tensor:
        return self.likelihood.probabilities(self.combine_outputs(self.member_outputs(batch)))


class EnsembleRegress(Ensemble):
    """Regression: the mean of the members and their standard deviation."""

    def regress(self, batch: Batch) -> MeanAndStd:
        means = torch.stack([self.likelihood.mean(out) for out in self.member_outputs(batch)])  # (K, B)
        return MeanAndStd(means.mean(0), means.std(0) if len(means) > 1 else None)


class FoldEnsemble(Ensemble):
    """Cross-validation as one training: member k learns from the rows of all folds but the k-th.

        min of 1/N Σ_i 1/(K−1) Σ_{k ≠ fold(i)} ℓ(f_k(x_i), y_i)

    In rows with a "fold" an evaluation takes the prediction of the one member that was not trained on them, so that all
    rows validate (out-of-fold predictions; Stone 1974). Rows without one are predicted by the mean of the members.
    """

    network: TabularEnsemble
    low: Tensor
    high: Tensor

    def __init__(self, network: TabularEnsemble, likelihood: Likelihood, *, target_range: tuple[float, float]):
        super().__init__(network, likelihood)
        if likelihood.task != "regression":      # accuracy has too few values to choose weights by
            self.monitor, self.mode = "loss", "min"
        # of the training targets, as outputs: no member extrapolates
        self.register_buffer("low", torch.tensor(target_range[0]))
        self.register_buffer("high", torch.tensor(target_range[1]))

    def member_outputs(self, batch: Batch) -> Tensor:
        return self._bound(self.network(batch["x"]).transpose(0, 1))

    def _bound(self, out: Tensor) -> Tensor:
        return out.clamp(self.low, self.high) if self.likelihood.task == "regression" else out

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        out = self.network(batch["x"])                                          # (B, K, outputs)
        num_members = out.shape[1]
        targets = batch["y"].repeat_interleave(num_members, dim=0)
        losses = self.likelihood.loss(out.flatten(0, 1), targets).view(-1, num_members).T
        if num_members == 1:
            return {"loss": weigh_loss(losses, batch)}
        is_trained_on = batch["fold"] != torch.arange(num_members, device=out.device)[:, None]      # (K, B)
        return {"loss": weigh_loss(losses * is_trained_on, batch) * (num_members / (num_members - 1))}

    def evaluate_batch(self, batch: Batch) -> Batch:
        if "fold" not in batch:
            return super().evaluate_batch(batch)
        return self.collect_outputs(self._bound(self.network.predict_with_members(batch["x"], batch["fold"])), batch)


class FoldClassify(FoldEnsemble, EnsembleClassify):
    """Classes as targets."""


class FoldRegress(FoldEnsemble, EnsembleRegress):
    """Numbers as targets."""

    def regress(self, batch: Batch) -> MeanAndStd:
        # how far the members disagree is a small part of the error of a prediction: as its interval it would mislead
        return MeanAndStd(super().regress(batch).mean, None)
