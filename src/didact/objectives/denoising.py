"""Give back what was taken: images are damaged on purpose, and the network is asked for what they were."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact import metrics
from didact.data.augment import grey
from didact.data.core import Batch
from didact.layers.margin import on_whole
from didact.layers.mosaic import Mosaic
from didact.metrics.images import blur
from didact.objectives.core import Objective

ROWS = 64  # noise images that judging goes through in turn


@dataclass(frozen=True)
class Noise:
    """x̃ = x + σ e, e ~ N(0, 1); not clipped, so that the noise stays Gaussian."""

    sigma: float

    def __call__(self, x: Tensor, e: Tensor) -> Tensor:
        return torch.add(x, e, alpha=self.sigma)


@dataclass(frozen=True)
class Blur:
    """x̃ = g * x, g Gaussian of deviation σ pixels, the border mirrored."""

    sigma: float

    def __call__(self, x: Tensor, e: Tensor) -> Tensor:
        reach = min(round(3 * self.sigma), *(side - 1 for side in x.shape[2:]))
        return blur(F.pad(x, (reach, reach, reach, reach), mode="reflect"), 2 * reach + 1, self.sigma)


@dataclass(frozen=True)
class Greyscale:
    """x̃ = luma of x in every channel: colours are to be guessed."""

    def __call__(self, x: Tensor, e: Tensor) -> Tensor:
        return grey(x).expand_as(x)


Degradation = Noise | Blur | Greyscale


class Denoise(Objective):
    """min of E d(x, f(x̃)), d squared or absolute; the best f under squares is E(x | x̃).  Fleuret 6.1, Vincent et al. 2008.

    While learning, noise is fresh at every step. Judging draws row r's noise from a fixed store, so that neither the batch nor the
    epoch changes a metric.
    """

    watch, better = "psnr", "higher"
    any_size = True
    store: Tensor

    def __init__(self, network: nn.Module, degradation: Degradation, shape: tuple[int, ...], *, distance: Literal["mse", "l1"] = "mse"):
        super().__init__()
        self.network, self.degradation, self.distance = network, degradation, distance
        rows = ROWS if isinstance(degradation, Noise) else 1
        self.register_buffer("store", torch.randn(rows, *shape, generator=torch.Generator().manual_seed(0)), persistent=False)

    def apart(self, restored: Tensor, x: Tensor) -> Tensor:
        """The distance of each image to its original."""
        difference = restored.float() - x
        return (difference.square() if self.distance == "mse" else difference.abs()).flatten(1).mean(1)

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x = batch["x"]
        e = torch.randn_like(x) if isinstance(self.degradation, Noise) else x
        return {"loss": self.apart(self.network(self.degradation(x, e)), x).mean()}

    def damaged(self, batch: Batch) -> Tensor:
        """Row r damaged as it always is when it is judged."""
        return self.degradation(batch["x"], self.store[batch["row"] % len(self.store)])

    def judge(self, batch: Batch) -> Batch:
        x, damaged = batch["x"], self.damaged(batch)
        restored = self.network(damaged)
        clipped, before = restored.float().clamp(0, 1), damaged.clamp(0, 1)
        return {
            "loss": self.apart(restored, x),
            "psnr": metrics.psnr(clipped, x), "psnr_damaged": metrics.psnr(before, x),
            "ssim": metrics.ssim(clipped, x), "ssim_damaged": metrics.ssim(before, x),
        }

    def score(self, rows: Batch) -> dict[str, float]:
        """Means over images, before and after; a gain of 0 dB is what doing nothing gives."""
        means = {name: float(rows[name].double().mean()) for name in ("psnr", "ssim", "psnr_damaged", "ssim_damaged")}
        return super().score(rows) | {"psnr": means["psnr"], "psnr_gain": means["psnr"] - means["psnr_damaged"]} | means

    def exhibit(self, batch: Batch) -> Batch:
        damaged = self.damaged(batch)
        return {"damaged": damaged.float().clamp(0, 1), "restored": self.restore({"x": damaged})}

    def restore(self, batch: Batch) -> Tensor:
        """Images of any size: those that the network does not take are given a margin, which is cut off again; large ones in tiles."""
        whole = hasattr(self.network, "side_for")
        y: Tensor = on_whole(Mosaic(self.network), batch["x"]) if whole else self.network(batch["x"])  # type: ignore[arg-type]
        return y.float().clamp(0, 1)
