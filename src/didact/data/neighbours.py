"""Words and the words around them, cut out of texts on the device: what word vectors are learned from.

Any text will do: a running one is read paragraph by paragraph, texts with labels leave their labels aside. Kind `words`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Generator, Tensor

from didact.data.core import SPLITS, Absent, Batch, Data, Resident
from didact.data.sequences import StreamEncoder, Windows
from didact.data.text import LONGEST, BagEncoder, SequenceEncoder, words
from didact.errors import UsageError

WIDEST = 16              # zeros between two texts: no window up to here reaches from one into the other
LEAST, MOST = 3, 30_000  # times a word of a running text must occur to be known; words that are
JUDGED = 20_000          # words of validation and test that are judged, evenly spread
FEWEST = 200             # words that can be learned from


@dataclass(frozen=True)
class Neighbours:
    """A split of one stream of word numbers: example i is the word y at places[i] and the 2 · window around it, x; 0 where none is."""

    stream: Tensor           # (N,) all texts, zeros between them; words from 2
    places: Tensor           # (M,) where words stand
    window: int = 5
    known: int = 2**31 - 1   # numbers from here on are unknown words

    def __len__(self) -> int:
        return len(self.places)

    def gather(self, index: Tensor) -> Batch:
        at = self.places[index].long()
        steps = torch.arange(1, self.window + 1, device=index.device)
        around = at[:, None] + torch.cat([-steps.flip(0), steps])                            # (B, 2 · window)
        return {"x": self.stream[around], "y": self.stream[at], "row": index}

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Batch]:
        whole = torch.cat(list(chunks)).to(self.stream.device)
        return map(self.gather, whole.split([len(chunk) for chunk in chunks]))

    def decode(self, stored: Batch) -> Batch:
        x = stored["x"].long()
        return {"x": torch.where(x < self.known, x, 0), "y": stored["y"].long(), "row": stored["row"]}

    def to(self, device: torch.device) -> Self:
        return replace(self, stream=self.stream.to(device), places=self.places.to(device))

    def within(self, window: int, vocabulary: int) -> Self:
        """Other windows, and the most common words alone."""
        known = vocabulary + 2
        return replace(self, window=window, known=known, places=self.places[self.stream[self.places] < known])

    def counts(self, vocabulary: int) -> Tensor:
        """How often each word stands here, (vocabulary + 2,): none of <pad> and <unk>."""
        return torch.bincount(self.stream[self.places].long(), minlength=vocabulary + 2)

    def company(self) -> float:
        """How many words a drawn window finds on average: a distance d is within reach with probability (window − d + 1) / window."""
        reach = [(d, (self.window - d + 1) / self.window) for d in range(1, self.window + 1)]
        there = (self.stream > 1) & (self.stream < self.known)
        return sum(p * float(there[self.places + d].float().mean() + there[self.places - d].float().mean()) for d, p in reach)


def strung(texts: Iterable[Tensor], *, most: int | None = None) -> Neighbours:
    """Texts of word numbers one behind the other; at most so many examples of them, evenly spread."""
    gap = torch.zeros(WIDEST, dtype=torch.int32)
    stream = torch.cat([gap, *(part for text in texts for part in (text.int(), gap))])
    places = stream.nonzero()[:, 0]
    if most is not None and len(places) > most:
        places = places[torch.linspace(0, len(places) - 1, most).long()]
    return Neighbours(stream, places.int())


def as_words(data: Data) -> Data:
    """The same texts as words and their neighbours; words of the training part that are too rare are left out, as in word2vec."""
    parts: Mapping[str, Iterable[Tensor]]
    if isinstance(data.encoder, BagEncoder) and isinstance(data.train, Resident):
        encoder, parts = data.encoder, {part: rows(data, part) for part in SPLITS}
    elif isinstance(data.encoder, StreamEncoder) and isinstance(data.train, Windows):
        encoder, parts = paragraphs(data.encoder.tokenizer.decode(data.train.stream.tolist()))
    else:
        raise UsageError(f"word vectors are learned from texts, but {data.name!r} is {data.kind}; give a .txt file, or a CSV with --text")
    split: dict[str, Any] = {part: strung(parts[part], most=None if part == "train" else JUDGED) for part in SPLITS}
    n = len(split["train"])
    if n < FEWEST or not all(map(len, split.values())):
        raise UsageError(f"{data.name!r} holds {n} words to learn from that occur more than once; word vectors need at least {FEWEST}")
    about = f"{n:,} words to learn from, {len(encoder.names):,} different"
    return replace(
        data, kind="words", task="none", shape=(10,), labels=(), names=encoder.names, target="the words around", encoder=encoder,
        counts={}, notes=(about,), whence=None, **split,     # a word is no row
    )


def rows(data: Data, part: str) -> Iterator[Tensor]:
    """Texts with labels: their known words."""
    split = data.split(part)
    assert isinstance(split, Resident) and data.encoder is not None
    size = len(data.encoder.names)                                      # type: ignore[attr-defined]
    return (row[row < size].int() + 2 for row in split.columns["x"])


def paragraphs(text: str) -> tuple[BagEncoder, dict[str, list[Tensor]]]:
    """The first nine tenths of a running text to learn from, then half a tenth each; words known from the first part alone."""
    a, b = len(text) * 18 // 20, len(text) * 19 // 20
    pieces = zip(SPLITS, (text[:a], text[a:b], text[b:]), strict=True)
    cut = {part: [words(paragraph) for paragraph in re.split(r"\n\s*\n", piece)] for part, piece in pieces}
    counts = Counter(word for found in cut["train"] for word in found)
    kept = sorted((word for word, n in counts.items() if n >= LEAST), key=lambda word: (-counts[word], word))[:MOST]
    encoder = BagEncoder(tuple(kept))
    number = encoder.number
    return encoder, {
        part: [torch.tensor([number[w] + 2 for w in found if w in number], dtype=torch.int32) for found in texts]
        for part, texts in cut.items()
    }


def neighbourhoods(data: Data, *, window: int, vocabulary: int) -> Data:
    """The same words with windows of this size; only so many of the most common ones are known."""
    bag = data.encoder
    assert isinstance(bag, BagEncoder)
    size = min(vocabulary, len(bag.names))
    parts: dict[str, Any] = {}
    for part in SPLITS:
        split = data.split(part)
        parts[part] = split.within(window, size) if isinstance(split, Neighbours) else Absent(len(split))
    names = ("<pad>", "<unk>", *bag.names[:size])
    return replace(data, shape=(2 * window,), encoder=SequenceEncoder(bag.names, bag.column, size, LONGEST), names=names, **parts)


def kept(counts: Tensor, t: float) -> Tensor:
    """min(1, √(t / f)), f the share of a word among all: with what probability it is seen.  Mikolov et al. 2013, eq. 5; t = 0: always."""
    f = counts / counts.sum().clamp(min=1)
    return (t / f.clamp(min=1e-12)).sqrt().clamp(max=1) if t else torch.ones_like(f)


def thinning(keep: Tensor) -> Callable[[Batch, Generator], Batch]:
    """While learning, frequent words are passed over at random, and how far a window reaches is drawn anew: near words count more.

    Words are hidden from one another, not taken out of the text: shapes stay as they are.
    """
    tables = {keep.device: keep}     # a copy on each device, made before a graph is captured

    def thin(batch: Batch, g: Generator) -> Batch:
        x, y = batch["x"], batch["y"]
        if x.device not in tables:
            tables[x.device] = keep.to(x.device)
        seen = tables[x.device]
        window = x.shape[1] // 2
        steps = torch.arange(1, window + 1, device=x.device)
        away = torch.cat([steps.flip(0), steps])                                             # (2 · window,)
        reach = torch.randint(1, window + 1, (len(x), 1), device=x.device, generator=g)
        there = torch.rand(x.shape, device=x.device, generator=g) < seen[x]
        centre = torch.rand(y.shape, device=x.device, generator=g) < seen[y]
        return {**batch, "x": torch.where(there & (away <= reach) & centre[:, None], x, 0)}

    return thin
