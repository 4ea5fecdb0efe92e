"""The layer table: what flows through the network and exactly how many numbers it learns."""

from typing import Any

import torch
from torch import nn

from didact.data.core import Batch
from didact.layers.geometry import Follow
from didact.objectives.core import Objective

Row = dict[str, Any]


@torch.no_grad()
def layer_table(objective: Objective, batch: Batch) -> dict[str, Any]:
    """Every layer in the order in which it first ran, with what it gives, its parameters and how many of them learn; then the totals.

    `tied` counts parameters that a second layer uses too; they are counted once in the totals. Of images each row says the receptive
    field and the jump of its maps: pixels that one output sees, and pixels between neighbours.
    """
    follow, parts = Follow(batch["x"]), objective.layer_parts()
    rows: dict[str, Row] = {}
    seen: set[int] = set()

    def add(name: str, shape: list[int] | None) -> Row:
        kind, own = parts[name]
        fresh = [p for p in own if id(p) not in seen]
        seen.update(id(p) for p in own)
        numbers = {"parameters": sum(p.numel() for p in fresh), "trainable": sum(p.numel() for p in fresh if p.requires_grad)}
        return {"name": name, "layer": kind, "shape": shape, **numbers}

    def heard(name: str, output: Any) -> None:
        if name in parts and name not in rows:  # a sampler passes through the network again and again
            field, jump = follow.sees(output)
            rows[name] = add(name, size(output)) | ({"field": list(field), "jump": list(jump)} if field and jump else {})

    mode = objective.training
    objective.eval()
    try:
        with objective.overheard(heard), follow:
            objective.judge(batch)
    finally:
        objective.train(mode)
    order, before = list(rows), ""
    for name in parts:  # weights that judging reads without calling their layer stand behind the part that was built before them
        if name not in rows and (row := add(name, None))["parameters"]:
            rows[name] = row
            order.insert(order.index(before) + 1 if before else 0, name)
        before = name if name in rows else before
    return {"rows": [rows[name] for name in order], **counts(objective)}


def size(output: Any) -> list[int] | None:
    """Of one example; of several outputs, as a recurrent layer has, the first."""
    while isinstance(output, tuple) and output:
        output = output[0]
    return list(output.shape[1:]) if hasattr(output, "shape") else None


def counts(module: nn.Module) -> dict[str, int]:
    """Parameters: all of them once, those that learn, and those that more than one layer uses."""
    once = list(module.parameters())
    every = [p for m in module.modules() for p in m.parameters(recurse=False)]
    return {
        "total": sum(p.numel() for p in once),
        "trainable": sum(p.numel() for p in once if p.requires_grad),
        "tied": sum(p.numel() for p in every) - sum(p.numel() for p in once),
    }
