"""RealNVP (Dinh et al. 2017): data pushed through steps that can be undone, until they are Gaussian.

    table   x -> [coupling on every other number] x steps -> z
    image   x -> [coupling on a checkerboard] x steps -> squeeze -> [coupling on every other channel] x steps -> z
"""

from math import log, pi, prod
from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.coupling import Coupling, Squeeze, checkerboard, every_other
from didact.layers.stack import stack
from didact.registry import register


def dense(n: int, hidden: int) -> nn.Sequential:
    """n -> hidden -> hidden -> s and t."""
    return nn.Sequential(*stack((n, hidden, hidden)), nn.Linear(hidden, 2 * n))


def convolutional(channels: int, hidden: int) -> nn.Sequential:
    """3×3, 1×1, 3×3 convolutions to s and t."""
    return nn.Sequential(
        nn.Conv2d(channels, hidden, 3, padding=1), nn.ReLU(), nn.Conv2d(hidden, hidden, 1), nn.ReLU(),
        nn.Conv2d(hidden, 2 * channels, 3, padding=1),
    )


@register("realnvp", hidden=64, steps=6)
class RealNVP(nn.Module):
    """log p(x) = log N(f(x); 0, I) + log |det df/dx|.  Groudiev 12.3; Dinh et al. 2017, eq. 3."""

    def __init__(self, *, shape: tuple[int, ...], hidden: int, steps: int):
        super().__init__()
        layers: list[nn.Module] = []
        self.shape = shape                                         # of the codes
        if len(shape) == 1:
            layers += [Coupling(every_other(shape[0], k), dense(shape[0], hidden)) for k in range(steps)]
        else:
            c, h, w = shape
            layers += [Coupling(checkerboard(h, w, k), convolutional(c, hidden)) for k in range(steps)]
            while h % 2 == 0 and w % 2 == 0 and c < 16:
                c, h, w = 4 * c, h // 2, w // 2
                masks = [every_other(c, k)[:, None, None] for k in range(steps)]
                layers += [Squeeze(), *(Coupling(mask, convolutional(c, hidden)) for mask in masks)]
            self.shape = (c, h, w)
        self.layers = nn.ModuleList(layers)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z = f(x) and log |det df/dx|."""
        log_det = torch.zeros(len(x), device=x.device)
        for layer in self.layers:
            x, change = layer(x)
            log_det = log_det + change
        return x, log_det

    def decode(self, z: Tensor) -> Tensor:
        """x = f⁻¹(z)."""
        for layer in reversed(self.layers):
            assert isinstance(layer, Coupling | Squeeze)
            z = layer.inverse(z)
        return z

    def forward(self, x: Tensor) -> Tensor:
        """log p(x), (B,)."""
        z, log_det = self.encode(x)
        return log_det - 0.5 * (z.square().flatten(1).sum(1) + prod(self.shape) * log(2 * pi))

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        return {"shape": (1, 4, 6), "hidden": 8, "steps": 2}, torch.randn(batch, 1, 4, 6)
