"""Pairs of sentences: one is read, the other written. Translations, and made numbers in words with their digits.

    x  (N, S)   source tokens, <eos> behind, then padding
    y  (N, T)   <bos>, target tokens, <eos>, then padding: a decoder reads y[:-1] and is asked for y[1:]
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didact.data import tokens
from didact.data.assemble import assemble
from didact.data.core import SPLITS, Batch, Data, Decode, Given, Whence
from didact.data.delimited import ENDINGS, lines_of, read_text, stem
from didact.data.fetch import File, read, source
from didact.data.readers import meant_as_files
from didact.data.sequences import padded
from didact.data.splitting import three_way
from didact.data.tokens import BEGIN, END, SPECIALS, BytePairs, Characters, Tokenizer, Words
from didact.errors import UsageError, counted, pick

LONGEST = 100   # tokens of a sentence that are kept
HEADERS = (     # what a first line may call the two columns, both names from one of these
    {"source", "target", "src", "tgt", "trg", "source_text", "target_text", "source_sentence", "target_sentence"},
    {"english", "french", "german", "spanish", "italian", "portuguese", "dutch", "polish", "russian", "chinese", "japanese", "korean",
     "arabic", "turkish", "swedish", "danish", "norwegian", "finnish", "czech", "greek", "hungarian", "romanian", "ukrainian", "hindi"},
    {"en", "fr", "de", "es", "it", "pt", "nl", "pl", "ru", "zh", "ja", "ko", "ar", "tr", "sv", "fi", "cs", "el", "hu", "ro", "uk", "hi"},
)
HOME = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
SUMS = {
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
    """Sentences of the source language as tokens; `target` turns what a decoder wrote into text again."""

    source: Tokenizer
    target: Tokenizer
    mean: float = 1.0        # tokens that a training target asks for, …
    longest: int = LONGEST   # … and the most that one does

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": Tensor.long, "y": Tensor.long}

    @property
    def spell(self) -> Callable[[Sequence[int]], str] | None:
        """How written tokens become sentences; None where they are no words but signs, as digits are."""
        return None if isinstance(self.target, Characters) and " " not in self.target.characters else self.target.decode

    def encode(self, texts: Sequence[str]) -> Tensor:
        return padded([[*self.source.encode(text)[: LONGEST - 1], END] for text in texts])

    def encode_target(self, texts: Sequence[str]) -> Tensor:
        return padded([[BEGIN, *self.target.encode(text)[: LONGEST - 2], END] for text in texts])

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """Sentences as they are, or as paths files with one a line; of pairs with a tab between, the first is read."""
        found: list[tuple[str, str]] = []       # what it is called, and the sentence
        for text in inputs:
            if isinstance(text, Path):
                found += sentences(text)
            elif text.strip():
                found.append((text, text))
            else:
                raise UsageError(f"expected a sentence, got {text!r}")
        return [name for name, _ in found], {"x": self.encode([sentence for _, sentence in found])}

    def doubts(self, inputs: Sequence[Given]) -> list[str]:
        """Sentences that may be meant as files."""
        return meant_as_files(inputs, (*ENDINGS, ".txt"))

    def spec(self) -> dict[str, Any]:
        both = {"source": self.source.spec(), "target": self.target.spec()}
        return {"kind": "pairs", **both, "mean": self.mean, "longest": self.longest}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "PairEncoder":
        return cls(tokens.from_spec(spec["source"]), tokens.from_spec(spec["target"]), spec["mean"], spec["longest"])


FIT: dict[str, Callable[[Sequence[str]], Tokenizer]] = {
    "characters": lambda texts: Characters.fit(texts, specials=SPECIALS),
    "words": lambda texts: Words.fit(texts, 10_000, lower=False),
    "lower": lambda texts: Words.fit(texts, 10_000),
    "bpe": lambda texts: BytePairs.fit(texts, 8_000),
}


def translated(
    name: str, pairs: Sequence[tuple[str, str]], *, kinds: tuple[str, str] = ("words", "words"),
    indices: Mapping[str, Tensor] | None = None, whence: Whence | None = None, seed: int = 0, notes: Sequence[str] = (),
) -> Data:
    """Pairs as Data; both vocabularies are those of the training pairs."""
    indices = indices or three_way(len(pairs), fractions=(0.1, 0.1), seed=seed)
    known = [pairs[i] for i in indices["train"].tolist()]
    fitted = [pick("tokenizer", kind, FIT)([pair[side] for pair in known]) for side, kind in enumerate(kinds)]
    encoder = PairEncoder(fitted[0], fitted[1])
    x, y = encoder.encode([s for s, _ in pairs]), encoder.encode_target([t for _, t in pairs])
    long = int(((x[:, LONGEST - 1 :] != 0).any(1) | (y[:, LONGEST - 1 :] != 0).any(1)).sum())
    asked = (y[indices["train"], 1:] != 0).sum(1)
    encoder = replace(encoder, mean=float(asked.float().mean()), longest=int(asked.max()))
    cut = [f"longer than {LONGEST} tokens: {counted(long, 'pair')}, of which what goes beyond is left out"] if long else []
    return assemble(
        name, "pairs", {"x": x, "y": y},
        task="translation", names=encoder.source.names, target="translation", encoder=encoder, indices=indices, standardise=False,
        whence=whence, notes=[f"{len(encoder.source.names):,} and {len(encoder.target.names):,} different tokens", *cut, *notes],
    )


def load(path: Path, *, seed: int = 0, indices: Mapping[str, Tensor] | None = None, kind: tokens.Kind | None = None) -> Data:
    """One's own pairs: a line each, a tab between the sentences. Lines with one side missing are refused. Words keep their case."""
    if kind == "gpt2":
        raise UsageError("--tokens gpt2 is for running text; pairs are cut into characters, words or bpe")
    kind = kind or "words"
    found, lines, notes = read_pairs(path)
    whence = lines_of(path, lines)
    return translated(stem(path), found, kinds=(kind, kind), seed=seed, indices=indices, whence=whence, notes=notes)


def read_pairs(path: Path) -> tuple[list[tuple[str, str]], list[int], list[str]]:
    """The two sides of every line, which line it is, and what is said of them."""
    found = []
    lines, notes = tabbed(path)
    for number, sides in lines:
        if len(sides) != 2 or not all(sides):
            line = "\t".join(sides)
            raise UsageError(f"line {number} of {path} must be two sentences with a tab between, got {line[:60]!r}")
        found.append((sides[0], sides[1]))
    if len(found) < 10:
        raise UsageError(f"{path} holds {len(found)} pairs; at least 10 make three splits")
    return found, [number for number, _ in lines], notes


def sentences(path: Path) -> list[tuple[str, str]]:
    """The first side of every line, and where it stands."""
    found = [(f"{path}:{number}", sides[0]) for number, sides in tabbed(path)[0]]
    empty = next((name for name, sentence in found if not sentence), None)
    if empty or not found:
        raise UsageError(f"expected a sentence on each line, got none in {empty or path}")
    return found


def tabbed(path: Path) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """The lines that hold something, with their numbers and cut at tabs. One on top that names the columns is left out, which is said."""
    lines = enumerate(re.split(r"\r?\n|\r", read_text(path)), 1)      # splitlines would also cut at U+2028, which may stand in a sentence
    found = [(number, [side.strip() for side in line.split("\t")]) for number, line in lines if line.strip()]
    top = found[0][1] if found else []
    named = {side.lower() for side in top}
    if len(top) == len(named) == 2 and any(named <= names for names in HEADERS):
        return found[1:], [f"the first line names the columns, {top[0]!r} and {top[1]!r}: it is no pair to learn from"]
    return found, []


def multi30k(seed: int, language: str) -> Data:
    """The official splits: 29,000 training pairs, 1,014 for validation, and the 1,000 of test 2016."""
    lines = [raw.decode().split("\n")[:-1] for raw in read(f"multi30k_{language}", multi30k_files(language))]
    pairs = [pair for k in range(3) for pair in zip(lines[2 * k], lines[2 * k + 1], strict=True)]
    rows = torch.arange(len(pairs)).split([len(side) for side in lines[::2]])
    indices = dict(zip(SPLITS, rows, strict=True))
    return translated(f"multi30k_{language}", pairs, kinds=("bpe", "bpe"), indices=indices, seed=seed)


def multi30k_files(language: str) -> tuple[File, ...]:
    names = [f"{part}.{side}" for part in ("train", "val", "test_2016_flickr") for side in ("en", language)]
    return tuple(File(f"multi30k/{name}", SUMS[name], f"{HOME}/{name}.gz") for name in names)   # one folder for both languages


@source(kind="pairs", task="translation", licence="no licence stated; Elliott et al. 2016", files=multi30k_files("fr"))
def multi30k_fr(seed: int = 0) -> Data:
    """31,014 descriptions of photographs, English to French."""
    return multi30k(seed, "fr")


@source(kind="pairs", task="translation", licence="no licence stated; Elliott et al. 2016", files=multi30k_files("de"))
def multi30k_de(seed: int = 0) -> Data:
    """31,014 descriptions of photographs, English to German."""
    return multi30k(seed, "de")


@source(kind="pairs", task="translation", licence="made by didact")
def number_words(seed: int = 0) -> Data:
    """10,000 numbers below a million in English words, to be written in digits (Gaba Ex 6.1)."""
    drawn = np.random.default_rng(0).permutation(1_000_000)[:9_000]
    numbers = sorted({*range(1_000), *drawn.tolist()})
    return translated("number_words", [(in_words(n), str(n)) for n in numbers], kinds=("lower", "characters"), seed=seed)


ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen",
    "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def in_words(n: int) -> str:
    """English words of 0 … 999,999: three hundred forty two thousand seven."""
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f" {ONES[n % 10]}" if n % 10 else "")
    size, word = (100, "hundred") if n < 1000 else (1000, "thousand")
    return f"{in_words(n // size)} {word}" + (f" {in_words(n % size)}" if n % size else "")
