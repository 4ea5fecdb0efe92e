"""Model summary: every layer with its output shape and number of parameters."""

from typing import Any

import torch
from torch import nn

from didact.analysis.receptive_field import ReceptiveFieldTracer
from didact.data.core import Batch
from didact.objectives.base import Objective

Row = dict[str, Any]


@torch.no_grad()
def summarize_layers(objective: Objective, batch: Batch) -> dict[str, Any]:
    """Every layer in the order of its first call: output shape, parameters, trainable parameters; then the totals.

    `tied` counts parameters that a second layer uses too; the totals count them once. For images, each row has the
    receptive field (pixels that one output sees) and the jump (pixels between neighboring outputs).
    """
    tracker, entries = ReceptiveFieldTracer(batch["x"]), objective.layer_entries()
    rows: dict[str, Row] = {}
    counted_ids: set[int] = set()

    def add(name: str, shape: list[int] | None) -> Row:
        kind, parameters = entries[name]
        new_parameters = [p for p in parameters if id(p) not in counted_ids]
        counted_ids.update(id(p) for p in parameters)
        counts = {
            "parameters": sum(p.numel() for p in new_parameters),
            "trainable": sum(p.numel() for p in new_parameters if p.requires_grad),
        }
        return {"name": name, "layer": kind, "shape": shape, **counts}

    def record(name: str, output: Any) -> None:
        if name in entries and name not in rows:  # a sampler calls the network many times
            field, jump = tracker.field_of(output)
            rows[name] = add(name, _output_shape(output)) | (
                {"field": list(field), "jump": list(jump)} if field and jump else {}
            )

    mode = objective.training
    objective.eval()
    try:
        with objective.record_outputs(record), tracker:
            objective.evaluate_batch(batch)
    finally:
        objective.train(mode)
    order, previous = list(rows), ""
    # layers that are used without a call follow the part that was built before them
    for name in entries:
        if name not in rows and (row := add(name, None))["parameters"]:
            rows[name] = row
            order.insert(order.index(previous) + 1 if previous else 0, name)
        previous = name if name in rows else previous
    return {"rows": [rows[name] for name in order], **count_parameters(objective)}


def _output_shape(output: Any) -> list[int] | None:
    """Shape of one example's output; of several outputs, as a recurrent layer has, the first."""
    while isinstance(output, tuple) and output:
        output = output[0]
    return list(output.shape[1:]) if hasattr(output, "shape") else None


def count_parameters(module: nn.Module) -> dict[str, int]:
    """Parameters: all, trainable, and shared by more than one layer; each counted once."""
    unique = list(module.parameters())
    with_repeats = [p for m in module.modules() for p in m.parameters(recurse=False)]
    return {
        "total": sum(p.numel() for p in unique),
        "trainable": sum(p.numel() for p in unique if p.requires_grad),
        "tied": sum(p.numel() for p in with_repeats) - sum(p.numel() for p in unique),
    }
