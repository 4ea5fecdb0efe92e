"""The layer table: what flows through the network and exactly how many numbers it learns."""

from typing import Any

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.layers.geometry import Follow
from didact.objectives.core import Objective


@torch.no_grad()
def layer_table(objective: Objective, batch: Batch) -> dict[str, Any]:
    """Every layer with parameters or a change of shape, in the order in which it first ran; then the totals.

    `tied` counts parameters that a second layer uses too; they are counted once in the totals. Of images each row says the receptive
    field and the jump of its maps: pixels that one output sees, and pixels between neighbours.
    """
    follow = Follow(batch["x"])
    rows: list[dict[str, Any]] = []
    seen: set[int] = set()
    listed: set[str] = set()

    def hook(name: str) -> Any:
        def note(module: nn.Module, inputs: object, output: object) -> None:
            if name in listed:  # a sampler passes through the network again and again
                return
            listed.add(name)
            own = list(module.parameters(recurse=False))
            fresh = [p for p in own if id(p) not in seen]
            seen.update(id(p) for p in own)
            shape = list(output.shape[1:]) if isinstance(output, Tensor) else None
            field, jump = follow.sees(output)
            rows.append(
                {"name": name, "layer": type(module).__name__, "shape": shape, "parameters": sum(p.numel() for p in fresh)}
                | ({"field": list(field), "jump": list(jump)} if field and jump else {})
            )
        return note

    leaves = [(name, m) for name, m in objective.named_modules() if not any(m.children()) and m is not objective]
    hooks = [m.register_forward_hook(hook(name)) for name, m in leaves]
    mode = objective.training
    objective.eval()
    try:
        with follow:
            objective.judge(batch)
    finally:
        objective.train(mode)
        for h in hooks:
            h.remove()
    for name, module in objective.named_modules():  # weights of a block itself, or of a layer that judging does not pass through
        own = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        seen.update(id(p) for p in own)
        if own:
            rows.append({"name": name, "layer": type(module).__name__, "shape": None, "parameters": sum(p.numel() for p in own)})
    return {"rows": rows, **counts(objective)}


def counts(module: nn.Module) -> dict[str, int]:
    """Parameters: all of them once, those that learn, and those that more than one layer uses."""
    once = list(module.parameters())
    every = [p for m in module.modules() for p in m.parameters(recurse=False)]
    return {
        "total": sum(p.numel() for p in once),
        "trainable": sum(p.numel() for p in once if p.requires_grad),
        "tied": sum(p.numel() for p in every) - sum(p.numel() for p in once),
    }
