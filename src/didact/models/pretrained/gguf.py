"""GGUF files: quantized weights together with their vocabulary. The library `gguf` reads the format; nothing in a file
is executed."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didact.errors import UsageError, refuse_damaged
from didact.models.pretrained.weights import check_claimed_size, format_shape
from didact.models.text.llama import Block, Llama

# items of the header's metadata, each entry of a list counted: enough for several vocabularies
_MAX_METADATA_ITEMS = 4_000_000
_MAX_SIZE = 2**24            # of any dimension of a decoder: products of two are far from overflowing
_METADATA_PREFIX = "llama."

Metadata = dict[str, Any]


def read_gguf(path: str | Path) -> tuple[Metadata, dict[str, Tensor]]:
    """Metadata and tensors of a file, in float32, under the file's own names."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"no weights file {path}; give a .gguf file")
    with refuse_damaged(path, "a GGUF file that the library gguf knows"):
        file = _open_gguf(path)
        check_claimed_size(path, "its tensors claim", sum(t.n_bytes for t in file.tensors))
        metadata = {name: field.contents() for name, field in file.fields.items() if not name.startswith("GGUF.")}
        return metadata, {t.name: _dequantize(t) for t in file.tensors}


def _open_gguf(path: Path) -> Any:
    """The library's reader, with two guards: it reads nothing past the end of the file, which an absurd count would
    make it do for ever, and a bounded number of items."""
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
            if self.reads > _MAX_METADATA_ITEMS:
                raise ValueError(f"more than {_MAX_METADATA_ITEMS:,} metadata items")
            if int(offset) + int(count) * np.dtype(dtype).itemsize > len(self.data):
                raise ValueError("it ends before the data that its header announces")
            return super()._get(offset, dtype, count, override_order)

    with np.errstate(over="raise"):
        file = Reader(path)
    if file.byte_order != "I":
        raise ValueError("written in another byte order")
    return file


def _dequantize(tensor: Any) -> Tensor:
    """One tensor in float32; the library reverses the file's shapes, whose innermost axis comes first."""
    from gguf import dequantize

    if tensor.tensor_type.name[0] == "I" and tensor.tensor_type.name[1:].isdigit():
        raise ValueError(f"{tensor.name} holds integers")
    return torch.from_numpy(np.require(dequantize(tensor.data, tensor.tensor_type), np.float32, ["C", "W"]))


# names of the file -> published names of LLaMA's weights
_OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK_NAMES = {
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


def load_llama(path: str | Path) -> tuple[Llama, Metadata]:
    """The decoder that a file describes, with its weights, and the file's metadata, which holds the vocabulary."""
    path = Path(path)
    metadata, tensors = read_gguf(path)
    if metadata.get("general.architecture") != "llama":
        raise UsageError(
            f"{path} holds a {metadata.get('general.architecture')} network; a LLaMA-style decoder was expected"[:300]
        )
    try:
        return _load_tensors(_make_model(metadata, tensors), tensors).eval(), metadata
    except UsageError as error:
        raise UsageError(f"{path} is damaged, or no LLaMA-style decoder: {error}") from None


def _make_model(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Llama:
    """The decoder on the meta device: no size costs memory before the tensors agree with it."""
    table, num_layers = tensors.get("token_embd.weight"), _read_size(metadata, "block_count")
    if table is None or table.ndim != 2 or not table.numel():
        raise UsageError("it holds no token_embd.weight of two axes")
    blocks = {name.split(".")[1] for name in tensors if name.startswith("blk.")}
    if len(blocks) != num_layers:        # before so many blocks are made
        raise UsageError(f"its metadata tell of {num_layers:,} blocks, its tensors are of {len(blocks):,}")
    with torch.device("meta"):
        return Llama(
            len(table),
            context_length=_read_size(metadata, "context_length"),
            embed_dim=_read_size(metadata, "embedding_length"),
            num_layers=num_layers,
            num_heads=_read_size(metadata, "attention.head_count"),
            num_kv_heads=_read_size(metadata, "attention.head_count_kv"),
            ffn_dim=_read_size(metadata, "feed_forward_length"),
            base=_read_positive_number(metadata, "rope.freq_base"),
            eps=_read_positive_number(metadata, "attention.layer_norm_rms_epsilon"),
            tie_weights="output.weight" not in tensors,
        )


def _load_tensors(model: Llama, file_tensors: Mapping[str, Tensor]) -> Llama:
    """Put the tensors into the model; each must have a parameter of its name and shape, each parameter a tensor."""
    model_tensors = model.state_dict()
    tensors = {_to_published_name(name): tensor for name, tensor in file_tensors.items()}
    for name, parameter in model_tensors.items():
        if name not in tensors:
            raise UsageError(f"it holds no {name}")
        if tensors[name].shape != parameter.shape:
            file_shape, expected_shape = format_shape(tensors[name].shape), format_shape(parameter.shape)
            raise UsageError(f"{name} is {file_shape}, {expected_shape} by its metadata")
    if unknown := [name for name in tensors if name not in model_tensors]:
        raise UsageError(f"it holds {unknown[0][:100]}, which a decoder of its metadata does not have")
    block = model.model.layers[0]
    assert isinstance(block, Block)
    rotary_heads = {"q_proj": block.self_attn.num_heads, "k_proj": block.self_attn.num_kv_heads}
    for name in model_tensors:
        num_heads = rotary_heads.get(name.split(".")[-2])
        tensors[name] = unpermute_rope(tensors[name], num_heads) if num_heads else tensors[name]
    model.load_state_dict(tensors, assign=True)
    return model


def _to_published_name(name: str) -> str:
    """blk.0.attn_q.weight -> model.layers.0.self_attn.q_proj.weight; an unknown name stays."""
    match name.split("."):
        case [part, "weight"] if part in _OUTER_NAMES:
            return f"{_OUTER_NAMES[part]}.weight"
        case ["blk", layer, part, "weight"] if part in _BLOCK_NAMES:
            return f"model.layers.{layer}.{_BLOCK_NAMES[part]}.weight"
    return name


def _read_size(metadata: Mapping[str, Any], name: str) -> int:
    """A dimension of the decoder."""
    value = metadata.get(_METADATA_PREFIX + name)
    if type(value) is not int or not 1 <= value <= _MAX_SIZE:
        raise UsageError(
            f"{name} should be a number from 1 to {_MAX_SIZE:,}, got {'nothing' if value is None else str(value)[:40]}"
        )
    return value


def _read_positive_number(metadata: Mapping[str, Any], name: str) -> float:
    value = metadata.get(_METADATA_PREFIX + name)
    if not (isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0):
        raise UsageError(f"{name} should be a number above 0, got {'nothing' if value is None else str(value)[:40]}")
    return float(value)


def unpermute_rope(w: Tensor, num_heads: int) -> Tensor:
    """Reorder the rows of each head from neighboring pairs, which GGUF rotates, to pairs of halves, which
    `layers.positional.apply_rotary` rotates."""
    rows: Tensor = w.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    return rows
