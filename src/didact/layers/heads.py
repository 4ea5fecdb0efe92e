"""The heads of any multi-head attention: found, switched off, taken out for good.  Michel et al. 2019; Gaba Ex 6.3, Ex 7.6."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from didact.errors import UsageError, pick
from didact.layers.lora import merge

Off = Mapping[str, Collection[int]]   # of each attention, by its name in the network, the heads that are meant

# projections by the names that published weights give them, where they are not one matrix; and what joins the heads
APART = (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"))
OUT = ("out_proj", "c_proj", "o_proj")


def attentions(network: nn.Module) -> dict[str, Any]:
    """Every multi-head attention inside, by its name: what has a number of heads and lets them be looked at."""
    return {name: m for name, m in network.named_modules() if isinstance(getattr(m, "heads", None), int) and hasattr(m, "look")}


def joining(network: nn.Module, name: str) -> nn.Module:
    """W_O of an attention: its own, or that of the layer around it, as BERT's names have it."""
    own = next((part for part in OUT if hasattr(network.get_submodule(name), part)), None)
    around = name.rpartition(".")[0]
    return network.get_submodule(".".join(filter(None, (name, own) if own else (around, "output.dense"))))


@contextmanager
def without(network: nn.Module, off: Off) -> Iterator[None]:
    """head_i = 0 for these heads, as long as this lasts: W_O reads zeros in their place."""
    known, hooks = attentions(network), []
    for name, gone in off.items():
        there = torch.ones(pick("attention", name, known).heads)
        there[sorted(gone)] = 0

        def silence(_: nn.Module, inputs: tuple[Tensor, ...], there: Tensor = there) -> tuple[Tensor, ...]:
            y = inputs[0].unflatten(-1, (len(there), -1)) * there.to(inputs[0])[:, None]      # (…, heads, d)
            return y.flatten(-2), *inputs[1:]

        hooks.append(joining(network, name).register_forward_pre_hook(silence))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def prune(network: nn.Module, off: Off) -> int:
    """Take out the rows of W_Q, W_K, W_V and the columns of W_O that these heads have: the rest gives what it gave without them.

    Smaller matrices, in place; LoRA is merged first. Returns how many numbers went. An optimizer made before knows nothing of it.
    """
    merge(network)
    before = size(network)
    known = attentions(network)
    for name, gone in off.items():
        attention = pick("attention", name, known)
        left = remaining(name, attention, gone)
        shrink(attention, left, joining(network, name))
    return before - size(network)


def size(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def remaining(name: str, attention: Any, gone: Collection[int]) -> list[int]:
    heads, groups = attention.heads, getattr(attention, "groups", attention.heads)
    if wrong := sorted(set(gone) - set(range(heads))):
        raise UsageError(f"{name} has the heads 0 to {heads - 1}, got {wrong[0]}")
    left = [i for i in range(heads) if i not in gone]
    if not left:
        raise UsageError(f"{name} must keep a head, got all {heads} to be taken out")
    shares = {sum(i * groups // heads == g for i in left) for g in range(groups)} - {0}
    if len(shares) > 1:
        raise UsageError(f"heads of {name} share keys in groups of {heads // groups}: take out whole groups, or as many of each")
    return left


def shrink(attention: Any, left: list[int], out: nn.Module) -> None:
    """Keep the rows and columns of these heads; those of keys and values that no head asks for any more go too."""
    heads, groups = attention.heads, getattr(attention, "groups", attention.heads)
    shared = sorted({i * groups // heads for i in left})
    if hasattr(attention, "in_proj_weight"):
        rows = torch.cat([part[places(left, heads, len(part))] for part in torch.arange(len(attention.in_proj_weight)).chunk(3)])
        for name in ("in_proj_weight", "in_proj_bias"):
            setattr(attention, name, picked(getattr(attention, name), rows, 0))
    elif hasattr(attention, "c_attn"):
        outputs = torch.arange(attention.c_attn.weight.shape[1])
        keep(attention.c_attn, outputs=torch.cat([part[places(left, heads, len(part))] for part in outputs.chunk(3)]))
    else:
        for names, numbers, n in zip(APART, (left, shared, shared), (heads, groups, groups), strict=True):
            layer = next(getattr(attention, name) for name in names if hasattr(attention, name))
            keep(layer, outputs=places(numbers, n, len(layer.weight)))
    keep(out, inputs=places(left, heads, inputs_of(out)))
    attention.heads = len(left)
    if hasattr(attention, "groups"):
        attention.groups = len(shared)


def places(numbers: list[int], n: int, rows: int) -> Tensor:
    """The rows of these among n heads, of which each has rows / n."""
    return torch.arange(rows).view(n, -1)[numbers].flatten()


def inputs_of(layer: Any) -> int:
    width: int = layer.weight.shape[0 if getattr(layer, "inputs_first", False) else 1]
    return width


def keep(layer: Any, *, outputs: Tensor | None = None, inputs: Tensor | None = None) -> None:
    """These outputs or inputs of an affine layer alone."""
    turned = getattr(layer, "inputs_first", False)
    if outputs is not None:
        layer.weight = picked(layer.weight, outputs, 1 if turned else 0)
        layer.bias = None if layer.bias is None else picked(layer.bias, outputs, 0)
    if inputs is not None:
        layer.weight = picked(layer.weight, inputs, 0 if turned else 1)
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = layer.weight.shape


def picked(p: Tensor, index: Tensor, dim: int) -> nn.Parameter:
    return nn.Parameter(p.detach().index_select(dim, index.to(p.device)), requires_grad=p.requires_grad)
