"""Evaluation of a run's best model on its validation and test splits (`didact evaluate`)."""

import time
from typing import Any

from didact.data.core import Batch, Data
from didact.data.storage import to_device
from didact.objectives.base import Objective
from didact.progress import ProgressCallback, ignore_progress
from didact.run import Run
from didact.training.device import resolve_device
from didact.training.evaluation import evaluate_split
from didact.training.precision import Precision
from didact.training.restore import load_model, rebuild


def evaluate(
    run: Run, *, device: str = "auto", on_progress: ProgressCallback = ignore_progress
) -> dict[str, Any]:
    """Metrics of a run's best model on its validation and test splits, computed anew."""
    started = time.perf_counter()
    objective, _, outputs = evaluate_splits(run, device, on_progress)
    scores = {split: objective.compute_metrics(columns) for split, columns in outputs.items()}
    result = {"recipe": run.metadata["recipe"], "arguments": run.metadata["arguments"], "run": str(run.folder)}
    return result | {"seconds": time.perf_counter() - started} | scores


def evaluate_splits(
    run: Run, device: str = "auto", on_progress: ProgressCallback = ignore_progress
) -> tuple[Objective, Data, dict[str, Batch]]:
    """A run's best model, its data, and the model's outputs for the validation and test splits.

    Both splits together are the progress.
    """
    objective = load_model(run)[0]
    torch_device = resolve_device(device, supported=objective.devices)
    objective = objective.to(torch_device)
    prepared = rebuild(run, with_data=True)
    data = to_device(prepared.experiment.data, torch_device)
    precision = Precision(prepared.settings.precision, torch_device, objective)
    sizes = {split: len(data.split(split)) for split in ("validation", "test")}
    outputs: dict[str, Batch] = {}
    for split in sizes:
        num_before = sum(sizes[earlier] for earlier in outputs)

        def report_both(done: int, _: int, num_before: int = num_before) -> None:
            on_progress(num_before + done, sum(sizes.values()))

        outputs[split] = evaluate_split(
            objective,
            data.split(split),
            batch_size=prepared.experiment.batch_size,
            precision=precision,
            on_progress=report_both,
        )
    return objective, data, outputs
