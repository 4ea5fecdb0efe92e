"""Vocabularies that came with published weights: byte pairs under numbers of their own."""

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from didact.data import bpe
from didact.data.fetch import File, find, read
from didact.data.tokens import build, library
from didact.errors import UsageError

HOME = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"
MERGES = File("vocab.bpe", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5", f"{HOME}/vocab.bpe")
RANKS = File(
    "gpt2.tiktoken", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    "https://raw.githubusercontent.com/openai/whisper/main/whisper/assets/gpt2.tiktoken",
)


@dataclass(frozen=True)
class Vocabulary:
    """Names by number and merges in their order; `marks` such as <|im_end|> are never cut. Digits stand alone where `digits` says so."""

    names: tuple[str, ...]
    merges: tuple[bpe.Pair, ...]
    marks: tuple[str, ...] = ()
    digits: bool = False

    def __post_init__(self) -> None:
        known = set(self.names)
        pairs = next((p for p in self.merges if not {*p, "".join(p)} <= known), ())
        if strange := " and ".join(pairs) or next((mark for mark in self.marks if mark not in known), ""):
            raise UsageError(f"the vocabulary is damaged: it has no token for {strange[:40]!r}")

    @classmethod
    def gpt2(cls, merges: Iterable[bpe.Pair]) -> "Vocabulary":
        """GPT-2's numbers: 256 bytes, those that can be printed first, then the merges, then the mark between texts."""
        pairs, mark = tuple(merges), "<|endoftext|>"
        return cls((*bpe.alphabet().values(), *map("".join, pairs), mark), pairs, (mark,))

    @cached_property
    def number(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def rank(self) -> dict[bpe.Pair, int]:
        return {pair: i for i, pair in enumerate(self.merges)}

    @cached_property
    def fast(self) -> Any:
        """The same in the hands of the library `tokenizers`; None where it is not installed, or cuts otherwise."""
        return build(self) if library() and not self.digits else None

    def encode(self, text: str) -> list[int]:
        parts = re.split(f"({'|'.join(map(re.escape, self.marks))})", text) if self.marks else [text]
        return [i for part in parts for i in ([self.number[part]] if part in self.marks else self.plain(part))]

    def plain(self, text: str) -> list[int]:
        """A text without marks; a byte that the vocabulary lacks is left out."""
        if self.fast is not None:
            ids: list[int] = self.fast.encode(text).ids
            return ids
        cut = re.split(r"(\d)", text) if self.digits else [text]
        symbols = (s for part in cut for piece in bpe.pieces(part) for s in bpe.split(piece, self.rank))
        return [self.number[s] for s in symbols if s in self.number]

    def decode(self, ids: Sequence[int]) -> str:
        byte = {c: b for b, c in bpe.alphabet().items()}
        symbols = "".join(self.names[i] for i in ids if self.names[i] not in self.marks)
        return bytes(byte[c] for c in symbols if c in byte).decode(errors="replace")

    def spec(self) -> dict[str, Any]:
        merges = [" ".join(pair) for pair in self.merges]
        return {"kind": "published", "names": list(self.names), "merges": merges, "marks": list(self.marks), "digits": self.digits}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "Vocabulary":
        return cls(tuple(spec["names"]), tuple(map(bpe.pair, spec["merges"])), tuple(spec["marks"]), spec["digits"])


def gpt2() -> Vocabulary:
    """The 50,257 tokens of GPT-2, from its vocab.bpe; or from gpt2.tiktoken, where that alone is at hand."""
    if find("gpt2", MERGES) is None and find("gpt2", RANKS) is not None:
        return Vocabulary.gpt2(merges_of(read("gpt2", [RANKS])[0]))
    lines = read("gpt2", [MERGES])[0].decode().split("\n")
    return Vocabulary.gpt2(map(bpe.pair, lines[1:-1]))            # the first says which version, the last is empty


def merges_of(ranks: bytes) -> list[bpe.Pair]:
    """A file of tokens in base64 and their numbers, in order: each but a byte is what two of those before it were joined to."""
    rank: dict[bpe.Pair, int] = {}
    visible = bpe.alphabet()
    for line in ranks.splitlines():
        token = b64decode(line.split()[0])
        if len(token) > 1:
            left, right = bpe.split("".join(visible[b] for b in token), rank)
            rank[left, right] = len(rank)
    return list(rank)
