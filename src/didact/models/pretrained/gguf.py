"""GGUF files: weights in few bits with their vocabulary beside them. The library `gguf` reads the format; nothing
is executed."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didact.errors import UsageError, refuse_damaged
from didact.models.pretrained.load_weights import check_claim, format_shape
from didact.models.text.llama import Block, Llama

# facts of a header, each number of a list by itself: several vocabularies; the library keeps an array of each
MOST = 4_000_000
LARGEST = 2**24      # that a size of a decoder may be: products of two are far from overflowing
LLAMA = "llama."     # what its facts begin with

Facts = dict[str, Any]


def read_gguf(path: str | Path) -> tuple[Facts, dict[str, Tensor]]:
    """The facts and the tensors, in single precision, under the file's own names."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"no weights file {path}; give a .gguf file")
    with refuse_damaged(path, "a GGUF file that the library gguf knows"):
        file = open_gguf(path)
        check_claim(path, "its tensors claim", sum(t.n_bytes for t in file.tensors))
        facts = {name: field.contents() for name, field in file.fields.items() if not name.startswith("GGUF.")}
        return facts, {t.name: numbers(t) for t in file.tensors}


def open_gguf(path: Path) -> Any:
    """The library's reader, kept from reading past the end of the file, which an absurd count would have it do for
    ever."""
    try:
        from gguf import GGUFReader
    except ImportError:
        raise UsageError(
            "GGUF files are read with the library gguf, which is not installed; pip install 'didact[gguf]'"
        ) from None

    class Reader(GGUFReader):  # type: ignore[misc, unused-ignore]
        data: Any
        reads = 0

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            self.data = np.asarray(self.data)        # views of a memory map take twice as long to make
            self.reads += 1
            if self.reads > MOST:
                raise ValueError(f"more than {MOST:,} facts")
            if int(offset) + int(count) * np.dtype(dtype).itemsize > len(self.data):
                raise ValueError("it ends before what it tells of")
            return super()._get(offset, dtype, count, override_order)

    with np.errstate(over="raise"):
        file = Reader(path)
    if file.byte_order != "I":
        raise ValueError("written for machines of another byte order")
    return file


def numbers(tensor: Any) -> Tensor:
    """One tensor; the library turns the file's shapes, which go from the inside out."""
    from gguf import dequantize

    if tensor.tensor_type.name[0] == "I" and tensor.tensor_type.name[1:].isdigit():
        raise ValueError(f"{tensor.name} holds whole numbers")
    return torch.from_numpy(np.require(dequantize(tensor.data, tensor.tensor_type), np.float32, ["C", "W"]))


TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def load_llama(path: str | Path) -> tuple[Llama, Facts]:
    """The decoder that the file describes, and the file's facts, its vocabulary among them."""
    path = Path(path)
    facts, tensors = read_gguf(path)
    if facts.get("general.architecture") != "llama":
        raise UsageError(
            f"{path} holds a {facts.get('general.architecture')} network; a LLaMA-style decoder was expected"[:300]
        )
    try:
        return fill(describe(facts, tensors), tensors).eval(), facts
    except UsageError as error:
        raise UsageError(f"{path} is damaged, or no LLaMA-style decoder: {error}") from None


def describe(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Llama:
    """The decoder without numbers, so that no size costs memory before the tensors agree with it."""
    table, layers = tensors.get("token_embd.weight"), count(facts, "block_count")
    if table is None or table.ndim != 2 or not table.numel():
        raise UsageError("it holds no token_embd.weight of two axes")
    blocks = {name.split(".")[1] for name in tensors if name.startswith("blk.")}
    if len(blocks) != layers:        # before so many blocks are made
        raise UsageError(f"its facts tell of {layers:,} blocks, its tensors are of {len(blocks):,}")
    with torch.device("meta"):
        return Llama(
            len(table),
            context_length=count(facts, "context_length"),
            embed_dim=count(facts, "embedding_length"),
            num_layers=layers,
            num_heads=count(facts, "attention.head_count"),
            num_kv_heads=count(facts, "attention.head_count_kv"),
            ffn_dim=count(facts, "feed_forward_length"),
            base=number(facts, "rope.freq_base"),
            eps=number(facts, "attention.layer_norm_rms_epsilon"),
            tie_weights="output.weight" not in tensors,
        )


def fill(model: Llama, tensors: Mapping[str, Tensor]) -> Llama:
    """Put the tensors in their places, if all of them have one, and every place its tensor."""
    own, named = model.state_dict(), {rename(name): tensor for name, tensor in tensors.items()}
    for name, place in own.items():
        if name not in named:
            raise UsageError(f"it holds no {name}")
        if named[name].shape != place.shape:
            raise UsageError(f"{name} is {format_shape(named[name].shape)}, {format_shape(place.shape)} by its facts")
    if strange := [name for name in named if name not in own]:
        raise UsageError(f"it holds {strange[0][:100]}, which a decoder of its facts has no place for")
    block = model.model.layers[0]
    assert isinstance(block, Block)
    turned = {"q_proj": block.self_attn.num_heads, "k_proj": block.self_attn.num_kv_heads}
    for name in own:
        heads = turned.get(name.split(".")[-2])
        named[name] = unpermute_rope(named[name], heads) if heads else named[name]
    model.load_state_dict(named, assign=True)
    return model


def rename(name: str) -> str:
    """A published name of what the file calls blk.0.attn_q.weight; of what is unknown its own."""
    match name.split("."):
        case [part, "weight"] if part in TOP:
            return f"{TOP[part]}.weight"
        case ["blk", layer, part, "weight"] if part in PARTS:
            return f"model.layers.{layer}.{PARTS[part]}.weight"
    return name


def count(facts: Mapping[str, Any], name: str) -> int:
    """A size that the facts tell."""
    value = facts.get(LLAMA + name)
    if type(value) is not int or not 1 <= value <= LARGEST:
        raise UsageError(
            f"{name} should be a number from 1 to {LARGEST:,}, got {'nothing' if value is None else str(value)[:40]}"
        )
    return value


def number(facts: Mapping[str, Any], name: str) -> float:
    """A number above 0 that the facts tell."""
    value = facts.get(LLAMA + name)
    if not (isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0):
        raise UsageError(f"{name} should be a number above 0, got {'nothing' if value is None else str(value)[:40]}")
    return float(value)


def unpermute_rope(w: Tensor, heads: int) -> Tensor:
    """Rows of each head from neighbouring pairs, as the file turns them, to pairs of halves, as
    `layers.positions.turn` does."""
    turned: Tensor = w.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    return turned
