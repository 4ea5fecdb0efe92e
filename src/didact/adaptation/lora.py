"""LoRA, low-rank adaptation: pretrained matrices are frozen, a low-rank update of each is trained.  Hu et al. 2022;
Lhotte 9.3.
"""

import re
from collections.abc import Callable, Iterator
from math import sqrt
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.parametrize import is_parametrized, register_parametrization, remove_parametrizations

from didact.errors import UsageError
from didact.layers.moe import Router

_PACKED_QKV = "in_proj_weight"       # nn.MultiheadAttention's name


class LoRA(nn.Module):
    """y = W0 x + b + (α / r) B A drop(x), A (r, inputs) random, B (outputs, r) zero: training starts at the pretrained
    network.

    Wraps nn.Linear, or any affine layer whose weight is (inputs, outputs) and which says so by `inputs_first`.
    """

    def __init__(self, layer: nn.Module, *, rank: int, alpha: float | None = None, dropout: float = 0.0):
        super().__init__()
        outputs, inputs = weight_out_in(layer).shape
        _check_rank(rank, outputs, inputs)
        self.layer, self.dropout = layer.requires_grad_(False), nn.Dropout(dropout)
        self.scale, w = (rank if alpha is None else alpha) / rank, weight_out_in(layer)
        self.a, self.b = nn.Parameter(w.new_empty(rank, inputs)), nn.Parameter(w.new_zeros(outputs, rank))
        nn.init.kaiming_uniform_(self.a, a=sqrt(5))          # nn.Linear's initialization

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + self.scale * linear(linear(self.dropout(x), self.a), self.b)
        return y

    @torch.no_grad()
    def merge_weights(self) -> nn.Module:
        """The layer with the weight W0 + (α / r) B A: no slower than before."""
        weight_out_in(self.layer).add_(self.scale * self.b @ self.a)
        return self.layer.requires_grad_(True)


class LoRAWeight(nn.Module):
    """Parametrization W0 + (α / r) B A of a weight that is no layer of its own (`packed_weights`); a stack has an A and
    B each.
    """

    def __init__(self, w: Tensor, *, rank: int, alpha: float | None = None):
        super().__init__()
        *stack, outputs, inputs = as_out_in(w).shape
        _check_rank(rank, outputs, inputs)
        self.scale = (rank if alpha is None else alpha) / rank
        self.a, self.b = (
            nn.Parameter(w.new_empty(*stack, rank, inputs)),
            nn.Parameter(w.new_zeros(*stack, outputs, rank)),
        )
        nn.init.uniform_(self.a, -(inputs**-0.5), inputs**-0.5)   # nn.Linear's initialization, for each of a stack

    def forward(self, w: Tensor) -> Tensor:
        return w + as_out_in(self.scale * self.b @ self.a)


def _check_rank(rank: int, outputs: int, inputs: int) -> None:
    if not 1 <= rank <= (max_rank := min(outputs, inputs)):
        raise UsageError(
            f"the rank must be from 1 to {max_rank}, the smaller side of a {outputs} x {inputs} matrix, got {rank}"
        )


def weight_out_in(layer: nn.Module) -> Tensor:
    """The weight as (outputs, inputs), a view."""
    w = layer.weight
    assert isinstance(w, Tensor)
    return w.data.mT if getattr(layer, "inputs_first", False) else w.data


def as_out_in(w: Tensor) -> Tensor:
    """A packed weight as (outputs, inputs), a view, and back: stacks of experts, (E, inputs, outputs), have the inputs
    first.
    """
    return w.mT if w.ndim == 3 else w


def is_affine(module: nn.Module) -> bool:
    return (isinstance(module, nn.Linear) and not isinstance(module, Router)) or bool(
        getattr(module, "inputs_first", False)
    )


def packed_weights(module: nn.Module) -> list[tuple[str, nn.Module, str]]:
    """Matrices that are no layer of their own: packed W_Q, W_K, W_V, and `stacked` ones of experts. (Module name,
    module, name).
    """
    return [
        (name, child, weight_name) for name, child in module.named_modules()
        for weight_name in (_PACKED_QKV, *getattr(child, "stacked", ())) if weight_name in child._parameters
    ]


def original_name(name: str) -> str:
    """Name that a tensor of an adapted network had before."""
    return re.sub(r"parametrizations\.(\w+)\.original", r"\1", name.replace(".layer.", "."))


def replace_layers(
    module: nn.Module, predicate: Callable[[str, nn.Module], bool], replacement: Callable[[nn.Module], nn.Module]
) -> int:
    """Replace every layer that fulfills the predicate; returns their number."""
    matches = [(name, child) for name, child in _named_layers(module) if predicate(name, child)]
    for name, child in matches:
        parent, _, child_name = name.rpartition(".")
        setattr(module.get_submodule(parent), child_name, replacement(child))
    return len(matches)


def _named_layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    return ((name, child) for name, child in list(module.named_modules()) if name)


def add_lora(
    module: nn.Module,
    *,
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
    target_modules: tuple[str, ...] = ("",),
) -> int:
    """Freeze the network and add LoRA to its affine layers, or to those whose name contains one of `target_modules`.

    Packed W_Q, W_K, W_V count as one matrix; its inputs get no dropout, nor those of experts. Returns the number of
    trainable parameters.
    """
    module.requires_grad_(False)

    def is_target(name: str) -> bool:
        return any(word in name for word in target_modules)

    n = replace_layers(
        module,
        lambda name, child: is_affine(child) and is_target(name),
        lambda layer: LoRA(layer, rank=rank, alpha=alpha, dropout=dropout),
    )
    for name, child, weight_name in packed_weights(module):
        if is_target(f"{name}.{weight_name}"):
            register_parametrization(
                child, weight_name, LoRAWeight(child.get_parameter(weight_name), rank=rank, alpha=alpha)
            )
            n += 1
    if not n:
        raise UsageError(f"no affine layer has {' or '.join(map(repr, target_modules))} in its name")
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def merge_lora(module: nn.Module) -> int:
    """Add the low-rank updates to the matrices and restore the original layers; returns the number of merged weights.
    """
    adapted = [
        (child, weight_name)
        for child in module.modules()
        if is_parametrized(child)
        for weight_name, chain in cast(nn.ModuleDict, child.parametrizations).items()
        if any(isinstance(parametrization, LoRAWeight) for parametrization in cast(nn.ModuleList, chain))
    ]
    for child, weight_name in adapted:
        remove_parametrizations(child, weight_name)
        child.get_parameter(weight_name).requires_grad_(True)
    return len(adapted) + replace_layers(
        module, lambda _, child: isinstance(child, LoRA), lambda layer: cast(LoRA, layer).merge_weights()
    )
