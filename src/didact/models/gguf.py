"""GGUF files: weights in four or eight bits with their vocabulary beside them, read without executing anything.

    header: "GGUF", version, counts; facts: name, type, value; tensors: name, shape, type, offset; then the numbers, aligned

Quantized numbers come in blocks of 32:  Q8_0  x_i = d q_i, q_i in one byte     Q4_1  x_i = d q_i + m, q_i in four bits.
"""

import mmap
import struct
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didact.errors import UsageError
from didact.models.llama import Llama

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}   # how struct calls their types
TEXT, LIST = 8, 9
BLOCK = 32


def q8_0(raw: np.ndarray) -> np.ndarray:
    """(blocks, 34) bytes -> (blocks, 32)."""
    d = raw[:, :2].copy().view(np.float16).astype(np.float32)
    return d * raw[:, 2:].view(np.int8)


def q4_1(raw: np.ndarray) -> np.ndarray:
    """(blocks, 20) bytes -> (blocks, 32); the low halves of the sixteen bytes are the first sixteen numbers."""
    scale = raw[:, :4].copy().view(np.float16).astype(np.float32)
    q = np.concatenate([raw[:, 4:] & 15, raw[:, 4:] >> 4], axis=1)
    x: np.ndarray = scale[:, :1] * q + scale[:, 1:]
    return x


# type: numbers in a block, bytes of a block, how they are read
KINDS: dict[int, tuple[int, int, Callable[[np.ndarray], np.ndarray]]] = {
    0: (1, 4, lambda raw: raw.copy().view(np.float32)),
    1: (1, 2, lambda raw: raw.copy().view(np.float16).astype(np.float32)),
    3: (BLOCK, 20, q4_1),
    8: (BLOCK, 34, q8_0),
}


class Reader:
    """Walks through the file's bytes."""

    def __init__(self, content: Any):
        self.content, self.at = content, 0

    def take(self, kind: str) -> Any:
        (value,) = struct.unpack_from("<" + kind, self.content, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def text(self) -> str:
        n = self.take("Q")
        self.at += n
        return bytes(self.content[self.at - n : self.at]).decode(errors="replace")

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.text()
        if kind == LIST:
            of, n = self.take("I"), self.take("Q")
            return [self.value(of) for _ in range(n)]
        return self.take(NUMBERS[kind])


def read_gguf(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The facts and the tensors, in single precision, under the file's own names."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is empty'}") from None
    if content[:4] != b"GGUF":
        raise UsageError(f"{path} is no GGUF file: it begins with {content[:4]!r}")
    try:
        return parsed(Reader(content))
    except (struct.error, KeyError, ValueError, MemoryError, OverflowError) as error:
        raise UsageError(f"{path} is damaged, or holds a type that is not known here (F32, F16, Q8_0 and Q4_1 are): {error}") from None


def parsed(r: Reader) -> tuple[dict[str, Any], dict[str, Tensor]]:
    r.at = 8
    tensors, facts_ = r.take("Q"), r.take("Q")
    facts = {r.text(): r.value(r.take("I")) for _ in range(facts_)}
    heads = [(r.text(), [r.take("Q") for _ in range(r.take("I"))], r.take("I"), r.take("Q")) for _ in range(tensors)]
    even = int(facts.get("general.alignment", 32))
    first = -(-r.at // even) * even
    return facts, {name: numbers(r.content, first + offset, shape, kind) for name, shape, kind, offset in heads}


def numbers(content: Any, at: int, shape: list[int], kind: int) -> Tensor:
    """One tensor; the file writes shapes from the inside out."""
    block, size, read = KINDS[kind]
    count = prod(shape) // block
    raw = np.frombuffer(content, np.uint8, count * size, at).reshape(count, size)
    return torch.from_numpy(read(raw).reshape(shape[::-1]))


NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def load_llama(path: str | Path) -> tuple[Llama, dict[str, Any]]:
    """The decoder that the file describes, and the file's facts, its vocabulary among them."""
    facts, tensors = read_gguf(path)
    if facts.get("general.architecture") != "llama":
        raise UsageError(f"{path} holds a {facts.get('general.architecture')} network; a LLaMA-style decoder was expected")
    fact = {name.removeprefix("llama."): value for name, value in facts.items() if name.startswith("llama.")}
    heads, groups = fact["attention.head_count"], fact["attention.head_count_kv"]
    model = Llama(
        len(tensors["token_embd.weight"]), context=fact["context_length"], dim=fact["embedding_length"], layers=fact["block_count"],
        heads=heads, groups=groups, hidden=fact["feed_forward_length"], base=fact["rope.freq_base"],
        eps=fact["attention.layer_norm_rms_epsilon"], tie="output.weight" not in tensors,
    )
    named = {"model.embed_tokens.weight": tensors["token_embd.weight"], "model.norm.weight": tensors["output_norm.weight"]}
    if "output.weight" in tensors:
        named["lm_head.weight"] = tensors["output.weight"]
    for name, tensor in tensors.items():
        if name.startswith("blk."):
            _, layer, part, _ = name.split(".")
            turned = {"attn_q": heads, "attn_k": groups}.get(part)
            named[f"model.layers.{layer}.{NAMES[part]}.weight"] = halves(tensor, turned) if turned else tensor
    model.load_state_dict(named)
    return model.eval(), facts


def halves(w: Tensor, heads: int) -> Tensor:
    """Rows of each head from neighbouring pairs, as the file turns them, to pairs of halves, as `layers.positions.turn` does."""
    turned: Tensor = w.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    return turned
