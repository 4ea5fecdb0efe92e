"""didact: the deep-learning syllabus as software that runs.

    run = didact.train(didact.recipes.mlp, data="digits", hidden=(64,))
    fitted = didact.fit(my_module, (x, y), loss=torch.nn.functional.mse_loss)

Names are loaded when they are first used, so that `didact --help` need not wait for torch.
"""

import gc
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from didact import recipes as recipes
    from didact import report as report
    from didact.api import resume as resume
    from didact.api import train as train
    from didact.data.load import load as load
    from didact.inference.evaluate import evaluate as evaluate
    from didact.inference.predict import predict as predict
    from didact.run import Run as Run
    from didact.training.experiment import Experiment as Experiment
    from didact.training.fit import fit as fit

__version__ = "0.2.0"

_EXPORTS = {
    "Experiment": "didact.training.experiment",
    "Run": "didact.run",
    "evaluate": "didact.inference.evaluate",
    "fit": "didact.training.fit",
    "load": "didact.data.load",
    "predict": "didact.inference.predict",
    "resume": "didact.api",
    "train": "didact.api",
}
_NEEDS_RECIPES = ("evaluate", "predict", "resume", "train")
_SUBPACKAGES = (
    "adaptation",
    "analysis",
    "charts",
    "data",
    "explain",
    "inference",
    "layers",
    "metrics",
    "models",
    "objectives",
    "optim",
    "recipes",
    "report",
    "samplers",
    "scratch",
    "training",
)


def _import(module: str) -> Any:
    """Import without garbage collection: one that falls due meanwhile walks all objects of torch, for a third of the
    time, and finds nothing."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if is_enabled:
            gc.enable()


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        if name in _NEEDS_RECIPES:  # a run names its recipe: the catalogue must be there
            _import("didact.recipes")
        return getattr(_import(_EXPORTS[name]), name)
    if name in _SUBPACKAGES:
        return _import(f"didact.{name}")
    raise AttributeError(f"module 'didact' has no attribute {name!r}")
