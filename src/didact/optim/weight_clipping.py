"""Weight clipping: after each step, weights are clamped to [−c, c]."""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


def with_weight_clipping(params: Any, base: Callable[[Any], Optimizer], bound: float) -> Optimizer:
    """After each step, w <- clamp(w, −c, c): the first way to a Lipschitz critic.  Arjovsky et al. 2017, algorithm 1;
    Gaba 8.4.
    """
    optimizer = base(params)

    @torch.no_grad()
    def clip(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            for w in group["params"]:
                w.clamp_(-bound, bound)

    optimizer.register_step_post_hook(clip)
    return optimizer
