"""Supervised learning: a network outputs the parameters of a distribution over targets; the loss is −log p(y | x)."""

import torch
from torch import Tensor, nn

from didact.data.core import Batch, Data
from didact.objectives.abilities import MeanAndStd
from didact.objectives.base import Objective
from didact.objectives.distributions.base import Likelihood
from didact.objectives.distributions.classification import make_likelihood
from didact.objectives.losses import r_drop


def weigh_loss(loss: Tensor, batch: Batch) -> Tensor:
    """1/B Σ w_i ℓ_i: losses (…, B) by the weights of the examples, where they have any.

    The weights have mean 1 over the training examples. A batch is not divided by its own Σ w_i: then neither
    accumulated nor distributed batches would add up to the large one, and an epoch not to Σ w_i ℓ_i / Σ w_i.
    """
    return (loss * batch["weight"] if "weight" in batch else loss).mean()


class Supervised(Objective):
    """min over θ of mean -log p(y | f(x; θ)).  Fleuret 1.1, Gaba 1.3, Van Schependom 2.2."""

    weighs_examples = True

    def __init__(self, network: nn.Module, likelihood: Likelihood):
        super().__init__()
        self.network, self.likelihood = network, likelihood
        self.monitor, self.mode = likelihood.monitor, likelihood.monitor_mode

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        return {"loss": self.mean_loss(self.network(batch["x"]), batch)}

    def mean_loss(self, out: Tensor, batch: Batch) -> Tensor:
        """The mean training loss, weighted where the examples have weights."""
        if "weight" in batch:
            return weigh_loss(self.likelihood.loss(out, batch["y"]), batch)
        return self.likelihood.mean_loss(out, batch["y"])

    def evaluate_batch(self, batch: Batch) -> Batch:
        out = self.network(batch["x"])
        return self.collect_outputs(out, batch)

    def collect_outputs(self, out: Tensor, batch: Batch) -> Batch:
        """What evaluation keeps of each example."""
        weight = {"weight": batch["weight"]} if "weight" in batch else {}
        return {"loss": self.likelihood.eval_loss(out, batch["y"]), "output": out, "y": batch["y"], **weight}

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """The loss is the weighted mean Σ w_i ℓ_i / Σ w_i; the other metrics count every example once."""
        weight = outputs.get("weight")
        if weight is not None:
            outputs = {**outputs, "loss": outputs["loss"] * weight / weight.mean()}
        return super().compute_metrics(outputs) | self.likelihood.compute_metrics(outputs["output"], outputs["y"])

    def draw(self, batch: Batch) -> Tensor:
        return self.likelihood.sample(self.network(batch["x"]))


class Classify(Supervised):
    """Classes as targets."""

    def classify(self, batch: Batch) -> Tensor:
        return self.likelihood.probabilities(self.network(batch["x"]))


class ClassifyWithTrainAccuracy(Classify):
    """Also reports the accuracy of each training batch, as it was trained: augmented, with dropout.  Gaba 4.6."""

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        out, y = self.network(batch["x"]), batch["y"]
        target = y if y.ndim == 1 else y.argmax(-1)                   # of mixed labels the one with the larger share
        is_correct = self.likelihood.mode(out.detach()) == target
        return {"loss": self.mean_loss(out, batch), "accuracy": is_correct.float().mean()}


class Regress(Supervised):
    """Numbers as targets."""

    def regress(self, batch: Batch) -> MeanAndStd:
        out = self.network(batch["x"])
        return MeanAndStd(self.likelihood.mean(out), self.likelihood.std(out))


class RDrop(Classify):
    """CE(p1) + CE(p2) + α ½(KL(p1‖p2) + KL(p2‖p1)) of two dropout passes.  Liang et al. 2021; Gaba eq. 3.35."""

    def __init__(self, network: nn.Module, likelihood: Likelihood, *, alpha: float = 1.0):
        super().__init__(network, likelihood)
        self.alpha = alpha

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        doubled, y = torch.cat([batch["x"], batch["x"]]), batch["y"]    # one pass over both copies: two dropout masks
        out1, out2 = self.network(doubled).chunk(2)
        ce = weigh_loss(self.likelihood.loss(out1, y) + self.likelihood.loss(out2, y), batch)
        kl = weigh_loss(r_drop(self.likelihood.log_p(out1), self.likelihood.log_p(out2)), batch)
        return {"loss": ce + self.alpha * kl, "cross_entropy": ce, "disagreement": kl}


def make_supervised(network: nn.Module, likelihood: Likelihood) -> Supervised:
    """The objective whose abilities fit the likelihood's task."""
    return (Regress if likelihood.task == "regression" else Classify)(network, likelihood)


def likelihood_for(
    data: Data, *, loss: str = "auto", label_smoothing: float = 0.0, weights: Tensor | None = None
) -> Likelihood:
    """The likelihood for a dataset's targets."""
    return make_likelihood(
        data.task,
        num_classes=data.num_classes,
        loss=loss,
        label_smoothing=label_smoothing,
        weights=weights,
        mean=data.target_mean,
        std=data.target_std,
    )
