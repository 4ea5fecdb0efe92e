"""didact: the deep-learning syllabus as software that runs.

    run = didact.train(didact.recipes.mlp, data="digits", hidden=(64,))
    fitted = didact.fit(my_module, (x, y), loss=torch.nn.functional.mse_loss)

Names are loaded when they are first used, so that `didact --help` need not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from didact import recipes as recipes
    from didact import report as report
    from didact.data.load import load as load
    from didact.run import Run as Run
    from didact.train.experiment import Experiment as Experiment
    from didact.train.fit import fit as fit
    from didact.train.session import evaluate as evaluate
    from didact.train.session import resume as resume
    from didact.train.session import train as train
    from didact.train.use import predict as predict

__version__ = "0.1.0"

_HOMES = {
    "Experiment": "didact.train.experiment",
    "Run": "didact.run",
    "evaluate": "didact.train.session",
    "fit": "didact.train.fit",
    "load": "didact.data.load",
    "predict": "didact.train.use",
    "resume": "didact.train.session",
}
_OF_RUNS = ("evaluate", "predict", "resume")
_ROOMS = ("data", "layers", "metrics", "models", "objectives", "optim", "recipes", "report", "train")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        if name in _OF_RUNS:  # a run names its recipe: the catalogue must be there
            importlib.import_module("didact.recipes")
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"didact.{name}")
    raise AttributeError(f"module 'didact' has no attribute {name!r}")
