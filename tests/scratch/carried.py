"""The same weights in both engines by `state_dict`, then outputs and every gradient side by side."""

from typing import Any

import numpy as np
import torch
from both_engines import TOLERANCE, close
from torch import nn

from didact.scratch.module import Module
from didact.scratch.tensor import Tensor


def flat(y: Any) -> list[Any]:
    """(out, (h, c)) -> [out, h, c]; what is no tensor (attention weights not asked for) is left out."""
    return [z for part in y for z in flat(part)] if isinstance(y, tuple) else [] if y is None else [y]


def carried(ours: Module, theirs: nn.Module, *inputs: np.ndarray, tolerance: float = TOLERANCE) -> None:
    """`theirs` is made float64 and gives its weights away; integer inputs get no gradient."""
    theirs = theirs.double()
    ours.load_state_dict(theirs.state_dict())
    mine = [Tensor(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    other = [torch.from_numpy(x.copy()).requires_grad_(x.dtype.kind == "f") for x in inputs]
    total, expected = 0.0, torch.zeros((), dtype=torch.float64)
    rng = np.random.default_rng(0)
    for y, t in zip(flat(ours(*mine)), flat(theirs(*other)), strict=True):
        close("value", y.data, t, tolerance)
        dy = rng.normal(size=y.shape)
        total, expected = total + (y * dy).sum(), expected + (t * torch.from_numpy(dy)).sum()
    total.backward()  # type: ignore[attr-defined]
    expected.backward()
    for i, (x, t) in enumerate(zip(mine, other, strict=True)):
        if t.grad is not None:
            close(f"gradient of input {i}", x.grad, t.grad, tolerance)
    names = dict(ours.named_parameters())
    assert list(names) == [name for name, _ in theirs.named_parameters()]
    for name, p in theirs.named_parameters():
        if p.grad is not None:
            close(f"gradient of {name}", names[name].grad, p.grad, tolerance)
    for name, value in theirs.state_dict().items():
        close(f"state {name}", ours.state_dict()[name], value, tolerance)
