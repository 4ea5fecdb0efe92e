"""Tokens: text as numbers and back, by character, by word, or by pieces that byte-pair encoding has learned.  Lhotte 7.4, Fleuret 3.2.

Special tokens, where a tokenizer has them, stand first: <pad> 0, <unk> 1, <bos> 2, <eos> 3.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

from didact.data import bpe
from didact.errors import UsageError, pick
from didact.schema import FLAG, TEXT, Shape, complaint

Kind = Literal["characters", "words", "bpe", "gpt2"]
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")
PAD, UNKNOWN, BEGIN, END = range(4)

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[^\w\s]|_")   # words with their apostrophes; every other sign by itself


class Tokenizer(Protocol):
    """Text <-> numbers; saved in the run, so that new text is read as training text was."""

    @property
    def names(self) -> tuple[str, ...]:
        """What each number stands for, to be looked at."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def spec(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Characters:
    """Every character a token, in the order of their code points. Without specials an unknown one is refused."""

    characters: str
    specials: tuple[str, ...] = ()

    @classmethod
    def fit(cls, texts: Iterable[str], *, specials: tuple[str, ...] = ()) -> "Characters":
        return cls("".join(sorted(set().union(*texts))), specials)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.specials, *self.characters)

    @cached_property
    def number(self) -> dict[str, int]:
        return {c: i for i, c in enumerate(self.characters, len(self.specials))}

    def encode(self, text: str) -> list[int]:
        if not self.specials and (unknown := sorted(set(text) - self.number.keys())):
            raise UsageError(f"the text holds characters that training did not: {''.join(unknown[:10])!r}; leave them out")
        return [self.number.get(c, UNKNOWN) for c in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.names[i] for i in ids if i >= len(self.specials) or i == UNKNOWN)

    def spec(self) -> dict[str, Any]:
        return {"kind": "characters", "characters": self.characters, "specials": list(self.specials)}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "Characters":
        return cls(spec["characters"], tuple(spec["specials"]))


@dataclass(frozen=True)
class Words:
    """Words and signs, the most common first; the rest is <unk>."""

    words: tuple[str, ...]
    lower: bool = True
    specials: tuple[str, ...] = SPECIALS

    @classmethod
    def fit(cls, texts: Iterable[str], vocabulary: int = 10_000, *, lower: bool = True, least: int = 2) -> "Words":
        """The `vocabulary` most frequent words that occur `least` times; all of them where none does."""
        counts = Counter(word for text in texts for word in cut(text, lower))
        kept = [word for word, n in counts.items() if n >= least] or list(counts)
        return cls(tuple(sorted(kept, key=lambda word: (-counts[word], word))[:vocabulary]), lower)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.specials, *self.words)

    @cached_property
    def number(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words, len(self.specials))}

    def encode(self, text: str) -> list[int]:
        return [self.number.get(word, UNKNOWN) for word in cut(text, self.lower)]

    def decode(self, ids: Sequence[int]) -> str:
        """Words with spaces between, none before a closing sign."""
        text = " ".join(self.names[i] for i in ids if i >= len(self.specials) or i == UNKNOWN)
        return re.sub(r"\s+([.,;:!?)\]])", r"\1", text)

    def spec(self) -> dict[str, Any]:
        return {"kind": "words", "words": list(self.words), "lower": self.lower}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "Words":
        return cls(tuple(spec["words"]), spec["lower"])


def cut(text: str, lower: bool) -> list[str]:
    return WORD.findall(text.lower() if lower else text)


@dataclass(frozen=True)
class BytePairs:
    """Pieces of words: specials, 256 bytes, then one token for each merge. Every text can be written, and read back exactly."""

    merges: tuple[bpe.Pair, ...]
    specials: tuple[str, ...] = SPECIALS

    @classmethod
    def fit(cls, texts: Iterable[str], vocabulary: int = 4096, *, specials: tuple[str, ...] = SPECIALS) -> "BytePairs":
        """Learned by the `tokenizers` library where it is installed, else by `bpe.learn`, which finds the same merges slowly."""
        wanted = vocabulary - 256 - len(specials)
        if wanted < 0:
            raise UsageError(f"byte pairs begin with 256 bytes and {len(specials)} special tokens, got a vocabulary of {vocabulary}")
        learned = learn_fast(texts, wanted) if library() else bpe.learn(texts, wanted)
        return cls(tuple(learned), specials)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.specials, *sorted(bpe.alphabet().values()), *("".join(pair) for pair in self.merges))

    @cached_property
    def number(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def rank(self) -> dict[bpe.Pair, int]:
        return {pair: i for i, pair in enumerate(self.merges)}

    @cached_property
    def fast(self) -> Any:
        """The same in the library's hands; None where it is not installed."""
        return build(self) if library() else None

    def encode(self, text: str) -> list[int]:
        if self.fast is not None:
            ids: list[int] = self.fast.encode(text).ids
            return ids
        known: dict[str, list[int]] = {}
        for piece in (found := bpe.pieces(text)):
            if piece not in known:
                known[piece] = [self.number[symbol] for symbol in bpe.split(piece, self.rank)]
        return [i for piece in found for i in known[piece]]

    def decode(self, ids: Sequence[int]) -> str:
        """Bytes that are no UTF-8, as half a character is, are shown as �."""
        byte = {c: b for b, c in bpe.alphabet().items()}
        symbols = "".join(self.names[i] for i in ids if i >= len(self.specials))
        return bytes(byte[c] for c in symbols).decode(errors="replace")

    def spec(self) -> dict[str, Any]:
        return {"kind": "bpe", "merges": [" ".join(pair) for pair in self.merges], "specials": list(self.specials)}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "BytePairs":
        merges, known = tuple(map(bpe.pair, spec["merges"])), set(bpe.alphabet().values())
        for pair in merges:
            if not set(pair) <= known:
                raise UsageError(f"the run's tokenizer is damaged: it joins {' and '.join(pair)[:40]!r} before it knows both; train anew")
            known.add("".join(pair))
        return cls(merges, tuple(spec["specials"]))


def library() -> bool:
    """Whether `tokenizers` is installed."""
    from importlib.util import find_spec

    return find_spec("tokenizers") is not None


def learn_fast(texts: Iterable[str], merges: int) -> list[bpe.Pair]:
    """The merges that the library finds."""
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + merges, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, min_frequency=1,
    )
    tokenizer.train_from_iterator([texts] if isinstance(texts, str) else texts, trainer)
    found = (merge if isinstance(merge, list) else merge.split(" ") for merge in json.loads(tokenizer.to_str())["model"]["merges"])
    return [(left, right) for left, right in found]


def build(pairs: Any) -> Any:
    """The library's tokenizer with the numbers and merges of this one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocab=pairs.number, merges=list(pairs.merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TOKENIZERS: dict[str, Any] = {"characters": Characters, "words": Words, "bpe": BytePairs}
SHAPES: dict[str, Shape] = {
    "characters": {"characters": TEXT, "specials": [TEXT]}, "words": {"words": [TEXT], "lower": FLAG},
    "bpe": {"merges": [TEXT], "specials": [TEXT]},
    "published": {"names": [TEXT], "merges": [TEXT], "marks": [TEXT], "digits": FLAG},
}


def from_spec(spec: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a run was trained with."""
    from didact.data.published import Vocabulary

    kinds = {**TOKENIZERS, "published": Vocabulary}
    wrong = complaint(spec, {"kind": TEXT}) or complaint(spec, SHAPES.get(spec["kind"], {}))
    if not wrong and spec.get("specials", []) not in ([], list(SPECIALS)):
        wrong = f"specials must be {', '.join(SPECIALS)} or none"
    if wrong:
        raise UsageError(f"the run's tokenizer is damaged: {wrong}; train anew")
    tokenizer: Tokenizer = pick("tokenizer", spec["kind"], kinds).from_spec(spec)
    return tokenizer
