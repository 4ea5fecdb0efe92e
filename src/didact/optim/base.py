"""What LAMB, LARS, Lion and Muon share: the loop over groups, the tensors of one step, and the trust ratio."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class GroupwiseOptimizer(Optimizer):
    """An optimizer that updates all weights of a group at once, without waiting for the host."""

    capturable = True   # by a CUDA graph

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            if any(p.grad is not None for p in group["params"]):
                self.update_group(group)
        return loss

    def update_group(self, group: dict[str, Any]) -> None:
        """One step of the weights of this group that have a gradient."""
        raise NotImplementedError

    def collect_step_tensors(self, group: dict[str, Any], *names: str) -> list[list[Tensor]]:
        """Weights of the group that have a gradient, their gradients, then their state by name, zero at first.

        A `step` is one number on the weight's device: a count on the host would be frozen into a CUDA graph.
        """
        w: list[Tensor] = [p for p in group["params"] if p.grad is not None]
        for p in w:
            state = self.state[p]
            for name in names:
                if name not in state:
                    state[name] = torch.zeros((), device=p.device) if name == "step" else torch.zeros_like(p)
        return [w, [p.grad for p in w if p.grad is not None], *([self.state[p][name] for p in w] for name in names)]


def trust_ratio(w: Tensor, numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator for weights; 1 for biases and norms (fewer than 2 axes), and where a norm is 0.

    The papers leave both open. A weight that starts at 0 would have ratio 0 and never move; biases and norms keep the
    plain rate in large-batch practice, since their size says little about how far they may go.
    """
    one = torch.ones_like(numerator)
    return one if w.ndim < 2 else torch.where((numerator > 0) & (denominator > 0), numerator / denominator, one)
