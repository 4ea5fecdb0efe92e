"""The engine from its equations, in NumPy alone: tensors, their gradients, and four ways to a gradient.

    x = scratch.tensor([1.0, 2.0], requires_grad=True)
    (x ** 2).sum().backward()
    x.grad                                  # array([2., 4.])
"""

from importlib import import_module
from typing import Any

from didact.scratch.engine import grad
from didact.scratch.gradcheck import gradcheck
from didact.scratch.graph import graph_of, svg
from didact.scratch.linear import einsum, matmul
from didact.scratch.ops import erf, expm1, log1p, maximum, minimum, softplus
from didact.scratch.shape import broadcast_to, concatenate, gather, masked_fill, pad, split, stack, where
from didact.scratch.tensor import ScratchError, Tensor, is_recording, keep_values, no_grad, once, record, tensor

__all__ = [
    "ScratchError", "Tensor", "broadcast_to", "concatenate", "einsum", "erf", "expm1", "gather", "grad", "gradcheck", "graph_of",
    "is_recording", "keep_values", "log1p", "masked_fill", "matmul", "maximum", "minimum", "no_grad", "once", "pad", "record", "softplus",
    "split", "stack", "svg", "tensor", "where",
]  # fmt: skip

# rooms that are opened on first use: scratch.modules.Linear, scratch.optim.Adam, scratch.ways.four_ways
ROOMS = ("activation", "attention", "initialise", "losses", "modules", "networks", "optim", "schedule", "sequence", "train", "ways")


def __getattr__(name: str) -> Any:
    if name in ROOMS:
        return import_module(f"didact.scratch.{name}")
    raise AttributeError(f"didact.scratch has no {name!r}")
