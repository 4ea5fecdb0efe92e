"""Multi-layer perceptron (MLP): the universal baseline for tables, small images and bags of words.

    x -> standardize -> flatten -> hidden x [affine, norm, activation, dropout] -> affine -> outputs
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.init import init_weights
from didact.layers.mlp import Norm, make_mlp_layers
from didact.layers.standardize import Standardize
from didact.registry import register_model


@register_model("mlp", hidden=(256, 128))
@register_model("mlp_tiny", hidden=(32,))
class MLP(nn.Module):
    """f = A_L . f . A_{L-1} ... f . A_1 with A(h) = W h + b; without hidden layers, a linear model.  Gaba 1.2, 3.10."""

    def __init__(
        self,
        features: int,
        outputs: int,
        *,
        hidden: tuple[int, ...] = (256, 128),
        activation: str = "relu",
        dropout: float = 0.0,
        norm: Norm = "none",
        init: str = "he_normal",
        mean: Tensor | None = None,
        std: Tensor | None = None,
    ):
        super().__init__()
        widths = (features, *hidden)
        self.standardize = Standardize.or_identity(mean, std)
        self.hidden = make_mlp_layers(widths, activation, dropout, norm)
        self.head = nn.Linear(widths[-1], outputs)
        init_weights(self, init, activation=activation)

    def forward(self, x: Tensor) -> Tensor:                        # (B, ...) with `features` numbers each
        h = self.hidden(self.standardize(x).flatten(1))            # (B, hidden[-1])
        y: Tensor = self.head(h)                                   # (B, outputs)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        mean, std = torch.tensor([0.1, 0.2, 0.3])[:, None, None], torch.tensor([0.5, 1.0, 2.0])[:, None, None]
        return {"features": 3 * 5 * 7, "outputs": 11, "mean": mean, "std": std}, torch.rand(batch_size, 3, 5, 7)
