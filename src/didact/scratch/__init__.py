"""An automatic differentiation engine from its equations, in NumPy alone: tensors, layers, optimizers, networks.

    x = scratch.tensor([1.0, 2.0], requires_grad=True)
    (x ** 2).sum().backward()
    x.grad                                  # array([2., 4.])

`autograd` holds tensors and reverse mode, `gradients` the other ways to a gradient. `linear_layer`, `convolution`,
`pooling`, `norm`, `dropout`, `embedding`, `activation`, `attention`, `recurrent` and `losses` are functions with their
derivations; `modules` and `sequence` own their parameters, as torch.nn does; `init`, `optim`, `schedule` and `train`
train them; `networks` are four whole networks. README.md says in which order to read.
"""

from importlib import import_module
from typing import Any

from didact.scratch.autograd.engine import grad
from didact.scratch.autograd.gradcheck import gradcheck
from didact.scratch.autograd.graph import graph_of, svg
from didact.scratch.autograd.matmul import einsum, matmul
from didact.scratch.autograd.ops import erf, expm1, log1p, maximum, minimum, softplus
from didact.scratch.autograd.shape import broadcast_to, concatenate, gather, masked_fill, pad, split, stack, where
from didact.scratch.autograd.tensor import (
    ScratchError,
    Tensor,
    first_order,
    is_recording,
    keep_values,
    no_grad,
    record_op,
    tensor,
)

__all__ = [
    "ScratchError", "Tensor", "broadcast_to", "concatenate", "einsum", "erf", "expm1", "first_order", "gather",
    "grad", "gradcheck", "graph_of", "is_recording", "keep_values", "log1p", "masked_fill", "matmul", "maximum",
    "minimum", "no_grad", "pad", "record_op", "softplus", "split", "stack", "svg", "tensor", "where",
]

# submodules that are imported on first use: scratch.modules.Linear, scratch.optim.Adam
_SUBMODULES = (
    "activation", "attention", "convolution", "dropout", "embedding", "gradients", "init", "linear_layer", "losses",
    "module", "modules", "networks", "norm", "optim", "pooling", "recurrent", "schedule", "sequence", "train",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"didact.scratch.{name}")
    raise AttributeError(f"didact.scratch has no {name!r}")
