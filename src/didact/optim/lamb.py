"""LAMB: Adam's direction, scaled so that the step of every layer is a set fraction of its norm."""

from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from didact.optim.base import GroupwiseOptimizer, trust_ratio


class LAMB(GroupwiseOptimizer):
    """r = m̂ / (√v̂ + ε) + λ w,  w <- w - η (|w| / |r|) r,  m̂ and v̂ as Adam's.  You et al. 2020, algorithm 2, φ(z) =
    z.

    The ratio is 1 for biases and norms. ε stands outside the root, as in Adam (Gaba 2.4.2-2.4.4 put it inside, which
    raises the floor of the denominator from 1e-8 to 1e-4).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 1e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ):
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        # in the groups, too: load_state_dict then leaves `step` on the weights' device
        super().__init__(params, {**defaults, "capturable": True})

    def update_group(self, group: dict[str, Any]) -> None:
        w, g, m, v, t = self.collect_step_tensors(group, "m", "v", "step")
        β1, β2 = group["betas"]
        torch._foreach_add_(t, 1)
        torch._foreach_lerp_(m, g, 1 - β1)
        torch._foreach_mul_(v, β2)
        torch._foreach_addcmul_(v, g, g, 1 - β2)

        r = torch._foreach_div(m, [1 - β1**n for n in t])
        root = torch._foreach_div(v, [1 - β2**n for n in t])
        torch._foreach_sqrt_(root)
        torch._foreach_add_(root, group["eps"])
        torch._foreach_div_(r, root)
        torch._foreach_add_(r, w, alpha=group["weight_decay"])

        norms = zip(w, torch._foreach_norm(w), torch._foreach_norm(r), strict=True)
        torch._foreach_mul_(r, [group["lr"] * trust_ratio(*triple) for triple in norms])
        torch._foreach_sub_(w, r)
