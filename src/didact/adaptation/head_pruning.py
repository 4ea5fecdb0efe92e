"""Head pruning of any multi-head attention: find heads, disable them, remove them for good.  Michel et al. 2019; Gaba
Ex 6.3, Ex 7.6.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from didact.adaptation.lora import merge_lora
from didact.errors import UsageError, look_up

HeadSelection = Mapping[str, Collection[int]]   # name of an attention layer in the network -> indices of its heads

# names of the projections in published weights, where these are not one matrix; and of the output projection
_QKV_NAMES = (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"))
_OUTPUT_NAMES = ("out_proj", "c_proj", "o_proj")


def find_attention_layers(network: nn.Module) -> dict[str, Any]:
    """Every multi-head attention inside, by name: modules with `num_heads` and `forward_with_weights`."""
    return {
        name: m
        for name, m in network.named_modules()
        if isinstance(getattr(m, "num_heads", None), int) and hasattr(m, "forward_with_weights")
    }


def _output_projection(network: nn.Module, name: str) -> nn.Module:
    """W_O of an attention layer: its own, or that of the parent module, as in BERT's names."""
    output_name = next((part for part in _OUTPUT_NAMES if hasattr(network.get_submodule(name), part)), None)
    parent = name.rpartition(".")[0]
    return network.get_submodule(
        ".".join(filter(None, (name, output_name) if output_name else (parent, "output.dense")))
    )


@contextmanager
def disable_heads(network: nn.Module, heads: HeadSelection) -> Iterator[None]:
    """Context in which the output of these heads is 0 before W_O."""
    layers, hooks = find_attention_layers(network), []
    for name, disabled in heads.items():
        head_mask = torch.ones(look_up("attention", name, layers).num_heads)
        head_mask[sorted(disabled)] = 0

        def zero_heads(_: nn.Module, inputs: tuple[Tensor, ...], head_mask: Tensor = head_mask) -> tuple[Tensor, ...]:
            y = inputs[0].unflatten(-1, (len(head_mask), -1)) * head_mask.to(inputs[0])[:, None]      # (…, heads, d)
            return y.flatten(-2), *inputs[1:]

        hooks.append(_output_projection(network, name).register_forward_pre_hook(zero_heads))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def prune_heads(network: nn.Module, heads: HeadSelection) -> int:
    """Remove the rows of W_Q, W_K, W_V and the columns of W_O of these heads, in place; the output is that of disabled
    heads.

    LoRA is merged first. Returns the number of parameters removed. An optimizer created before still has the old
    parameters.
    """
    merge_lora(network)
    num_before = _count_parameters(network)
    layers = find_attention_layers(network)
    for name, removed in heads.items():
        attention = look_up("attention", name, layers)
        heads_left = _remaining_heads(name, attention, removed)
        _keep_heads(attention, heads_left, _output_projection(network, name))
    return num_before - _count_parameters(network)


def _count_parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def _remaining_heads(name: str, attention: Any, removed: Collection[int]) -> list[int]:
    num_heads, num_groups = attention.num_heads, getattr(attention, "num_kv_heads", attention.num_heads)
    if wrong := sorted(set(removed) - set(range(num_heads))):
        raise UsageError(f"{name} has the heads 0 to {num_heads - 1}, got {wrong[0]}")
    heads_left = [i for i in range(num_heads) if i not in removed]
    if not heads_left:
        raise UsageError(f"{name} must keep a head, got all {num_heads} to remove")
    group_sizes = {sum(i * num_groups // num_heads == g for i in heads_left) for g in range(num_groups)} - {0}
    if len(group_sizes) > 1:
        raise UsageError(
            f"heads of {name} share keys in groups of {num_heads // num_groups}: remove whole groups, or as many of "
            "each"
        )
    return heads_left


def _keep_heads(attention: Any, heads_left: list[int], out: nn.Module) -> None:
    """Keep the rows and columns of these heads; keys and values that no remaining head uses are removed, too."""
    num_heads, num_groups = attention.num_heads, getattr(attention, "num_kv_heads", attention.num_heads)
    kv_heads = sorted({i * num_groups // num_heads for i in heads_left})
    if hasattr(attention, "in_proj_weight"):
        thirds = torch.arange(len(attention.in_proj_weight)).chunk(3)
        rows = torch.cat([part[_head_rows(heads_left, num_heads, len(part))] for part in thirds])
        for name in ("in_proj_weight", "in_proj_bias"):
            setattr(attention, name, _index_parameter(getattr(attention, name), rows, 0))
    elif hasattr(attention, "c_attn"):
        thirds = torch.arange(attention.c_attn.weight.shape[1]).chunk(3)
        columns = torch.cat([part[_head_rows(heads_left, num_heads, len(part))] for part in thirds])
        _select_features(attention.c_attn, outputs=columns)
    else:
        head_counts = (heads_left, num_heads), (kv_heads, num_groups), (kv_heads, num_groups)
        for names, (head_indices, n) in zip(_QKV_NAMES, head_counts, strict=True):
            layer = next(getattr(attention, name) for name in names if hasattr(attention, name))
            _select_features(layer, outputs=_head_rows(head_indices, n, len(layer.weight)))
    _select_features(out, inputs=_head_rows(heads_left, num_heads, _in_features(out)))
    attention.num_heads = len(heads_left)
    if hasattr(attention, "num_kv_heads"):
        attention.num_kv_heads = len(kv_heads)


def _head_rows(head_indices: list[int], num_heads: int, num_rows: int) -> Tensor:
    """The rows of these heads, of which each has num_rows / num_heads."""
    return torch.arange(num_rows).view(num_heads, -1)[head_indices].flatten()


def _in_features(layer: Any) -> int:
    in_features: int = layer.weight.shape[0 if getattr(layer, "inputs_first", False) else 1]
    return in_features


def _select_features(layer: Any, *, outputs: Tensor | None = None, inputs: Tensor | None = None) -> None:
    """Keep only these outputs or inputs of an affine layer."""
    inputs_first = getattr(layer, "inputs_first", False)
    if outputs is not None:
        layer.weight = _index_parameter(layer.weight, outputs, 1 if inputs_first else 0)
        layer.bias = None if layer.bias is None else _index_parameter(layer.bias, outputs, 0)
    if inputs is not None:
        layer.weight = _index_parameter(layer.weight, inputs, 0 if inputs_first else 1)
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = layer.weight.shape


def _index_parameter(p: Tensor, index: Tensor, dim: int) -> nn.Parameter:
    return nn.Parameter(p.detach().index_select(dim, index.to(p.device)), requires_grad=p.requires_grad)
