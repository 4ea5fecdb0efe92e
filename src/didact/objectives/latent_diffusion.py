"""Latent diffusion: noise and its way back among the codes of an autoencoder that is done learning; the decoder paints at the end."""

from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.coder import Shape
from didact.objectives.diffusion import Diffusion
from didact.objectives.elbo import ELBO
from didact.objectives.noising import Noising
from didact.objectives.vector_quantised import VectorQuantised


class Coder(nn.Module):
    """Images to maps of codes and back, whoever learned them. Learns nothing itself."""

    def __init__(self, learned: ELBO | VectorQuantised):
        super().__init__()
        self.learned = learned.requires_grad_(False)

    def train(self, mode: bool = True) -> "Coder":
        return super().train(False)                                      # batch norms keep what they know

    def encode(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, D, h, w), before it is rounded to words; a code without places is a map of one."""
        if isinstance(self.learned, VectorQuantised):
            return self.learned.network.encode(x)[0]
        return self.learned.network.encode(x)[0][:, :, None, None]

    def decode(self, z: Tensor) -> Tensor:
        """Images in [0, 1]."""
        if isinstance(self.learned, VectorQuantised):
            words, _ = self.learned.network.quantizer(z)
            return self.learned.network.decode(words).float().clamp(0, 1)
        return self.learned.shown(z.flatten(1)).clamp(0, 1)

    @property
    def shape(self) -> Shape:
        if isinstance(self.learned, VectorQuantised):
            return self.learned.network.quantizer.codebook.shape[1], *self.learned.network.grid
        return self.learned.network.latent, 1, 1


class LatentDiffusion(Diffusion):
    """The same loss for z_0 = (encode(x) − μ) / s in place of x_0, μ and s over the training codes, channel by channel.

    Rombach et al. 2022, eq. 2 and section G; Gaba 9.10. A VAE's code is its mean μ(x); a VQ-VAE's is rounded to its words at the end.
    """

    reach = 5.0   # deviations: codes have no bounds as pixels do
    complete = None  # type: ignore[assignment]   # half an image is not half a code
    location: Tensor
    scale: Tensor

    def __init__(self, coder: Coder, network: nn.Module, noising: Noising, **words: Any):
        super().__init__(network, coder.shape, noising, **words)
        self.coder = coder
        self.register_buffer("location", torch.zeros(coder.shape[0], 1, 1))
        self.register_buffer("scale", torch.ones(coder.shape[0], 1, 1))

    @torch.no_grad()
    def measure(self, x: Tensor) -> None:
        """μ and s from training images."""
        self.coder.eval()
        z = self.coder.encode(x)
        self.location.copy_(z.mean((0, 2, 3))[:, None, None])
        self.scale.copy_(z.std((0, 2, 3))[:, None, None].clamp(min=1e-4))   # a dimension that collapsed says nothing, as it did

    @torch.no_grad()
    def inside(self, x: Tensor) -> Tensor:
        return (self.coder.encode(x) - self.location) / self.scale

    def outside(self, x0: Tensor) -> Tensor:
        return self.coder.decode(x0 * self.scale + self.location)
