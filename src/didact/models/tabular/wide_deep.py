"""Wide and deep network (Cheng et al. 2016): a linear model, which memorizes, plus an MLP, which generalizes.

    x -> standardize -> flatten -> affine                  -+-> outputs
                                -> hidden layers -> affine -+
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.init import init_weights
from didact.layers.mlp import Norm, make_mlp_layers
from didact.layers.standardize import Standardize
from didact.registry import register_model


@register_model("wide_deep")
class WideDeep(nn.Module):
    """y = W_wide x + W_deep h_L(x) + b.  Eq. 3 of the paper, without its handmade cross products of features."""

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
        self.wide = nn.Linear(features, outputs, bias=False)  # the deep part has the bias
        self.hidden = make_mlp_layers(widths, activation, dropout, norm)
        self.deep = nn.Linear(widths[-1], outputs)
        init_weights(self, init, activation=activation)

    def forward(self, x: Tensor) -> Tensor:                        # (B, ...) with `features` numbers each
        x = self.standardize(x).flatten(1)                         # (B, features)
        y: Tensor = self.wide(x) + self.deep(self.hidden(x))       # (B, outputs)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        mean, std = torch.linspace(-1, 1, 13), torch.linspace(0.5, 2, 13)
        return {"features": 13, "outputs": 3, "hidden": (7, 5), "mean": mean, "std": std}, torch.randn(batch_size, 13)
