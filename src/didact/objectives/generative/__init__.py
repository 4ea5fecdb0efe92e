"""Objectives of generative models.

    autoencoder, vae, vqvae, vqvae_prior    latent codes, and densities over them
    gan                                     two players, gradient penalty
    diffusion, noise_schedule               diffusion; its samplers are in `didact.samplers.ddim`
    flow_matching, consistency, latent_diffusion
    flow, pixel_autoregressive              exact likelihoods: normalizing flows, PixelCNN and PixelRNN
    table_rows, table_vae, table_gan, table_flow    generative models of table rows
    base, sample_quality                    Fréchet distance of thumbnails and a referee classifier during training
"""

from typing import TYPE_CHECKING

from didact.lazy import make_lazy_getattr

if TYPE_CHECKING:
    from didact.objectives.generative.autoencoder import AutoencoderObjective as AutoencoderObjective
    from didact.objectives.generative.consistency import ConsistencyObjective as ConsistencyObjective
    from didact.objectives.generative.diffusion import DiffusionObjective as DiffusionObjective
    from didact.objectives.generative.flow import FlowObjective as FlowObjective
    from didact.objectives.generative.flow import ImageFlowObjective as ImageFlowObjective
    from didact.objectives.generative.flow_matching import FlowMatchingObjective as FlowMatchingObjective
    from didact.objectives.generative.gan import GAN_LOSSES as GAN_LOSSES
    from didact.objectives.generative.gan import GANLoss as GANLoss
    from didact.objectives.generative.gan import GANObjective as GANObjective
    from didact.objectives.generative.gan import gradient_penalty as gradient_penalty
    from didact.objectives.generative.latent_diffusion import LatentDiffusionObjective as LatentDiffusionObjective
    from didact.objectives.generative.noise_schedule import NoiseSchedule as NoiseSchedule
    from didact.objectives.generative.pixel_autoregressive import (
        PixelAutoregressiveObjective as PixelAutoregressiveObjective,
    )
    from didact.objectives.generative.table_flow import TableFlow as TableFlow
    from didact.objectives.generative.table_gan import TableGAN as TableGAN
    from didact.objectives.generative.table_rows import RowLayout as RowLayout
    from didact.objectives.generative.table_vae import TableVAE as TableVAE
    from didact.objectives.generative.vae import VAEObjective as VAEObjective
    from didact.objectives.generative.vae import iwae_bound as iwae_bound
    from didact.objectives.generative.vae import kl_standard_normal as kl_standard_normal
    from didact.objectives.generative.vqvae import VQVAEObjective as VQVAEObjective
    from didact.objectives.generative.vqvae_prior import CodePrior as CodePrior

_EXPORTS = {
    "AutoencoderObjective": "autoencoder",
    "CodePrior": "vqvae_prior",
    "ConsistencyObjective": "consistency",
    "DiffusionObjective": "diffusion",
    "FlowMatchingObjective": "flow_matching",
    "FlowObjective": "flow",
    "GANLoss": "gan",
    "GANObjective": "gan",
    "GAN_LOSSES": "gan",
    "ImageFlowObjective": "flow",
    "LatentDiffusionObjective": "latent_diffusion",
    "NoiseSchedule": "noise_schedule",
    "PixelAutoregressiveObjective": "pixel_autoregressive",
    "RowLayout": "table_rows",
    "TableFlow": "table_flow",
    "TableGAN": "table_gan",
    "TableVAE": "table_vae",
    "VAEObjective": "vae",
    "VQVAEObjective": "vqvae",
    "gradient_penalty": "gan",
    "iwae_bound": "vae",
    "kl_standard_normal": "vae",
}
__all__ = sorted(_EXPORTS)

__getattr__ = make_lazy_getattr(__name__, _EXPORTS)
