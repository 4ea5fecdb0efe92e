"""`didact evaluate RUN --int8`: what weights in eight bits save, and what they cost."""

import time
from dataclasses import asdict
from typing import Any

from didact.data.core import Data
from didact.data.stream import placed
from didact.errors import UsageError
from didact.layers.int8 import quantize
from didact.objectives.core import Objective
from didact.run import Run
from didact.train.evaluation import judge
from didact.train.machine import pick_device
from didact.train.precision import Precision
from didact.train.session import rebuild, restored

PARTS = ("validation", "test")


def eight_bits(run: Run, *, device: str = "auto") -> dict[str, Any]:
    """Metrics of a run's best model as it is and in int8, bytes of both, and ‖W − s q‖ / ‖W‖.  Lhotte 9.2."""
    started, (objective, _) = time.perf_counter(), restored(run)
    place = pick_device(device, known=objective.devices)
    prepared = rebuild(run, with_data=True)
    data, batch = placed(prepared.experiment.data, place), prepared.experiment.batch

    def scored(objective: Objective, data: Data) -> dict[str, dict[str, float]]:
        precision = Precision(prepared.settings.precision, place, objective)
        return {part: objective.score(judge(objective, data.split(part), batch=batch, precision=precision)) for part in PARTS}

    whole = scored(objective.to(place), data)
    saved = quantize(objective)
    if not saved.layers:
        raise UsageError(f"{run.folder} has no affine layer or embedding to put into int8: recipe {run.facts['recipe']!r} builds none")
    found = {"recipe": run.facts["recipe"], "run": str(run.folder), **whole}
    found["int8"] = {**asdict(saved), **scored(objective, data)}
    return found | {"seconds": time.perf_counter() - started}
