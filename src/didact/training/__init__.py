"""Training: from a recipe to a finished run.

    prepare, run_training, resume, restore     recipe and options -> experiment -> run, and back
    experiment, plan, time_budget              what is trained, its budget in rounds, and how many fit into a time
    loop, step, evaluation                     the loop, one step (CUDA graphs, accumulation), evaluation
    early_stopping, gradient_clipping, ema     what surrounds a step
    checkpoint, divergence, interrupts         saving, NaN and Ctrl-C
    device, precision, compilation, seeding    where and in which numbers it runs
    fit                                        any nn.Module in the same loop
    distributed/, sweeps/, recording/          several processes; grids of arguments; what a run keeps for its report
"""

from typing import TYPE_CHECKING

from didact.lazy import make_lazy_getattr

if TYPE_CHECKING:
    from didact.training.experiment import Experiment as Experiment
    from didact.training.experiment import Settings as Settings
    from didact.training.loop import Trainer as Trainer

_EXPORTS = {"Experiment": "experiment", "Settings": "experiment", "Trainer": "loop"}

__all__ = ["Experiment", "Settings", "Trainer"]

__getattr__ = make_lazy_getattr(__name__, _EXPORTS)
