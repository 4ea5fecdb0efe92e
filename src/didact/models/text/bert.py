"""BERT (Devlin et al. 2019): a bidirectional encoder, pretrained to predict masked words.

    tokens + positions + segments -> LN -> layers x [LN(x + attention(x)), LN(x + MLP(x))] -> one vector a token

Names and shapes are those of the published weights. Token 0 is padding and is masked.
"""

from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.attention.multihead import dot_product_attention, fused_attention
from didact.layers.positional import sinusoidal_table
from didact.registry import register_model

LAYER_NORM_EPS = 1e-12  # of every layer norm; PyTorch's own default is 1e-5


class BertEmbeddings(nn.Module):
    """LN(E[token] + P[position] + S[segment])."""

    def __init__(self, vocab_size: int, context_length: int, num_segments: int, dim: int, dropout: float):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, dim, padding_idx=0)
        self.position_embeddings = nn.Embedding(context_length, dim)
        self.token_type_embeddings = nn.Embedding(num_segments, dim)
        self.LayerNorm, self.dropout = nn.LayerNorm(dim, eps=LAYER_NORM_EPS), nn.Dropout(dropout)

    def forward(self, tokens: Tensor, segments: Tensor, position_ids: Tensor | None = None) -> Tensor:
        if position_ids is None:
            positions = self.position_embeddings.weight[: tokens.shape[1]]
        else:
            positions = self.position_embeddings(position_ids)
        x = self.word_embeddings(tokens) + self.token_type_embeddings(segments) + positions
        y: Tensor = self.dropout(self.LayerNorm(x))
        return y


class BertSelfAttention(nn.Module):
    """softmax(Q Kᵀ / √d) V for each head; the module that the published names call `attention.self`."""

    def __init__(self, dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.num_heads, self.dropout = num_heads, dropout

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = fused_attention(*self.project_qkv(x), mask, dropout=self.dropout if self.training else 0.0)
        return y.transpose(1, 2).flatten(2)

    def forward_with_weights(self, x: Tensor, mask: Tensor) -> Tensor:
        """The attention weights of each head, (B, heads, S, S)."""
        return dot_product_attention(*self.project_qkv(x), mask)[1]

    def project_qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (f(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        return q, k, v


class AddAndNorm(nn.Module):
    """LN(x + drop(W y + b)): post-norm, as in the 2017 paper.  Gaba eq. 7.9."""

    def __init__(self, in_features: int, dim: int, dropout: float):
        super().__init__()
        self.dense, self.LayerNorm = nn.Linear(in_features, dim), nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.dropout = nn.Dropout(dropout)

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        out: Tensor = self.LayerNorm(x + self.dropout(self.dense(y)))
        return out


class BertLayer(nn.Module):
    """u = LN(x + attention(x)),  y = LN(u + W2 gelu(W1 u))."""

    def __init__(self, dim: int, num_heads: int, ffn_dim: int, dropout: float):
        super().__init__()
        self.attention = nn.ModuleDict(
            {"self": BertSelfAttention(dim, num_heads, dropout), "output": AddAndNorm(dim, dim, dropout)}
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(dim, ffn_dim)})
        self.output = AddAndNorm(ffn_dim, dim, dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        u = self.attention["output"](self.attention["self"](x, mask), x)
        y: Tensor = self.output(F.gelu(self.intermediate["dense"](u)), u)
        return y


class BertEncoder(nn.Module):
    """The module that the published names call `encoder`."""

    def __init__(self, num_layers: int, dim: int, num_heads: int, ffn_dim: int, dropout: float):
        super().__init__()
        self.layer = nn.ModuleList(BertLayer(dim, num_heads, ffn_dim, dropout) for _ in range(num_layers))


class BERT(nn.Module):
    """One vector per token, (B, S) -> (B, S, D); `pool` makes one vector of the first, for classification."""

    def __init__(
        self,
        vocab_size: int,
        *,
        context_length: int,
        embed_dim: int,
        num_layers: int,
        num_heads: int,
        ffn_dim: int,
        num_segments: int = 2,
        dropout: float = 0.1,
        pooler: bool = False,
    ):
        super().__init__()
        if embed_dim % num_heads:
            raise UsageError(f"embed_dim must be a multiple of num_heads={num_heads}, got {embed_dim}")
        self.context_length = context_length
        self.embeddings = BertEmbeddings(vocab_size, context_length, num_segments, embed_dim, dropout)
        self.encoder = BertEncoder(num_layers, embed_dim, num_heads, ffn_dim, dropout)
        self.pooler = nn.ModuleDict({"dense": nn.Linear(embed_dim, embed_dim)}) if pooler else None
        for module in self.modules():
            _init_weights(module, _init_std(embed_dim))
        # sinusoids, larger than the words: attention finds neighbors early, while random positions cause a long plateau
        self.embeddings.position_embeddings.weight.data.copy_(
            3 * _init_std(embed_dim) * sinusoidal_table(context_length, embed_dim)
        )

    def forward(self, tokens: Tensor, segments: Tensor | None = None, pieces: Tensor | None = None) -> Tensor:
        x, mask = self.embed(tokens, segments, pieces)
        for layer in self.encoder.layer:
            x = layer(x, mask)
        return x

    def embed(self, tokens: Tensor, segments: Tensor | None, pieces: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The sum of the three embeddings, and the attention mask: (B, 1, 1, S), or (B, 1, S, S) where a row holds
        several texts.

        `pieces` numbers these texts, 0 0 0 1 1 2 …: each is encoded as if it stood alone, from the first position on.
        """
        if tokens.shape[1] > self.context_length:
            raise UsageError(f"this model reads {self.context_length} tokens at most, got {tokens.shape[1]}")
        segments = torch.zeros_like(tokens) if segments is None else segments
        token_mask = (tokens != 0)[:, None, None]
        if pieces is None:
            return self.embeddings(tokens, segments), token_mask
        same_text = pieces[:, None, :, None] == pieces[:, None, None, :]
        return self.embeddings(tokens, segments, _position_ids(pieces)), token_mask & same_text

    def pool(self, h: Tensor) -> Tensor:
        """tanh(W h_[CLS] + b): (B, S, D) -> (B, D)."""
        assert self.pooler is not None, "created without a pooler"
        return torch.tanh(self.pooler["dense"](h[:, 0]))

    @torch.no_grad()
    def attention_maps(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        """Attention weights of every layer: (B, layers, heads, S, S)."""
        (x, mask), maps = self.embed(tokens, segments), []
        for layer in self.encoder.layer:
            assert isinstance(layer, BertLayer)
            self_attention = layer.attention["self"]
            assert isinstance(self_attention, BertSelfAttention)
            maps.append(self_attention.forward_with_weights(x, mask))
            x = layer(x, mask)
        return torch.stack(maps, dim=1)


def _position_ids(pieces: Tensor) -> Tensor:
    """Position of each token within its text: 0 0 0 1 1 2 … -> 0 1 2 0 1 0 …, (B, S)."""
    index = torch.arange(pieces.shape[1], device=pieces.device).expand_as(pieces)
    first = pieces.diff(dim=1, prepend=pieces[:, :1]) != 0
    return index - torch.where(first, index, 0).cummax(dim=1).values


def _init_std(dim: int) -> float:
    """Standard deviation of the initial weights: 0.02 from the width of BERT base on, and ∝ 1 / √D below."""
    return 0.02 * sqrt(max(1.0, 768 / dim))


def _init_weights(module: nn.Module, std: float) -> None:
    """N(0, std²) for matrices, 0 for biases and for the embedding of padding."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        nn.init.zeros_(module.weight[module.padding_idx])


class MaskedLMHead(nn.Module):
    """E LN(gelu(W h + b)) + c, E the word embedding: logits of the masked word."""

    def __init__(self, vocab_size: int, dim: int):
        super().__init__()
        self.transform = nn.ModuleDict(
            {"dense": nn.Linear(dim, dim), "LayerNorm": nn.LayerNorm(dim, eps=LAYER_NORM_EPS)}
        )
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        _init_weights(self.transform["dense"], _init_std(dim))

    def forward(self, h: Tensor, word_embeddings: Tensor) -> Tensor:
        return F.linear(self.transform["LayerNorm"](F.gelu(self.transform["dense"](h))), word_embeddings, self.bias)


@register_model(
    "bert_small", vocab_size=4096, context_length=128, embed_dim=128, num_layers=4, num_heads=4, ffn_dim=512
)
@register_model("bert_base", context_length=512, embed_dim=768, num_layers=12, num_heads=12, ffn_dim=3072)
class MaskedBERT(nn.Module):
    """p(x_i | x with masked words) for every token.  Devlin et al. 2019; Gaba eq. 7.13."""

    def __init__(
        self, vocab_size: int = 30_522, *, context_length: int, embed_dim: int, num_layers: int, num_heads: int,
        ffn_dim: int, dropout: float = 0.1
    ):
        super().__init__()
        self.bert = BERT(
            vocab_size,
            context_length=context_length,
            embed_dim=embed_dim,
            num_layers=num_layers,
            num_heads=num_heads,
            ffn_dim=ffn_dim,
            dropout=dropout,
        )
        self.cls = nn.ModuleDict({"predictions": MaskedLMHead(vocab_size, embed_dim)})

    def forward(self, tokens: Tensor, segments: Tensor | None = None, pieces: Tensor | None = None) -> Tensor:
        """(B, S) -> (B, S, V)."""
        return self.predict_logits(self.bert(tokens, segments, pieces))

    def predict_logits(self, h: Tensor) -> Tensor:
        """Logits of the words, (…, D) -> (…, V): a loss may ask for the masked positions alone."""
        logits: Tensor = self.cls["predictions"](h, self.bert.embeddings.word_embeddings.weight)
        return logits

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        small = {
            "vocab_size": 30,
            "context_length": 9,
            "embed_dim": 16,
            "num_layers": 2,
            "num_heads": 4,
            "ffn_dim": 24,
            "dropout": 0.0,
        }
        return small, _example_tokens(batch_size)


@register_model(
    "bert_classifier",
    vocab_size=4096,
    context_length=128,
    embed_dim=128,
    num_layers=4,
    num_heads=4,
    ffn_dim=512,
    num_classes=2,
)
class BERTClassifier(nn.Module):
    """W tanh(W_p h_[CLS] + b_p) + b, for fine-tuning a pretrained encoder.  Devlin et al. 2019, sec. 4; Lhotte 9.1."""

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        *,
        context_length: int,
        embed_dim: int,
        num_layers: int,
        num_heads: int,
        ffn_dim: int,
        dropout: float = 0.1,
    ):
        super().__init__()
        self.bert = BERT(
            vocab_size,
            context_length=context_length,
            embed_dim=embed_dim,
            num_layers=num_layers,
            num_heads=num_heads,
            ffn_dim=ffn_dim,
            dropout=dropout,
            pooler=True,
        )
        self.dropout, self.classifier = nn.Dropout(dropout), nn.Linear(embed_dim, num_classes)
        _init_weights(self.classifier, _init_std(embed_dim))

    def forward(self, tokens: Tensor) -> Tensor:                            # (B, S) -> (B, classes)
        y: Tensor = self.classifier(self.dropout(self.bert.pool(self.bert(tokens))))
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        small = {
            "vocab_size": 30,
            "context_length": 9,
            "embed_dim": 16,
            "num_layers": 2,
            "num_heads": 4,
            "ffn_dim": 24,
            "num_classes": 5,
            "dropout": 0.0,
        }
        return small, _example_tokens(batch_size)


@register_model("minilm_l6", context_length=512, embed_dim=384, num_layers=6, num_heads=12, ffn_dim=1536)
class SentenceEncoder(BERT):
    """Sentence embedding: the mean of the tokens' vectors, (B, S) -> (B, D).

    Reimers & Gurevych 2019; the weights of all-MiniLM-L6-v2 load here.
    """

    def __init__(
        self,
        vocab_size: int = 30_522,
        *,
        context_length: int,
        embed_dim: int,
        num_layers: int,
        num_heads: int,
        ffn_dim: int,
        dropout: float = 0.1,
    ):
        super().__init__(
            vocab_size,
            context_length=context_length,
            embed_dim=embed_dim,
            num_layers=num_layers,
            num_heads=num_heads,
            ffn_dim=ffn_dim,
            dropout=dropout,
        )

    def forward(self, tokens: Tensor, segments: Tensor | None = None, pieces: Tensor | None = None) -> Tensor:
        h, token_mask = super().forward(tokens, segments, pieces), (tokens != 0)[..., None]
        return (h * token_mask).sum(1) / token_mask.sum(1).clamp(min=1)

    def embed_normalized(self, tokens: Tensor) -> Tensor:
        """Sentence embeddings of length one, whose products are cosines."""
        return F.normalize(self(tokens), dim=-1)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {
            "vocab_size": 30,
            "context_length": 9,
            "embed_dim": 24,
            "num_layers": 2,
            "num_heads": 4,
            "ffn_dim": 24,
            "dropout": 0.0,
        }, _example_tokens(batch_size)


def _example_tokens(batch_size: int) -> Tensor:
    """Sequences of 9 tokens, the last one shorter."""
    tokens = torch.randint(1, 30, (batch_size, 9))
    tokens[-1, 5:] = 0
    return tokens
