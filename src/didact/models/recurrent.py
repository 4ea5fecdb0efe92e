"""Recurrent networks over tokens: one answer for a sequence, the next token at every step, or a label for each.

A cell is rnn, lstm or gru, or a block that carries a state as they do: mamba, slstm, mlstm.

    classifier   tokens -> embedding -> both directions -> last states, or their mean or maximum -> classes
    language     tokens -> embedding -> left to right -> logits of the next token
    tagger       tokens -> embedding -> both directions -> logits of each token's label

Token 0 is padding: lengths are read off the tokens, so that a batch is one tensor.
"""

from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from didact.layers.cells import State
from didact.layers.recurrent import Bidirectional, Carried, Init, both_ends, last, reading
from didact.registry import register

Pool = Literal["last", "mean", "max"]


def lengths_of(tokens: Tensor) -> Tensor:
    """(B, T) -> (B,): where the padding behind begins; an empty text is read as one token of padding."""
    return (tokens != 0).sum(1).clamp(min=1)


def words(vocabulary: int, width: int, std: float | None = None) -> nn.Embedding:
    """Vectors of length about 1, as a step of Adam can move them; N(0, 1) numbers, PyTorch's own, take ten times as long. Padding is 0."""
    table = nn.Embedding(vocabulary, width, padding_idx=0)
    nn.init.normal_(table.weight[1:], std=std or width**-0.5)
    return table


def answering(n_in: int, widths: tuple[int, ...], n_out: int, dropout: float) -> nn.Module:
    """W h, or with `widths` W2 dropout(relu(W1 h)) and so on."""
    if not widths:
        return nn.Linear(n_in, n_out)
    hidden = [layer for a, b in pairwise((n_in, *widths)) for layer in (nn.Linear(a, b), nn.ReLU(), nn.Dropout(dropout))]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], n_out))


@register("rnn_classifier", cell="rnn", hidden=128)
@register("lstm_classifier", cell="lstm", hidden=128)
@register("gru_classifier", cell="gru", hidden=128)
@register("mamba_classifier", cell="mamba", hidden=128)
@register("slstm_classifier", cell="slstm", hidden=128)
@register("mlstm_classifier", cell="mlstm", hidden=128)
class RecurrentClassifier(nn.Module):
    """y = W h, h the last states of both directions (Gaba 5.8), or the mean or maximum over time.

    The network of Gaba 5.8 has embedding_std=1, embedding_dropout=0 and head=(128,): 2,561,410 parameters for 1,000 words.
    """

    def __init__(
        self, vocabulary: int, classes: int, *, cell: str = "lstm", width: int = 128, hidden: int = 128, layers: int = 1,
        bidirectional: bool = True, pool: Pool = "last", dropout: float = 0.3, init: Init = "orthogonal", head: tuple[int, ...] = (),
        embedding_std: float | None = None, embedding_dropout: float | None = None,
    ):
        super().__init__()
        self.embedding = words(vocabulary, width, embedding_std)
        make = Bidirectional if bidirectional else reading
        self.reader = make(cell, width, hidden, layers=layers, dropout=dropout, init=init)
        self.pool, self.dropout = pool, nn.Dropout(dropout)
        self.drop_words = self.dropout if embedding_dropout is None else nn.Dropout(embedding_dropout)
        self.head = answering(hidden * (1 + bidirectional), head, classes, dropout)

    def forward(self, tokens: Tensor) -> Tensor:                          # (B, T)
        y: Tensor = self.head(self.dropout(self.embed(tokens)))           # (B, classes)
        return y

    def embed(self, tokens: Tensor) -> Tensor:
        """The sequence as one vector, (B, hidden · directions)."""
        lengths = lengths_of(tokens)
        x = self.drop_words(self.embedding(tokens))
        both = isinstance(self.reader, Bidirectional)
        h: Tensor = self.reader(x, lengths) if both else self.reader(x)[0]   # (B, T, hidden · directions)
        if self.pool == "last":
            return both_ends(h, lengths) if both else last(h, lengths)
        inside = (torch.arange(h.shape[1], device=h.device) < lengths[:, None])[..., None]
        if self.pool == "mean":
            return (h * inside).sum(1) / lengths[:, None]
        return h.masked_fill(~inside, -torch.inf).amax(1)

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        return {"vocabulary": 30, "classes": 7, "width": 11, "dropout": 0.0}, some_tokens(batch)


@register("rnn_language", cell="rnn", hidden=256)
@register("lstm_language", cell="lstm", hidden=256)
@register("gru_language", cell="gru", hidden=256)
@register("mamba_language", cell="mamba", hidden=256)
@register("slstm_language", cell="slstm", hidden=256)
@register("mlstm_language", cell="mlstm", hidden=256)
class RecurrentLanguageModel(nn.Module):
    """p(x_{t+1} | x_≤t) = softmax(W h_t + b).  Gaba 5.2, Groudiev 5.2.5. `tie` uses the embedding as W (Press & Wolf 2017)."""

    def __init__(
        self, vocabulary: int, *, cell: str = "lstm", width: int = 64, hidden: int = 256, layers: int = 1, dropout: float = 0.0,
        tie: bool = False, init: Init = "orthogonal",
    ):
        super().__init__()
        self.vocabulary, self.embedding = vocabulary, nn.Embedding(vocabulary, width)
        self.reader = reading(cell, width, hidden, layers=layers, dropout=dropout, init=init)
        self.dropout = nn.Dropout(dropout)
        self.narrow = nn.Linear(hidden, width) if tie and width != hidden else nn.Identity()
        self.head = nn.Linear(width if tie else hidden, vocabulary)
        if tie:
            nn.init.normal_(self.embedding.weight, std=width**-0.5)       # N(0, 1) would make logits of size √width
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:                          # (B, T) -> (B, T, V)
        return self.after(tokens, None)[0]

    def after(self, tokens: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Logits after each token, and the state to go on from."""
        h, then = self.reader(self.dropout(self.embedding(tokens)), state)
        return self.head(self.narrow(self.dropout(h))), then

    def remember(self, rows: int, room: int) -> Carried:
        """The state before the first token of so many texts: it is as small for a long text as for a short one."""
        return Carried(self.reader, rows, room)

    def go_on(self, tokens: Tensor, memory: Carried) -> Tensor:
        """Logits behind the last of these tokens, (B, V); the memory holds the state after it then: nothing is read twice."""
        logits, then = self.after(tokens, memory.state)
        memory.keep(then)
        return logits[:, -1]

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"vocabulary": 30, "width": 11}, some_tokens(batch)


@register("rnn_tagger", cell="rnn", hidden=128)
@register("lstm_tagger", cell="lstm", hidden=128)
@register("gru_tagger", cell="gru", hidden=128)
@register("mamba_tagger", cell="mamba", hidden=128)
@register("slstm_tagger", cell="slstm", hidden=128)
@register("mlstm_tagger", cell="mlstm", hidden=128)
class RecurrentTagger(nn.Module):
    """A label for every token: y_t = W [h→_t; h←_t], or W h_t of what came before alone.  Gaba 5.7, Van Schependom 6.3."""

    def __init__(
        self, vocabulary: int, labels: int, *, cell: str = "lstm", width: int = 128, hidden: int = 128, layers: int = 1,
        bidirectional: bool = True, dropout: float = 0.3, init: Init = "orthogonal",
    ):
        super().__init__()
        self.embedding = words(vocabulary, width)
        make = Bidirectional if bidirectional else reading
        self.reader = make(cell, width, hidden, layers=layers, dropout=dropout, init=init)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(hidden * (1 + bidirectional), labels)

    def forward(self, tokens: Tensor) -> Tensor:                          # (B, T) -> (B, T, labels)
        x = self.dropout(self.embedding(tokens))
        h: Tensor = self.reader(x, lengths_of(tokens)) if isinstance(self.reader, Bidirectional) else self.reader(x)[0]
        y: Tensor = self.head(self.dropout(h))
        return y

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"vocabulary": 30, "labels": 5, "width": 11, "dropout": 0.0}, some_tokens(batch)


def some_tokens(batch: int) -> Tensor:
    """Sequences of 9 tokens, the last one shorter."""
    tokens = torch.randint(1, 30, (batch, 9))
    tokens[-1, 5:] = 0
    return tokens
