"""Autoregressive models of images, pixel by pixel: exact likelihood in parallel, sampling one pixel after the other."""

from itertools import product
from math import log, prod

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.metrics.generative import bits_per_dim
from didact.models.generative.pixelcnn import PixelCNN
from didact.models.generative.pixelrnn import PixelRNN
from didact.objectives.base import Objective
from didact.progress import report_progress
from didact.samplers.latent import GRID_SIZE, labels_to_sample, sample_grid, seeded_generator
from didact.samplers.top_k_top_p import MIN_TEMPERATURE


class PixelAutoregressiveObjective(Objective):
    """min −Σ_i log p(x_i | x_<i) / (D log 2), in bits per dimension.  Van den Oord et al. 2016; Groudiev 9.2.

    The network maps (B, C, H, W) to (B, L C, H, W): logits of the L levels at each position, which depend on earlier
    positions only. The channels of a pixel are positions too:

        p(x_i | x_<i) = p(R | x_<i) p(G | R, x_<i) p(B | R, G, x_<i)
    """

    monitor = "bits_per_dim"

    def __init__(self, network: PixelCNN | PixelRNN, shape: tuple[int, ...], *, levels: int = 16, num_classes: int = 0):
        super().__init__()
        self.network, self.shape, self.levels, self.num_classes = network, shape, levels, num_classes

    def quantize(self, x: Tensor) -> Tensor:
        """Images in [0, 1] -> the level at each position, (B, *shape)."""
        return (x * (self.levels - 1)).round().long()

    def to_network_input(self, k: Tensor) -> Tensor:
        """Levels -> the network's input."""
        return k * (2 / (self.levels - 1)) - 1

    def to_images(self, k: Tensor) -> Tensor:
        """Levels -> images in [0, 1]."""
        return k / (self.levels - 1)

    def logits(self, k: Tensor, y: Tensor | None) -> Tensor:
        """(B, L, C, H, W)."""
        logits: Tensor = self.network(self.to_network_input(k), y).float().unflatten(1, (self.levels, -1))
        return logits

    def get_labels(self, batch: Batch) -> Tensor | None:
        return batch["y"] if self.num_classes else None

    def compute_bits(self, x: Tensor, y: Tensor | None) -> Tensor:
        """Bits per dimension of each image: (B,)."""
        k = self.quantize(x)
        return bits_per_dim(-F.cross_entropy(self.logits(k, y), k, reduction="none").flatten(1).sum(1), k[0].numel())

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        return {"loss": self.compute_bits(batch["x"], self.get_labels(batch)).mean()}

    def evaluate_batch(self, batch: Batch) -> Batch:
        return {"loss": self.compute_bits(batch["x"], self.get_labels(batch))}

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        bits = super().compute_metrics(outputs)["loss"]
        return {"loss": bits, self.monitor: bits, "log_likelihood": -bits * log(2) * prod(self.shape)}

    @torch.no_grad()
    def sample_pixels(
        self, k: Tensor, num_known: int, generator: Generator, y: Tensor | None, temperature: float
    ) -> Tensor:
        """Levels whose first `num_known` rows are kept; the others are sampled in order, at temperature 0 greedily."""
        k = k.clone()
        k[:, :, num_known:] = 0                                        # no position sees what it is to become
        x, (_, C, H, W) = self.to_network_input(k), k.shape
        positions = list(product(range(num_known, H), range(W), range(C)))
        for step, ((i, j, c), logits) in enumerate(
            zip(positions, self.network.iterate_conditional_logits(x, y, num_known), strict=True), start=1
        ):
            if temperature > MIN_TEMPERATURE:
                level = torch.multinomial((logits.float() / temperature).softmax(1), 1, generator=generator)[:, 0]
            else:
                level = logits.argmax(1)
            k[:, c, i, j] = level
            x[:, :, i, j] = self.to_network_input(k[:, :, i : i + 1, j : j + 1])[..., 0, 0]
            report_progress(step, len(positions))
        return k

    def complete(
        self, x: Tensor, num_known: int, generator: Generator, y: Tensor | None = None, *, temperature: float = 1.0
    ) -> Tensor:
        """Images whose first `num_known` rows of pixels are kept and continued; of each class in turn if y is None."""
        y = labels_to_sample(len(x), None, self.num_classes, x.device) if y is None else y
        return self.to_images(self.sample_pixels(self.quantize(x), num_known, generator, y, temperature))

    def sample(self, n: int, generator: Generator, *, label: int | None = None, temperature: float = 1.0) -> Tensor:
        blank = torch.zeros(n, *self.shape, dtype=torch.long, device=generator.device)
        y = labels_to_sample(n, label, self.num_classes, generator.device)
        return self.to_images(self.sample_pixels(blank, 0, generator, y, temperature))

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        x, y, g = batch["x"][:GRID_SIZE], self.get_labels(batch), seeded_generator(batch["x"])
        num_known = x.shape[2] // 2
        originals = self.to_images(self.quantize(x))
        masked = originals.clone()
        masked[:, :, num_known:] = 0
        completions = [self.complete(x, num_known, g, None if y is None else y[:GRID_SIZE]) for _ in range(3)]
        return {
            "samples": sample_grid(self.sample, self.num_classes, g),
            "completions": torch.stack([originals, masked, *completions]),
        }
