"""Word vectors learned elsewhere as the beginning of a network's own embedding."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import torch
from torch import nn

from didact.errors import UsageError, shorten
from didact.options import NamesRun
from didact.samplers.search import vectors
from didact.train.experiment import Start

Embeddings = Annotated[
    str | None, NamesRun(or_else=True),
    "word vectors that the embedding begins with: glove (--width 50), a text file of them, a word2vec run",
]


def embedding(table: nn.Embedding, names: Sequence[str], where: str | None) -> Callable[[Start], tuple[str, ...]] | None:
    """What an experiment begins with; None where the embedding is drawn."""
    return None if where is None else partial(copy, table, names, where)


@torch.no_grad()
def copy(table: nn.Embedding, names: Sequence[str], where: str, start: Start) -> tuple[str, ...]:
    """Rows of the table by the word that they stand for, as spread as they were drawn; how many were found.

    <pad> and <unk>, the first two, stay. GloVe's numbers are larger than what the layers behind were made for.
    """
    if where != "glove" and not os.path.exists(os.path.expanduser(where)):
        raise UsageError(f"no word vectors at {shorten(where)}: give glove, a text file of vectors, or a run of word2vec")
    given = vectors(where)
    own, theirs = table.weight, given.table
    width = theirs.shape[1]
    if own.shape[1] != width:
        raise UsageError(f"the vectors of {where} have {width} numbers, got --width {own.shape[1]}; say --width {width}")
    common = [(row, given.number[word]) for row, word in enumerate(names) if row > 1 and word in given.number]
    if not common:
        raise UsageError(f"none of the {len(names) - 2:,} words of these texts has a vector in {where}; leave out --embeddings")
    here, there = (torch.tensor(numbers) for numbers in zip(*common, strict=True))
    own[here] = theirs[there] * (own[2:].std() / theirs[there].std())
    return (f"{len(common):,} of {len(names) - 2:,} words begin with a vector of {where}; the others at random",)
