"""Rows of a table out of noise: a perceptron whose categories are made hard, so that no discriminator knows them by their softness.

    z -> [affine, ReLU] -> affine -> numbers as they are, gaps and categories as 0 and 1
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.stack import stack


class RowGenerator(nn.Module):
    """x = W MLP(z) for numbers, the vertex nearest to softmax(W MLP(z)) for categories, of which (from, to) says where they lie.

    The gradient passes straight through the choice: x = e_k + p − sg[p] (Bengio et al. 2013).
    """

    def __init__(
        self, *, features: int, categories: Sequence[tuple[int, int]] = (), gaps: Sequence[int] = (),
        latent: int = 32, widths: tuple[int, ...] = (128, 256), classes: int = 0,
    ):
        super().__init__()
        self.latent, self.classes = latent, classes
        self.categories = [*categories, *((k, k + 1) for k in gaps)]
        sizes = (latent + classes, *widths)
        self.layers = nn.Sequential(*stack(sizes), nn.Linear(sizes[-1], features))

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:   # (B, latent) -> (B, features)
        z = torch.cat([z, F.one_hot(y, self.classes).to(z.dtype)], dim=1) if y is not None else z
        out: Tensor = self.layers(z)
        parts, at = [], 0
        for a, b in sorted(self.categories):
            parts += [out[:, at:a], hard(out[:, a:b])]
            at = b
        return torch.cat([*parts, out[:, at:]], dim=1)

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it. Not registered: a row of one column's choice has no gradient of its own."""
        return {"features": 7, "categories": ((1, 4),), "gaps": (5,), "latent": 6}, torch.randn(batch, 6)


def hard(logits: Tensor) -> Tensor:
    """A vector of one 1 whose gradient is the softmax's; of one logit alone, 0 or 1 and the sigmoid's."""
    if logits.shape[1] == 1:
        p = logits.sigmoid()
        e = (p > 0.5).to(p.dtype)
    else:
        p = logits.softmax(1)
        e = F.one_hot(p.argmax(1), p.shape[1]).to(p.dtype)
    return e + p - p.detach()
