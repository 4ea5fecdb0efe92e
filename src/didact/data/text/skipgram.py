"""Skip-gram windows: words with the words around them, gathered on the device; word vectors are learned from them.

From any text: a running one is read paragraph by paragraph, labeled texts without their labels. Kind "words".
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Generator, Tensor

from didact.data.core import SPLITS, Batch, Data, MissingSplit, TensorSplit
from didact.data.text.classification import MAX_STORED_WORDS, BagEncoder, SequenceEncoder, split_words
from didact.data.text.language_modeling import TextEncoder, TokenWindows
from didact.data.text.tokenizers import CharTokenizer, Tokenizer
from didact.errors import UsageError

MAX_WINDOW = 16                  # zeros between two texts, so that no window crosses into the next
_MIN_WORD_COUNT = 3              # occurrences of a word of running text that is in the vocabulary
_MAX_WORDS = 30_000              # size of the vocabulary
_MAX_EVALUATED_WORDS = 20_000    # words of validation and test that are evaluated, evenly spread
_MIN_TRAINING_WORDS = 200
_DECODED_AT_ONCE = 2**20         # tokens
_BLANK_LINE = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class ContextWindows:
    """A split of a stream of word ids: example i is the word y at positions[i] and the 2 · window words around it, x; 0
    where there is none."""

    stream: Tensor              # (N,) all texts, zeros between them; words from 2
    positions: Tensor           # (M,) of the words
    window: int = 5
    id_limit: int = 2**31 - 1   # ids from here on are unknown words

    def __len__(self) -> int:
        return len(self.positions)

    def select(self, index: Tensor) -> Batch:
        centers = self.positions[index].long()
        offsets = torch.arange(1, self.window + 1, device=index.device)
        # (B, 2 · window)
        context_positions = centers[:, None] + torch.cat([-offsets.flip(0), offsets])
        return {"x": self.stream[context_positions], "y": self.stream[centers], "row": index}

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Batch]:
        index = torch.cat(list(chunks)).to(self.stream.device)
        return map(self.select, index.split([len(chunk) for chunk in chunks]))

    def decode(self, stored: Batch) -> Batch:
        x = stored["x"].long()
        return {"x": torch.where(x < self.id_limit, x, 0), "y": stored["y"].long(), "row": stored["row"]}

    def to(self, device: torch.device) -> Self:
        return replace(self, stream=self.stream.to(device), positions=self.positions.to(device))

    def restrict(self, window: int, vocab_size: int) -> Self:
        """Other windows, and the `vocab_size` most frequent words."""
        id_limit = vocab_size + 2
        return replace(
            self, window=window, id_limit=id_limit, positions=self.positions[self.stream[self.positions] < id_limit]
        )

    def count_words(self, vocab_size: int) -> Tensor:
        """Counts of each word, (vocab_size + 2,): 0 of <pad> and <unk>."""
        return torch.bincount(self.stream[self.positions].long(), minlength=vocab_size + 2)

    def expected_context_size(self) -> float:
        """Mean number of words in a sampled window: distance d is inside with probability (window − d + 1) / window."""
        distances = [(d, (self.window - d + 1) / self.window) for d in range(1, self.window + 1)]
        is_known = (self.stream > 1) & (self.stream < self.id_limit)
        return sum(
            p * float(is_known[self.positions + d].float().mean() + is_known[self.positions - d].float().mean())
            for d, p in distances
        )


def concat_texts(texts: Iterable[Tensor], *, max_examples: int | None = None) -> ContextWindows:
    """Texts of word ids concatenated; at most `max_examples` of their words are examples, evenly spread."""
    gap = bytes(4 * MAX_WINDOW)
    ids = array("i", gap)               # grows in place: a list of millions of tensors would take more than they do
    for text in texts:
        ids.frombytes(text.int().numpy().tobytes())
        ids.frombytes(gap)
    stream = torch.frombuffer(ids, dtype=torch.int32).clone()
    positions = stream.nonzero()[:, 0]
    if max_examples is not None and len(positions) > max_examples:
        positions = positions[torch.linspace(0, len(positions) - 1, max_examples).long()]
    return ContextWindows(stream, positions.int())


def as_word_stream(data: Data) -> Data:
    """The same texts as words with their neighbors; rare words of the training split are left out, as in word2vec."""
    parts: Mapping[str, Iterable[Tensor]]
    if isinstance(data.encoder, BagEncoder) and isinstance(data.train, TensorSplit):
        encoder, parts = data.encoder, {part: _iter_labeled_words(data, part) for part in SPLITS}
    elif isinstance(data.encoder, TextEncoder) and isinstance(data.train, TokenWindows):
        encoder, parts = _split_paragraphs(data.encoder.tokenizer, data.train.stream)
    else:
        raise UsageError(
            f"word vectors are learned from texts, but {data.name!r} is {data.kind}; give a .txt file, or a CSV with "
            "--text"
        )
    splits: dict[str, Any] = {
        part: concat_texts(parts[part], max_examples=None if part == "train" else _MAX_EVALUATED_WORDS)
        for part in SPLITS
    }
    n = len(splits["train"])
    if n < _MIN_TRAINING_WORDS or not all(map(len, splits.values())):
        raise UsageError(
            f"{data.name!r} holds {n} training words that occur more than once; word vectors need at least "
            f"{_MIN_TRAINING_WORDS}"
        )
    note = f"{n:,} training words, {len(encoder.vocab):,} different"
    return replace(
        data,
        kind="words",
        task="none",
        shape=(10,),
        class_names=(),
        feature_names=encoder.vocab,
        target="the words around",
        encoder=encoder,
        class_counts={},
        notes=(note,),
        locator=None,
        text_reader=None,
        **splits,  # a word is no row
    )


def _iter_labeled_words(data: Data, part: str) -> Iterator[Tensor]:
    """The known words of labeled texts."""
    split = data.split(part)
    assert isinstance(split, TensorSplit) and data.encoder is not None
    vocab_size = len(data.encoder.vocab)                                      # type: ignore[attr-defined]
    return (row[row < vocab_size].int() + 2 for row in split.columns["x"])


def _split_paragraphs(tokenizer: Tokenizer, stream: Tensor) -> tuple[BagEncoder, dict[str, Iterator[Tensor]]]:
    """The paragraphs of a running text: nine tenths for training, then half a tenth each; the training vocabulary.

    The text is gone through twice, to count its words and to encode them: the words themselves are not held.
    """
    text = _decode_in_parts(tokenizer, stream)
    a, b = len(text) * 18 // 20, len(text) * 19 // 20
    bounds = {"train": (0, a), "validation": (a, b), "test": (b, len(text))}
    counts: Counter[str] = Counter()
    for paragraph in _iter_paragraphs(text, *bounds["train"]):
        counts.update(split_words(paragraph))
    frequent_words = (word for word, n in counts.items() if n >= _MIN_WORD_COUNT)
    vocab = sorted(frequent_words, key=lambda word: (-counts[word], word))[:_MAX_WORDS]
    encoder = BagEncoder(tuple(vocab))
    word_to_id = encoder.word_to_id

    def encode_part(part: str) -> Iterator[Tensor]:
        for paragraph in _iter_paragraphs(text, *bounds[part]):
            ids = [word_to_id[word] + 2 for word in split_words(paragraph) if word in word_to_id]
            yield torch.tensor(ids, dtype=torch.int32)

    return encoder, {part: encode_part(part) for part in SPLITS}


def _decode_in_parts(tokenizer: Tokenizer, stream: Tensor) -> str:
    """The text of a stream. Characters are decoded part by part: a list of all ids would take eight bytes for each."""
    if not isinstance(tokenizer, CharTokenizer):
        return tokenizer.decode(stream.tolist())
    return "".join(tokenizer.decode(part.tolist()) for part in stream.split(_DECODED_AT_ONCE))


def _iter_paragraphs(text: str, start: int, stop: int) -> Iterator[str]:
    """The pieces of a part of the text between blank lines."""
    for match in _BLANK_LINE.finditer(text, start, stop):
        yield text[start : match.start()]
        start = match.end()
    yield text[start:stop]


def with_window(data: Data, *, window: int, vocab_size: int) -> Data:
    """The same words with windows of this size and the `vocab_size` most frequent words."""
    encoder = data.encoder
    assert isinstance(encoder, BagEncoder)
    num_words = min(vocab_size, len(encoder.vocab))
    parts: dict[str, Any] = {}
    for part in SPLITS:
        split = data.split(part)
        parts[part] = (
            split.restrict(window, num_words) if isinstance(split, ContextWindows) else MissingSplit(len(split))
        )
    names = ("<pad>", "<unk>", *encoder.vocab[:num_words])
    return replace(
        data,
        shape=(2 * window,),
        encoder=SequenceEncoder(
            encoder.vocab, encoder.column, vocab_size=num_words, max_length=MAX_STORED_WORDS
        ),
        feature_names=names,
        **parts,
    )


def compute_keep_probability(counts: Tensor, t: float) -> Tensor:
    """Subsampling of frequent words: min(1, √(t / f)), f a word's frequency; t = 0: 1.  Mikolov et al. 2013, eq. 5."""
    f = counts / counts.sum().clamp(min=1)
    return (t / f.clamp(min=1e-12)).sqrt().clamp(max=1) if t else torch.ones_like(f)


def make_subsampler(keep_probability: Tensor) -> Callable[[Batch, Generator], Batch]:
    """During training, frequent words are dropped at random, and the radius of each window is sampled: near words count
    more.

    Words are masked, not removed: shapes are fixed.
    """
    # a copy on each device, made before a graph is captured
    tables_by_device = {keep_probability.device: keep_probability}

    def subsample(batch: Batch, g: Generator) -> Batch:
        x, y = batch["x"], batch["y"]
        if x.device not in tables_by_device:
            tables_by_device[x.device] = keep_probability.to(x.device)
        probability = tables_by_device[x.device]
        window = x.shape[1] // 2
        offsets = torch.arange(1, window + 1, device=x.device)
        distance = torch.cat([offsets.flip(0), offsets])                                             # (2 · window,)
        radius = torch.randint(1, window + 1, (len(x), 1), device=x.device, generator=g)
        is_kept = torch.rand(x.shape, device=x.device, generator=g) < probability[x]
        is_center_kept = torch.rand(y.shape, device=x.device, generator=g) < probability[y]
        return {**batch, "x": torch.where(is_kept & (distance <= radius) & is_center_kept[:, None], x, 0)}

    return subsample
