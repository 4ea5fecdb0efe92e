"""Variational autoencoder (VAE): an encoder to a Gaussian over codes, a decoder to a distribution over images.

    x -> encoder -> affine -> μ, log σ²;  z = μ + σ ε;  z -> decoder -> parameters of p(x | z)
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.autoencoder_blocks import Shape, conv_decoder, conv_encoder, dense_decoder, dense_encoder
from didact.registry import register_model


@register_model("vae", widths=(512,))  # Gaba 9.8: 784-512-(20, 20), 20-512-784, 835,384 parameters
class VAE(nn.Module):
    """q(z | x) = N(μ(x), σ²(x)), p(x | z) from the decoder.

    `outputs` is the decoder's number of channels, where a pixel's distribution has several parameters. With
    `num_classes` both halves are conditional on the label: q(z | x, y) and p(x | z, y) (Sohn et al. 2015).  Kingma and
    Welling 2014; Gaba 9.8, Groudiev 10.2, Van Schependom 8.3.
    """

    make_encoder, make_decoder = staticmethod(dense_encoder), staticmethod(dense_decoder)

    def __init__(
        self,
        *,
        shape: Shape,
        widths: tuple[int, ...],
        latent_dim: int = 20,
        outputs: int | None = None,
        num_classes: int = 0,
    ):
        super().__init__()
        self.latent_dim, self.num_classes = latent_dim, num_classes
        self.body, n = self.make_encoder(shape, widths)
        self.code = nn.Linear(n + num_classes, 2 * latent_dim)
        self.decoder = self.make_decoder(latent_dim + num_classes, widths, (outputs or shape[0], *shape[1:]))

    def _concat_label(self, h: Tensor, y: Tensor | None) -> Tensor:
        """(B, n) with the one-hot label appended."""
        if not self.num_classes or y is None:
            return h
        return torch.cat([h, F.one_hot(y, self.num_classes).to(h.dtype)], dim=1)

    def encode(self, x: Tensor, y: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) -> μ and log σ², (B, latent) each."""
        mu, log_variance = self.code(self._concat_label(self.body(x), y)).float().chunk(2, dim=1)
        return mu, log_variance.clamp(-14, 14)                     # e^100 overflows float32

    def decode(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        out: Tensor = self.decoder(self._concat_label(z, y))
        return out

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """The decoder's output for a sample of q(z | x), in eval mode for its mean."""
        mu, log_variance = self.encode(x, y)
        z = mu + (0.5 * log_variance).exp() * torch.randn_like(mu) if self.training else mu
        return self.decode(z, y)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (2, 7, 12), "widths": (9, 10), "latent_dim": 5}, torch.rand(batch_size, 2, 7, 12)


@register_model("conv_vae", widths=(32, 64, 128))
class ConvVAE(VAE):
    """A VAE with convolutions of stride 2, BN and ReLU, mirrored in the decoder.  Gaba Ex 9.3."""

    make_encoder, make_decoder = staticmethod(conv_encoder), staticmethod(conv_decoder)
