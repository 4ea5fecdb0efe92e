"""Elastic net by proximal steps: weights that the data do not need become exactly zero."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT


def soft_threshold(x: Tensor, t: float | Tensor) -> Tensor:
    """sign(x) max(|x| - t, 0): the proximal map of t |x|."""
    return x - x.clamp(-t, t)  # type: ignore[arg-type]  # x - x is exactly 0 where |x| <= t


def with_proximal(optimizer: Optimizer, l1: float = 0.0, l2: float = 0.0) -> Optimizer:
    """After each step, w <- soft(w, η l1) / (1 + η l2): adds l1 |w|_1 + l2/2 |w|² to the loss.  Gaba 3.3, exercise 3.2.

    A gradient step on |w| would jump across zero for ever; the proximal step lands on it. Biases and norms (fewer than
    2 axes) are not penalized. η is the group's learning rate: exact for SGD; an adaptive optimizer, which scales the
    gradient of the loss but not this step, gives each weight another effective penalty.
    """

    @torch.no_grad()
    def shrink(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            η = group["lr"]
            for w in group["params"]:
                if w.ndim >= 2 and w.grad is not None:
                    w.copy_(soft_threshold(w, η * l1) / (1 + η * l2))

    optimizer.register_step_post_hook(shrink)
    return optimizer


def elastic_net(params: ParamsT, base: Callable[[Any], Optimizer], l1: float = 0.0, l2: float = 0.0) -> Optimizer:
    """The same as a factory: partial(elastic_net, base=partial(SGD, lr=0.1), l1=1e-3)."""
    return with_proximal(base(params), l1, l2)
