"""Label smoothing: a share of each target's probability is spread evenly over all classes."""

from torch import Tensor

from didact.errors import UsageError


def smooth_labels(y: Tensor, label_smoothing: float, num_classes: int) -> Tensor:
    """(1 − a) y_k + a/K for target probabilities y.  Szegedy et al. 2016; Gaba eq. 3.34.

    Cross-entropy of softmax outputs computes the same inside PyTorch's kernel (`label_smoothing=a`), without a tensor
    of (B, K) targets: `Categorical` and `next_token_loss` use that.
    """
    return (1 - label_smoothing) * y + label_smoothing / num_classes


def check_label_smoothing(label_smoothing: float) -> float:
    """Refuse a value that leaves the true class no weight."""
    if not 0 <= label_smoothing < 1:
        raise UsageError(f"label smoothing must be from 0 to less than 1, got {label_smoothing:g}")
    return label_smoothing
