"""Evaluation of a run's model with int8 weights (`didact evaluate RUN --int8`): bytes saved, accuracy lost."""

import time
from dataclasses import asdict
from typing import Any

from didact.adaptation.int8 import quantize_module
from didact.data.core import Data
from didact.data.storage import to_device
from didact.errors import UsageError
from didact.objectives.base import Objective
from didact.run import Run
from didact.training.device import resolve_device
from didact.training.evaluation import evaluate_split
from didact.training.precision import Precision
from didact.training.restore import load_model, rebuild

_SPLITS = ("validation", "test")


def evaluate_int8(run: Run, *, device: str = "auto") -> dict[str, Any]:
    """Metrics of a run's best model at full precision and in int8, the bytes of both, and ‖W − s q‖ / ‖W‖.

    Lhotte 9.2.
    """
    started, (objective, _) = time.perf_counter(), load_model(run)
    torch_device = resolve_device(device, supported=objective.devices)
    prepared = rebuild(run, with_data=True)
    data, batch = to_device(prepared.experiment.data, torch_device), prepared.experiment.batch_size

    def compute_scores(objective: Objective, data: Data) -> dict[str, dict[str, float]]:
        precision = Precision(prepared.settings.precision, torch_device, objective)
        return {
            split_name: objective.compute_metrics(
                evaluate_split(objective, data.split(split_name), batch_size=batch, precision=precision)
            )
            for split_name in _SPLITS
        }

    full_precision = compute_scores(objective.to(torch_device), data)
    savings = quantize_module(objective)
    if not savings.num_layers:
        raise UsageError(
            f"{run.folder} has no linear layer or embedding to quantize: recipe {run.metadata['recipe']!r} builds none"
        )
    result = {"recipe": run.metadata["recipe"], "run": str(run.folder), **full_precision}
    result["int8"] = {**asdict(savings), **compute_scores(objective, data)}
    return result | {"seconds": time.perf_counter() - started}
