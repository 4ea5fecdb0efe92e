"""Autoencoder: an image through a bottleneck of a few numbers and back.

    x -> encoder -> affine -> z -> decoder -> x̂
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.autoencoder_blocks import Shape, conv_decoder, conv_encoder, dense_decoder, dense_encoder
from didact.registry import register_model


@register_model("autoencoder", widths=(256, 128))
class Autoencoder(nn.Module):
    """x̂ = g(f(x)), z = f(x) of `latent_dim` numbers.  Gaba Def. 9.2, Groudiev 10.1, Van Schependom 8.1."""

    make_encoder, make_decoder = staticmethod(dense_encoder), staticmethod(dense_decoder)

    def __init__(self, *, shape: Shape, widths: tuple[int, ...], latent_dim: int = 16):
        super().__init__()
        self.latent_dim = latent_dim
        self.body, n = self.make_encoder(shape, widths)
        self.code = nn.Linear(n, latent_dim)
        self.decoder = self.make_decoder(latent_dim, widths, shape)

    def encode(self, x: Tensor) -> Tensor:                         # (B, C, H, W) -> (B, latent)
        z: Tensor = self.code(self.body(x))
        return z

    def decode(self, z: Tensor) -> Tensor:
        x: Tensor = self.decoder(z)
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x))

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (2, 7, 12), "widths": (9, 10), "latent_dim": 5}, torch.rand(batch_size, 2, 7, 12)


@register_model("conv_autoencoder", widths=(32, 64))
class ConvAutoencoder(Autoencoder):
    """An autoencoder with convolutions of stride 2 down and transposed ones up."""

    make_encoder, make_decoder = staticmethod(conv_encoder), staticmethod(conv_decoder)
