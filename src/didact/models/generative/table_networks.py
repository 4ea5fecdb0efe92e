"""Generator of table rows: categories are made one-hot, so that the discriminator cannot tell them by their softness.

    z -> [affine, ReLU] -> affine -> numbers as they are, missing-value flags and categories as 0 and 1
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.mlp import make_mlp_layers


class TableGenerator(nn.Module):
    """x = W MLP(z) for numbers, the vertex nearest to softmax(W MLP(z)) for categories, given by their (start, end)
    columns.

    The gradient passes straight through the choice: x = e_k + p − sg[p] (Bengio et al. 2013).
    """

    def __init__(
        self, *, features: int, categories: Sequence[tuple[int, int]] = (), gaps: Sequence[int] = (),
        latent_dim: int = 32, widths: tuple[int, ...] = (128, 256), num_classes: int = 0,
    ):
        super().__init__()
        self.latent_dim, self.num_classes = latent_dim, num_classes
        self.categories = [*categories, *((k, k + 1) for k in gaps)]
        sizes = (latent_dim + num_classes, *widths)
        self.layers = nn.Sequential(*make_mlp_layers(sizes), nn.Linear(sizes[-1], features))

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:   # (B, latent) -> (B, features)
        z = torch.cat([z, F.one_hot(y, self.num_classes).to(z.dtype)], dim=1) if y is not None else z
        out: Tensor = self.layers(z)
        parts, start = [], 0
        for a, b in sorted(self.categories):
            parts += [out[:, start:a], straight_through_one_hot(out[:, a:b])]
            start = b
        return torch.cat([*parts, out[:, start:]], dim=1)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Not registered: a row of a single column's choice has no gradient of its own."""
        return {"features": 7, "categories": ((1, 4),), "gaps": (5,), "latent_dim": 6}, torch.randn(batch_size, 6)


def straight_through_one_hot(logits: Tensor) -> Tensor:
    """A one-hot vector with the gradient of the softmax; of a single logit, 0 or 1 with the gradient of the sigmoid."""
    if logits.shape[1] == 1:
        p = logits.sigmoid()
        e = (p > 0.5).to(p.dtype)
    else:
        p = logits.softmax(1)
        e = F.one_hot(p.argmax(1), p.shape[1]).to(p.dtype)
    return e + p - p.detach()
