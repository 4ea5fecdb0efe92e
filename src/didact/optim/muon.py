"""Muon for whole networks: momentum made orthogonal for matrices, AdamW for everything else."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.optim import AdamW, Muon, Optimizer

from didact.optim.several import Several


def muon(
    params: Iterable[Tensor] | Iterable[dict[str, Any]],
    lr: float = 1e-3,
    momentum: float = 0.95,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
) -> Optimizer:
    """Matrices: m <- μ m + (1 - μ) g,  w <- w - η s UVᵀ with UΣVᵀ = the Nesterov look-ahead of m.  Jordan et al. 2024.

    s = 0.2 √max(rows, columns) makes the step as large as AdamW's (Liu et al. 2025), so that one η serves both.
    Every 2-d weight is a matrix here, embeddings and the last layer too; kernels of convolutions go to AdamW.
    """
    given: list[Any] = list(params)
    groups = given if given and isinstance(given[0], dict) else [{"params": given}]
    matrices = [{**group, "params": [p for p in group["params"] if p.ndim == 2]} for group in groups]
    others = [{**group, "params": [p for p in group["params"] if p.ndim != 2]} for group in groups]
    parts: list[Optimizer] = []
    if any(group["params"] for group in matrices):
        parts.append(Muon(matrices, lr, weight_decay, momentum, adjust_lr_fn="match_rms_adamw"))
    if any(group["params"] for group in others):
        parts.append(AdamW(others, lr, betas, weight_decay=weight_decay))
    return Several(*parts)
