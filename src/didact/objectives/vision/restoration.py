"""Image restoration: denoising, deblurring and colorization. A network recovers images that were degraded."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact import metrics
from didact.data.core import Batch
from didact.data.images.augment import to_grayscale
from didact.layers.conv.reflect_pad import forward_padded
from didact.layers.conv.tiled_inference import TiledInference
from didact.metrics.images import gaussian_blur
from didact.objectives.base import Objective

_NUM_EVAL_NOISES = 64  # fixed noise images that evaluation uses in turn


@dataclass(frozen=True)
class AddNoise:
    """x̃ = x + σ e, e ~ N(0, 1); not clipped, so that the noise stays Gaussian."""

    sigma: float

    def __call__(self, x: Tensor, e: Tensor) -> Tensor:
        return torch.add(x, e, alpha=self.sigma)


@dataclass(frozen=True)
class AddBlur:
    """x̃ = g * x, g Gaussian with a standard deviation of σ pixels, borders reflected."""

    sigma: float

    def __call__(self, x: Tensor, e: Tensor) -> Tensor:
        radius = min(round(3 * self.sigma), *(side - 1 for side in x.shape[2:]))
        return gaussian_blur(F.pad(x, (radius, radius, radius, radius), mode="reflect"), 2 * radius + 1, self.sigma)


@dataclass(frozen=True)
class ToGrayscale:
    """x̃ = luma of x in every channel: the colors are to be predicted."""

    def __call__(self, x: Tensor, e: Tensor) -> Tensor:
        return to_grayscale(x).expand_as(x)


Degradation = AddNoise | AddBlur | ToGrayscale


class RestorationObjective(Objective):
    """min of E d(x, f(x̃)), d squared or absolute; the optimum under squares is E(x | x̃).  Fleuret 6.1, Vincent et al.
    2008.

    Training noise is new at every step. Evaluation has one fixed noise for each example, so that neither the batch nor
    the epoch changes a metric.
    """

    monitor, mode = "psnr", "max"
    any_size = True
    noises: Tensor

    def __init__(
        self,
        network: nn.Module,
        degradation: Degradation,
        shape: tuple[int, ...],
        *,
        distance: Literal["mse", "l1"] = "mse",
    ):
        super().__init__()
        self.network, self.degradation, self.distance = network, degradation, distance
        num_noises = _NUM_EVAL_NOISES if isinstance(degradation, AddNoise) else 1
        self.register_buffer(
            "noises", torch.randn(num_noises, *shape, generator=torch.Generator().manual_seed(0)), persistent=False
        )

    def compute_distance(self, restored: Tensor, x: Tensor) -> Tensor:
        """The distance of each image to its original, (B,)."""
        difference = restored.float() - x
        return (difference.square() if self.distance == "mse" else difference.abs()).flatten(1).mean(1)

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x = batch["x"]
        e = torch.randn_like(x) if isinstance(self.degradation, AddNoise) else x
        return {"loss": self.compute_distance(self.network(self.degradation(x, e)), x).mean()}

    def degrade(self, batch: Batch) -> Tensor:
        """The degraded images of evaluation, the same for an example each time."""
        return self.degradation(batch["x"], self.noises[batch["row"] % len(self.noises)])

    def evaluate_batch(self, batch: Batch) -> Batch:
        x, degraded = batch["x"], self.degrade(batch)
        restored = self.network(degraded)
        restored_clipped, degraded_clipped = restored.float().clamp(0, 1), degraded.clamp(0, 1)
        return {
            "loss": self.compute_distance(restored, x),
            "psnr": metrics.psnr(restored_clipped, x), "psnr_damaged": metrics.psnr(degraded_clipped, x),
            "ssim": metrics.ssim(restored_clipped, x), "ssim_damaged": metrics.ssim(degraded_clipped, x),
        }

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """Means over images, before and after; a gain of 0 dB is what the identity has."""
        means = {
            name: float(outputs[name].double().mean()) for name in ("psnr", "ssim", "psnr_damaged", "ssim_damaged")
        }
        return (
            super().compute_metrics(outputs)
            | {"psnr": means["psnr"], "psnr_gain": means["psnr"] - means["psnr_damaged"]}
            | means
        )

    def report_examples(self, batch: Batch) -> Batch:
        degraded = self.degrade(batch)
        return {"damaged": degraded.float().clamp(0, 1), "restored": self.restore({"x": degraded})}

    def restore(self, batch: Batch) -> Tensor:
        """Images of any size: padded where the network cannot take the size, and in tiles where they are large."""
        if hasattr(self.network, "input_size_for"):
            y: Tensor = forward_padded(TiledInference(self.network), batch["x"])  # type: ignore[arg-type]
        else:
            y = self.network(batch["x"])
        return y.float().clamp(0, 1)
