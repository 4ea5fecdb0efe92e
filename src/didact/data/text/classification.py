"""Text classification: texts as bags of tokens for a plain network, as token sequences for a recurrent one.

Tokens are words, characters or byte pairs, chosen by how the training texts look (`token_choice`).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didact.data.build import Examples, build_data
from didact.data.core import SPLITS, Batch, Data, Decode, Given, TensorSplit
from didact.data.datasets.archives import find_possible_files
from didact.data.tables.columns import to_strings
from didact.data.tables.csv_reader import make_line_locator
from didact.data.tables.read_table import read_table
from didact.data.tables.table import get_stored_offsets
from didact.data.tables.table_file import TABLE_SUFFIXES, dataset_name, is_table_path
from didact.data.tables.table_options import (
    NO_TABLE_OPTIONS,
    TableOptions,
    check_target_stays,
    drop_columns,
    normalize_weights,
    read_split_files,
    read_weights,
    split_rows,
)
from didact.data.tables.target import Task, choose_target, read_labeled_rows, target_columns
from didact.data.text.bpe import Pair, pair
from didact.data.text.token_choice import TextStatistics, TextTokens, check_text_tokens
from didact.data.text.tokenizers import BPETokenizer
from didact.errors import UsageError, format_count, suggest_nearest

WORD_PATTERN = re.compile(r"[^\W_]+(?:'[^\W_]+)*")   # letters and digits; an apostrophe inside stays: don't
MAX_STORED_WORDS = 1000                               # words, or other tokens, of a text that are stored
_MAX_MERGES = 2000                                    # of byte pairs; fewer on small data, else each text is a token
_CHARACTERS_PER_MERGE = 20


def split_words(text: str) -> list[str]:
    """The lower-cased words of a text, without HTML line breaks."""
    return WORD_PATTERN.findall(text.replace("<br />", " ").lower())


@dataclass(frozen=True)
class BagEncoder:
    """Bag of tokens: x_v = 1 if token v occurs in the text, else 0.  Tokens are words, if nothing else is said.

    Stored as the ids of its tokens in order, V (padding) behind the end, V + 1 for an unknown one.
    """

    vocab: tuple[str, ...]                  # the V tokens, the most frequent first
    column: str = "text"                    # of a table, with the texts
    tokens: TextTokens = "words"
    lowercase: bool = True                  # words always are; of characters those of prose
    merges: tuple[Pair, ...] = ()           # of byte-pair encoding
    ngram_length: int = 0                   # characters of a text that n-grams are made of; 0: n-grams of tokens

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        vocab_size: int = 10000,
        *,
        column: str = "text",
        tokens: TextTokens = "words",
        statistics: TextStatistics | None = None,
    ) -> "BagEncoder":
        """The tokens that occur in most texts; those of a single text are left out, unless there are no others."""
        statistics = statistics or TextStatistics.measure(texts)
        merges: tuple[Pair, ...] = ()
        if tokens == "bpe":
            num_merges = min(_MAX_MERGES, sum(map(len, texts)) // _CHARACTERS_PER_MERGE)
            merges = BPETokenizer.fit(texts, 256 + num_merges, special_tokens=()).merges
        encoder = cls(
            (), column, tokens, statistics.is_prose or tokens == "words", merges, statistics.ngram_length
        )
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(set(encoder.split(text)))
        vocab_tokens = [token for token, count in counts.items() if count > 1] or list(counts)
        if not vocab_tokens:
            kind = "a word" if tokens == "words" else "a character"
            raise UsageError(
                f"none of the {len(texts)} texts of column {column!r} holds {kind}; choose another with --text"
            )
        vocab = sorted(vocab_tokens, key=lambda token: (-counts[token], token))[:vocab_size]
        return replace(encoder, vocab=tuple(vocab))

    def split(self, text: str) -> list[str]:
        """The tokens of a text."""
        if self.tokens == "words":
            return split_words(text)
        if self.tokens == "characters":
            return list(text.lower() if self.lowercase else text)
        return [self.bpe_tokenizer.vocab[i] for i in self.bpe_tokenizer.encode(text)]

    @cached_property
    def bpe_tokenizer(self) -> BPETokenizer:
        return BPETokenizer(self.merges, ())

    @cached_property
    def word_to_id(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.vocab)}

    def encode(self, texts: Sequence[str]) -> Tensor:
        """(N, L): the ids of the first `MAX_STORED_WORDS` tokens of each text, in two bytes each where they fit."""
        word_to_id, pad_id = self.word_to_id, len(self.vocab)
        rows = [[word_to_id.get(w, pad_id + 1) for w in self.split(text)[:MAX_STORED_WORDS]] for text in texts]
        x = np.full(
            (len(rows), max(1, max(map(len, rows), default=0))),
            pad_id,
            dtype=np.int16 if pad_id < 2**15 - 2 else np.int32,
        )
        for i, row in enumerate(rows):
            x[i, : len(row)] = row
        return torch.from_numpy(x)

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": self.to_bag}

    def to_bag(self, x: Tensor) -> Tensor:
        """(B, L) word ids -> (B, V) zeros and ones; the last two columns, padding and unknown words, are cut off."""
        vocab_size = len(self.vocab)
        return torch.zeros(len(x), vocab_size + 2, device=x.device).scatter_(1, x.long(), 1.0)[:, :vocab_size]

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """Texts; as paths, text files or CSV files with the column of texts."""
        names: list[str] = []
        texts: list[str] = []
        for text in inputs:
            if isinstance(text, Path) and is_table_path(str(text)):
                frame = read_table(text, min_columns=1, text_columns={self.column})  # new texts have no label
                texts += list(_get_text_column(frame, self.column, text))
                names += [f"{text}:{line}" for line in frame.index]
                continue
            if text == "-":
                raise UsageError(
                    "expected a text, got '-': standard input is not read; save it to a file, and give --from FILE"
                )
            if isinstance(text, str) and not text.strip():
                raise UsageError(f"expected a text, got {text!r}")
            texts.append(_read_txt(text) if isinstance(text, Path) else text)
            names.append(str(text))
        return names, {"x": self.encode(texts)}

    def describe_unseen_inputs(self, inputs: Sequence[Given]) -> list[str]:
        """Texts that may be file names."""
        return find_possible_files(inputs, (*TABLE_SUFFIXES, ".txt"))

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "bag",
            "names": list(self.vocab),
            "column": self.column,
            "tokens": self.tokens,
            "lowercase": self.lowercase,
            "merges": [" ".join(merge) for merge in self.merges],
            "ngram_length": self.ngram_length,
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "BagEncoder":
        """The encoder of a run; those of earlier versions read words."""
        return cls(
            tuple(spec["names"]),
            spec["column"],
            spec.get("tokens", "words"),
            spec.get("lowercase", True),
            tuple(map(pair, spec.get("merges", ()))),
            spec.get("ngram_length", 0),
        )


@dataclass(frozen=True)
class SequenceEncoder(BagEncoder):
    """Tokens in order: <pad> 0 behind the end, <unk> 1, from 2 the `vocab_size` most frequent; at most `max_length`."""

    vocab_size: int = 10_000
    max_length: int = 256

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": self.to_tokens}

    def to_tokens(self, x: Tensor) -> Tensor:
        """(B, L) word ids -> (B, at most `max_length`) tokens."""
        x, pad_id = x[:, : self.max_length].long(), len(self.vocab)
        return torch.where(x == pad_id, 0, torch.where(x < self.vocab_size, x + 2, 1))


def as_sequences(data: Data, *, vocab_size: int = 10_000, max_length: int = 256) -> Data:
    """Texts that were loaded as bags, as token sequences instead; what is stored is the same."""
    bag = data.encoder
    if not isinstance(bag, BagEncoder):
        raise UsageError(f"{data.name!r} does not hold texts with labels: give a CSV file and --text COLUMN")
    fields = {name: getattr(bag, name) for name in ("vocab", "column", "tokens", "lowercase", "merges", "ngram_length")}
    encoder = SequenceEncoder(**fields, vocab_size=min(vocab_size, len(bag.vocab)), max_length=max_length)
    splits = (data.split(part) for part in SPLITS)
    train, validation, test = (
        replace(s, decoders=encoder.decoders) if isinstance(s, TensorSplit) else s for s in splits
    )
    names = ("<pad>", "<unk>", *bag.vocab[: encoder.vocab_size])
    return replace(
        data, shape=(max_length,), encoder=encoder, feature_names=names, train=train, validation=validation, test=test
    )


_TOKEN_NAMES = {"words": "word", "characters": "character", "bpe": "byte-pair token"}


def fit_encoder(
    texts: Sequence[str], tokens: str | None = None, *, column: str = "text", vocab_size: int = 10_000
) -> tuple[BagEncoder, tuple[str, ...]]:
    """The encoder of training texts, with a note on how they are read: by these tokens, or by those that suit them."""
    statistics = TextStatistics.measure(texts)
    chosen, note = statistics.choose_tokens() if tokens is None else (check_text_tokens(tokens), "")
    encoder = BagEncoder.fit(texts, vocab_size, column=column, tokens=chosen, statistics=statistics)
    return encoder, (note,) if note else ()


def retokenize_texts(data: Data, tokens: str) -> Data:
    """Labeled texts that were loaded, in other tokens."""
    bag, kind = data.encoder, check_text_tokens(tokens)
    assert isinstance(bag, BagEncoder)
    if kind == bag.tokens:
        return data
    if data.text_reader is None:
        raise UsageError(f"{data.name!r} is kept as {bag.tokens}, without its texts; leave out --tokens {tokens}")
    encoder, _ = fit_encoder(data.read_texts("train"), kind, column=bag.column)
    return encode_splits(data, encoder, shape=(len(encoder.vocab),), feature_names=encoder.vocab)


def encode_splits(data: Data, encoder: BagEncoder, *, shape: tuple[int, ...], feature_names: tuple[str, ...]) -> Data:
    """The same data with its texts encoded by another encoder."""
    parts: dict[str, Any] = {}
    for part in SPLITS:
        split = data.split(part)
        if isinstance(split, TensorSplit):
            x = encoder.encode(data.read_texts(part)).to(split.device)
            split = replace(split, columns={**split.columns, "x": x}, decoders=encoder.decoders)
        parts[part] = split
    return replace(data, encoder=encoder, shape=shape, feature_names=feature_names, **parts)


def describe_vocabulary(encoder: BagEncoder, x: Tensor) -> str:
    """How many different tokens there are, and how long the longest text is."""
    return f"{len(encoder.vocab):,} different {_TOKEN_NAMES[encoder.tokens]}s, at most {x.shape[1]} of them in one text"


def _read_txt(path: Path) -> str:
    """The text of a UTF-8 file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(
            f"cannot read the text {path}: {reason}; expected UTF-8 text, or a CSV file with a column of texts"
        ) from None


def _get_text_column(frame: Any, column: str, path: Path) -> Any:
    """The column of texts; a missing text is an empty one."""
    if column not in frame.columns:
        raise UsageError(
            f"{path} has no column {column!r} of texts; {suggest_nearest(column, map(str, frame.columns))}"
        )
    return to_strings(frame[column])


def load_text_table(
    path: Path, *, text: str, target: str | None = None, task: Task | None = None, seed: int = 0,
    tokens: str | None = None, options: TableOptions = NO_TABLE_OPTIONS,
    indices: Mapping[str, Tensor] | None = None, run_data: Data | None = None,
) -> Data:
    """A CSV file with a column of texts as Data. The vocabulary is that of the training texts.

    `tokens`: characters, words or bpe (chosen by how the training texts look, if not given). `run_data`: the data of a
    run that is loaded again.
    """
    # without a target it is the last column, or the one before if that holds the texts
    text_columns = {text, *({-1, -2} if target is None else target_columns(target))}
    all_columns, origins = read_split_files(path, options, target=target, text_columns=text_columns)
    check_target_stays(options, target)
    weights = read_weights(all_columns, options, origins, path)
    frame, name = drop_columns(all_columns, options, path), dataset_name(path)
    _get_text_column(frame, text, path)
    if target == text:
        raise UsageError(f"--text and --target are the same column, {text!r}: choose another to be predicted")
    target, notes = choose_target(frame, target, path, excluded=text)
    is_labeled, target_values = read_labeled_rows(frame, target, name, task, get_stored_offsets(run_data))
    if not is_labeled.all():
        frame = frame[is_labeled]
        origins = None if origins is None else origins[is_labeled]
        weights = None if weights is None else weights[is_labeled]
    text_column = _get_text_column(frame, text, path)
    indices = split_rows(
        name, target_values.y, origins, task=target_values.task, options=options, indices=indices, seed=seed
    )
    texts = list(text_column)
    encoder, token_notes = fit_encoder([texts[i] for i in indices["train"].tolist()], tokens, column=text)
    x = encoder.encode(texts)
    columns = {"x": x, "y": target_values.y}
    if weights is not None:
        columns["weight"] = normalize_weights(weights, indices, str(options.sample_weight))
    num_empty = int((x >= len(encoder.vocab)).all(1).sum())
    notes = (*notes, target_values.note, *frame.attrs["notes"], *token_notes, describe_vocabulary(encoder, x))
    if num_empty:
        notes += (f"no known {_TOKEN_NAMES[encoder.tokens]} in {format_count(num_empty, 'text')}",)
    return build_data(
        Examples(
            name,
            "text",
            columns,
            task=target_values.task,
            class_names=target_values.class_names,
            feature_names=encoder.vocab,
            target=target,
            target_offset=target_values.offset,
            encoder=encoder,
            locator=make_line_locator(path, frame.index, frame.attrs["unit"]),
            text_reader=lambda: texts,
            standardize=False,
            notes=notes,
        ),
        indices=indices,
    )
