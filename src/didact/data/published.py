"""Vocabularies that came with published weights: byte pairs under numbers of their own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from didact.data import bpe


@dataclass(frozen=True)
class Vocabulary:
    """Names by number and merges in their order; `marks` such as <|im_end|> are never cut. Digits stand alone where `digits` says so."""

    names: tuple[str, ...]
    merges: tuple[bpe.Pair, ...]
    marks: tuple[str, ...] = ()
    digits: bool = False

    @cached_property
    def number(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def rank(self) -> dict[bpe.Pair, int]:
        return {pair: i for i, pair in enumerate(self.merges)}

    def encode(self, text: str) -> list[int]:
        parts = re.split(f"({'|'.join(map(re.escape, self.marks))})", text) if self.marks else [text]
        return [i for part in parts for i in ([self.number[part]] if part in self.marks else self.plain(part))]

    def plain(self, text: str) -> list[int]:
        """A text without marks; a byte that the vocabulary lacks is left out."""
        cut = re.split(r"(\d)", text) if self.digits else [text]
        symbols = (s for part in cut for piece in bpe.pieces(part) for s in bpe.split(piece, self.rank))
        return [self.number[s] for s in symbols if s in self.number]

    def decode(self, ids: Sequence[int]) -> str:
        byte = {c: b for b, c in bpe.alphabet().items()}
        symbols = "".join(self.names[i] for i in ids if self.names[i] not in self.marks)
        return bytes(byte[c] for c in symbols if c in byte).decode(errors="replace")
