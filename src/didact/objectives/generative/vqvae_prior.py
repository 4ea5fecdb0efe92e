"""A prior over the codes of a trained VQ-VAE: an autoregressive model samples codes, the decoder makes images."""

import torch
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.models.generative.pixelcnn import PixelCNN
from didact.objectives.generative.pixel_autoregressive import PixelAutoregressiveObjective
from didact.objectives.generative.vqvae import VQVAEObjective
from didact.samplers.latent import GRID_SIZE, labels_to_sample


class CodePrior(PixelAutoregressiveObjective):
    """min −Σ_i log p(k_i | k_<i) / (D log 2), k the codes of x, in bits per code.

    Van den Oord et al. 2017, section 3.3; Gaba 9.10. The network reads the code vectors and predicts the next code.
    """

    monitor = "bits_per_code"

    def __init__(self, network: PixelCNN, autoencoder: VQVAEObjective, *, num_classes: int = 0):
        super().__init__(
            network, (1, *autoencoder.network.grid), levels=autoencoder.network.codebook_size, num_classes=num_classes
        )
        self.autoencoder = autoencoder.requires_grad_(False)

    def train(self, mode: bool = True) -> "CodePrior":
        super().train(mode)
        self.autoencoder.eval()                                        # batch norms keep their statistics
        return self

    @torch.no_grad()
    def quantize(self, x: Tensor) -> Tensor:
        return self.autoencoder.network.encode(x)[2][:, None]          # (B, 1, h, w)

    def to_network_input(self, k: Tensor) -> Tensor:
        return self.autoencoder.network.quantizer.embed_codes(k[:, 0])

    def to_images(self, k: Tensor) -> Tensor:
        return self.autoencoder.network.decode_codes(k[:, 0]).float().clamp(0, 1)

    def complete(
        self, x: Tensor, num_known: int, generator: Generator, y: Tensor | None = None, *, temperature: float = 1.0
    ) -> Tensor:
        """Images whose first `num_known` rows are kept: the codes that depend on them alone; sampled codes below."""
        y = labels_to_sample(len(x), None, self.num_classes, x.device) if y is None else y
        masked = x.clone()
        masked[:, :, num_known:] = 0
        num_code_rows = num_known * self.shape[1] // x.shape[2]
        inpainted = self.to_images(self.sample_pixels(self.quantize(masked), num_code_rows, generator, y, temperature))
        return torch.cat([x[:, :, :num_known], inpainted[:, :, num_known:]], dim=2)

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        x = batch["x"][:GRID_SIZE]
        return super().gallery(batch) | {"reconstructions": torch.stack([x, self.to_images(self.quantize(x))])}
