"""Outputs as distributions: what the network's numbers say about the target, how wrong that is, what to answer.

A likelihood says how many numbers the network gives, turns (B, outputs) into a loss per example, a mode, a mean or a
sample, and judges a whole split. `loss` is what is trained; `judge` is the same without label smoothing and class
weights, so that validation losses are comparable (the course's were not: its validation loss is smoothed, Gaba 3.10).
"""

from collections.abc import Callable
from math import erf, exp, log, pi, sqrt
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from didact import metrics
from didact.errors import UsageError, pick


def wide(out: Tensor) -> Tensor:
    """At least float32: half precision holds a network's outputs, not their logarithms and squares."""
    return out if out.dtype == torch.float64 else out.float()


def floats(values: dict[str, Tensor]) -> dict[str, float]:
    """All metrics to the host in one transfer."""
    return dict(zip(values, torch.stack([v.double() for v in values.values()]).tolist(), strict=True))


class Likelihood(nn.Module):
    """p(y | out)."""

    task: str
    watch: str                                # the headline metric
    better: Literal["higher", "lower"]
    outputs: int                              # numbers that the network gives for each example

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        """(B, outputs), targets -> (B,), what is minimised."""
        raise NotImplementedError

    def mean_loss(self, out: Tensor, y: Tensor) -> Tensor:
        """The batch's mean, for which PyTorch may have one kernel where `loss` needs two."""
        return self.loss(out, y).mean()

    def judge(self, out: Tensor, y: Tensor) -> Tensor:
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

    def score(self, out: Tensor, y: Tensor) -> dict[str, float]:
        """Every metric of a whole split."""
        raise NotImplementedError


class Categorical(Likelihood):
    """p = softmax(out), L = −w_y Σ_k ((1 − a) y_k + a/K) log p_k, w_y = Σ_k y_k w_k.  Gaba 3.34 for the smoothing a.

    y is (B,) classes, or (B, K) probabilities after mixup. Weights w are taken as they come and should have mean 1 over
    the training examples (N / (K n_k) has), because a batch's loss is Σ w_y l / B. PyTorch's own mean divides by the
    batch's Σ w_y instead, and then neither accumulated nor distributed batches add up to the large one.
    """

    task, watch, better = "multiclass", "accuracy", "higher"
    weights: Tensor | None

    def __init__(self, classes: int, *, smoothing: float = 0.0, weights: Tensor | None = None):
        super().__init__()
        if classes < 2:
            raise UsageError(f"a choice needs at least 2 classes, got {classes}")
        self.classes = self.outputs = classes
        self.smoothing = checked_smoothing(smoothing)
        self.register_buffer("weights", checked_weights(weights, classes))

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        nll = F.cross_entropy(wide(out), y, reduction="none", label_smoothing=self.smoothing)
        if self.weights is None:
            return nll
        return nll * (self.weights[y] if y.ndim == 1 else y @ self.weights)

    def mean_loss(self, out: Tensor, y: Tensor) -> Tensor:
        if self.weights is None:
            return F.cross_entropy(wide(out), y, label_smoothing=self.smoothing)
        return super().mean_loss(out, y)

    def judge(self, out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(wide(out), y, reduction="none")

    def log_p(self, out: Tensor) -> Tensor:
        return wide(out).log_softmax(dim=-1)  # (B, K)

    def probabilities(self, out: Tensor) -> Tensor:
        return wide(out).softmax(dim=-1)  # (B, K)

    def mode(self, out: Tensor) -> Tensor:
        return out.argmax(dim=-1)

    def mean(self, out: Tensor) -> Tensor:
        return self.probabilities(out)

    def sample(self, out: Tensor, generator: Generator | None = None) -> Tensor:
        return torch.multinomial(self.probabilities(out), 1, generator=generator)[:, 0]

    def score(self, out: Tensor, y: Tensor) -> dict[str, float]:
        p = self.probabilities(out.double())  # float32 rounds confident rows to 1: ties that are none
        counts = metrics.confusion(self.mode(out), y, self.classes)
        return floats({
            "accuracy": metrics.accuracy(out, y),
            **({"top5": metrics.top_k(out, y, 5)} if self.classes > 5 else {}),
            "precision": metrics.macro(metrics.precision(counts), counts),
            "recall": metrics.macro(metrics.recall(counts), counts),
            "f1": metrics.macro(metrics.f1(counts), counts),
            "auroc": metrics.auroc(p, y),
            "calibration_error": metrics.calibration_error(p, y),
        })


class Bernoulli(Likelihood):
    """p = sigmoid(z), L = −w_y [y log p + (1 − y) log(1 − p)]: two classes with the logits (0, z).  Gaba 1.3.3.

    y is (B,) in {0, 1}, or (B, 2) probabilities after mixup; smoothing and the pair of weights are Categorical's.
    """

    task, watch, better, outputs = "binary", "accuracy", "higher", 1
    weights: Tensor | None

    def __init__(self, *, smoothing: float = 0.0, weights: Tensor | None = None):
        super().__init__()
        self.smoothing = checked_smoothing(smoothing)
        self.register_buffer("weights", checked_weights(weights, 2))

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        z, y = wide(out)[:, 0], positive(out, y)
        nll = F.binary_cross_entropy_with_logits(z, (1 - self.smoothing) * y + self.smoothing / 2, reduction="none")
        return nll if self.weights is None else nll * ((1 - y) * self.weights[0] + y * self.weights[1])

    def judge(self, out: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(wide(out)[:, 0], positive(out, y), reduction="none")

    def log_p(self, out: Tensor) -> Tensor:
        z = wide(out)
        return F.logsigmoid(torch.cat([-z, z], dim=-1))  # (B, 2)

    def probabilities(self, out: Tensor) -> Tensor:
        z = wide(out)
        return torch.cat([-z, z], dim=-1).sigmoid()  # (B, 2); 1 - sigmoid(z) would cancel

    def mode(self, out: Tensor) -> Tensor:
        return (out[:, 0] > 0).long()

    def mean(self, out: Tensor) -> Tensor:
        return wide(out)[:, 0].sigmoid()

    def sample(self, out: Tensor, generator: Generator | None = None) -> Tensor:
        return torch.bernoulli(self.mean(out), generator=generator).long()

    def score(self, out: Tensor, y: Tensor) -> dict[str, float]:
        p = self.probabilities(out.double())
        counts = metrics.confusion(self.mode(out), y, 2)
        return floats({
            "accuracy": metrics.accuracy(p, y),
            "precision": metrics.precision(counts)[1],
            "recall": metrics.recall(counts)[1],
            "f1": metrics.f1(counts)[1],
            "auroc": metrics.auroc(out[:, 0], y),  # of the logit: it orders rows that saturate
            "calibration_error": metrics.calibration_error(p, y),
        })


class Bernoullis(Likelihood):
    """p_k = sigmoid(z_k), L = −1/K Σ_k [y_k log p_k + (1 − y_k) log(1 − p_k)]; y is (B, K) in [0, 1].

    The mean over labels, so that the learning rate need not know how many there are.
    """

    task, watch, better = "multilabel", "f1", "higher"

    def __init__(self, labels: int):
        super().__init__()
        if labels < 1:
            raise UsageError(f"multilabel targets need at least 1 label, got {labels}")
        self.outputs = labels

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        z = wide(out)
        return F.binary_cross_entropy_with_logits(z, y.to(z.dtype), reduction="none").mean(dim=-1)

    def probabilities(self, out: Tensor) -> Tensor:
        return wide(out).sigmoid()

    def mode(self, out: Tensor) -> Tensor:
        return (out > 0).long()

    def mean(self, out: Tensor) -> Tensor:
        return self.probabilities(out)

    def sample(self, out: Tensor, generator: Generator | None = None) -> Tensor:
        return torch.bernoulli(self.probabilities(out), generator=generator).long()

    def score(self, out: Tensor, y: Tensor) -> dict[str, float]:
        chosen = self.mode(out)
        return floats({
            "accuracy": metrics.multilabel_accuracy(chosen, y),
            "f1": metrics.multilabel_f1(chosen, y),
            "auroc": metrics.auroc(out, y),
        })


class Regression(Likelihood):
    """y = m + s (μ + ε): the network gives μ for targets standardised by m and s. Losses are in standardised units,
    answers and metrics in the targets' own. The first three do not learn how large ε is: a sample has the ε that the
    loss assumes, one standardised unit wide. Heteroscedastic learns it.
    """

    task, watch, better, outputs = "regression", "rmse", "lower", 1
    location: Tensor
    scale: Tensor

    def __init__(self, *, mean: float = 0.0, std: float = 1.0):
        super().__init__()
        if not std > 0:
            raise UsageError(f"the targets' deviation must be positive, got std={std:g}")
        self.register_buffer("location", torch.tensor(float(mean)))
        self.register_buffer("scale", torch.tensor(float(std)))

    def standardised(self, y: Tensor) -> Tensor:
        return (y - self.location) / self.scale

    def noise(self, mu: Tensor, generator: Generator | None) -> Tensor:
        """ε, one for each μ."""
        raise NotImplementedError

    def mode(self, out: Tensor) -> Tensor:
        return self.mean(out)

    def mean(self, out: Tensor) -> Tensor:
        return self.location + self.scale * wide(out)[:, 0]

    def sample(self, out: Tensor, generator: Generator | None = None) -> Tensor:
        return self.mean(out) + self.scale * self.noise(wide(out)[:, 0], generator)

    def measured(self, out: Tensor, y: Tensor) -> dict[str, Tensor]:
        predicted = self.mean(out.double())
        return {
            "mae": metrics.mae(predicted, y),
            "rmse": metrics.rmse(predicted, y),
            "r2": metrics.r2(predicted, y),
        }

    def score(self, out: Tensor, y: Tensor) -> dict[str, float]:
        return floats(self.measured(out, y))


class Normal(Regression):
    """p ∝ exp(−½ (y − μ)²), L = (y − μ)²: mean squared error, twice the negative log-likelihood."""

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(wide(out)[:, 0], self.standardised(y), reduction="none")

    def noise(self, mu: Tensor, generator: Generator | None) -> Tensor:
        return torch.empty_like(mu).normal_(generator=generator)


class Laplace(Regression):
    """p ∝ exp(−|y − μ|), L = |y − μ|: learns the median, which outliers do not move."""

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.l1_loss(wide(out)[:, 0], self.standardised(y), reduction="none")

    def noise(self, mu: Tensor, generator: Generator | None) -> Tensor:
        a, b = (torch.empty_like(mu).exponential_(generator=generator) for _ in range(2))
        return a - b


class Huber(Regression):
    """p ∝ exp(−L), L = ½ r² where |r| = |y − μ| ≤ δ, else δ (|r| − ½ δ).  Huber 1964.

    A Gaussian with exponential tails; δ → ∞ is half of Normal's loss.
    """

    def __init__(self, *, delta: float = 1.0, mean: float = 0.0, std: float = 1.0):
        super().__init__(mean=mean, std=std)
        if not delta > 0:
            raise UsageError(f"delta, where the loss turns linear, must be positive, got {delta:g}")
        self.delta = delta

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.huber_loss(wide(out)[:, 0], self.standardised(y), reduction="none", delta=self.delta)

    def noise(self, mu: Tensor, generator: Generator | None) -> Tensor:
        d = self.delta
        inside = sqrt(2 * pi) * erf(d / sqrt(2))       # ∫ exp(−L) over |r| ≤ δ
        tail = exp(-d * d / 2) / d                     # and over r > δ
        u = torch.empty_like(mu).uniform_(generator=generator)
        # the distribution function inverted in its lower half, where it is v times the whole integral; then mirrored
        v = (inside + 2 * tail) * torch.minimum(u, 1 - u).clamp(min=torch.finfo(u.dtype).tiny)
        core = torch.special.ndtri(0.5 * (1 - erf(d / sqrt(2))) + (v - tail).clamp(min=0) / sqrt(2 * pi))
        r = torch.where(v < tail, (v * d).log() / d - d / 2, core)
        return torch.where(u < 0.5, r, -r)


class Heteroscedastic(Regression):
    """p = N(y; μ, σ²), L = ½ ((y − μ)²/σ² + log σ² + log 2π), outputs (μ, log σ²).

    Nix and Weigend 1994; Van Schependom 1.2.
    """

    watch, outputs = "nll", 2

    def log_variance(self, out: Tensor) -> Tensor:
        # within a thousandth and a thousand deviations of the targets: e^(100) is no float32
        return wide(out)[:, 1].clamp(-14, 14)

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        mu, log_variance = wide(out)[:, 0], self.log_variance(out)
        squared = (self.standardised(y) - mu).square()
        return 0.5 * (squared * (-log_variance).exp() + log_variance + log(2 * pi))

    def std(self, out: Tensor) -> Tensor:
        return self.scale * (0.5 * self.log_variance(out)).exp()

    def noise(self, mu: Tensor, generator: Generator | None) -> Tensor:
        return torch.empty_like(mu).normal_(generator=generator)

    def sample(self, out: Tensor, generator: Generator | None = None) -> Tensor:
        return self.mean(out) + self.std(out) * self.noise(wide(out)[:, 0], generator)

    def measured(self, out: Tensor, y: Tensor) -> dict[str, Tensor]:
        out = out.double()
        return {
            **super().measured(out, y),
            "nll": self.loss(out, y).mean() + self.scale.log(),  # of a density over the targets' own units
            "coverage_95": metrics.coverage(self.mean(out), self.std(out), y),
        }


LOSSES: dict[str, Callable[..., Regression]] = {
    "mse": Normal,
    "l1": Laplace,
    "huber": Huber,
    "gaussian": Heteroscedastic,
}


def likelihood(
    task: str,
    *,
    classes: int = 0,
    loss: str = "auto",
    smoothing: float = 0.0,
    weights: Tensor | None = None,
    mean: float = 0.0,
    std: float = 1.0,
) -> Likelihood:
    """The likelihood that a task asks for. `classes` counts classes or labels; `mean` and `std` are the targets'."""
    fitting = pick("task", task, {
        "regression": list(LOSSES),
        "binary": ["cross_entropy"],
        "multiclass": ["cross_entropy"],
        "multilabel": ["cross_entropy"],
    })
    if loss == "auto":
        loss = fitting[0]
    pick("loss", loss, {**LOSSES, "cross_entropy": None})
    if loss not in fitting:
        known = " or ".join(fitting)
        raise UsageError(f"the loss of {task} targets is {known}, got {loss!r}; 'auto' lets the task choose")
    if task in ("regression", "multilabel") and (smoothing or weights is not None):
        what = "label smoothing needs" if smoothing else "class weights need"
        raise UsageError(f"{what} binary or multiclass targets, but these are {task}; leave it out")
    if task == "regression":
        return LOSSES[loss](mean=mean, std=std)
    if task == "multilabel":
        return Bernoullis(classes)
    if task == "binary":
        return Bernoulli(smoothing=smoothing, weights=weights)
    return Categorical(classes, smoothing=smoothing, weights=weights)


def positive(out: Tensor, y: Tensor) -> Tensor:
    """The probability of class 1 that the target states: (B,) classes or (B, 2) probabilities -> (B,)."""
    return (y if y.ndim == 1 else y[:, 1]).to(wide(out).dtype)


def checked_smoothing(smoothing: float) -> float:
    """Refuse what leaves the true class no weight."""
    if not 0 <= smoothing < 1:
        raise UsageError(f"smoothing must be from 0 to less than 1, got {smoothing:g}")
    return smoothing


def checked_weights(weights: Tensor | None, classes: int) -> Tensor | None:
    """Refuse weights that are not one for each class."""
    if weights is not None and (weights.shape != (classes,) or not (weights >= 0).all()):
        raise UsageError(f"class weights must be {classes} numbers, none negative, got {weights.tolist()}")
    return weights
