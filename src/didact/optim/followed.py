"""What is to happen once after each step: counting steps, averaging weights. A loss may be asked for several times in between."""

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer


def followed(params: Any, base: Callable[[Any], Optimizer], by: Callable[[], None]) -> Optimizer:
    """The base optimizer, and `by()` behind each of its steps; a CUDA graph that holds the step holds both."""
    optimizer = base(params)
    optimizer.register_step_post_hook(lambda *_: by())
    return optimizer
