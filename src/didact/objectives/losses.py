"""Regularization losses as pure functions, per example. The losses of targets are in `distributions/`."""

from torch import Tensor


def r_drop(log_p1: Tensor, log_p2: Tensor) -> Tensor:
    """R-Drop, ½ (KL(p1‖p2) + KL(p2‖p1)) = ½ Σ_k (p1 − p2)(log p1 − log p2), (…, K) -> (…); equal passes give 0.

    Between two passes of one batch through different dropout masks.  Liang et al. 2021, eq. 2; Gaba eq. 3.35.
    """
    return 0.5 * ((log_p1.exp() - log_p2.exp()) * (log_p1 - log_p2)).sum(dim=-1)
