"""Classification: categorical, Bernoulli and multi-label likelihoods, and the likelihood of a task (`make_likelihood`).

The cross-entropy of classes is here; label smoothing is explained in `label_smoothing.py`.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from didact import metrics
from didact.errors import UsageError, look_up
from didact.objectives.distributions.base import Likelihood, at_least_float32, to_floats
from didact.objectives.distributions.label_smoothing import check_label_smoothing, smooth_labels
from didact.objectives.distributions.regression import REGRESSION_LOSSES


class Categorical(Likelihood):
    """p = softmax(out), L = −w_y Σ_k ((1 − a) y_k + a/K) log p_k, w_y = Σ_k y_k w_k; a: label smoothing.  Gaba eq.
    3.34.

    y is (B,) classes, or (B, K) probabilities after mixup. Weights w are used as they are and should have mean 1 over
    the training examples (N / (K n_k) has), because a batch's loss is Σ w_y l / B. PyTorch's own mean divides by the
    batch's Σ w_y instead, and then neither accumulated nor distributed batches add up to the large one.
    """

    task, monitor, monitor_mode = "multiclass", "accuracy", "max"
    weights: Tensor | None

    def __init__(self, num_classes: int, *, label_smoothing: float = 0.0, weights: Tensor | None = None):
        super().__init__()
        if num_classes < 2:
            raise UsageError(f"classification needs at least 2 classes, got {num_classes}")
        self.num_classes = self.num_outputs = num_classes
        self.label_smoothing = check_label_smoothing(label_smoothing)
        self.register_buffer("weights", _check_class_weights(weights, num_classes))

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        nll = F.cross_entropy(at_least_float32(out), y, reduction="none", label_smoothing=self.label_smoothing)
        if self.weights is None:
            return nll
        return nll * (self.weights[y] if y.ndim == 1 else y @ self.weights)

    def mean_loss(self, out: Tensor, y: Tensor) -> Tensor:
        if self.weights is None:
            return F.cross_entropy(at_least_float32(out), y, label_smoothing=self.label_smoothing)
        return super().mean_loss(out, y)

    def eval_loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(at_least_float32(out), y, reduction="none")

    def log_p(self, out: Tensor) -> Tensor:
        return at_least_float32(out).log_softmax(dim=-1)  # (B, K)

    def probabilities(self, out: Tensor) -> Tensor:
        return at_least_float32(out).softmax(dim=-1)  # (B, K)

    def mode(self, out: Tensor) -> Tensor:
        return out.argmax(dim=-1)

    def mean(self, out: Tensor) -> Tensor:
        return self.probabilities(out)

    def sample(self, out: Tensor, generator: Generator | None = None) -> Tensor:
        return torch.multinomial(self.probabilities(out), 1, generator=generator)[:, 0]

    def compute_metrics(self, out: Tensor, y: Tensor) -> dict[str, float]:
        p = self.probabilities(out.double())  # float32 rounds confident predictions to 1, which would tie them
        confusion = metrics.confusion_matrix(self.mode(out), y, self.num_classes)
        return to_floats({
            "accuracy": metrics.accuracy(out, y),
            **({"top5": metrics.top_k_accuracy(out, y, 5)} if self.num_classes > 5 else {}),
            **_macro_means(confusion),
            "auroc": metrics.auroc(p, y),
            "calibration_error": metrics.calibration_error(p, y),
        })


class Bernoulli(Likelihood):
    """p = sigmoid(z), L = −w_y [y log p + (1 − y) log(1 − p)]: two classes with the logits (0, z).  Gaba 1.3.3.

    y is (B,) in {0, 1}, or (B, 2) probabilities after mixup; label smoothing and the two weights are Categorical's.
    """

    task, monitor, monitor_mode, num_outputs = "binary", "accuracy", "max", 1
    weights: Tensor | None

    def __init__(self, *, label_smoothing: float = 0.0, weights: Tensor | None = None):
        super().__init__()
        self.label_smoothing = check_label_smoothing(label_smoothing)
        self.register_buffer("weights", _check_class_weights(weights, 2))

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        z, y = at_least_float32(out)[:, 0], _positive_target(out, y)
        nll = F.binary_cross_entropy_with_logits(
            z, smooth_labels(y, self.label_smoothing, 2), reduction="none"
        )
        return nll if self.weights is None else nll * ((1 - y) * self.weights[0] + y * self.weights[1])

    def eval_loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            at_least_float32(out)[:, 0], _positive_target(out, y), reduction="none"
        )

    def log_p(self, out: Tensor) -> Tensor:
        z = at_least_float32(out)
        return F.logsigmoid(torch.cat([-z, z], dim=-1))  # (B, 2)

    def probabilities(self, out: Tensor) -> Tensor:
        z = at_least_float32(out)
        return torch.cat([-z, z], dim=-1).sigmoid()  # (B, 2); 1 - sigmoid(z) would cancel

    def mode(self, out: Tensor) -> Tensor:
        return (out[:, 0] > 0).long()

    def mean(self, out: Tensor) -> Tensor:
        return at_least_float32(out)[:, 0].sigmoid()

    def sample(self, out: Tensor, generator: Generator | None = None) -> Tensor:
        return torch.bernoulli(self.mean(out), generator=generator).long()

    def compute_metrics(self, out: Tensor, y: Tensor) -> dict[str, float]:
        p = self.probabilities(out.double())
        confusion = metrics.confusion_matrix(self.mode(out), y, 2)
        return to_floats({
            "accuracy": metrics.accuracy(p, y),
            "precision": metrics.precision(confusion)[1],
            "recall": metrics.recall(confusion)[1],
            "f1": metrics.f1(confusion)[1],
            **_macro_means(confusion),
            "auroc": metrics.auroc(out[:, 0], y),  # of the logit, which still orders saturated probabilities
            "calibration_error": metrics.calibration_error(p, y),
        })


class MultiLabelBernoulli(Likelihood):
    """p_k = sigmoid(z_k), L = −1/K Σ_k [y_k log p_k + (1 − y_k) log(1 − p_k)]; y is (B, K) in [0, 1].

    The mean over labels, so that the learning rate need not depend on their number.
    """

    task, monitor, monitor_mode = "multilabel", "f1_macro", "max"

    def __init__(self, num_labels: int):
        super().__init__()
        if num_labels < 1:
            raise UsageError(f"multilabel targets need at least 1 label, got {num_labels}")
        self.num_outputs = num_labels

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        z = at_least_float32(out)
        return F.binary_cross_entropy_with_logits(z, y.to(z.dtype), reduction="none").mean(dim=-1)

    def probabilities(self, out: Tensor) -> Tensor:
        return at_least_float32(out).sigmoid()

    def mode(self, out: Tensor) -> Tensor:
        return (out > 0).long()

    def mean(self, out: Tensor) -> Tensor:
        return self.probabilities(out)

    def sample(self, out: Tensor, generator: Generator | None = None) -> Tensor:
        return torch.bernoulli(self.probabilities(out), generator=generator).long()

    def compute_metrics(self, out: Tensor, y: Tensor) -> dict[str, float]:
        predicted = self.mode(out)
        return to_floats({
            "accuracy": metrics.multilabel_accuracy(predicted, y),
            "f1_macro": metrics.multilabel_f1(predicted, y),
            "auroc": metrics.auroc(out, y),
        })


def make_likelihood(
    task: str,
    *,
    num_classes: int = 0,
    loss: str = "auto",
    label_smoothing: float = 0.0,
    weights: Tensor | None = None,
    mean: float = 0.0,
    std: float = 1.0,
) -> Likelihood:
    """The likelihood of a task. `num_classes` counts classes or labels; `mean` and `std` are the targets'."""
    allowed_losses = look_up("task", task, {
        "regression": list(REGRESSION_LOSSES),
        "binary": ["cross_entropy"],
        "multiclass": ["cross_entropy"],
        "multilabel": ["cross_entropy"],
    })
    if loss == "auto":
        loss = allowed_losses[0]
    look_up("loss", loss, {**REGRESSION_LOSSES, "cross_entropy": None})
    if loss not in allowed_losses:
        allowed_names = " or ".join(allowed_losses)
        raise UsageError(f"the loss of {task} targets is {allowed_names}, got {loss!r}; 'auto' chooses by the task")
    if task in ("regression", "multilabel") and (label_smoothing or weights is not None):
        requirement = "label smoothing needs" if label_smoothing else "class weights need"
        raise UsageError(f"{requirement} binary or multiclass targets, but these are {task}; leave it out")
    if task == "regression":
        return REGRESSION_LOSSES[loss](mean=mean, std=std)
    if task == "multilabel":
        return MultiLabelBernoulli(num_classes)
    if task == "binary":
        return Bernoulli(label_smoothing=label_smoothing, weights=weights)
    return Categorical(num_classes, label_smoothing=label_smoothing, weights=weights)


def _macro_means(counts: Tensor) -> dict[str, Tensor]:
    """Macro averages of precision, recall and F1: each class counts the same, however rare it is."""
    each = {"precision": metrics.precision, "recall": metrics.recall, "f1": metrics.f1}
    return {f"{name}_macro": metrics.macro_average(of(counts), counts) for name, of in each.items()}


def _positive_target(out: Tensor, y: Tensor) -> Tensor:
    """The target probability of class 1: (B,) classes or (B, 2) probabilities -> (B,)."""
    return (y if y.ndim == 1 else y[:, 1]).to(at_least_float32(out).dtype)


def _check_class_weights(weights: Tensor | None, num_classes: int) -> Tensor | None:
    """Refuse weights that are negative or not one per class."""
    if weights is not None and (weights.shape != (num_classes,) or not (weights >= 0).all()):
        raise UsageError(f"class weights must be {num_classes} non-negative numbers, got {weights.tolist()}")
    return weights
