"""Training: from a recipe to a finished run.

    prepare, run_training, resume, restore     recipe and options -> experiment -> run, and back
    experiment, plan                           what is trained, and its budget in rounds
    loop, step, evaluation                     the loop, one step (CUDA graphs, accumulation), evaluation
    early_stopping, gradient_clipping, ema     what surrounds a step
    checkpoint, divergence, interrupts         saving, NaN and Ctrl-C
    device, precision, compilation, seeding    where and in which numbers it runs
    fit                                        any nn.Module in the same loop
    distributed/, sweeps/, recording/          several processes; grids of arguments; what a run keeps for its report
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from didact.training.experiment import Experiment as Experiment
    from didact.training.experiment import Settings as Settings
    from didact.training.loop import Trainer as Trainer

_EXPORTS = {"Experiment": "experiment", "Settings": "experiment", "Trainer": "loop"}

__all__ = ["Experiment", "Settings", "Trainer"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"didact.training.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module 'didact.training' has no attribute {name!r}")
