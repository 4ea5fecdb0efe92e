"""Through the bottleneck and back: what is lost is minimised."""

import torch
from torch import Tensor, nn

from didact import metrics
from didact.data.core import Batch
from didact.models.autoencoder import Autoencoder
from didact.objectives.core import Objective
from didact.objectives.walks import SHOWN, between, normal, rows_of, seeded

ROWS = 64  # noise images that judging goes through in turn


class Bottleneck(Objective):
    """What goes through a bottleneck comes back as an image."""

    network: nn.Module
    any_size = False

    def restore(self, batch: Batch) -> Tensor:
        x: Tensor = self.network(batch["x"])
        return x.float().clamp(0, 1)

    def exhibit(self, batch: Batch) -> Batch:
        return {"reconstruction": self.restore(batch)}


class Autoencode(Bottleneck):
    """min E ‖g(f(x̃)) − x‖², x̃ = x, or damaged: noise of deviation σ, a share of the pixels blacked out.

    Gaba 9.2, Groudiev 10.1, Van Schependom 8.1; damaged: Vincent et al. 2008, Fleuret 6.1.
    Judging draws row r's damage from a fixed store, so that neither the batch nor the epoch changes a metric.
    """

    network: Autoencoder
    noises: Tensor
    chances: Tensor

    def __init__(self, network: Autoencoder, shape: tuple[int, ...], *, noise: float = 0.0, masked: float = 0.0):
        super().__init__()
        self.network, self.noise, self.masked = network, noise, masked
        g = torch.Generator().manual_seed(0)
        self.register_buffer("noises", torch.randn(ROWS if noise else 1, *shape, generator=g), persistent=False)
        self.register_buffer("chances", torch.rand(ROWS if masked else 1, 1, *shape[1:], generator=g), persistent=False)

    def damaged(self, x: Tensor, e: Tensor, u: Tensor) -> Tensor:
        """x̃ from normal noise e and uniform chances u."""
        x = torch.add(x, e, alpha=self.noise) if self.noise else x
        return x * (u >= self.masked) if self.masked else x

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x = batch["x"]
        seen = self.damaged(x, torch.randn_like(x), torch.rand_like(x[:, :1])) if self.noise or self.masked else x
        return {"loss": (self.network(seen).float() - x).square().mean()}

    def judge(self, batch: Batch) -> Batch:
        x, row = batch["x"], batch["row"]
        z = self.network.encode(self.damaged(x, self.noises[row % len(self.noises)], self.chances[row % len(self.chances)]))
        back = self.network.decode(z).float()
        rows = {"loss": (back - x).square().flatten(1).mean(1), "psnr": metrics.psnr(back.clamp(0, 1), x), "latent": z.float()}
        return rows | ({"y": batch["y"]} if "y" in batch else {})

    def score(self, rows: Batch) -> dict[str, float]:
        return super().score(rows) | {"psnr": float(rows["psnr"].mean())}

    def embed(self, batch: Batch) -> Tensor:
        return self.network.encode(batch["x"]).float()

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        """Besides what it gives back: codes drawn at random, which a plain autoencoder never learned to decode (Van Schependom 8.1)."""
        x = batch["x"]
        row = torch.arange(len(x), device=x.device)
        seen = self.damaged(x, self.noises[row % len(self.noises)], self.chances[row % len(self.chances)])
        z = self.network.encode(seen)
        drawn = z.mean(0) + z.std(0, correction=0) * normal(SHOWN * SHOWN, z.shape[1], seeded(z))
        shown = [x, seen, self.network.decode(z)] if self.noise or self.masked else [x, self.network.decode(z)]
        found = {
            "reconstructions": torch.stack([images[:SHOWN].float().clamp(0, 1) for images in shown]),
            "random codes": rows_of(self.network.decode(drawn).float()),
        }
        if rows := min(len(z) // 2, SHOWN // 2):
            found["interpolation"] = rows_of(self.network.decode(between(z[:rows], z[-rows:])).float())
        return found
