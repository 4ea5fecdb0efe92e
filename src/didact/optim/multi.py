"""Several optimizers as one: each has its own parameters, all step together."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
from torch.optim import Optimizer


class MultiOptimizer(Optimizer):
    """Steps its optimizers in order. Parameter groups and state are shared objects: schedules, hooks and state_dict act
    on all.
    """

    def __init__(self, *optimizers: Optimizer):
        self.optimizers = optimizers
        super().__init__([group for part in optimizers for group in part.param_groups], {})
        for part in optimizers:
            self.state.update(part.state)  # Adagrad has some before its first step
        self._share_state()

    def _share_state(self) -> None:
        groups = iter(self.param_groups)
        for part in self.optimizers:
            part.param_groups = list(islice(groups, len(part.param_groups)))
            part.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share_state()  # loading made new groups and a new state

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for part in self.optimizers:
            part.step()
        return loss
