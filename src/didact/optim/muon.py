"""Muon: orthogonalized momentum for matrices, AdamW for all other parameters."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer
from torch.optim.optimizer import ParamsT

from didact.optim.base import GroupwiseOptimizer
from didact.optim.multi import MultiOptimizer

# the steepest polynomial at 0 that keeps singular values near 1: after 5 steps they are in about [0.7, 1.2]
_NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 5


def newton_schulz(m: Tensor) -> Tensor:
    """UVᵀ of m = UΣVᵀ, approximately, by Newton–Schulz:  x <- a x + b (xxᵀ) x + c (xxᵀ)² x, from x = m / ‖m‖.

    In bfloat16 where the hardware multiplies it, else in the matrix's own data type: a CPU without bfloat16 takes 50
    times longer.  Jordan et al. 2024.
    """
    a, b, c = _NEWTON_SCHULZ_COEFFICIENTS
    x = m.bfloat16() if m.device.type == "cuda" else m
    x = x.mT if m.shape[0] > m.shape[1] else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(_NEWTON_SCHULZ_STEPS):
        s = x @ x.mT
        x = torch.addmm(x, torch.addmm(s, s, s, beta=b, alpha=c), x, beta=a)
    return (x.mT if m.shape[0] > m.shape[1] else x).to(m.dtype)


class Muon(GroupwiseOptimizer):
    """m <- μ m + (1 − μ) g,  w <- w − η (s UVᵀ + λ w),  UΣVᵀ = μ m + (1 − μ) g, Nesterov's look-ahead.  Jordan et al.
    2024.

    s = 0.2 √max(rows, columns) makes the step as large as AdamW's (Liu et al. 2025), so that one η suits both. Equal to
    PyTorch's own but for the precision on a CPU, and a step that a CUDA graph can capture.
    """

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-3, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def update_group(self, group: dict[str, Any]) -> None:
        μ = group["momentum"]
        for w, g, m in zip(*self.collect_step_tensors(group, "m"), strict=True):
            m.lerp_(g, 1 - μ)
            s = 0.2 * max(w.shape) ** 0.5
            w.sub_(group["lr"] * (s * newton_schulz(g.lerp(m, μ)) + group["weight_decay"] * w))


def muon_with_adamw(
    params: Iterable[Tensor] | Iterable[dict[str, Any]],
    lr: float = 1e-3,
    momentum: float = 0.95,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
) -> Optimizer:
    """Muon for all 2-d weights, including embeddings and the last layer; AdamW for the rest, including convolution
    kernels.
    """
    parameters: list[Any] = list(params)
    groups = parameters if parameters and isinstance(parameters[0], dict) else [{"params": parameters}]
    matrices = [{**group, "params": [p for p in group["params"] if p.ndim == 2]} for group in groups]
    others = [{**group, "params": [p for p in group["params"] if p.ndim != 2]} for group in groups]
    parts: list[Optimizer] = []
    if any(group["params"] for group in matrices):
        parts.append(Muon(matrices, lr, momentum, weight_decay))
    if any(group["params"] for group in others):
        on_gpu = all(p.is_cuda for group in others for p in group["params"])
        parts.append(AdamW(others, lr, betas, weight_decay=weight_decay, capturable=on_gpu))
    return MultiOptimizer(*parts)
