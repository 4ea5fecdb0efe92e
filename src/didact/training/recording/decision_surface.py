"""Decision surface: predictions on a grid over one or two features."""

import torch
from torch import Tensor, nn

from didact.data.core import Batch, Data
from didact.objectives.abilities import CanClassify, CanRegress
from didact.objectives.base import Objective
from didact.objectives.mc_dropout import mc_dropout, predict_batch

GRID_POINTS = {1: 400, 2: 96}  # grid points along each axis
MARGIN_FRACTION = 0.15             # of the range, on every side
MC_DROPOUT_PASSES = {1: 300, 2: 50}   # fewer leave a curve jagged
MAX_TRAIN_POINTS = 1000               # training examples shown


@torch.no_grad()
def decision_surface(objective: Objective, data: Data) -> Batch:
    """Predictions on a grid over one or two features, and training examples beside it.

    "x" (G, features) and "mean" (G,) or (G, K), with "std", the uncertainty of network and noise, where it is known.
    """
    objective.eval()
    indices = torch.arange(len(data.train))
    subset = indices[torch.linspace(0, len(indices) - 1, min(MAX_TRAIN_POINTS, len(indices))).long()]
    train_batch = data.train.decode(next(iter(data.train.batches([subset]))))
    x = _make_grid(train_batch["x"])
    if not isinstance(objective, CanClassify | CanRegress):
        return {}
    has_dropout = any(isinstance(m, nn.Dropout) and m.p > 0 for m in objective.modules())
    prediction = (
        mc_dropout(objective, {"x": x}, passes=MC_DROPOUT_PASSES[x.shape[1]])
        if has_dropout
        else predict_batch(objective, {"x": x})
    )
    columns = {"x": x, "mean": prediction.mean, "seen_x": train_batch["x"], "seen_y": train_batch["y"]}
    if prediction.std is not None and isinstance(objective, CanRegress):
        columns["std"] = prediction.std
    return {name: column.cpu() for name, column in columns.items()}


def _make_grid(x: Tensor) -> Tensor:
    """Evenly spaced points over the range of the data and a margin."""
    low, high = x.min(0).values, x.max(0).values
    low, high = low - MARGIN_FRACTION * (high - low), high + MARGIN_FRACTION * (high - low)
    n = GRID_POINTS[x.shape[1]]
    axes = [torch.linspace(float(a), float(b), n) for a, b in zip(low, high, strict=True)]
    return torch.cartesian_prod(*axes).reshape(-1, x.shape[1]).to(x.device)
