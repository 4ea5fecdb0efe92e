"""Exponential moving average (EMA) of the weights: steadier than the weights themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class EMA:
    """w̄ <- d w̄ + (1 - d) w, with d = min(decay, (1 + t)/(10 + t)) so that the start is soon forgotten."""

    def __init__(self, module: nn.Module, decay: float):
        self.decay = decay
        self.tensors = [p for p in module.state_dict(keep_vars=True).values() if p.is_floating_point()]
        self.averages = [p.detach().clone() for p in self.tensors]
        self.steps = 0

    @torch.no_grad()
    def update(self) -> None:
        self.steps += 1
        d = min(self.decay, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(self.averages, [p.detach() for p in self.tensors], 1 - d)

    @contextmanager
    def use_averaged_weights(self) -> Iterator[None]:
        """Inside, the network has the averaged weights; afterwards its own again."""
        originals = [p.detach().clone() for p in self.tensors]
        self._write(self.averages)
        try:
            yield
        finally:
            self._write(originals)

    @torch.no_grad()
    def _write(self, values: list[Tensor]) -> None:
        torch._foreach_copy_([p.detach() for p in self.tensors], values)

    def state_dict(self) -> dict[str, object]:
        return {"steps": self.steps, "mean": list(self.averages)}

    def load_state_dict(self, state: dict[str, list[Tensor]]) -> None:
        self.steps = int(state["steps"])  # type: ignore[call-overload]
        torch._foreach_copy_(self.averages, [average.to(self.averages[0].device) for average in state["mean"]])
