"""Normalizing flows: the exact likelihood of rows of numbers, and of images after dequantization."""

from math import log

import torch
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.errors import UsageError
from didact.metrics.generative import bits_per_dim
from didact.models.generative.realnvp import NormalizingFlow
from didact.objectives.base import Objective
from didact.samplers.latent import GRID_SIZE, lerp, seeded_generator, to_grid

_NUM_EVAL_NOISES = 1024   # fixed noises that evaluation uses in turn
_DENSITY_SIZE_PX = 96     # side of the density map of the report
_LOGIT_MARGIN = 0.05      # keeps the logit of a pixel finite


class FlowObjective(Objective):
    """min −log p(x) of rows of numbers, standardized: p(x) = p((x − μ)/σ) / Π σ."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: NormalizingFlow, mean: Tensor, std: Tensor):
        super().__init__()
        self.network = network
        self.register_buffer("mean", mean.clone())
        self.register_buffer("std", std.clone())

    def log_p(self, x: Tensor) -> Tensor:
        """log p(x), (B,)."""
        log_p: Tensor = self.network((x - self.mean) / self.std)
        return log_p - self.std.expand_as(x[0]).log().sum()

    def _sample_points(self, n: int, generator: Generator) -> Tensor:
        """n new rows."""
        return self.network.decode(sample_noise(n, self.network, generator)) * self.std + self.mean

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        return {"loss": -self.log_p(batch["x"]).mean()}

    def evaluate_batch(self, batch: Batch) -> Batch:
        return {"loss": -self.log_p(batch["x"])}

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        scores = super().compute_metrics(outputs)
        return scores | {"log_likelihood": -scores["loss"]}

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        """For two features: the density and sampled points in the square that holds nearly all of them."""
        x = batch["x"]
        if x.ndim != 2 or x.shape[1] != 2:
            return {}
        samples = self._sample_points(20 * _DENSITY_SIZE_PX, seeded_generator(x))
        low, high = samples.quantile(0.002, dim=0), samples.quantile(0.998, dim=0)
        right, up = (
            low[k] + torch.linspace(0, 1, _DENSITY_SIZE_PX, device=x.device) * (high - low)[k] for k in range(2)
        )
        # image rows from the top, as points (right, up)
        grid = torch.cartesian_prod(up.flip(0), right).flip(1)
        density = self.log_p(grid).exp()
        density_and_samples = torch.stack(
            [(density / density.max()).view(_DENSITY_SIZE_PX, _DENSITY_SIZE_PX), _histogram2d(samples, low, high)]
        )
        return {"density": density_and_samples[None, :, None], "density limits": torch.stack([low, high])}


def _histogram2d(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The pixels that contain a point: (n, 2) -> (_DENSITY_SIZE_PX, _DENSITY_SIZE_PX)."""
    pixel = ((x - low) / (high - low) * _DENSITY_SIZE_PX).long()
    is_inside = ((pixel >= 0) & (pixel < _DENSITY_SIZE_PX)).all(1)
    right, up = pixel[is_inside].T
    counts = torch.zeros(_DENSITY_SIZE_PX * _DENSITY_SIZE_PX, device=x.device)
    return (
        counts.index_add(
            0, (_DENSITY_SIZE_PX - 1 - up) * _DENSITY_SIZE_PX + right, torch.ones_like(right, dtype=counts.dtype)
        )
        .clamp(max=1)
        .view(_DENSITY_SIZE_PX, _DENSITY_SIZE_PX)
    )


def sample_noise(n: int, network: NormalizingFlow, generator: Generator) -> Tensor:
    return torch.randn(n, *network.shape, generator=generator, device=generator.device)


class ImageFlowObjective(Objective):
    """min −log p of dequantized images of L levels: v = (level + u)/L, u uniform in [0, 1), as logit(e + (1 − 2e) v).

    log P(x) >= E_u log p(v) − D log L, so that bits per dimension are log₂ L − log p(v) / (D log 2).  Theis et al.
    2016; Dinh et al. 2017.
    """

    monitor = "bits_per_dim"
    num_classes = 0
    noises: Tensor

    def __init__(self, network: NormalizingFlow, shape: tuple[int, ...], *, levels: int = 16):
        super().__init__()
        self.network, self.levels = network, levels
        self.register_buffer(
            "noises", torch.rand(_NUM_EVAL_NOISES, *shape, generator=torch.Generator().manual_seed(0)), persistent=False
        )

    def dequantize(self, x: Tensor, u: Tensor) -> Tensor:
        """w = e + (1 − 2e) (level + u)/L."""
        return _LOGIT_MARGIN + (1 - 2 * _LOGIT_MARGIN) * ((x * (self.levels - 1)).round() + u) / self.levels

    def compute_bits(self, x: Tensor, u: Tensor) -> Tensor:
        """Bits per dimension of each image: on average over u no less than those of P(x)."""
        w = self.dequantize(x, u)
        log_det = (log(1 - 2 * _LOGIT_MARGIN) - w.log() - (1 - w).log()).flatten(1).sum(1)      # of dlogit(w)/dv
        log_p: Tensor = self.network(w.logit()) + log_det
        return bits_per_dim(log_p - x[0].numel() * log(self.levels), x[0].numel())

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        return {"loss": self.compute_bits(batch["x"], torch.rand_like(batch["x"])).mean()}

    def evaluate_batch(self, batch: Batch) -> Batch:
        x, row = batch["x"], batch["row"]
        return {
            "loss": self.compute_bits(x, self.noises[row % _NUM_EVAL_NOISES]),
            "size": torch.full_like(row, x[0].numel()),
        }

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        bits = super().compute_metrics(outputs)["loss"]
        return {"loss": bits, "bits_per_dim": bits, "log_likelihood": -bits * log(2) * float(outputs["size"][0])}

    def decode(self, z: Tensor) -> Tensor:
        """Latents -> images in [0, 1], on their levels."""
        v = (self.network.decode(z).sigmoid() - _LOGIT_MARGIN) / (1 - 2 * _LOGIT_MARGIN)
        return (v * self.levels).floor().clamp(0, self.levels - 1) / (self.levels - 1)

    def sample_latents(self, n: int, generator: Generator) -> Tensor:
        return sample_noise(n, self.network, generator)

    def encode(self, batch: Batch) -> Tensor:
        """z = f(x), each pixel in the middle of its level."""
        x = batch["x"]
        return self.network.encode(self.dequantize(x, torch.full_like(x, 0.5)).logit())[0]

    def walk(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.decode(z)

    def sample(self, n: int, generator: Generator, *, label: int | None = None, temperature: float = 1.0) -> Tensor:
        """n images from noise of standard deviation `temperature`: below 1, more typical ones."""
        if label is not None:
            raise UsageError(f"this model is not class-conditional, so no class can be sampled, got {label}")
        return self.decode(temperature * sample_noise(n, self.network, generator))

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        g, num_pairs = seeded_generator(batch["x"]), GRID_SIZE // 2
        a, b = sample_noise(2 * num_pairs, self.network, g).flatten(1).chunk(2)
        latents = lerp(a, b).unflatten(1, self.network.shape)
        return {
            "samples": to_grid(self.sample(GRID_SIZE * GRID_SIZE, g)),
            "interpolation": to_grid(self.decode(latents)),
        }
