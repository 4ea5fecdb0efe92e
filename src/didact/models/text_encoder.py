"""A Transformer encoder that says what kind of text it reads (Gaba 7.8).

    tokens -> √D · embedding + positions -> layers x [attention, perceptron] -> LN -> mean over the words -> classes

Attention is of any form that `layers.forms` names.
Token 0 is padding: it is neither looked at nor counted in the mean (the code of Gaba 7.8 does both, mistake M38).
"""

from math import sqrt
from typing import Any, Literal

import torch
from torch import Tensor, nn

from didact.layers.feedforward import FeedForward
from didact.layers.forms import self_attention
from didact.layers.norms import PostNorm, PreNorm
from didact.layers.positions import Sinusoidal
from didact.registry import register

Placed = Literal["pre", "post"]


class Block(nn.Module):
    """x + attention(LN x), then x + W2 gelu(W1 LN x); with `post` the norms stand behind the sums.  Gaba eq. 7.9-7.10."""

    def __init__(
        self, dim: int, heads: int, hidden: int, *, norm: Placed, dropout: float, attention: str = "full", span: int = 8, depth: int = 0
    ):
        super().__init__()
        wrap = PreNorm if norm == "pre" else PostNorm
        asking = self_attention(attention, dim, heads, dropout=dropout, span=span, depth=depth)
        self.attention = wrap(asking, nn.LayerNorm(dim), dropout=dropout)
        self.perceptron = wrap(FeedForward(dim, hidden, activation="gelu", dropout=dropout), nn.LayerNorm(dim), dropout=dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y: Tensor = self.perceptron(self.attention(x, mask))
        return y


@register("text_transformer", dim=128, layers=4, heads=4, hidden=512)
class TextEncoder(nn.Module):
    """y = W mean_t LN(h_t) + b.  Gaba 7.8: 2,073,602 parameters for 10,000 words and two classes."""

    def __init__(
        self, vocabulary: int, classes: int, *, dim: int, layers: int, heads: int, hidden: int, context: int = 256, norm: Placed = "pre",
        dropout: float = 0.1, embedding_std: float | None = None, attention: str = "full", span: int = 8,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim, padding_idx=0)
        # √D times N(0, 1/D): as large as the positions. The notes' N(0, 1), embedding_std = 1, drowns them, 16 to 1 (M38)
        nn.init.normal_(self.embedding.weight[1:], std=embedding_std or 1 / sqrt(dim))
        self.scale, self.positions, self.dropout = sqrt(dim), Sinusoidal(context, dim), nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(dim, heads, hidden, norm=norm, dropout=dropout, attention=attention, span=span, depth=depth) for depth in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, tokens: Tensor) -> Tensor:                            # (B, S) -> (B, classes)
        y: Tensor = self.head(self.embed(tokens))
        return y

    def embed(self, tokens: Tensor) -> Tensor:
        """The text as one vector, (B, D)."""
        x, there = self.begin(tokens)
        for block in self.blocks:
            x = block(x, there[:, None, None])
        weight = there[..., None] / there.sum(1)[:, None, None]
        y: Tensor = (weight * self.norm(x)).sum(1)
        return y

    def begin(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Embedded tokens, (B, S, D), and where there are any, (B, S); an empty text is read as one token of padding."""
        there = tokens != 0
        there[:, 0] = True
        return self.dropout(self.positions(self.scale * self.embedding(tokens))), there

    @torch.no_grad()
    def attention_maps(self, tokens: Tensor) -> Tensor:
        """Who attends to whom in every layer: (B, layers, heads, S, S)."""
        (x, there), maps = self.begin(tokens), []
        for block in self.blocks:
            assert isinstance(block, Block)
            inside = x if isinstance(block.attention, PostNorm) else block.attention.norm(x)
            asking: Any = block.attention.sublayer
            maps.append(asking.look(inside, there[:, None, None])[1])
            x = block(x, there[:, None, None])
        return torch.stack(maps, dim=1)

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        tokens = torch.randint(1, 30, (batch, 9))
        tokens[-1, 5:] = 0
        small = {"vocabulary": 30, "classes": 5, "dim": 16, "layers": 2, "heads": 4, "hidden": 24, "context": 9, "dropout": 0.0}
        return small, tokens
