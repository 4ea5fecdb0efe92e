"""Recurrent networks over tokens: a classifier of sequences, a language model, and a tagger of tokens.

A cell is rnn, lstm or gru, or a block with a recurrent state: mamba, slstm, mlstm.

    classifier   tokens -> embedding -> both directions -> final states, or their mean or maximum -> classes
    language     tokens -> embedding -> left to right -> logits of the next token
    tagger       tokens -> embedding -> both directions -> logits of each token's label

Token 0 is padding: lengths are computed from the tokens, so that a batch is one tensor.
"""

from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from didact.layers.recurrent.cells import State
from didact.layers.recurrent.recurrent import (
    Bidirectional,
    Init,
    RecurrentState,
    final_states,
    last_valid,
    make_recurrent,
)
from didact.registry import register_model

Pooling = Literal["last", "mean", "max"]


def sequence_lengths(tokens: Tensor) -> Tensor:
    """(B, T) -> (B,): the number of tokens before the padding; an empty text is read as one token of padding."""
    return (tokens != 0).sum(1).clamp(min=1)


def _make_embedding(vocab_size: int, embed_dim: int, std: float | None = None) -> nn.Embedding:
    """Embedding with vectors of length about 1, which Adam's steps can move; PyTorch's own N(0, 1) takes ten times as
    long.

    The vector of padding is 0.
    """
    table = nn.Embedding(vocab_size, embed_dim, padding_idx=0)
    nn.init.normal_(table.weight[1:], std=std or embed_dim**-0.5)
    return table


def _make_head(n_in: int, widths: tuple[int, ...], n_out: int, dropout: float) -> nn.Module:
    """W h, or with `widths` a small MLP W2 dropout(relu(W1 h)) and so on."""
    if not widths:
        return nn.Linear(n_in, n_out)
    hidden = [
        layer for a, b in pairwise((n_in, *widths)) for layer in (nn.Linear(a, b), nn.ReLU(), nn.Dropout(dropout))
    ]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], n_out))


@register_model("rnn_classifier", cell="rnn", hidden_size=128)
@register_model("lstm_classifier", cell="lstm", hidden_size=128)
@register_model("gru_classifier", cell="gru", hidden_size=128)
@register_model("mamba_classifier", cell="mamba", hidden_size=128)
@register_model("slstm_classifier", cell="slstm", hidden_size=128)
@register_model("mlstm_classifier", cell="mlstm", hidden_size=128)
class RecurrentClassifier(nn.Module):
    """y = W h, h the final states of both directions (Gaba 5.8), or the mean or maximum over time.

    The network of Gaba 5.8 has embedding_std=1, embedding_dropout=0 and head=(128,): 2,561,410 parameters for 1,000
    words.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        *,
        cell: str = "lstm",
        embed_dim: int = 128,
        hidden_size: int = 128,
        num_layers: int = 1,
        bidirectional: bool = True,
        pool: Pooling = "last",
        dropout: float = 0.3,
        init: Init = "orthogonal",
        head: tuple[int, ...] = (),
        embedding_std: float | None = None,
        embedding_dropout: float | None = None,
    ):
        super().__init__()
        self.embedding = _make_embedding(vocab_size, embed_dim, embedding_std)
        make = Bidirectional if bidirectional else make_recurrent
        self.reader = make(cell, embed_dim, hidden_size, num_layers=num_layers, dropout=dropout, init=init)
        self.pool, self.dropout = pool, nn.Dropout(dropout)
        self.embedding_dropout = self.dropout if embedding_dropout is None else nn.Dropout(embedding_dropout)
        self.head = _make_head(hidden_size * (1 + bidirectional), head, num_classes, dropout)

    def forward(self, tokens: Tensor) -> Tensor:                          # (B, T)
        y: Tensor = self.head(self.dropout(self.embed(tokens)))           # (B, classes)
        return y

    def embed(self, tokens: Tensor) -> Tensor:
        """The sequence as one vector, (B, hidden · directions)."""
        lengths = sequence_lengths(tokens)
        x = self.embedding_dropout(self.embedding(tokens))
        is_bidirectional = isinstance(self.reader, Bidirectional)
        h: Tensor = self.reader(x, lengths) if is_bidirectional else self.reader(x)[0]   # (B, T, hidden · directions)
        if self.pool == "last":
            return final_states(h, lengths) if is_bidirectional else last_valid(h, lengths)
        mask = (torch.arange(h.shape[1], device=h.device) < lengths[:, None])[..., None]
        if self.pool == "mean":
            return (h * mask).sum(1) / lengths[:, None]
        return h.masked_fill(~mask, -torch.inf).amax(1)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"vocab_size": 30, "num_classes": 7, "embed_dim": 11, "dropout": 0.0}, _example_tokens(batch_size)


@register_model("rnn_language", cell="rnn", hidden_size=256)
@register_model("lstm_language", cell="lstm", hidden_size=256)
@register_model("gru_language", cell="gru", hidden_size=256)
@register_model("mamba_language", cell="mamba", hidden_size=256)
@register_model("slstm_language", cell="slstm", hidden_size=256)
@register_model("mlstm_language", cell="mlstm", hidden_size=256)
class RecurrentLanguageModel(nn.Module):
    """p(x_{t+1} | x_≤t) = softmax(W h_t + b).  Gaba 5.2, Groudiev 5.2.5.

    With `tie_weights` the embedding is W (Press & Wolf 2017).
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        cell: str = "lstm",
        embed_dim: int = 64,
        hidden_size: int = 256,
        num_layers: int = 1,
        dropout: float = 0.0,
        tie_weights: bool = False,
        init: Init = "orthogonal",
    ):
        super().__init__()
        self.vocab_size, self.embedding = vocab_size, nn.Embedding(vocab_size, embed_dim)
        self.reader = make_recurrent(cell, embed_dim, hidden_size, num_layers=num_layers, dropout=dropout, init=init)
        self.dropout = nn.Dropout(dropout)
        self.narrow = nn.Linear(hidden_size, embed_dim) if tie_weights and embed_dim != hidden_size else nn.Identity()
        self.head = nn.Linear(embed_dim if tie_weights else hidden_size, vocab_size)
        if tie_weights:
            nn.init.normal_(self.embedding.weight, std=embed_dim**-0.5)       # N(0, 1) would give logits of size √width
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:                          # (B, T) -> (B, T, V)
        return self.forward_from_state(tokens, None)[0]

    def forward_from_state(self, tokens: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Logits after each token, and the new state."""
        h, new_state = self.reader(self.dropout(self.embedding(tokens)), state)
        return self.head(self.narrow(self.dropout(h))), new_state

    def init_cache(self, batch_size: int, capacity: int) -> RecurrentState:
        """The state before the first token of this many texts; its size does not depend on their length."""
        return RecurrentState(self.reader, batch_size, capacity)

    def decode_step(self, tokens: Tensor, cache: RecurrentState) -> Tensor:
        """Logits of the token after the last of these, (B, V); afterwards the cache holds the new state."""
        logits, new_state = self.forward_from_state(tokens, cache.state)
        cache.update(new_state)
        return logits[:, -1]

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"vocab_size": 30, "embed_dim": 11}, _example_tokens(batch_size)


@register_model("rnn_tagger", cell="rnn", hidden_size=128)
@register_model("lstm_tagger", cell="lstm", hidden_size=128)
@register_model("gru_tagger", cell="gru", hidden_size=128)
@register_model("mamba_tagger", cell="mamba", hidden_size=128)
@register_model("slstm_tagger", cell="slstm", hidden_size=128)
@register_model("mlstm_tagger", cell="mlstm", hidden_size=128)
class RecurrentTagger(nn.Module):
    """A label for every token: y_t = W [h→_t; h←_t], or W h_t of the tokens so far alone.  Gaba 5.7, Van Schependom
    6.3.
    """

    def __init__(
        self,
        vocab_size: int,
        num_labels: int,
        *,
        cell: str = "lstm",
        embed_dim: int = 128,
        hidden_size: int = 128,
        num_layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.3,
        init: Init = "orthogonal",
    ):
        super().__init__()
        self.embedding = _make_embedding(vocab_size, embed_dim)
        make = Bidirectional if bidirectional else make_recurrent
        self.reader = make(cell, embed_dim, hidden_size, num_layers=num_layers, dropout=dropout, init=init)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(hidden_size * (1 + bidirectional), num_labels)

    def forward(self, tokens: Tensor) -> Tensor:                          # (B, T) -> (B, T, labels)
        x = self.dropout(self.embedding(tokens))
        h: Tensor = (
            self.reader(x, sequence_lengths(tokens)) if isinstance(self.reader, Bidirectional) else self.reader(x)[0]
        )
        y: Tensor = self.head(self.dropout(h))
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"vocab_size": 30, "num_labels": 5, "embed_dim": 11, "dropout": 0.0}, _example_tokens(batch_size)


def _example_tokens(batch_size: int) -> Tensor:
    """Sequences of 9 tokens, the last one shorter."""
    tokens = torch.randint(1, 30, (batch_size, 9))
    tokens[-1, 5:] = 0
    return tokens
