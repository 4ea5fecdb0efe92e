"""Low-rank adaptation: a trained matrix stays as it is, and a thin one learned beside it is added.  Hu et al. 2022; Lhotte 9.3."""

import re
from collections.abc import Callable, Iterator
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.parametrize import is_parametrized, register_parametrization, remove_parametrizations

from didact.errors import UsageError
from didact.layers.moe import Router

PACKED = "in_proj_weight"       # nn.MultiheadAttention's name


class LoRA(nn.Module):
    """y = W0 x + b + (α / r) B A drop(x), A (r, inputs) random, B (outputs, r) zero at first: adapting begins where training ended.

    Around nn.Linear, or any affine layer whose weight has the inputs first and says so (`inputs_first`).
    """

    def __init__(self, layer: nn.Module, *, rank: int, alpha: float | None = None, dropout: float = 0.0):
        super().__init__()
        outputs, inputs = oriented(layer).shape
        check(rank, outputs, inputs)
        self.layer, self.dropout = layer.requires_grad_(False), nn.Dropout(dropout)
        self.scale, w = (rank if alpha is None else alpha) / rank, oriented(layer)
        self.a, self.b = nn.Parameter(w.new_empty(rank, inputs)), nn.Parameter(w.new_zeros(outputs, rank))
        nn.init.kaiming_uniform_(self.a, a=sqrt(5))          # as an nn.Linear begins

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + self.scale * linear(linear(self.dropout(x), self.a), self.b)
        return y

    @torch.no_grad()
    def merged(self) -> nn.Module:
        """The layer alone with W0 + (α / r) B A: no slower than it was."""
        oriented(self.layer).add_(self.scale * self.b @ self.a)
        return self.layer.requires_grad_(True)


class LoRAWeight(nn.Module):
    """W0 + (α / r) B A as the weight itself: for matrices that are no layer of their own (`loose`), each of a stack with its own A, B."""

    def __init__(self, w: Tensor, *, rank: int, alpha: float | None = None):
        super().__init__()
        *stack, outputs, inputs = upright(w).shape
        check(rank, outputs, inputs)
        self.scale = (rank if alpha is None else alpha) / rank
        self.a, self.b = nn.Parameter(w.new_empty(*stack, rank, inputs)), nn.Parameter(w.new_zeros(*stack, outputs, rank))
        nn.init.uniform_(self.a, -(inputs**-0.5), inputs**-0.5)   # as an nn.Linear begins, each of a stack

    def forward(self, w: Tensor) -> Tensor:
        return w + upright(self.scale * self.b @ self.a)


def check(rank: int, outputs: int, inputs: int) -> None:
    if not 1 <= rank <= (most := min(outputs, inputs)):
        raise UsageError(f"the rank must be from 1 to {most}, the smaller side of a {outputs} x {inputs} matrix, got {rank}")


def oriented(layer: nn.Module) -> Tensor:
    """The weight as (outputs, inputs), a view."""
    w = layer.weight
    assert isinstance(w, Tensor)
    return w.data.mT if getattr(layer, "inputs_first", False) else w.data


def upright(w: Tensor) -> Tensor:
    """A loose matrix as (outputs, inputs), a view: stacks of them, (E, inputs, outputs), have the inputs first. And back."""
    return w.mT if w.ndim == 3 else w


def is_affine(module: nn.Module) -> bool:
    return (isinstance(module, nn.Linear) and not isinstance(module, Router)) or bool(getattr(module, "inputs_first", False))


def loose(module: nn.Module) -> list[tuple[str, nn.Module, str]]:
    """Matrices that are no layer of their own: W_Q, W_K, W_V packed into one, and `stacked` ones of experts. Whose they are, and names."""
    return [
        (name, child, own) for name, child in module.named_modules()
        for own in (PACKED, *getattr(child, "stacked", ())) if own in child._parameters
    ]


def plain(name: str) -> str:
    """What a tensor of an adapted network was called before."""
    return re.sub(r"parametrizations\.(\w+)\.original", r"\1", name.replace(".layer.", "."))


def replaced(module: nn.Module, wanted: Callable[[str, nn.Module], bool], by: Callable[[nn.Module], nn.Module]) -> int:
    """Put by(layer) in the place of every wanted layer inside; how many there were."""
    found = [(name, child) for name, child in walk(module) if wanted(name, child)]
    for name, child in found:
        parent, _, last = name.rpartition(".")
        setattr(module.get_submodule(parent), last, by(child))
    return len(found)


def walk(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    return ((name, child) for name, child in list(module.named_modules()) if name)


def adapt(module: nn.Module, *, rank: int = 8, alpha: float | None = None, dropout: float = 0.0, within: tuple[str, ...] = ("",)) -> int:
    """Freeze the network and give its affine layers, or those with one of these words in their name, something thin to learn.

    Packed W_Q, W_K, W_V count as one matrix; its inputs are not dropped, nor those of experts. Returns how many numbers are learned now.
    """
    module.requires_grad_(False)

    def wanted(name: str) -> bool:
        return any(word in name for word in within)

    n = replaced(
        module, lambda name, child: is_affine(child) and wanted(name), lambda layer: LoRA(layer, rank=rank, alpha=alpha, dropout=dropout)
    )
    for name, child, own in loose(module):
        if wanted(f"{name}.{own}"):
            register_parametrization(child, own, LoRAWeight(child.get_parameter(own), rank=rank, alpha=alpha))
            n += 1
    if not n:
        raise UsageError(f"no affine layer has {' or '.join(map(repr, within))} in its name")
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def merge(module: nn.Module) -> int:
    """Add what was learned to the matrices; the network has its old layers again."""
    thin = [
        (child, own) for child in module.modules() if is_parametrized(child)
        for own, steps in child.parametrizations.items() if any(isinstance(step, LoRAWeight) for step in steps)  # type: ignore[operator, union-attr]
    ]
    for child, own in thin:
        remove_parametrizations(child, own)
        child.get_parameter(own).requires_grad_(True)
    return len(thin) + replaced(module, lambda _, child: isinstance(child, LoRA), lambda layer: layer.merged())  # type: ignore[operator]
