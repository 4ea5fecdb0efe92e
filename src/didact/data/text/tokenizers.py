"""Tokenizers: text as token ids and back, by character, by word, or by byte-pair encoding.  Lhotte 7.4, Fleuret 3.2.

Special tokens, where a tokenizer has them, come first: <pad> 0, <unk> 1, <bos> 2, <eos> 3.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

from didact.data.text import bpe
from didact.errors import UsageError, look_up
from didact.schema import FLAG, TEXT, Shape, find_mismatch

TokenizerKind = Literal["characters", "words", "bpe", "gpt2"]
SPECIAL_TOKENS = ("<pad>", "<unk>", "<bos>", "<eos>")
PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)

# words with their apostrophes; every other character by itself
_WORD_PATTERN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[^\w\s]|_")


class Tokenizer(Protocol):
    """Text <-> token ids; saved in the run, so that new text is tokenized as training text was."""

    @property
    def vocab(self) -> tuple[str, ...]:
        """The token of each id, as text."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def spec(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class CharTokenizer:
    """Every character a token, by code point. Without special tokens an unknown one is refused."""

    characters: str
    special_tokens: tuple[str, ...] = ()

    @classmethod
    def fit(cls, texts: Iterable[str], *, special_tokens: tuple[str, ...] = ()) -> "CharTokenizer":
        return cls("".join(sorted(set().union(*texts))), special_tokens)

    @cached_property
    def vocab(self) -> tuple[str, ...]:
        return (*self.special_tokens, *self.characters)

    @cached_property
    def token_to_id(self) -> dict[str, int]:
        return {c: i for i, c in enumerate(self.characters, len(self.special_tokens))}

    def encode(self, text: str) -> list[int]:
        if not self.special_tokens and (unknown := sorted(set(text) - self.token_to_id.keys())):
            raise UsageError(
                f"the text holds characters unseen in training: {''.join(unknown[:10])!r}; leave them out"
            )
        return [self.token_to_id.get(c, UNK_ID) for c in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.vocab[i] for i in ids if i >= len(self.special_tokens) or i == UNK_ID)

    def spec(self) -> dict[str, Any]:
        return {"kind": "characters", "characters": self.characters, "specials": list(self.special_tokens)}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "CharTokenizer":
        return cls(spec["characters"], tuple(spec["specials"]))


@dataclass(frozen=True)
class WordTokenizer:
    """Words and punctuation, the most frequent first; the rest is <unk>."""

    words: tuple[str, ...]
    lowercase: bool = True
    special_tokens: tuple[str, ...] = SPECIAL_TOKENS

    @classmethod
    def fit(
        cls, texts: Iterable[str], vocab_size: int = 10_000, *, lowercase: bool = True, min_count: int = 2
    ) -> "WordTokenizer":
        """The `vocab_size` most frequent words that occur `min_count` times; all of them where none does."""
        counts = Counter(word for text in texts for word in _split_words(text, lowercase))
        vocab_words = [word for word, n in counts.items() if n >= min_count] or list(counts)
        return cls(tuple(sorted(vocab_words, key=lambda word: (-counts[word], word))[:vocab_size]), lowercase)

    @cached_property
    def vocab(self) -> tuple[str, ...]:
        return (*self.special_tokens, *self.words)

    @cached_property
    def token_to_id(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words, len(self.special_tokens))}

    def encode(self, text: str) -> list[int]:
        return [self.token_to_id.get(word, UNK_ID) for word in _split_words(text, self.lowercase)]

    def decode(self, ids: Sequence[int]) -> str:
        """Words with spaces between, none before closing punctuation."""
        text = " ".join(self.vocab[i] for i in ids if i >= len(self.special_tokens) or i == UNK_ID)
        return re.sub(r"\s+([.,;:!?)\]])", r"\1", text)

    def spec(self) -> dict[str, Any]:
        return {"kind": "words", "words": list(self.words), "lower": self.lowercase}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "WordTokenizer":
        return cls(tuple(spec["words"]), spec["lower"])


def _split_words(text: str, lowercase: bool) -> list[str]:
    return _WORD_PATTERN.findall(text.lower() if lowercase else text)


@dataclass(frozen=True)
class BPETokenizer:
    """Byte-pair encoding: special tokens, 256 bytes, then a token for each merge. Any text is encoded without loss."""

    merges: tuple[bpe.Pair, ...]
    special_tokens: tuple[str, ...] = SPECIAL_TOKENS

    @classmethod
    def fit(
        cls, texts: Iterable[str], vocab_size: int = 4096, *, special_tokens: tuple[str, ...] = SPECIAL_TOKENS
    ) -> "BPETokenizer":
        """Merges learned by the library `tokenizers` where it is installed, else by `train_bpe`: the same, slowly."""
        num_merges = vocab_size - 256 - len(special_tokens)
        if num_merges < 0:
            raise UsageError(
                f"BPE begins with 256 bytes and {len(special_tokens)} special tokens, got a vocabulary of "
                f"{vocab_size}"
            )
        merges = train_bpe_with_tokenizers(texts, num_merges) if has_tokenizers() else bpe.train_bpe(texts, num_merges)
        return cls(tuple(merges), special_tokens)

    @cached_property
    def vocab(self) -> tuple[str, ...]:
        return (
            *self.special_tokens,
            *sorted(bpe.bytes_to_unicode().values()),
            *("".join(pair) for pair in self.merges),
        )

    @cached_property
    def token_to_id(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.vocab)}

    @cached_property
    def merge_ranks(self) -> dict[bpe.Pair, int]:
        return {pair: i for i, pair in enumerate(self.merges)}

    @cached_property
    def fast_tokenizer(self) -> Any:
        """The same tokenizer of the library `tokenizers`; None where it is not installed."""
        return build_fast_tokenizer(self) if has_tokenizers() else None

    def encode(self, text: str) -> list[int]:
        if self.fast_tokenizer is not None:
            ids: list[int] = self.fast_tokenizer.encode(text).ids
            return ids
        ids_by_piece: dict[str, list[int]] = {}
        for piece in (pieces := bpe.pretokenize(text)):
            if piece not in ids_by_piece:
                ids_by_piece[piece] = [self.token_to_id[symbol] for symbol in bpe.apply_merges(piece, self.merge_ranks)]
        return [i for piece in pieces for i in ids_by_piece[piece]]

    def decode(self, ids: Sequence[int]) -> str:
        """Bytes that are no UTF-8, such as half a character, become �."""
        byte = {c: b for b, c in bpe.bytes_to_unicode().items()}
        symbols = "".join(self.vocab[i] for i in ids if i >= len(self.special_tokens))
        return bytes(byte[c] for c in symbols).decode(errors="replace")

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "bpe",
            "merges": [" ".join(pair) for pair in self.merges],
            "specials": list(self.special_tokens),
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "BPETokenizer":
        merges, known = tuple(map(bpe.pair, spec["merges"])), set(bpe.bytes_to_unicode().values())
        for pair in merges:
            if not set(pair) <= known:
                raise UsageError(
                    f"the run's tokenizer is damaged: it merges {' and '.join(pair)[:40]!r} before it knows both; "
                    "train anew"
                )
            known.add("".join(pair))
        return cls(merges, tuple(spec["specials"]))


def has_tokenizers() -> bool:
    """Whether the library `tokenizers` is installed."""
    from importlib.util import find_spec

    return find_spec("tokenizers") is not None


def train_bpe_with_tokenizers(texts: Iterable[str], num_merges: int) -> list[bpe.Pair]:
    """The merges that the library learns."""
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + num_merges,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=1,
    )
    tokenizer.train_from_iterator([texts] if isinstance(texts, str) else texts, trainer)
    merge_pairs = (
        merge if isinstance(merge, list) else merge.split(" ")
        for merge in json.loads(tokenizer.to_str())["model"]["merges"]
    )
    return [(left, right) for left, right in merge_pairs]


def build_fast_tokenizer(bpe_tokenizer: Any) -> Any:
    """The library's tokenizer with the ids and merges of this one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocab=bpe_tokenizer.token_to_id, merges=list(bpe_tokenizer.merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TOKENIZERS: dict[str, Any] = {"characters": CharTokenizer, "words": WordTokenizer, "bpe": BPETokenizer}
_SHAPES: dict[str, Shape] = {
    "characters": {"characters": TEXT, "specials": [TEXT]}, "words": {"words": [TEXT], "lower": FLAG},
    "bpe": {"merges": [TEXT], "specials": [TEXT]},
    "published": {"names": [TEXT], "merges": [TEXT], "marks": [TEXT], "digits": FLAG},
}


def tokenizer_from_spec(spec: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a run."""
    from didact.data.text.gpt2_bpe import PretrainedBPE

    kinds = {**TOKENIZERS, "published": PretrainedBPE}
    wrong = find_mismatch(spec, {"kind": TEXT}) or find_mismatch(spec, _SHAPES.get(spec["kind"], {}))
    if not wrong and spec.get("specials", []) not in ([], list(SPECIAL_TOKENS)):
        wrong = f"specials must be {', '.join(SPECIAL_TOKENS)} or none"
    if wrong:
        raise UsageError(f"the run's tokenizer is damaged: {wrong}; train anew")
    tokenizer: Tokenizer = look_up("tokenizer", spec["kind"], kinds).from_spec(spec)
    return tokenizer
