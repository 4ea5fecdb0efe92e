"""Parallel texts: pairs of sentences, a source and its translation. Multi30k, and numbers in words with their digits.

    x  (N, S)   source tokens, <eos> behind, then padding
    y  (N, T)   <bos>, target tokens, <eos>, then padding: a decoder reads y[:-1] and predicts y[1:]
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didact.data.build import Examples, build_data
from didact.data.core import SPLITS, Batch, Data, Decode, Given, SourceLocator
from didact.data.datasets.archives import find_possible_files
from didact.data.datasets.download import RemoteFile, read_files, register_dataset
from didact.data.split import train_val_test_split
from didact.data.tables.columns import to_strings
from didact.data.tables.csv_reader import make_line_locator, read_text
from didact.data.tables.read_table import read_table
from didact.data.tables.table_file import TABLE_SUFFIXES, TableFile, dataset_name
from didact.data.text import tokenizers
from didact.data.text.language_modeling import pad_rows
from didact.data.text.tokenizers import (
    BOS_ID,
    EOS_ID,
    SPECIAL_TOKENS,
    BPETokenizer,
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
)
from didact.errors import UsageError, format_count, look_up

MAX_TOKENS = 100   # of a sentence; longer ones are cut
# what a first line may call the two columns, both names from one of these
_HEADER_NAMES = tuple(
    frozenset(names.split())
    for names in (
        "source target src tgt trg source_text target_text source_sentence target_sentence",
        "english french german spanish italian portuguese dutch polish russian chinese japanese korean arabic turkish"
        " swedish danish norwegian finnish czech greek hungarian romanian ukrainian hindi",
        "en fr de es it pt nl pl ru zh ja ko ar tr sv fi cs el hu ro uk hi",
    )
)
_HOME_URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_MULTI30K_SHA256 = {
    "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "train.fr": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
    "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "val.fr": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
    "test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "test_2016_flickr.fr": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
}


@dataclass(frozen=True)
class PairEncoder:
    """Source sentences as tokens; `target` is the tokenizer of what the decoder generates."""

    source: Tokenizer
    target: Tokenizer
    mean_target_length: float = 1.0        # tokens of a training target
    max_target_length: int = MAX_TOKENS    # of the longest training target

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": Tensor.long, "y": Tensor.long}

    @property
    def detokenize(self) -> Callable[[Sequence[int]], str] | None:
        """How generated tokens become sentences; None where they are characters without spaces, as digits are."""
        return (
            None if isinstance(self.target, CharTokenizer) and " " not in self.target.characters else self.target.decode
        )

    def encode(self, texts: Sequence[str]) -> Tensor:
        return pad_rows([[*self.source.encode(text)[: MAX_TOKENS - 1], EOS_ID] for text in texts])

    def encode_target(self, texts: Sequence[str]) -> Tensor:
        return pad_rows([[BOS_ID, *self.target.encode(text)[: MAX_TOKENS - 2], EOS_ID] for text in texts])

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """Sentences; as paths, files with one on each line; of pairs with a tab between, the first is read."""
        named_sentences: list[tuple[str, str]] = []
        for text in inputs:
            if isinstance(text, Path):
                named_sentences += _read_source_sentences(text)
            elif text.strip():
                named_sentences.append((text, text))
            else:
                raise UsageError(f"expected a sentence, got {text!r}")
        return [name for name, _ in named_sentences], {"x": self.encode([sentence for _, sentence in named_sentences])}

    def describe_unseen_inputs(self, inputs: Sequence[Given]) -> list[str]:
        """Sentences that may be file names."""
        return find_possible_files(inputs, (*TABLE_SUFFIXES, ".txt"))

    def spec(self) -> dict[str, Any]:
        tokenizers = {"source": self.source.spec(), "target": self.target.spec()}
        return {"kind": "pairs", **tokenizers, "mean": self.mean_target_length, "longest": self.max_target_length}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "PairEncoder":
        return cls(
            tokenizers.tokenizer_from_spec(spec["source"]),
            tokenizers.tokenizer_from_spec(spec["target"]),
            spec["mean"],
            spec["longest"],
        )


_TOKENIZER_FITS: dict[str, Callable[[Sequence[str]], Tokenizer]] = {
    "characters": lambda texts: CharTokenizer.fit(texts, special_tokens=SPECIAL_TOKENS),
    "words": lambda texts: WordTokenizer.fit(texts, 10_000, lowercase=False),
    "lower": lambda texts: WordTokenizer.fit(texts, 10_000),
    "bpe": lambda texts: BPETokenizer.fit(texts, 8_000),
}


def build_pairs(
    name: str,
    pairs: Sequence[tuple[str, str]],
    *,
    kinds: tuple[str, str] = ("words", "words"),
    indices: Mapping[str, Tensor] | None = None,
    locator: SourceLocator | None = None,
    seed: int = 0,
    notes: Sequence[str] = (),
) -> Data:
    """Pairs as Data; both vocabularies are those of the training pairs."""
    indices = indices or train_val_test_split(len(pairs), fractions=(0.1, 0.1), seed=seed)
    train_pairs = [pairs[i] for i in indices["train"].tolist()]
    tokenizers = [
        look_up("tokenizer", kind, _TOKENIZER_FITS)([pair[side] for pair in train_pairs])
        for side, kind in enumerate(kinds)
    ]
    encoder = PairEncoder(tokenizers[0], tokenizers[1])
    x, y = encoder.encode([s for s, _ in pairs]), encoder.encode_target([t for _, t in pairs])
    num_long = int(((x[:, MAX_TOKENS - 1 :] != 0).any(1) | (y[:, MAX_TOKENS - 1 :] != 0).any(1)).sum())
    target_lengths = (y[indices["train"], 1:] != 0).sum(1)
    encoder = replace(
        encoder, mean_target_length=float(target_lengths.float().mean()), max_target_length=int(target_lengths.max())
    )
    length_notes = (
        [f"longer than {MAX_TOKENS} tokens: {format_count(num_long, 'pair')}, cut off there"]
        if num_long
        else []
    )
    return build_data(
        Examples(
            name,
            "pairs",
            {"x": x, "y": y},
            task="translation",
            feature_names=encoder.source.vocab,
            target="translation",
            encoder=encoder,
            standardize=False,
            locator=locator,
            notes=[
                f"{len(encoder.source.vocab):,} and {len(encoder.target.vocab):,} different tokens",
                *length_notes,
                *notes,
            ],
        ),
        indices=indices,
    )


def load_pairs(
    path: Path,
    *,
    seed: int = 0,
    indices: Mapping[str, Tensor] | None = None,
    kind: tokenizers.TokenizerKind | None = None,
) -> Data:
    """A file of sentence pairs: one on each line, with a tab between. Lines with one side missing are refused."""
    if kind == "gpt2":
        raise UsageError("--tokens gpt2 is for running text; pairs are split into characters, words or bpe")
    kind = kind or "words"
    sentence_pairs, lines, notes = _read_pairs(path)
    locator = make_line_locator(path, lines)
    return build_pairs(
        dataset_name(path), sentence_pairs, kinds=(kind, kind), seed=seed, indices=indices, locator=locator, notes=notes
    )


def _read_pairs(path: Path) -> tuple[list[tuple[str, str]], list[int], list[str]]:
    """The two sides of every line, their line numbers, and notes."""
    sentence_pairs = []
    lines, notes = _read_tsv(path)
    for number, sides in lines:
        if len(sides) != 2 or not all(sides):
            line = "\t".join(sides)
            raise UsageError(f"line {number} of {path} must be two sentences with a tab between, got {line[:60]!r}")
        sentence_pairs.append((sides[0], sides[1]))
    if len(sentence_pairs) < 10:
        raise UsageError(f"{path} holds {len(sentence_pairs)} pairs; at least 10 make three splits")
    return sentence_pairs, [number for number, _ in lines], notes


def _read_source_sentences(path: Path) -> list[tuple[str, str]]:
    """The first side of every line, with file and line."""
    named_sentences = [(f"{path}:{number}", sides[0]) for number, sides in _read_tsv(path)[0]]
    empty = next((name for name, sentence in named_sentences if not sentence), None)
    if empty or not named_sentences:
        raise UsageError(f"expected a sentence on each line, got none in {empty or path}")
    return named_sentences


def _read_tsv(path: Path) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """The lines that are not blank, with their numbers, split at tabs; a header line is left out, with a note."""
    if TableFile.parse(path).format not in ("csv", ""):        # a .txt has a sentence on each line
        return _read_two_columns(path)
    # splitlines would also cut at U+2028, which may stand in a sentence
    lines = enumerate(re.split(r"\r?\n|\r", read_text(path)), 1)
    numbered_lines = [(number, [side.strip() for side in line.split("\t")]) for number, line in lines if line.strip()]
    header = numbered_lines[0][1] if numbered_lines else []
    header_names = {side.lower() for side in header}
    if len(header) == len(header_names) == 2 and any(header_names <= names for names in _HEADER_NAMES):
        return numbered_lines[1:], [
            f"the first line names the columns, {header[0]!r} and {header[1]!r}: it is left out"
        ]
    return numbered_lines, []


def _read_two_columns(path: Path) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """The first two columns of a table that is no file of lines, row by row; of one column, the sources alone."""
    frame = read_table(path, min_columns=1)
    names = [str(name) for name in frame.columns[:2]]
    sides = [to_strings(frame[name]) for name in names]
    note = f"pairs are those of the columns {' and '.join(map(repr, names))}"
    return [(int(n), list(row)) for n, *row in zip(frame.index, *sides, strict=True)], [note, *frame.attrs["notes"]]


def _load_multi30k(seed: int, language: str) -> Data:
    """The official splits: 29,000 training pairs, 1,014 for validation, and the 1,000 of test 2016."""
    lines = [
        raw.decode().split("\n")[:-1] for raw in read_files(f"multi30k_{language}", _list_multi30k_files(language))
    ]
    pairs = [pair for k in range(3) for pair in zip(lines[2 * k], lines[2 * k + 1], strict=True)]
    rows = torch.arange(len(pairs)).split([len(side) for side in lines[::2]])
    indices = dict(zip(SPLITS, rows, strict=True))
    return build_pairs(f"multi30k_{language}", pairs, kinds=("bpe", "bpe"), indices=indices, seed=seed)


def _list_multi30k_files(language: str) -> tuple[RemoteFile, ...]:
    names = [f"{part}.{side}" for part in ("train", "val", "test_2016_flickr") for side in ("en", language)]
    # one folder for both languages
    return tuple(RemoteFile(f"multi30k/{name}", _MULTI30K_SHA256[name], f"{_HOME_URL}/{name}.gz") for name in names)


@register_dataset(
    kind="pairs", task="translation", license="no license stated; Elliott et al. 2016", files=_list_multi30k_files("fr")
)
def multi30k_fr(seed: int = 0) -> Data:
    """31,014 descriptions of photographs, English to French."""
    return _load_multi30k(seed, "fr")


@register_dataset(
    kind="pairs", task="translation", license="no license stated; Elliott et al. 2016", files=_list_multi30k_files("de")
)
def multi30k_de(seed: int = 0) -> Data:
    """31,014 descriptions of photographs, English to German."""
    return _load_multi30k(seed, "de")


@register_dataset(kind="pairs", task="translation", license="made by didact")
def number_words(seed: int = 0) -> Data:
    """10,000 numbers below a million in English words, to be translated into digits (Gaba Ex 6.1)."""
    sampled = np.random.default_rng(0).permutation(1_000_000)[:9_000]
    numbers = sorted({*range(1_000), *sampled.tolist()})
    return build_pairs(
        "number_words", [(number_to_words(n), str(n)) for n in numbers], kinds=("lower", "characters"), seed=seed
    )


_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def number_to_words(n: int) -> str:
    """English words of 0 … 999,999: three hundred forty two thousand seven."""
    if n < 20:
        return _ONES[n]
    if n < 100:
        return _TENS[n // 10 - 2] + (f" {_ONES[n % 10]}" if n % 10 else "")
    size, word = (100, "hundred") if n < 1000 else (1000, "thousand")
    return f"{number_to_words(n // size)} {word}" + (f" {number_to_words(n % size)}" if n % size else "")
