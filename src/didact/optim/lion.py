"""Lion: a sign update; every weight moves by the same amount, in the direction on which momentum and gradient agree."""

from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from didact.optim.base import GroupwiseOptimizer


class Lion(GroupwiseOptimizer):
    """u = sign(β1 m + (1 - β1) g),  w <- w - η (u + λ w),  m <- β2 m + (1 - β2) g.  Chen et al. 2023, algorithm 2.

    Gaba 2.9 takes the sign of the gradient; it is that of an interpolation of momentum and gradient. One number of
    state per weight, where Adam has two; η is 3 to 10 times smaller than Adam's, λ larger by the same factor.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def update_group(self, group: dict[str, Any]) -> None:
        w, g, m = self.collect_step_tensors(group, "m")
        β1, β2 = group["betas"]
        u = torch._foreach_lerp(m, g, 1 - β1)
        torch._foreach_sign_(u)
        torch._foreach_add_(u, w, alpha=group["weight_decay"])
        torch._foreach_mul_(u, group["lr"])
        torch._foreach_sub_(w, u)
        torch._foreach_lerp_(m, g, 1 - β2)
