"""Codes from a vocabulary: reconstruct, move the words to where they are wanted, and keep to the words."""

import torch
import torch.nn.functional as F
from torch import Tensor

from didact import metrics
from didact.data.core import Batch
from didact.layers.quantize import straight_through
from didact.metrics.generative import perplexity
from didact.models.vqvae import VQVAE
from didact.objectives.autoencoding import Bottleneck
from didact.objectives.walks import SHOWN, rows_of


class VectorQuantised(Bottleneck):
    """‖x − x̂‖² / Var x + ‖sg[z] − e‖² + β ‖z − sg[e]‖², means over all numbers.  Van den Oord et al. 2017, eq. 3; Gaba eq. 9.25."""

    network: VQVAE

    def __init__(self, network: VQVAE, *, variance: float, beta: float = 0.25):
        super().__init__()
        self.network, self.variance, self.beta = network, variance, beta

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x = batch["x"]
        z, e, _ = self.network.encode(x)
        reconstruction = F.mse_loss(self.network.decode(straight_through(z, e)).float(), x) / self.variance
        codebook, commitment = F.mse_loss(e, z.detach()), F.mse_loss(z, e.detach())
        return {"loss": reconstruction + codebook + self.beta * commitment, "reconstruction": reconstruction, "commitment": commitment}

    def judge(self, batch: Batch) -> Batch:
        x = batch["x"]
        z, e, k = self.network.encode(x)
        back = self.network.decode(e).float()
        reconstruction = (back - x).square().flatten(1).mean(1) / self.variance
        loss = reconstruction + (1 + self.beta) * (z - e).square().flatten(1).mean(1)
        rows = {"loss": loss, "reconstruction": reconstruction, "psnr": metrics.psnr(back.clamp(0, 1), x), "codes": k.flatten(1)}
        return rows | ({"y": batch["y"]} if "y" in batch else {})

    def score(self, rows: Batch) -> dict[str, float]:
        """`codes_used` is the share of the codebook that any example used; `perplexity` counts them by how evenly."""
        counts = torch.bincount(rows["codes"].flatten(), minlength=self.network.codes)
        means = {name: float(rows[name].double().mean()) for name in ("reconstruction", "psnr")}
        return super().score(rows) | means | {"codes_used": float((counts > 0).double().mean()), "perplexity": float(perplexity(counts))}

    def embed(self, batch: Batch) -> Tensor:
        return self.network.encode(batch["x"])[1].flatten(1)

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        x = batch["x"]
        k = self.network.encode(x)[2]
        most = torch.bincount(k.flatten(), minlength=self.network.codes).argsort(descending=True)[: SHOWN * SHOWN]
        words = self.network.decode_codes(most[:, None, None].expand(-1, *k.shape[1:])).float()  # a map of one word only
        back = self.network.decode_codes(k[:SHOWN]).float().clamp(0, 1)
        return {"reconstructions": torch.stack([x[:SHOWN], back]), "words": rows_of(words, min(SHOWN, len(words)))}
