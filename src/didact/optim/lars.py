"""LARS: momentum SGD in which the step of every layer is a set fraction of its norm, for very large batches."""

from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from didact.optim.base import GroupwiseOptimizer, trust_ratio


class LARS(GroupwiseOptimizer):
    """q = φ |w| / (|g| + λ |w|),  v <- μ v + η q (g + λ w),  w <- w - v.  You, Gitman, Ginsburg 2017, algorithm 1.

    q is 1 for biases and norms. η stands inside v, so that a change of η applies to new gradients only. v is a sum of
    gradients (limit 1/(1 - μ) times a constant one): Gaba 2.4.1 calls it an average. Gaba 2.9 names LARS after LAMB; it
    came three years before.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 1e-3,
    ):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust})

    def update_group(self, group: dict[str, Any]) -> None:
        w, g, v = self.collect_step_tensors(group, "v")
        φ, λ = group["trust"], group["weight_decay"]
        norms = zip(w, torch._foreach_norm(w), torch._foreach_norm(g), strict=True)
        q = [trust_ratio(p, φ * w_norm, g_norm + λ * w_norm) for p, w_norm, g_norm in norms]
        d = torch._foreach_add(g, w, alpha=λ)
        torch._foreach_mul_(d, [group["lr"] * ratio for ratio in q])
        torch._foreach_mul_(v, group["momentum"])
        torch._foreach_add_(v, d)
        torch._foreach_sub_(w, v)
