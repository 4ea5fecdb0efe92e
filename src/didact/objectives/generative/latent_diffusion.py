"""Latent diffusion: diffusion among the latent codes of a trained autoencoder, whose decoder makes the images."""

from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.autoencoder_blocks import Shape
from didact.objectives.generative.diffusion import DiffusionObjective
from didact.objectives.generative.noise_schedule import NoiseSchedule
from didact.objectives.generative.vae import VAEObjective
from didact.objectives.generative.vqvae import VQVAEObjective


class FrozenAutoencoder(nn.Module):
    """A trained autoencoder that maps images to maps of latents and back; it is not trained further."""

    def __init__(self, model: VAEObjective | VQVAEObjective):
        super().__init__()
        self.model = model.requires_grad_(False)

    def train(self, mode: bool = True) -> "FrozenAutoencoder":
        return super().train(False)                                    # batch norms keep their statistics

    def encode(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, D, h, w), before quantization; a code without spatial axes is a 1×1 map."""
        if isinstance(self.model, VQVAEObjective):
            return self.model.network.encode(x)[0]
        return self.model.network.encode(x)[0][:, :, None, None]

    def decode(self, z: Tensor) -> Tensor:
        """Images in [0, 1]."""
        if isinstance(self.model, VQVAEObjective):
            codewords, _ = self.model.network.quantizer(z)
            return self.model.network.decode(codewords).float().clamp(0, 1)
        return self.model.decode(z.flatten(1)).clamp(0, 1)

    @property
    def shape(self) -> Shape:
        if isinstance(self.model, VQVAEObjective):
            return self.model.network.quantizer.codebook.shape[1], *self.model.network.grid
        return self.model.network.latent_dim, 1, 1


class LatentDiffusionObjective(DiffusionObjective):
    """The diffusion loss for z_0 = (encode(x) − μ) / s in place of x_0, μ and s of the training codes for each channel.

    Rombach et al. 2022, eq. 2 and section G; Gaba 9.10. A VAE's code is its mean μ(x); a VQ-VAE's code is quantized at
    the end.
    """

    clip_range = 5.0   # standard deviations: latents have no bounds as pixels do
    complete = None  # type: ignore[assignment]   # no inpainting: half an image is not half a code
    location: Tensor
    scale: Tensor

    def __init__(
        self, autoencoder: FrozenAutoencoder, network: nn.Module, noise_schedule: NoiseSchedule, **shared_options: Any
    ):
        super().__init__(network, autoencoder.shape, noise_schedule, **shared_options)
        self.autoencoder = autoencoder
        self.register_buffer("location", torch.zeros(autoencoder.shape[0], 1, 1))
        self.register_buffer("scale", torch.ones(autoencoder.shape[0], 1, 1))

    @torch.no_grad()
    def fit_latent_scale(self, x: Tensor) -> None:
        """Set μ and s from training images."""
        self.autoencoder.eval()
        z = self.autoencoder.encode(x)
        self.location.copy_(z.mean((0, 2, 3))[:, None, None])
        # collapsed dimensions stay at their mean instead of being scaled up to noise
        self.scale.copy_(z.std((0, 2, 3))[:, None, None].clamp(min=1e-4))

    @torch.no_grad()
    def to_model_space(self, x: Tensor) -> Tensor:
        return (self.autoencoder.encode(x) - self.location) / self.scale

    def to_data_space(self, x0: Tensor) -> Tensor:
        return self.autoencoder.decode(x0 * self.scale + self.location)
