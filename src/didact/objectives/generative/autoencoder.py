"""Autoencoders: an image through a bottleneck and back, at the least reconstruction error."""

import torch
from torch import Tensor, nn

from didact import metrics
from didact.data.core import Batch
from didact.models.generative.autoencoder import Autoencoder
from didact.objectives.base import Objective
from didact.samplers.latent import GRID_SIZE, lerp, seeded_generator, standard_normal, to_grid

_NUM_EVAL_NOISES = 64  # fixed noise images that evaluation uses in turn


class ReconstructionObjective(Objective):
    """Objectives of networks that reconstruct an image from a latent code."""

    network: nn.Module
    any_size = False

    def restore(self, batch: Batch) -> Tensor:
        x: Tensor = self.network(batch["x"])
        return x.float().clamp(0, 1)

    def report_examples(self, batch: Batch) -> Batch:
        return {"reconstruction": self.restore(batch)}


class AutoencoderObjective(ReconstructionObjective):
    """min E ‖g(f(x̃)) − x‖²; x̃ = x, or for a denoising autoencoder x + σ ε or x with a fraction of the pixels masked.

    Gaba 9.2, Groudiev 10.1, Van Schependom 8.1; denoising: Vincent et al. 2008, Fleuret 6.1. Evaluation has one fixed
    noise for each example, so that neither the batch nor the epoch changes a metric.
    """

    network: Autoencoder
    noises: Tensor
    mask_noise: Tensor

    def __init__(
        self, network: Autoencoder, shape: tuple[int, ...], *, input_noise: float = 0.0, mask_ratio: float = 0.0
    ):
        super().__init__()
        self.network, self.input_noise, self.mask_ratio = network, input_noise, mask_ratio
        g = torch.Generator().manual_seed(0)
        self.register_buffer(
            "noises", torch.randn(_NUM_EVAL_NOISES if input_noise else 1, *shape, generator=g), persistent=False
        )
        self.register_buffer(
            "mask_noise",
            torch.rand(_NUM_EVAL_NOISES if mask_ratio else 1, 1, *shape[1:], generator=g),
            persistent=False,
        )

    def corrupt(self, x: Tensor, e: Tensor, u: Tensor) -> Tensor:
        """x̃ from normal noise e and uniform noise u."""
        x = torch.add(x, e, alpha=self.input_noise) if self.input_noise else x
        return x * (u >= self.mask_ratio) if self.mask_ratio else x

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x = batch["x"]
        corrupted = (
            self.corrupt(x, torch.randn_like(x), torch.rand_like(x[:, :1]))
            if self.input_noise or self.mask_ratio
            else x
        )
        return {"loss": (self.network(corrupted).float() - x).square().mean()}

    def evaluate_batch(self, batch: Batch) -> Batch:
        x, row = batch["x"], batch["row"]
        z = self.network.encode(
            self.corrupt(x, self.noises[row % len(self.noises)], self.mask_noise[row % len(self.mask_noise)])
        )
        reconstruction = self.network.decode(z).float()
        outputs = {
            "loss": (reconstruction - x).square().flatten(1).mean(1),
            "psnr": metrics.psnr(reconstruction.clamp(0, 1), x),
            "latent": z.float(),
        }
        return outputs | ({"y": batch["y"]} if "y" in batch else {})

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        return super().compute_metrics(outputs) | {"psnr": float(outputs["psnr"].mean())}

    def embed(self, batch: Batch) -> Tensor:
        return self.network.encode(batch["x"]).float()

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        """Reconstructions, interpolations, and random latents, which no loss ever shaped (Van Schependom 8.1)."""
        x = batch["x"]
        row = torch.arange(len(x), device=x.device)
        corrupted = self.corrupt(x, self.noises[row % len(self.noises)], self.mask_noise[row % len(self.mask_noise)])
        z = self.network.encode(corrupted)
        latents = z.mean(0) + z.std(0, correction=0) * standard_normal(
            GRID_SIZE * GRID_SIZE, z.shape[1], seeded_generator(z)
        )
        image_rows = (
            [x, corrupted, self.network.decode(z)]
            if self.input_noise or self.mask_ratio
            else [x, self.network.decode(z)]
        )
        grids = {
            "reconstructions": torch.stack([images[:GRID_SIZE].float().clamp(0, 1) for images in image_rows]),
            "random latents": to_grid(self.network.decode(latents).float()),
        }
        if num_pairs := min(len(z) // 2, GRID_SIZE // 2):
            grids["interpolation"] = to_grid(self.network.decode(lerp(z[:num_pairs], z[-num_pairs:])).float())
        return grids
