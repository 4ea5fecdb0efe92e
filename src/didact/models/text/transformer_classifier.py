"""Transformer encoder for text classification (Gaba 7.8).

    tokens -> √D · embedding + positions -> layers x [attention, feed-forward] -> LN -> mean over the words -> classes

Attention is full or a variant of `layers.attention.variants`. Token 0 is padding: it is masked and left out of the mean
(the code of Gaba 7.8 does neither, mistake M38).
"""

from math import sqrt
from typing import Any, Literal

import torch
from torch import Tensor, nn

from didact.layers.attention.variants import make_self_attention
from didact.layers.feedforward import FeedForward
from didact.layers.norm import PostNorm, PreNorm
from didact.layers.positional import SinusoidalPositions
from didact.registry import register_model

NormPlacement = Literal["pre", "post"]


class Block(nn.Module):
    """x + attention(LN x), then x + W2 gelu(W1 LN x); with norm="post", norms stand after the sums.  Gaba eq. 7.9-7.10.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        ffn_dim: int,
        *,
        norm: NormPlacement,
        dropout: float,
        attention: str = "full",
        window: int = 8,
        depth: int = 0,
    ):
        super().__init__()
        wrap = PreNorm if norm == "pre" else PostNorm
        attention_layer = make_self_attention(attention, dim, num_heads, dropout=dropout, window=window, depth=depth)
        self.attention = wrap(attention_layer, nn.LayerNorm(dim), dropout=dropout)
        self.perceptron = wrap(
            FeedForward(dim, ffn_dim, activation="gelu", dropout=dropout), nn.LayerNorm(dim), dropout=dropout
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y: Tensor = self.perceptron(self.attention(x, mask))
        return y


@register_model("text_transformer", embed_dim=128, num_layers=4, num_heads=4, ffn_dim=512)
class TransformerClassifier(nn.Module):
    """y = W mean_t LN(h_t) + b.  Gaba 7.8: 2,073,602 parameters for 10,000 words and two classes."""

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        *,
        embed_dim: int,
        num_layers: int,
        num_heads: int,
        ffn_dim: int,
        context_length: int = 256,
        norm: NormPlacement = "pre",
        dropout: float = 0.1,
        embedding_std: float | None = None,
        attention: str = "full",
        window: int = 8,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=0)
        # √D times N(0, 1/D): as large as the positions. The notes' N(0, 1), embedding_std=1, drowns them 16 to 1 (M38)
        nn.init.normal_(self.embedding.weight[1:], std=embedding_std or 1 / sqrt(embed_dim))
        self.scale, self.positions = sqrt(embed_dim), SinusoidalPositions(context_length, embed_dim)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(
                embed_dim,
                num_heads,
                ffn_dim,
                norm=norm,
                dropout=dropout,
                attention=attention,
                window=window,
                depth=depth,
            )
            for depth in range(num_layers)
        )
        self.norm, self.head = nn.LayerNorm(embed_dim), nn.Linear(embed_dim, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:                            # (B, S) -> (B, classes)
        y: Tensor = self.head(self.embed(tokens))
        return y

    def embed(self, tokens: Tensor) -> Tensor:
        """The text as one vector, (B, D)."""
        x, token_mask = self.embed_tokens(tokens)
        for block in self.blocks:
            x = block(x, token_mask[:, None, None])
        weight = token_mask[..., None] / token_mask.sum(1)[:, None, None]
        y: Tensor = (weight * self.norm(x)).sum(1)
        return y

    def embed_tokens(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Embedded tokens, (B, S, D), and their mask, (B, S); an empty text is read as one token of padding."""
        token_mask = tokens != 0
        token_mask[:, 0] = True
        return self.dropout(self.positions(self.scale * self.embedding(tokens))), token_mask

    @torch.no_grad()
    def attention_maps(self, tokens: Tensor) -> Tensor:
        """Attention weights of every layer: (B, layers, heads, S, S)."""
        (x, token_mask), maps = self.embed_tokens(tokens), []
        for block in self.blocks:
            assert isinstance(block, Block)
            normalized = x if isinstance(block.attention, PostNorm) else block.attention.norm(x)
            attention_layer: Any = block.attention.sublayer
            maps.append(attention_layer.forward_with_weights(normalized, token_mask[:, None, None])[1])
            x = block(x, token_mask[:, None, None])
        return torch.stack(maps, dim=1)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        tokens = torch.randint(1, 30, (batch_size, 9))
        tokens[-1, 5:] = 0
        small = {
            "vocab_size": 30,
            "num_classes": 5,
            "embed_dim": 16,
            "num_layers": 2,
            "num_heads": 4,
            "ffn_dim": 24,
            "context_length": 9,
            "dropout": 0.0,
        }
        return small, tokens
