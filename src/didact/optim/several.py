"""Several optimizers as one: each has its own parameters, and all step together."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
from torch.optim import Optimizer


class Several(Optimizer):
    """Steps its parts in order. Groups and state are shared with them: schedules, hooks and state_dict act on all."""

    def __init__(self, *parts: Optimizer):
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        for part in parts:
            self.state.update(part.state)  # Adagrad has some before its first step
        self._share()

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part in self.parts:
            part.param_groups = list(islice(groups, len(part.param_groups)))
            part.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()  # loading made new groups and a new state

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for part in self.parts:
            part.step()
        return loss
