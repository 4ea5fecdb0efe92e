"""Generative networks; their losses and samplers are in `objectives.generative` and `samplers`.

    autoencoder, vae, vqvae    encoders and decoders
    gan                        generators and discriminators: dense, DCGAN, style-based
    diffusion_unet             U-Nets with a timestep
    pixelcnn, pixelrnn         autoregressive models of pixels
    realnvp                    normalizing flows
    table_networks             generator of table rows
"""

from didact.models.generative.autoencoder import Autoencoder, ConvAutoencoder
from didact.models.generative.diffusion_unet import DiffusionUNet, SimpleUNet
from didact.models.generative.gan import (
    DCGANDiscriminator,
    DCGANGenerator,
    DenseDiscriminator,
    DenseGenerator,
    StyleGenerator,
)
from didact.models.generative.pixelcnn import PixelCNN
from didact.models.generative.pixelrnn import PixelRNN
from didact.models.generative.realnvp import MonotoneFlow, MultiScaleRealNVP, RealNVP
from didact.models.generative.table_networks import TableGenerator
from didact.models.generative.vae import VAE, ConvVAE
from didact.models.generative.vqvae import VQVAE

__all__ = [
    "VAE", "VQVAE", "Autoencoder", "ConvAutoencoder", "ConvVAE", "DCGANDiscriminator", "DCGANGenerator",
    "DenseDiscriminator", "DenseGenerator", "DiffusionUNet", "MonotoneFlow", "MultiScaleRealNVP", "PixelCNN",
    "PixelRNN", "RealNVP", "SimpleUNet", "StyleGenerator", "TableGenerator",
]  # fmt: skip
