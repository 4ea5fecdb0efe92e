"""fastText (Joulin et al. 2017, Bojanowski et al. 2017): a bag of hashed n-grams, a linear path beside a hidden layer.

    tokens -> n-grams, hashed -> sum of their rows [u, v], weighted by TF-IDF -> s Σ u + W2 relu(W1 Σ v) + b

The linear path alone is logistic regression, or ridge, on TF-IDF; the hidden layer finds what n-grams mean together.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.hashed_ngrams import HashedNgrams
from didact.registry import register_model

_LINEAR_SCALE = 10.0     # s: TF-IDF makes inputs of length 1, of which the best linear weights are large


@register_model("fasttext", embed_dim=32, hidden_size=64)
class FastText(nn.Module):
    """y = b + s Σ_j a_j u_j + W2 relu(W1 Σ_j a_j v_j + b1), a_j ∝ idf_j with Σ a_j² = 1, j the n-grams of the text.

    Only n-grams with a row count: `choose_ngrams` gives them to those of the training texts.
    """

    idf: Tensor
    rows: Tensor

    def __init__(
        self, num_classes: int, *, ngrams: HashedNgrams, num_ngrams: int, embed_dim: int, hidden_size: int,
        dropout: float = 0.5, ngram_dropout: float = 0.2,
    ):  # fmt: skip
        super().__init__()
        self.num_classes, self.ngrams, self.ngram_dropout = num_classes, ngrams, ngram_dropout
        # one row per n-gram holds u and v, so that it is read once; row 0 is that of all others
        self.embedding = nn.EmbeddingBag(num_ngrams + 1, num_classes + embed_dim, mode="sum", padding_idx=0)
        nn.init.zeros_(self.embedding.weight[:, :num_classes])
        nn.init.normal_(self.embedding.weight[1:, num_classes:], std=0.3)
        self.hidden = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(embed_dim, hidden_size), nn.ReLU(), nn.Dropout(dropout)
        )
        self.head = nn.Linear(hidden_size, num_classes)
        self.register_buffer("idf", torch.ones(num_ngrams + 1))
        # until they are chosen, n-grams share the rows
        self.register_buffer("rows", (torch.arange(ngrams.num_buckets) % (num_ngrams + 1)).int())

    @torch.no_grad()
    def choose_ngrams(self, text_counts: Tensor, num_texts: int) -> None:
        """Give rows to the most frequent n-grams; idf_j = ln((1 + N) / (1 + n_j)) + 1, n_j the texts with n-gram j."""
        buckets = text_counts.argsort(descending=True, stable=True)[: len(self.idf) - 1]
        buckets = buckets[text_counts[buckets] > 0]
        self.rows.zero_()
        self.rows[buckets] = torch.arange(1, len(buckets) + 1, dtype=torch.int32)
        self.idf[1 : len(buckets) + 1] = ((1 + num_texts) / (1 + text_counts[buckets])).log() + 1

    def forward(self, x: Tensor) -> Tensor:                                 # (B, L) -> (B, classes)
        h = self.embed(x)
        y: Tensor = _LINEAR_SCALE * h[:, : self.num_classes] + self.head(self.hidden(h[:, self.num_classes :]))
        return y

    def embed(self, x: Tensor) -> Tensor:
        """Σ_j a_j [u_j, v_j], (B, classes + D)."""
        ids = self.rows[self.ngrams(x)]
        weights = self.idf[ids] * (ids != 0)
        weights = weights / weights.norm(dim=1, keepdim=True).clamp(min=1e-6)   # 0 where no n-gram is known
        if self.training:
            weights = F.dropout(weights, self.ngram_dropout)
        h: Tensor = self.embedding(ids, per_sample_weights=weights)
        return h

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        tokens = torch.randint(1, 30, (batch_size, 9))
        tokens[-1, 5:] = 0
        small = {
            "num_classes": 5, "num_ngrams": 60, "embed_dim": 16, "hidden_size": 8, "dropout": 0.0, "ngram_dropout": 0.0,
            "ngrams": HashedNgrams(64, character_sizes=(1, 2, 3), word_sizes=(1, 2)),
        }  # fmt: skip
        return small, tokens
