"""BERT (Devlin et al. 2019): an encoder that reads both ways, taught to guess hidden words.

    tokens + positions + segments -> LN -> layers x [LN(x + attention(x)), LN(x + perceptron(x))] -> one vector a token

Names and shapes are those of the published weights. Token 0 is padding and is not looked at.
"""

from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.attention import attention, fused
from didact.layers.positions import sinusoidal
from didact.registry import register

EPS = 1e-12  # of every layer norm; PyTorch's own default is 1e-5


class Embeddings(nn.Module):
    """LN(E[token] + P[position] + S[segment])."""

    def __init__(self, vocabulary: int, context: int, segments: int, dim: int, dropout: float):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, dim, padding_idx=0)
        self.position_embeddings, self.token_type_embeddings = nn.Embedding(context, dim), nn.Embedding(segments, dim)
        self.LayerNorm, self.dropout = nn.LayerNorm(dim, eps=EPS), nn.Dropout(dropout)

    def forward(self, tokens: Tensor, segments: Tensor, places: Tensor | None = None) -> Tensor:
        positions = self.position_embeddings.weight[: tokens.shape[1]] if places is None else self.position_embeddings(places)
        y: Tensor = self.dropout(self.LayerNorm(self.word_embeddings(tokens) + self.token_type_embeddings(segments) + positions))
        return y


class Queries(nn.Module):
    """softmax(Q Kᵀ / √d) V for each head; where the published names say `attention.self`."""

    def __init__(self, dim: int, heads: int, dropout: float):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.heads, self.dropout = heads, dropout

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = fused(*self.project(x), mask, dropout=self.dropout if self.training else 0.0)
        return y.transpose(1, 2).flatten(2)

    def look(self, x: Tensor, mask: Tensor) -> Tensor:
        """The weights of each head, (B, heads, S, S)."""
        return attention(*self.project(x), mask)[1]

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        return q, k, v


class Added(nn.Module):
    """LN(x + drop(W y + b)): the norm stands behind the sum, as in the 2017 paper.  Gaba eq. 7.9."""

    def __init__(self, inputs: int, dim: int, dropout: float):
        super().__init__()
        self.dense, self.LayerNorm, self.dropout = nn.Linear(inputs, dim), nn.LayerNorm(dim, eps=EPS), nn.Dropout(dropout)

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        out: Tensor = self.LayerNorm(x + self.dropout(self.dense(y)))
        return out


class Layer(nn.Module):
    """u = LN(x + attention(x)),  y = LN(u + W2 gelu(W1 u))."""

    def __init__(self, dim: int, heads: int, hidden: int, dropout: float):
        super().__init__()
        self.attention = nn.ModuleDict({"self": Queries(dim, heads, dropout), "output": Added(dim, dim, dropout)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(dim, hidden)})
        self.output = Added(hidden, dim, dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        u = self.attention["output"](self.attention["self"](x, mask), x)
        y: Tensor = self.output(F.gelu(self.intermediate["dense"](u)), u)
        return y


class Stack(nn.Module):
    """What the published names call `encoder`."""

    def __init__(self, layers: int, dim: int, heads: int, hidden: int, dropout: float):
        super().__init__()
        self.layer = nn.ModuleList(Layer(dim, heads, hidden, dropout) for _ in range(layers))


class BERT(nn.Module):
    """One vector a token, (B, S) -> (B, S, D); `pool` makes one of the first, for classification."""

    def __init__(
        self, vocabulary: int, *, context: int, dim: int, layers: int, heads: int, hidden: int, segments: int = 2, dropout: float = 0.1,
        pooler: bool = False,
    ):
        super().__init__()
        if dim % heads:
            raise UsageError(f"the width must be a multiple of heads={heads}, got {dim}")
        self.context = context
        self.embeddings = Embeddings(vocabulary, context, segments, dim, dropout)
        self.encoder = Stack(layers, dim, heads, hidden, dropout)
        self.pooler = nn.ModuleDict({"dense": nn.Linear(dim, dim)}) if pooler else None
        for module in self.modules():
            begin(module, spread(dim))
        # as sinusoids, larger than the words: neighbours are found early, where random positions leave a long plateau
        self.embeddings.position_embeddings.weight.data.copy_(3 * spread(dim) * sinusoidal(context, dim))

    def forward(self, tokens: Tensor, segments: Tensor | None = None, pieces: Tensor | None = None) -> Tensor:
        x, mask = self.embed(tokens, segments, pieces)
        for layer in self.encoder.layer:
            x = layer(x, mask)
        return x

    def embed(self, tokens: Tensor, segments: Tensor | None, pieces: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The sum of the three tables, and who may be looked at: (B, 1, 1, S), or (B, 1, S, S) where a row holds several texts.

        `pieces` numbers those texts, 0 0 0 1 1 2 …: each is read as if it stood alone, from the first position on.
        """
        if tokens.shape[1] > self.context:
            raise UsageError(f"this model reads {self.context} tokens at most, got {tokens.shape[1]}")
        segments = torch.zeros_like(tokens) if segments is None else segments
        there = (tokens != 0)[:, None, None]
        if pieces is None:
            return self.embeddings(tokens, segments), there
        return self.embeddings(tokens, segments, places(pieces)), there & (pieces[:, None, :, None] == pieces[:, None, None, :])

    def pool(self, h: Tensor) -> Tensor:
        """tanh(W h_[CLS] + b): (B, S, D) -> (B, D)."""
        assert self.pooler is not None, "made without a pooler"
        return torch.tanh(self.pooler["dense"](h[:, 0]))

    @torch.no_grad()
    def attention_maps(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        """Who attends to whom in every layer: (B, layers, heads, S, S)."""
        (x, mask), maps = self.embed(tokens, segments), []
        for layer in self.encoder.layer:
            assert isinstance(layer, Layer)
            queries = layer.attention["self"]
            assert isinstance(queries, Queries)
            maps.append(queries.look(x, mask))
            x = layer(x, mask)
        return torch.stack(maps, dim=1)


def places(pieces: Tensor) -> Tensor:
    """0 0 0 1 1 2 … -> 0 1 2 0 1 0 …: how far each token is behind the first of its text, (B, S)."""
    at = torch.arange(pieces.shape[1], device=pieces.device).expand_as(pieces)
    first = pieces.diff(dim=1, prepend=pieces[:, :1]) != 0
    return at - torch.where(first, at, 0).cummax(dim=1).values


def spread(dim: int) -> float:
    """Deviation of the weights at first: 0.02 from the width of BERT base on, and as 1 / √D below."""
    return 0.02 * sqrt(max(1.0, 768 / dim))


def begin(module: nn.Module, std: float) -> None:
    """N(0, std²) for matrices, 0 for biases and for the row of padding."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        nn.init.zeros_(module.weight[module.padding_idx])


class Guess(nn.Module):
    """E LN(gelu(W h + b)) + c, E the word embedding: logits of the hidden word."""

    def __init__(self, vocabulary: int, dim: int):
        super().__init__()
        self.transform = nn.ModuleDict({"dense": nn.Linear(dim, dim), "LayerNorm": nn.LayerNorm(dim, eps=EPS)})
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        begin(self.transform["dense"], spread(dim))

    def forward(self, h: Tensor, words: Tensor) -> Tensor:
        return F.linear(self.transform["LayerNorm"](F.gelu(self.transform["dense"](h))), words, self.bias)


@register("bert_small", vocabulary=4096, context=128, dim=128, layers=4, heads=4, hidden=512)
@register("bert_base", context=512, dim=768, layers=12, heads=12, hidden=3072)
class MaskedBERT(nn.Module):
    """p(x_i | x without the masked) for every token.  Devlin et al. 2019; Gaba eq. 7.13."""

    def __init__(
        self, vocabulary: int = 30_522, *, context: int, dim: int, layers: int, heads: int, hidden: int, dropout: float = 0.1
    ):
        super().__init__()
        self.bert = BERT(vocabulary, context=context, dim=dim, layers=layers, heads=heads, hidden=hidden, dropout=dropout)
        self.cls = nn.ModuleDict({"predictions": Guess(vocabulary, dim)})

    def forward(self, tokens: Tensor, segments: Tensor | None = None, pieces: Tensor | None = None) -> Tensor:   # (B, S) -> (B, S, V)
        return self.guess(self.bert(tokens, segments, pieces))

    def guess(self, h: Tensor) -> Tensor:
        """Logits of the words behind these vectors, (…, D) -> (…, V): a loss may ask for the masked ones alone."""
        logits: Tensor = self.cls["predictions"](h, self.bert.embeddings.word_embeddings.weight)
        return logits

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        small = {"vocabulary": 30, "context": 9, "dim": 16, "layers": 2, "heads": 4, "hidden": 24, "dropout": 0.0}
        return small, some_tokens(batch)


@register("bert_classifier", vocabulary=4096, context=128, dim=128, layers=4, heads=4, hidden=512, classes=2)
class BERTClassifier(nn.Module):
    """W tanh(W_p h_[CLS] + b_p) + b, for fine-tuning a pretrained encoder.  Devlin et al. 2019, sec. 4; Lhotte 9.1."""

    def __init__(
        self, vocabulary: int, classes: int, *, context: int, dim: int, layers: int, heads: int, hidden: int, dropout: float = 0.1
    ):
        super().__init__()
        self.bert = BERT(vocabulary, context=context, dim=dim, layers=layers, heads=heads, hidden=hidden, dropout=dropout, pooler=True)
        self.dropout, self.classifier = nn.Dropout(dropout), nn.Linear(dim, classes)
        begin(self.classifier, spread(dim))

    def forward(self, tokens: Tensor) -> Tensor:                            # (B, S) -> (B, classes)
        y: Tensor = self.classifier(self.dropout(self.bert.pool(self.bert(tokens))))
        return y

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        small = {"vocabulary": 30, "context": 9, "dim": 16, "layers": 2, "heads": 4, "hidden": 24, "classes": 5, "dropout": 0.0}
        return small, some_tokens(batch)


@register("minilm_l6", context=512, dim=384, layers=6, heads=12, hidden=1536)
class SentenceEncoder(BERT):
    """The mean of the tokens' vectors: a sentence as one, (B, S) -> (B, D).  Reimers & Gurevych 2019; all-MiniLM-L6-v2 loads here."""

    def __init__(
        self, vocabulary: int = 30_522, *, context: int, dim: int, layers: int, heads: int, hidden: int, dropout: float = 0.1
    ):
        super().__init__(vocabulary, context=context, dim=dim, layers=layers, heads=heads, hidden=hidden, dropout=dropout)

    def forward(self, tokens: Tensor, segments: Tensor | None = None, pieces: Tensor | None = None) -> Tensor:
        h, there = super().forward(tokens, segments, pieces), (tokens != 0)[..., None]
        return (h * there).sum(1) / there.sum(1).clamp(min=1)

    def unit(self, tokens: Tensor) -> Tensor:
        """The same of length one, so that products are cosines."""
        return F.normalize(self(tokens), dim=-1)

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"vocabulary": 30, "context": 9, "dim": 24, "layers": 2, "heads": 4, "hidden": 24, "dropout": 0.0}, some_tokens(batch)


def some_tokens(batch: int) -> Tensor:
    """Sequences of 9 tokens, the last one shorter."""
    tokens = torch.randint(1, 30, (batch, 9))
    tokens[-1, 5:] = 0
    return tokens
