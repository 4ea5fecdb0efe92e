"""word2vec (Mikolov et al. 2013): word vectors learned from the words around; of its two tables, the first is kept.

    context words -> their vectors v, and the mean h -> products with the vectors u of all words
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.registry import register_model


@register_model("word2vec", vocab_size=10_002, embed_dim=100)
class Word2Vec(nn.Module):
    """y_w = u_wᵀ h, h = mean of v over the context words (CBOW); with a single context word, skip-gram.  Lhotte 7.4,
    fig. 7.3.
    """

    def __init__(self, vocab_size: int, *, embed_dim: int):
        super().__init__()
        self.v, self.u = (nn.Embedding(vocab_size, embed_dim, padding_idx=0) for _ in range(2))
        for table in (self.v, self.u):
            # products near 0: at first every pair has probability ½
            nn.init.uniform_(table.weight[1:], -0.5 / embed_dim, 0.5 / embed_dim)

    def forward(self, tokens: Tensor) -> Tensor:                            # (B, C) -> (B, V)
        return self.mean(tokens) @ self.u.weight.mT

    def mean(self, tokens: Tensor) -> Tensor:
        """h, (B, C) -> (B, D): the mean over tokens that are not padding (token 0); 0 where there are none."""
        h: Tensor = self.v(tokens).sum(1) / (tokens != 0).sum(1, keepdim=True).clamp(min=1)
        return h

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        tokens = torch.randint(1, 30, (batch_size, 6))
        tokens[-1, 4:] = 0
        return {"vocab_size": 30, "embed_dim": 12}, tokens
