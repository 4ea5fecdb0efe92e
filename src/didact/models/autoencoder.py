"""Autoencoder: an image through a bottleneck of a few numbers and back.

    x -> body -> affine -> z -> decoder -> x̂
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.coder import Shape, conv_body, conv_decoder, dense_body, dense_decoder
from didact.registry import register


@register("autoencoder", widths=(256, 128))
class Autoencoder(nn.Module):
    """x̂ = g(f(x)), z = f(x) of `latent` numbers.  Gaba Def. 9.2, Groudiev 10.1, Van Schependom 8.1."""

    body_of, decoder_of = staticmethod(dense_body), staticmethod(dense_decoder)

    def __init__(self, *, shape: Shape, widths: tuple[int, ...], latent: int = 16):
        super().__init__()
        self.latent = latent
        self.body, n = self.body_of(shape, widths)
        self.code = nn.Linear(n, latent)
        self.decoder = self.decoder_of(latent, widths, shape)

    def encode(self, x: Tensor) -> Tensor:                         # (B, C, H, W) -> (B, latent)
        z: Tensor = self.code(self.body(x))
        return z

    def decode(self, z: Tensor) -> Tensor:
        x: Tensor = self.decoder(z)
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x))

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        return {"shape": (2, 7, 12), "widths": (9, 10), "latent": 5}, torch.rand(batch, 2, 7, 12)


@register("conv_autoencoder", widths=(32, 64))
class ConvAutoencoder(Autoencoder):
    """The same with convolutions of stride 2 down and transposed ones up."""

    body_of, decoder_of = staticmethod(conv_body), staticmethod(conv_decoder)
