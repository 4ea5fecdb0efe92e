"""Metrics for each group of a column's values, and group fairness (`didact evaluate RUN --by COLUMN`)."""

import time
from typing import Any

from torch import Tensor

from didact.data.core import Batch
from didact.data.groups import get_column, make_groups
from didact.inference.evaluate import evaluate_splits
from didact.metrics.fairness import fairness_gaps, group_rates
from didact.objectives.base import Objective
from didact.report.predictions import read_predictions
from didact.run import Run

_RATE_NAMES = ("positive_rate", "true_positive_rate", "false_positive_rate")


def evaluate_by_group(run: Run, column: str, *, device: str = "auto") -> dict[str, Any]:
    """Metrics on validation and test, of all examples and of each group; for two classes also fairness gaps."""
    started = time.perf_counter()
    objective, data, rows_by_split = evaluate_splits(run, device)
    report: dict[str, Any] = {
        "recipe": run.metadata["recipe"],
        "run": str(run.folder),
        "by": column,
        "labels": list(data.class_names),
    }
    grouping = make_groups(data, column, "--by")
    names = grouping.names
    for split, rows in rows_by_split.items():
        group, predictions = (
            grouping.assign_rows(get_column(data.split(split))).to(rows["loss"].device),
            read_predictions(run.metadata, rows),
        )
        metrics_by_group = [_group_metrics(objective, rows, group == k) for k in range(len(names))]
        if predictions is not None and predictions.task == "binary" and predictions.probabilities is not None:
            rates_by_group = group_rates(predictions.probabilities.argmax(1), predictions.y, group, len(names))
            metrics_by_group = [
                group_metrics | dict(zip(_RATE_NAMES, group_rate_values, strict=True))
                for group_metrics, group_rate_values in zip(metrics_by_group, rates_by_group.tolist(), strict=True)
            ]
            report[f"{split}_gaps"] = fairness_gaps(rates_by_group)
        report[split] = objective.compute_metrics(rows)
        report[f"{split}_by_group"] = {
            name: group_metrics
            for name, group_metrics in zip(names, metrics_by_group, strict=True)
            if group_metrics["rows"]
        }
    return report | {"seconds": time.perf_counter() - started}


def _group_metrics(objective: Objective, rows: Batch, in_group: Tensor) -> dict[str, Any]:
    """The size of a group, and its metrics if it has any examples."""
    scores = (
        objective.compute_metrics({name: value[in_group] for name, value in rows.items()})
        if bool(in_group.any())
        else {}
    )
    return {"rows": int(in_group.sum()), **scores}
