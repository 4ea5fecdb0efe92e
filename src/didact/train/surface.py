"""What the model says everywhere, where "everywhere" is a line or a plane: the fitted curve, the decision regions."""

import torch
from torch import Tensor, nn

from didact.data.core import Batch, Data
from didact.objectives.abilities import Classifies, Regresses
from didact.objectives.core import Objective
from didact.objectives.uncertainty import ask, mc_dropout

POINTS = {1: 400, 2: 96}  # grid points along each axis
MARGIN = 0.15             # of the range, beyond the data on every side
PASSES = {1: 300, 2: 50}   # with dropout on, where the network has any; fewer leave a curve jagged
KEPT = 1000               # training examples to draw beside it


@torch.no_grad()
def surface(objective: Objective, data: Data) -> Batch:
    """A grid over one or two features with the model's answers, and training examples beside it.

    "x" (G, features) and "mean" (G,) or (G, K) with "std" of what network and noise leave open, where they say so.
    """
    objective.eval()
    rows = torch.arange(len(data.train))
    some = rows[torch.linspace(0, len(rows) - 1, min(KEPT, len(rows))).long()]
    seen = data.train.decode(next(iter(data.train.batches([some]))))
    x = grid(seen["x"])
    if not isinstance(objective, Classifies | Regresses):
        return {}
    random = any(isinstance(m, nn.Dropout) and m.p > 0 for m in objective.modules())
    answer = mc_dropout(objective, {"x": x}, passes=PASSES[x.shape[1]]) if random else ask(objective, {"x": x})
    found = {"x": x, "mean": answer.mean, "seen_x": seen["x"], "seen_y": seen["y"]}
    if answer.std is not None and isinstance(objective, Regresses):
        found["std"] = answer.std
    return {name: column.cpu() for name, column in found.items()}


def grid(x: Tensor) -> Tensor:
    """Evenly spaced points over the range of the data and a little beyond."""
    low, high = x.min(0).values, x.max(0).values
    low, high = low - MARGIN * (high - low), high + MARGIN * (high - low)
    n = POINTS[x.shape[1]]
    axes = [torch.linspace(float(a), float(b), n) for a, b in zip(low, high, strict=True)]
    return torch.cartesian_prod(*axes).reshape(-1, x.shape[1]).to(x.device)
