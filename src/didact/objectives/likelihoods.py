"""Classes and labels as distributions, and the likelihood that a task asks for."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from didact import metrics
from didact.errors import UsageError, pick
from didact.objectives.distribution import Likelihood, floats, wide
from didact.objectives.regressions import LOSSES


class Categorical(Likelihood):
    """p = softmax(out), L = −w_y Σ_k ((1 − a) y_k + a/K) log p_k, w_y = Σ_k y_k w_k.  Gaba eq. 3.34 for the smoothing a.

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
            **macro_means(counts),
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
            **macro_means(counts),
            "auroc": metrics.auroc(out[:, 0], y),  # of the logit: it orders rows that saturate
            "calibration_error": metrics.calibration_error(p, y),
        })


class Bernoullis(Likelihood):
    """p_k = sigmoid(z_k), L = −1/K Σ_k [y_k log p_k + (1 − y_k) log(1 − p_k)]; y is (B, K) in [0, 1].

    The mean over labels, so that the learning rate need not know how many there are.
    """

    task, watch, better = "multilabel", "f1_macro", "higher"

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
            "f1_macro": metrics.multilabel_f1(chosen, y),
            "auroc": metrics.auroc(out, y),
        })


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


def macro_means(counts: Tensor) -> dict[str, Tensor]:
    """Precision, recall and F1 as means over the classes, each counting alike, however rare it is."""
    each = {"precision": metrics.precision, "recall": metrics.recall, "f1": metrics.f1}
    return {f"{name}_macro": metrics.macro(of(counts), counts) for name, of in each.items()}


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
