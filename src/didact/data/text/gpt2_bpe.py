"""Pretrained BPE vocabularies: GPT-2's, and those that come with published weights."""

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from didact.data.datasets.download import RemoteFile, find_local_file, read_files
from didact.data.text import bpe
from didact.data.text.tokenizers import build_fast_tokenizer, has_tokenizers
from didact.errors import UsageError

_HOME_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"
MERGES_FILE = RemoteFile(
    "vocab.bpe", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5", f"{_HOME_URL}/vocab.bpe"
)
_RANKS_FILE = RemoteFile(
    "gpt2.tiktoken", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    "https://raw.githubusercontent.com/openai/whisper/main/whisper/assets/gpt2.tiktoken",
)


@dataclass(frozen=True)
class PretrainedBPE:
    """Tokens by id and merges in their order. `special_tokens` such as <|im_end|> are never split; with `split_digits`
    each digit is a piece of its own."""

    vocab: tuple[str, ...]
    merges: tuple[bpe.Pair, ...]
    special_tokens: tuple[str, ...] = ()
    split_digits: bool = False

    def __post_init__(self) -> None:
        known = set(self.vocab)
        pairs = next((p for p in self.merges if not {*p, "".join(p)} <= known), ())
        if strange := " and ".join(pairs) or next((t for t in self.special_tokens if t not in known), ""):
            raise UsageError(f"the vocabulary is damaged: it has no token for {strange[:40]!r}")

    @classmethod
    def from_gpt2_merges(cls, merges: Iterable[bpe.Pair]) -> "PretrainedBPE":
        """GPT-2's ids: 256 bytes, printable ones first, then the merges, then <|endoftext|>."""
        pairs, end_of_text = tuple(merges), "<|endoftext|>"
        return cls((*bpe.bytes_to_unicode().values(), *map("".join, pairs), end_of_text), pairs, (end_of_text,))

    @cached_property
    def token_to_id(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.vocab)}

    @cached_property
    def merge_ranks(self) -> dict[bpe.Pair, int]:
        return {pair: i for i, pair in enumerate(self.merges)}

    @cached_property
    def fast_tokenizer(self) -> Any:
        """The same tokenizer of the library `tokenizers`; None where it is not installed, or splits otherwise."""
        return build_fast_tokenizer(self) if has_tokenizers() and not self.split_digits else None

    def encode(self, text: str) -> list[int]:
        parts = re.split(f"({'|'.join(map(re.escape, self.special_tokens))})", text) if self.special_tokens else [text]
        return [
            i
            for part in parts
            for i in ([self.token_to_id[part]] if part in self.special_tokens else self.encode_ordinary(part))
        ]

    def encode_ordinary(self, text: str) -> list[int]:
        """Encode a text without special tokens; a byte that the vocabulary lacks is left out."""
        if self.fast_tokenizer is not None:
            ids: list[int] = self.fast_tokenizer.encode(text).ids
            return ids
        parts = re.split(r"(\d)", text) if self.split_digits else [text]
        symbols = (
            s for part in parts for piece in bpe.pretokenize(part) for s in bpe.apply_merges(piece, self.merge_ranks)
        )
        return [self.token_to_id[s] for s in symbols if s in self.token_to_id]

    def decode(self, ids: Sequence[int]) -> str:
        byte = {c: b for b, c in bpe.bytes_to_unicode().items()}
        symbols = "".join(self.vocab[i] for i in ids if self.vocab[i] not in self.special_tokens)
        return bytes(byte[c] for c in symbols if c in byte).decode(errors="replace")

    def spec(self) -> dict[str, Any]:
        merges = [" ".join(pair) for pair in self.merges]
        return {
            "kind": "published",
            "names": list(self.vocab),
            "merges": merges,
            "marks": list(self.special_tokens),
            "digits": self.split_digits,
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "PretrainedBPE":
        return cls(tuple(spec["names"]), tuple(map(bpe.pair, spec["merges"])), tuple(spec["marks"]), spec["digits"])


def load_gpt2_tokenizer() -> PretrainedBPE:
    """The 50,257 tokens of GPT-2, from its vocab.bpe, or from gpt2.tiktoken where only that is at hand."""
    if find_local_file("gpt2", MERGES_FILE) is None and find_local_file("gpt2", _RANKS_FILE) is not None:
        return PretrainedBPE.from_gpt2_merges(merges_from_ranks(read_files("gpt2", [_RANKS_FILE])[0]))
    lines = read_files("gpt2", [MERGES_FILE])[0].decode().split("\n")
    # the first line is the version, the last is empty
    return PretrainedBPE.from_gpt2_merges(map(bpe.pair, lines[1:-1]))


def merges_from_ranks(ranks: bytes) -> list[bpe.Pair]:
    """The merges of a file of base64 tokens with their ranks, in order: each but a byte is two earlier ones merged."""
    merge_ranks: dict[bpe.Pair, int] = {}
    visible = bpe.bytes_to_unicode()
    for line in ranks.splitlines():
        token = b64decode(line.split()[0])
        if len(token) > 1:
            left, right = bpe.apply_merges("".join(visible[b] for b in token), merge_ranks)
            merge_ranks[left, right] = len(merge_ranks)
    return list(merge_ranks)
