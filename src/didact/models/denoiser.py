"""Denoising autoencoder: a damaged image in, the image as it was out.

    x̃ -> convolution -> [halve, widen] x levels -> [double, narrow] x levels -> convolution -> + x̃
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.standardise import Standardise
from didact.registry import register


@register("denoiser", widths=(32, 64, 128))
@register("denoiser_tiny", widths=(16, 32))
class Denoiser(nn.Module):
    """x̂ = x̃ + d(e(x̃)): what is learned is the damage, not the image.  Vincent et al. 2008, Zhang et al. 2017; Fleuret 6.1."""

    def __init__(self, *, widths: tuple[int, ...], channels: int = 3, mean: Tensor | None = None, std: Tensor | None = None):
        super().__init__()
        self.standardise = Standardise(mean, std) if mean is not None and std is not None else nn.Identity()
        encoder: list[nn.Module] = [nn.Conv2d(channels, widths[0], 3, padding=1), nn.ReLU(inplace=True)]
        for a, b in pairwise(widths):
            encoder += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU(inplace=True)]
            encoder += [nn.Conv2d(b, b, 3, padding=1), nn.ReLU(inplace=True)]
        decoder: list[nn.Module] = []
        for a, b in reversed(list(pairwise(widths))):
            decoder += [nn.ConvTranspose2d(b, a, 2, stride=2), nn.ReLU(inplace=True)]
            decoder += [nn.Conv2d(a, a, 3, padding=1), nn.ReLU(inplace=True)]
        self.encoder, self.decoder = nn.Sequential(*encoder), nn.Sequential(*decoder)
        self.head = nn.Conv2d(widths[0], channels, 3, padding=1)
        self.halvings = len(widths) - 1
        for layer in [*self.encoder, *self.decoder]:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        nn.init.normal_(self.head.weight, std=1e-3)                # begins as the identity, almost
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:                        # (B, C, H, W) in [0, 1], damaged
        if any(side % 2**self.halvings for side in x.shape[2:]):
            raise UsageError(
                f"a denoiser that halves {self.halvings} times needs sides that are multiples of {2 ** self.halvings},"
                f" got {x.shape[3]}×{x.shape[2]}; see --size and --widths"
            )
        h = self.decoder(self.encoder(self.standardise(x)))        # (B, w_0, H, W)
        y: Tensor = x + self.head(h)
        return y

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        mean, std = torch.tensor([0.1, 0.2, 0.3])[:, None, None], torch.tensor([0.5, 1.0, 2.0])[:, None, None]
        return {"widths": (5, 6, 7), "mean": mean, "std": std}, torch.rand(batch, 3, 12, 20)
