"""SAM, sharpness-aware minimization: steps with the gradient at a point a little uphill, which prefers flat minima."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from didact.errors import UsageError
from didact.optim.multi import MultiOptimizer


class SAM(MultiOptimizer):
    """e = ρ g / |g|,  then the base optimizer steps from w with the gradient at w + e.  Foret et al. 2021, algorithm 1.

    |g| is the norm over all parameters together. ρ = 0 is the base optimizer, at twice its cost.  Gaba eq. 11.13-11.14.
    """

    needs_closure = True

    def __init__(self, params: ParamsT, base: Callable[[Any], Optimizer], rho: float = 0.05):
        super().__init__(base(params))
        self.rho = rho

    @property
    def base(self) -> Optimizer:
        return self.optimizers[0]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Called with the gradients at w; the closure zeroes them, computes those at w + e and returns the loss there.
        """
        if closure is None:
            raise UsageError("SAM needs step(closure), got step(): the closure makes the gradient at the moved weights")
        w = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        g: list[Tensor] = [p.grad for p in w]
        norm = torch.stack(torch._foreach_norm(g)).norm()
        weights_before = [p.clone() for p in w]  # w + e - e would not be w to the last bit
        torch._foreach_add_(w, torch._foreach_mul(g, self.rho / (norm + 1e-12)))
        try:
            loss = torch.enable_grad()(closure)()
        finally:
            torch._foreach_copy_(w, weights_before)
        self.base.step()
        return loss
