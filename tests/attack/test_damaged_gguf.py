"""GGUF files with absurd counts, missing facts, wrong shapes and damaged bytes: read, or refused in one line at once."""

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
from damage import SECONDS, SEED, damage_bytes, read_or_refused

from didact.errors import UsageError
from didact.models.gguf import halves, load_llama
from didact.models.llama import Llama
from didact.samplers.chat import Chat

gguf_library = pytest.importorskip("gguf", reason="gguf is not installed: pip install 'didact[gguf]'")

U8, U32, F32, BOOL, TEXT, LIST, U64 = 0, 4, 6, 7, 8, 9, 10             # the format's numbers for the kinds of facts
Kinds = Mapping[str, tuple[int, bytes]]


def text(s: str) -> bytes:
    return struct.pack("<Q", len(s.encode())) + s.encode()


def texts(*many: str) -> bytes:
    return struct.pack("<IQ", TEXT, len(many)) + b"".join(map(text, many))


def u32(n: int) -> tuple[int, bytes]:
    return U32, struct.pack("<I", n)


def f32(x: float) -> tuple[int, bytes]:
    return F32, struct.pack("<f", x)


TOKENS = ("<|im_start|>", "<|im_end|>", "a", "b", "ab", "Ċ", "Ġ")
FACTS: dict[str, tuple[int, bytes]] = {
    "general.architecture": (TEXT, text("llama")),
    "llama.block_count": u32(2), "llama.context_length": u32(32), "llama.embedding_length": u32(8),
    "llama.feed_forward_length": u32(12), "llama.attention.head_count": u32(2), "llama.attention.head_count_kv": u32(1),
    "llama.rope.freq_base": f32(10_000), "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
    "tokenizer.ggml.pre": (TEXT, text("smollm")),
    "tokenizer.ggml.tokens": (LIST, texts(*TOKENS)),
    "tokenizer.ggml.token_type": (LIST, struct.pack("<IQ7i", 5, 7, 3, 3, 1, 1, 1, 1, 1)),
    "tokenizer.ggml.merges": (LIST, texts("a b")),
}
BLOCK = {
    "attn_norm": (8,), "ffn_norm": (8,), "attn_q": (8, 8), "attn_k": (4, 8), "attn_v": (4, 8), "attn_output": (8, 8),
    "ffn_gate": (12, 8), "ffn_up": (12, 8), "ffn_down": (8, 12),
}
SHAPES: dict[str, tuple[int, ...]] = {
    "token_embd.weight": (7, 8), "output_norm.weight": (8,),
    **{f"blk.{layer}.{name}.weight": shape for layer in range(2) for name, shape in BLOCK.items()},
}
# what a published file names otherwise; the test below holds them against a decoder of our own
OURS = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def ours(name: str) -> str:
    if name.startswith("blk."):
        _, layer, part, _ = name.split(".")
        return f"model.layers.{layer}.{OURS[part]}.weight"
    return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[name]


def written(
    facts: Kinds, shapes: Mapping[str, tuple[int, ...]], *, numbers: Mapping[str, bytes] | None = None, kind: int = 0,
    counts: tuple[int, int] | None = None, same_place: bool = False,
) -> bytes:
    """A file with these facts and tensors, whether or not it makes sense."""
    head, body = b"", b""
    for name, shape in shapes.items():
        raw = (numbers or {}).get(name, bytes(min(4 * prod(shape), 4000)))
        place = 0 if same_place else len(body)
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *(n % 2**64 for n in shape[::-1]), kind, place)
        body += b"" if same_place and body else raw + bytes(-len(raw) % 32)
    told = b"".join(text(name) + struct.pack("<I", k) + value for name, (k, value) in facts.items())
    start = b"GGUF" + struct.pack("<IQQ", 3, *(counts or (len(shapes), len(facts)))) + told + head
    return start + bytes(-len(start) % 32) + body


def decoder() -> Llama:
    torch.manual_seed(0)
    return Llama(7, context=32, dim=8, layers=2, heads=2, groups=1, hidden=12).eval()


def test_a_sound_file_gives_the_decoder_it_was_made_of(tmp_path):
    model, numbers = decoder(), {}
    for name in SHAPES:
        w = model.state_dict()[ours(name)]
        turned = {"attn_q": 2, "attn_k": 1}.get(name.split(".")[-2])
        if turned:          # the file keeps neighbouring pairs: the other way round than `halves`
            w = w.unflatten(0, (turned, 2, -1)).transpose(1, 2).flatten(0, 2)
            assert torch.equal(halves(w, turned), model.state_dict()[ours(name)])
        numbers[name] = w.contiguous().numpy().tobytes()
    (tmp_path / "a.gguf").write_bytes(written(FACTS, SHAPES, numbers=numbers))
    loaded, facts = load_llama(tmp_path / "a.gguf")
    tokens = torch.randint(7, (2, 9))
    assert torch.equal(loaded(tokens), model(tokens))
    assert facts["tokenizer.ggml.tokens"] == list(TOKENS) and facts["llama.block_count"] == 2
    chat = Chat(tmp_path / "a.gguf")
    assert chat.words.decode(chat.words.plain("ab a\n")) == "ab a\n" and isinstance(chat.ask("ab", tokens=3), str)


def changed(name: str, value: tuple[int, bytes] | None) -> Callable[[], bytes]:
    """A file with one fact otherwise, or without it."""
    facts = {k: v for k, v in FACTS.items() if k != name} | ({} if value is None else {name: value})
    return lambda: written(facts, SHAPES)


def shaped(other: Mapping[str, tuple[int, ...] | None]) -> Callable[[], bytes]:
    """A file with tensors of other shapes, or without them."""
    return lambda: written(FACTS, {k: v for k, v in {**SHAPES, **other}.items() if v is not None})


ABSURD: dict[str, Callable[[], bytes]] = {
    **{f"{name.removeprefix('llama.')} is {n}": changed(name, u32(n))
       for name, (kind, _) in FACTS.items() if kind == U32 for n in (0, 1, 5, 2**24, 2**30, 2**32 - 1)
       if not (n and name == "llama.context_length") and (name, n) != ("llama.attention.head_count_kv", 1)},
    **{f"no {name}": changed(name, None) for name in FACTS if not name.startswith("tokenizer.ggml.pre")},
    **{f"{name} is a list": changed(name, (LIST, struct.pack("<IQI", U32, 1, 1))) for name in FACTS if "ggml.pre" not in name},
    **{f"{name} is true": changed(name, (BOOL, b"\1")) for name in FACTS if "ggml.pre" not in name},
    "rope base is not a number": changed("llama.rope.freq_base", f32(float("nan"))),
    "epsilon is infinite": changed("llama.attention.layer_norm_rms_epsilon", f32(float("inf"))),
    "a list of 2^62 numbers": changed("list", (LIST, struct.pack("<IQ", U8, 2**62))),
    "a list of 2^62 texts": changed("list", (LIST, struct.pack("<IQ", TEXT, 2**62))),
    "a list of 2^62 lists": changed("list", (LIST, struct.pack("<IQ", LIST, 2**62))),
    "lists in lists": changed("list", (LIST, struct.pack("<IQ", LIST, 1) * 5000 + struct.pack("<IQ", U8, 0))),
    "a kind of fact that there is not": changed("odd", (77, b"")),
    "a text of 2^63 letters": changed("odd", (TEXT, struct.pack("<Q", 2**63))),
    "an alignment of 0": changed("general.alignment", u32(0)),
    "an alignment of 3": changed("general.alignment", u32(3)),
    "2^60 facts": lambda: written(FACTS, SHAPES, counts=(len(SHAPES), 2**60)),
    "2^60 tensors": lambda: written(FACTS, SHAPES, counts=(2**60, len(FACTS))),
    "no embedding": shaped({"token_embd.weight": None}),
    "an embedding without columns": shaped({"token_embd.weight": (10**9, 0)}),
    "an embedding of one axis": shaped({"token_embd.weight": (56,)}),
    "an embedding of 2^64 numbers": shaped({"token_embd.weight": (2**32, 2**32)}),
    "no last norm": shaped({"output_norm.weight": None}),
    "a hole in a block": shaped({"blk.1.attn_k.weight": None}),
    "queries of 7 rows": shaped({"blk.1.attn_q.weight": (7, 8)}),
    "a norm of no axes": shaped({"blk.1.attn_norm.weight": ()}),
    "a part that no decoder has": shaped({"blk.1.odd.weight": (8,)}),
    "a name of too few parts": shaped({"blk.1": (8,)}),
    "a third block, numbered 7": shaped({f"blk.7.{n}.weight": s for n, s in BLOCK.items()}),
    "weights for turned positions": shaped({"rope_freqs.weight": (2,)}),
    "an empty file": lambda: b"",
    "another format": lambda: b"PK\3\4 and more",
    "another version": lambda: b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "another byte order": lambda: b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "a type that there is not": lambda: written(FACTS, SHAPES, kind=99),
    "whole numbers for weights": lambda: written(FACTS, SHAPES, kind=26),
    "blocks of 32 in rows of 8": lambda: written(FACTS, SHAPES, kind=8),
    "fewer tokens than rows": changed("tokenizer.ggml.tokens", (LIST, texts(*TOKENS[:-1]))),
    "no mark": changed("tokenizer.ggml.tokens", (LIST, texts("x", "y", *TOKENS[2:]))),
    "merges without a space": changed("tokenizer.ggml.merges", (LIST, texts("ab"))),
}


@pytest.fixture
def little_memory():
    """Whatever asks for 4 GiB more than is held gets a MemoryError."""
    with open("/proc/self/statm") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + 2**32, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
@pytest.mark.parametrize("name", ABSURD)
def test_absurd_files_are_refused_in_one_line(tmp_path, name, little_memory):
    path = tmp_path / "x.gguf"
    path.write_bytes(ABSURD[name]())
    start = time.process_time()
    with pytest.raises(UsageError, match=r"x\.gguf") as error:
        Chat(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400
    assert "memory" not in str(error.value).lower(), "refused by the limit of memory, not by a look at the file"
    assert time.process_time() - start < 5


def test_many_tensors_of_the_same_bytes_are_refused(tmp_path):
    """A megabyte under two thousand names is two gigabytes once they are read."""
    shapes = {f"x{i}": (512, 512) for i in range(2000)}
    path = tmp_path / "x.gguf"
    path.write_bytes(written(FACTS, shapes, numbers={"x0": bytes(2**20)}, same_place=True))
    with pytest.raises(UsageError, match=r"its tensors claim 2,097,152,000 bytes, the whole file has 1,\d"):
        load_llama(path)


def test_a_long_list_costs_no_gigabytes(tmp_path, monkeypatch):
    """The library keeps an array for each number of a list."""
    from didact.models import gguf

    monkeypatch.setattr(gguf, "MOST", 10_000)
    path = tmp_path / "x.gguf"
    path.write_bytes(changed("list", (LIST, struct.pack("<IQ", U8, 20_000) + bytes(20_000)))())
    with pytest.raises(UsageError, match="more than 10,000 facts"):
        load_llama(path)


def attack(path: Any, name: str) -> None:
    random = Random(name)
    facts, shapes = dict(FACTS), dict(SHAPES)
    for _ in range(random.randrange(3)):
        facts[random.choice(list(facts))] = random.choice((
            u32(random.choice((0, 1, 2, 3, 2**24, 2**32 - 1))), f32(random.choice((0.0, -1.0, 1e-5, float("nan")))),
            (TEXT, text(random.choice(("", "llama", "x" * 300)))), (LIST, texts("a", "b")), (U64, struct.pack("<Q", 2**63)),
        ))
    for _ in range(random.randrange(2)):
        shapes[random.choice(list(shapes))] = tuple(random.choices((0, 1, 2, 7, 8, 2**32, 2**63), k=random.randrange(4)))
    raw = written(facts, shapes, kind=random.choice((0, 0, 0, 0, 1, 8, 30)))
    path.write_bytes(damage_bytes(random, raw) if random.random() < 0.7 else raw)
    with read_or_refused(f"seed {name}"):
        Chat(path)


def test_damaged_files_are_read_or_refused(tmp_path, little_memory):
    for case in range(400):
        attack(tmp_path / "x.gguf", f"{SEED}/{case}")


@pytest.mark.slow
def test_damaged_files_for_long(tmp_path, little_memory):
    end, case = time.time() + SECONDS, 0
    while time.time() < end:
        attack(tmp_path / "x.gguf", f"long/{SEED}/{case}")
        case += 1
    assert case > 100
