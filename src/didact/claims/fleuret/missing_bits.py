"""Fleuret: the missing bits."""

import torch
from torch import Tensor

from didact.claims.forms import Equal
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.layers.attention.multihead import dot_product_attention


@claim("CF48", Equal())
def graph_layer() -> Pair:
    """σ(Σ_j a_ij x_j W) over the neighbors j of each of six vertices, with equal a_ij, by didact's attention masked to
    the neighbors, against a loop over them; and for permuted vertices against the permuted output"""
    A, X, W, order = torch.rand(6, 6) > 0.5, torch.randn(6, 4), torch.randn(4, 3), torch.tensor([3, 0, 5, 1, 4, 2])

    def layer(A: Tensor, X: Tensor) -> Tensor:
        y, _ = dot_product_attention(torch.zeros(6, 1), torch.zeros(6, 1), X @ W, A)
        return torch.tanh(y)

    neighbor_features = [[X[j] @ W for j in range(6) if A[i, j]] for i in range(6)]
    by_hand = torch.stack(
        [torch.tanh(sum(features, torch.zeros(3)) / max(1, len(features))) for features in neighbor_features]
    )
    return [layer(A, X), layer(A[order][:, order], X[order])], [by_hand, by_hand[order]]
