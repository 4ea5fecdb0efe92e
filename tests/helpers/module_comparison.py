"""The same weights in both engines by `state_dict`, then outputs and every gradient side by side."""

from typing import Any

import numpy as np
import torch
from torch import nn

from didact.scratch.autograd.tensor import Tensor
from didact.scratch.module import Module
from helpers.op_comparison import TOLERANCE, assert_close


def flatten_outputs(y: Any) -> list[Any]:
    """(out, (h, c)) -> [out, h, c]; what is no tensor (attention weights not asked for) is left out."""
    return [z for part in y for z in flatten_outputs(part)] if isinstance(y, tuple) else [] if y is None else [y]


def assert_module_matches_torch(
    scratch_module: Module, torch_module: nn.Module, *inputs: np.ndarray, tolerance: float = TOLERANCE
) -> None:
    """`torch_module` is made float64 and gives its weights away; integer inputs get no gradient."""
    torch_module = torch_module.double()
    scratch_module.load_state_dict(torch_module.state_dict())
    scratch_inputs = [Tensor(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    torch_inputs = [torch.from_numpy(x.copy()).requires_grad_(x.dtype.kind == "f") for x in inputs]
    total, expected = 0.0, torch.zeros((), dtype=torch.float64)
    rng = np.random.default_rng(0)
    for y, t in zip(
        flatten_outputs(scratch_module(*scratch_inputs)), flatten_outputs(torch_module(*torch_inputs)), strict=True
    ):
        assert_close("value", y.data, t, tolerance)
        dy = rng.normal(size=y.shape)
        total, expected = total + (y * dy).sum(), expected + (t * torch.from_numpy(dy)).sum()
    total.backward()  # type: ignore[attr-defined]
    expected.backward()
    for i, (x, t) in enumerate(zip(scratch_inputs, torch_inputs, strict=True)):
        if t.grad is not None:
            assert_close(f"gradient of input {i}", x.grad, t.grad, tolerance)
    scratch_parameters = dict(scratch_module.named_parameters())
    assert list(scratch_parameters) == [name for name, _ in torch_module.named_parameters()]
    for name, p in torch_module.named_parameters():
        if p.grad is not None:
            assert_close(f"gradient of {name}", scratch_parameters[name].grad, p.grad, tolerance)
    for name, value in torch_module.state_dict().items():
        assert_close(f"state {name}", scratch_module.state_dict()[name], value, tolerance)
