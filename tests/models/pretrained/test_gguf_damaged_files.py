"""GGUF files with absurd counts, missing metadata, wrong shapes and damaged bytes: read, or refused in one line at
once.
"""

import resource
import struct
import sys
import time
from collections.abc import Callable, Mapping
from math import prod
from random import Random
from typing import Any

import pytest
import torch

from didact.errors import UsageError
from didact.inference.chat import ChatModel
from didact.models.pretrained.gguf import load_llama, unpermute_rope
from didact.models.text.llama import Llama
from helpers.fuzzing import FUZZ_SECONDS, SEED, damage_bytes, reads_or_raises_usage_error

gguf_library = pytest.importorskip("gguf", reason="gguf is not installed: pip install 'didact[gguf]'")

U8, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 6, 7, 8, 9, 10             # the format's codes of metadata types
Metadata = Mapping[str, tuple[int, bytes]]


def pack_string(s: str) -> bytes:
    return struct.pack("<Q", len(s.encode())) + s.encode()


def pack_string_array(*strings: str) -> bytes:
    return struct.pack("<IQ", STRING, len(strings)) + b"".join(map(pack_string, strings))


def pack_u32(n: int) -> tuple[int, bytes]:
    return U32, struct.pack("<I", n)


def pack_f32(x: float) -> tuple[int, bytes]:
    return F32, struct.pack("<f", x)


TOKENS = ("<|im_start|>", "<|im_end|>", "a", "b", "ab", "Ċ", "Ġ")
METADATA: dict[str, tuple[int, bytes]] = {
    "general.architecture": (STRING, pack_string("llama")),
    "llama.block_count": pack_u32(2),
    "llama.context_length": pack_u32(32),
    "llama.embedding_length": pack_u32(8),
    "llama.feed_forward_length": pack_u32(12),
    "llama.attention.head_count": pack_u32(2),
    "llama.attention.head_count_kv": pack_u32(1),
    "llama.rope.freq_base": pack_f32(10_000),
    "llama.attention.layer_norm_rms_epsilon": pack_f32(1e-5),
    "tokenizer.ggml.pre": (STRING, pack_string("smollm")),
    "tokenizer.ggml.tokens": (ARRAY, pack_string_array(*TOKENS)),
    "tokenizer.ggml.token_type": (ARRAY, struct.pack("<IQ7i", 5, 7, 3, 3, 1, 1, 1, 1, 1)),
    "tokenizer.ggml.merges": (ARRAY, pack_string_array("a b")),
}
BLOCK_SHAPES = {
    "attn_norm": (8,), "ffn_norm": (8,), "attn_q": (8, 8), "attn_k": (4, 8), "attn_v": (4, 8), "attn_output": (8, 8),
    "ffn_gate": (12, 8), "ffn_up": (12, 8), "ffn_down": (8, 12),
}
SHAPES: dict[str, tuple[int, ...]] = {
    "token_embd.weight": (7, 8), "output_norm.weight": (8,),
    **{f"blk.{layer}.{name}.weight": shape for layer in range(2) for name, shape in BLOCK_SHAPES.items()},
}
# published names of the file's tensors; a test below compares them with those of our decoder
HF_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def to_hf_name(name: str) -> str:
    if name.startswith("blk."):
        _, layer, part, _ = name.split(".")
        return f"model.layers.{layer}.{HF_NAMES[part]}.weight"
    return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[name]


def build_gguf(
    metadata: Metadata,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    tensor_bytes: Mapping[str, bytes] | None = None,
    tensor_type: int = 0,
    counts: tuple[int, int] | None = None,
    share_offset: bool = False,
) -> bytes:
    """A file with these metadata and tensors, valid or not."""
    tensor_infos, tensor_data = b"", b""
    for name, shape in shapes.items():
        raw = (tensor_bytes or {}).get(name, bytes(min(4 * prod(shape), 4000)))
        offset = 0 if share_offset else len(tensor_data)
        tensor_infos += pack_string(name) + struct.pack(
            f"<I{len(shape)}QIQ", len(shape), *(n % 2**64 for n in shape[::-1]), tensor_type, offset
        )
        tensor_data += b"" if share_offset and tensor_data else raw + bytes(-len(raw) % 32)
    metadata_bytes = b"".join(pack_string(name) + struct.pack("<I", k) + value for name, (k, value) in metadata.items())
    header = b"GGUF" + struct.pack("<IQQ", 3, *(counts or (len(shapes), len(metadata)))) + metadata_bytes + tensor_infos
    return header + bytes(-len(header) % 32) + tensor_data


def make_llama() -> Llama:
    torch.manual_seed(0)
    return Llama(7, context_length=32, embed_dim=8, num_layers=2, num_heads=2, num_kv_heads=1, ffn_dim=12).eval()


def test_load_llama_reads_a_valid_file(tmp_path):
    model, tensor_bytes = make_llama(), {}
    for name in SHAPES:
        w = model.state_dict()[to_hf_name(name)]
        num_heads = {"attn_q": 2, "attn_k": 1}.get(name.split(".")[-2])
        if num_heads:          # the file has neighboring pairs: the inverse of `unpermute_rope`
            w = w.unflatten(0, (num_heads, 2, -1)).transpose(1, 2).flatten(0, 2)
            assert torch.equal(unpermute_rope(w, num_heads), model.state_dict()[to_hf_name(name)])
        tensor_bytes[name] = w.contiguous().numpy().tobytes()
    (tmp_path / "a.gguf").write_bytes(build_gguf(METADATA, SHAPES, tensor_bytes=tensor_bytes))
    loaded, metadata = load_llama(tmp_path / "a.gguf")
    tokens = torch.randint(7, (2, 9))
    assert torch.equal(loaded(tokens), model(tokens))
    assert metadata["tokenizer.ggml.tokens"] == list(TOKENS) and metadata["llama.block_count"] == 2
    chat = ChatModel(tmp_path / "a.gguf")
    assert chat.tokenizer.decode(chat.tokenizer.encode_ordinary("ab a\n")) == "ab a\n" and isinstance(
        chat.answer("ab", tokens=3), str
    )


def with_metadata(name: str, value: tuple[int, bytes] | None) -> Callable[[], bytes]:
    """A file with one metadata entry changed or removed."""
    metadata = {k: v for k, v in METADATA.items() if k != name} | ({} if value is None else {name: value})
    return lambda: build_gguf(metadata, SHAPES)


def with_shapes(new_shapes: Mapping[str, tuple[int, ...] | None]) -> Callable[[], bytes]:
    """A file with tensors of other shapes, or without them."""
    return lambda: build_gguf(METADATA, {k: v for k, v in {**SHAPES, **new_shapes}.items() if v is not None})


INVALID_FILES: dict[str, Callable[[], bytes]] = {
    **{
        f"{name.removeprefix('llama.')} is {n}": with_metadata(name, pack_u32(n))
        for name, (kind, _) in METADATA.items()
        if kind == U32
        for n in (0, 1, 5, 2**24, 2**30, 2**32 - 1)
        if not (n and name == "llama.context_length") and (name, n) != ("llama.attention.head_count_kv", 1)
    },
    **{f"no {name}": with_metadata(name, None) for name in METADATA if not name.startswith("tokenizer.ggml.pre")},
    **{
        f"{name} is a list": with_metadata(name, (ARRAY, struct.pack("<IQI", U32, 1, 1)))
        for name in METADATA
        if "ggml.pre" not in name
    },
    **{f"{name} is true": with_metadata(name, (BOOL, b"\1")) for name in METADATA if "ggml.pre" not in name},
    "rope base is not a number": with_metadata("llama.rope.freq_base", pack_f32(float("nan"))),
    "epsilon is infinite": with_metadata("llama.attention.layer_norm_rms_epsilon", pack_f32(float("inf"))),
    "a list of 2^62 numbers": with_metadata("list", (ARRAY, struct.pack("<IQ", U8, 2**62))),
    "a list of 2^62 texts": with_metadata("list", (ARRAY, struct.pack("<IQ", STRING, 2**62))),
    "a list of 2^62 lists": with_metadata("list", (ARRAY, struct.pack("<IQ", ARRAY, 2**62))),
    "lists in lists": with_metadata("list", (ARRAY, struct.pack("<IQ", ARRAY, 1) * 5000 + struct.pack("<IQ", U8, 0))),
    "a kind of fact that there is not": with_metadata("odd", (77, b"")),
    "a text of 2^63 letters": with_metadata("odd", (STRING, struct.pack("<Q", 2**63))),
    "an alignment of 0": with_metadata("general.alignment", pack_u32(0)),
    "an alignment of 3": with_metadata("general.alignment", pack_u32(3)),
    "2^60 facts": lambda: build_gguf(METADATA, SHAPES, counts=(len(SHAPES), 2**60)),
    "2^60 tensors": lambda: build_gguf(METADATA, SHAPES, counts=(2**60, len(METADATA))),
    "no embedding": with_shapes({"token_embd.weight": None}),
    "an embedding without columns": with_shapes({"token_embd.weight": (10**9, 0)}),
    "an embedding of one axis": with_shapes({"token_embd.weight": (56,)}),
    "an embedding of 2^64 numbers": with_shapes({"token_embd.weight": (2**32, 2**32)}),
    "no last norm": with_shapes({"output_norm.weight": None}),
    "a hole in a block": with_shapes({"blk.1.attn_k.weight": None}),
    "queries of 7 rows": with_shapes({"blk.1.attn_q.weight": (7, 8)}),
    "a norm of no axes": with_shapes({"blk.1.attn_norm.weight": ()}),
    "a part that no decoder has": with_shapes({"blk.1.odd.weight": (8,)}),
    "a name of too few parts": with_shapes({"blk.1": (8,)}),
    "a third block, numbered 7": with_shapes({f"blk.7.{n}.weight": s for n, s in BLOCK_SHAPES.items()}),
    "weights for turned positions": with_shapes({"rope_freqs.weight": (2,)}),
    "an empty file": lambda: b"",
    "another format": lambda: b"PK\3\4 and more",
    "another version": lambda: b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "another byte order": lambda: b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "a type that there is not": lambda: build_gguf(METADATA, SHAPES, tensor_type=99),
    "whole numbers for weights": lambda: build_gguf(METADATA, SHAPES, tensor_type=26),
    "blocks of 32 in rows of 8": lambda: build_gguf(METADATA, SHAPES, tensor_type=8),
    "fewer tokens than rows": with_metadata("tokenizer.ggml.tokens", (ARRAY, pack_string_array(*TOKENS[:-1]))),
    "no mark": with_metadata("tokenizer.ggml.tokens", (ARRAY, pack_string_array("x", "y", *TOKENS[2:]))),
    "merges without a space": with_metadata("tokenizer.ggml.merges", (ARRAY, pack_string_array("ab"))),
}


@pytest.fixture
def limited_memory():
    """An allocation of 4 GiB beyond the present memory raises MemoryError."""
    with open("/proc/self/statm") as file:
        used_bytes = int(file.read().split()[0]) * resource.getpagesize()
    old_limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + 2**32, old_limit[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, old_limit)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
@pytest.mark.parametrize("name", INVALID_FILES)
def test_invalid_gguf_is_refused_in_one_line(tmp_path, name, limited_memory):
    path = tmp_path / "x.gguf"
    path.write_bytes(INVALID_FILES[name]())
    start = time.process_time()
    with pytest.raises(UsageError, match=r"x\.gguf") as error:
        ChatModel(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400
    assert "memory" not in str(error.value).lower(), "refused by the limit of memory, not by a look at the file"
    assert time.process_time() - start < 5


def test_gguf_tensors_that_share_bytes_are_refused(tmp_path):
    """A megabyte under two thousand names would become two gigabytes."""
    shapes = {f"x{i}": (512, 512) for i in range(2000)}
    path = tmp_path / "x.gguf"
    path.write_bytes(build_gguf(METADATA, shapes, tensor_bytes={"x0": bytes(2**20)}, share_offset=True))
    with pytest.raises(UsageError, match=r"its tensors claim 2,097,152,000 bytes, the whole file has 1,\d"):
        load_llama(path)


def test_long_gguf_metadata_is_refused(tmp_path, monkeypatch):
    """The library makes an array for each number of a list."""
    from didact.models.pretrained import gguf

    monkeypatch.setattr(gguf, "_MAX_METADATA_ITEMS", 10_000)
    path = tmp_path / "x.gguf"
    path.write_bytes(with_metadata("list", (ARRAY, struct.pack("<IQ", U8, 20_000) + bytes(20_000)))())
    with pytest.raises(UsageError, match="more than 10,000 metadata items"):
        load_llama(path)


def check_random_damage(path: Any, name: str) -> None:
    random = Random(name)
    metadata, shapes = dict(METADATA), dict(SHAPES)
    for _ in range(random.randrange(3)):
        metadata[random.choice(list(metadata))] = random.choice(
            (
                pack_u32(random.choice((0, 1, 2, 3, 2**24, 2**32 - 1))),
                pack_f32(random.choice((0.0, -1.0, 1e-5, float("nan")))),
                (STRING, pack_string(random.choice(("", "llama", "x" * 300)))),
                (ARRAY, pack_string_array("a", "b")),
                (U64, struct.pack("<Q", 2**63)),
            )
        )
    for _ in range(random.randrange(2)):
        shapes[random.choice(list(shapes))] = tuple(
            random.choices((0, 1, 2, 7, 8, 2**32, 2**63), k=random.randrange(4))
        )
    raw = build_gguf(metadata, shapes, tensor_type=random.choice((0, 0, 0, 0, 1, 8, 30)))
    path.write_bytes(damage_bytes(random, raw) if random.random() < 0.7 else raw)
    with reads_or_raises_usage_error(f"seed {name}"):
        ChatModel(path)


def test_damaged_gguf_is_read_or_refused(tmp_path, limited_memory):
    for case in range(400):
        check_random_damage(tmp_path / "x.gguf", f"{SEED}/{case}")


@pytest.mark.slow
def test_damaged_gguf_is_read_or_refused_for_minutes(tmp_path, limited_memory):
    end, case = time.time() + FUZZ_SECONDS, 0
    while time.time() < end:
        check_random_damage(tmp_path / "x.gguf", f"long/{SEED}/{case}")
        case += 1
    assert case > 100
