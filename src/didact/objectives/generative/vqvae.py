"""Vector-quantized autoencoder (VQ-VAE): reconstruction, codebook and commitment losses."""

import torch
import torch.nn.functional as F
from torch import Tensor

from didact import metrics
from didact.data.core import Batch
from didact.layers.vector_quantizer import straight_through
from didact.metrics.generative import perplexity
from didact.models.generative.vqvae import VQVAE
from didact.objectives.generative.autoencoder import ReconstructionObjective
from didact.samplers.latent import GRID_SIZE, to_grid


class VQVAEObjective(ReconstructionObjective):
    """‖x − x̂‖² / Var x + ‖sg[z] − e‖² + β ‖z − sg[e]‖², means over all numbers.

    Van den Oord et al. 2017, eq. 3; Gaba eq. 9.25.
    """

    network: VQVAE

    def __init__(self, network: VQVAE, *, variance: float, beta: float = 0.25):
        super().__init__()
        self.network, self.variance, self.beta = network, variance, beta

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x = batch["x"]
        z, e, _ = self.network.encode(x)
        reconstruction = F.mse_loss(self.network.decode(straight_through(z, e)).float(), x) / self.variance
        codebook, commitment = F.mse_loss(e, z.detach()), F.mse_loss(z, e.detach())
        return {
            "loss": reconstruction + codebook + self.beta * commitment,
            "reconstruction": reconstruction,
            "commitment": commitment,
        }

    def evaluate_batch(self, batch: Batch) -> Batch:
        x = batch["x"]
        z, e, k = self.network.encode(x)
        reconstructed = self.network.decode(e).float()
        reconstruction = (reconstructed - x).square().flatten(1).mean(1) / self.variance
        loss = reconstruction + (1 + self.beta) * (z - e).square().flatten(1).mean(1)
        outputs = {
            "loss": loss,
            "reconstruction": reconstruction,
            "psnr": metrics.psnr(reconstructed.clamp(0, 1), x),
            "codes": k.flatten(1),
        }
        return outputs | ({"y": batch["y"]} if "y" in batch else {})

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """`codes_used` is the fraction of the codebook that is used at all; `perplexity` weighs codes by how evenly."""
        counts = torch.bincount(outputs["codes"].flatten(), minlength=self.network.codebook_size)
        means = {name: float(outputs[name].double().mean()) for name in ("reconstruction", "psnr")}
        return (
            super().compute_metrics(outputs)
            | means
            | {"codes_used": float((counts > 0).double().mean()), "perplexity": float(perplexity(counts))}
        )

    def embed(self, batch: Batch) -> Tensor:
        return self.network.encode(batch["x"])[1].flatten(1)

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        x = batch["x"]
        k = self.network.encode(x)[2]
        most_used = torch.bincount(k.flatten(), minlength=self.network.codebook_size).argsort(descending=True)[
            : GRID_SIZE * GRID_SIZE
        ]
        # a map of one codeword only
        codeword_images = self.network.decode_codes(most_used[:, None, None].expand(-1, *k.shape[1:])).float()
        reconstructed = self.network.decode_codes(k[:GRID_SIZE]).float().clamp(0, 1)
        return {
            "reconstructions": torch.stack([x[:GRID_SIZE], reconstructed]),
            "codewords": to_grid(codeword_images, min(GRID_SIZE, len(codeword_images))),
        }
