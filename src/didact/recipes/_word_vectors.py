"""Pretrained word vectors as the initial embedding of a network."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import torch
from torch import nn

from didact.errors import UsageError, shorten
from didact.inference.search import load_word_vectors
from didact.options import RunReference
from didact.training.experiment import InitContext

Embeddings = Annotated[
    str | None, RunReference(allow_other=True),
    "pretrained word vectors: glove (--embed-dim 50), a text file of them, or a word2vec run",
]


def make_embedding_initializer(
    embedding: nn.Embedding, vocab: Sequence[str], location: str | None
) -> Callable[[InitContext], tuple[str, ...]] | None:
    """The weight initializer of an embedding; None without pretrained vectors."""
    return None if location is None else partial(_copy_vectors, embedding, vocab, location)


@torch.no_grad()
def _copy_vectors(
    embedding: nn.Embedding, vocab: Sequence[str], location: str, context: InitContext
) -> tuple[str, ...]:
    """Copy the vectors of known words, scaled to the standard deviation of the initialization. Returns a note.

    The first two rows, <pad> and <unk>, stay. GloVe's vectors are larger than the layers behind are made for.
    """
    if location != "glove" and not os.path.exists(os.path.expanduser(location)):
        raise UsageError(
            f"no word vectors at {shorten(location)}: give glove, a text file of vectors, or a run of word2vec"
        )
    word_vectors = load_word_vectors(location)
    target, source = embedding.weight, word_vectors.table
    dim = source.shape[1]
    if target.shape[1] != dim:
        raise UsageError(
            f"the vectors of {location} have dimension {dim}, got --embed-dim {target.shape[1]}; give --embed-dim {dim}"
        )
    row_pairs = [
        (row, word_vectors.index_by_word[word])
        for row, word in enumerate(vocab)
        if row > 1 and word in word_vectors.index_by_word
    ]
    if not row_pairs:
        raise UsageError(
            f"none of the {len(vocab) - 2:,} words of these texts has a vector in {location}; leave out --embeddings"
        )
    target_rows, source_rows = (torch.tensor(indices) for indices in zip(*row_pairs, strict=True))
    target[target_rows] = source[source_rows] * (target[2:].std() / source[source_rows].std())
    return (f"{len(row_pairs):,} of {len(vocab) - 2:,} words have a vector of {location}; the others are random",)
