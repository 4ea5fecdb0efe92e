"""Images pixel by pixel: the exact likelihood of all of them at once, and drawing, which goes one after the other."""

from math import log

import torch
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.models.pixelcnn import PixelCNN
from didact.objectives.core import Objective
from didact.objectives.pixels import Categorical
from didact.objectives.walks import SHOWN, asked, by_class, seeded


class PixelByPixel(Objective):
    """min −Σ_i log p(x_i | x_<i) / (D log 2), in bits per dimension.  Van den Oord et al. 2016; Groudiev 9.2."""

    watch = "bits_per_dim"

    def __init__(self, network: PixelCNN, shape: tuple[int, ...], *, levels: int = 16, classes: int = 0):
        super().__init__()
        self.network, self.shape, self.levels, self.classes = network, shape, levels, classes
        self.pixels = Categorical(levels)

    def label(self, batch: Batch) -> Tensor | None:
        return batch["y"] if self.classes else None

    def quantised(self, x: Tensor) -> Tensor:
        return (x * (self.levels - 1)).round() / (self.levels - 1)

    def bits(self, x: Tensor, y: Tensor | None) -> Tensor:
        return self.pixels.nll(self.network(self.quantised(x), y), x) / (x[0].numel() * log(2))

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        return {"loss": self.bits(batch["x"], self.label(batch)).mean()}

    def judge(self, batch: Batch) -> Batch:
        return {"loss": self.bits(batch["x"], self.label(batch)), "size": torch.full_like(batch["row"], batch["x"][0].numel())}

    def score(self, rows: Batch) -> dict[str, float]:
        bits = super().score(rows)["loss"]
        return {"loss": bits, "bits_per_dim": bits, "log_likelihood": -bits * log(2) * float(rows["size"][0])}

    def complete(self, x: Tensor, known: int, generator: Generator, y: Tensor | None = None) -> Tensor:
        """Images whose first `known` rows stay; every other pixel is drawn, in its turn."""
        x = self.quantised(x).clone()
        x[:, :, known:] = 0                                        # no pixel is told of what it is to become
        for i in range(known, x.shape[2]):
            for j in range(x.shape[3]):
                logits = self.pixels.split(self.network(x, y))[..., i, j]                    # (B, L, C)
                p = logits.softmax(1).mT.flatten(0, 1)
                level = torch.multinomial(p, 1, generator=generator)[:, 0].view(len(x), -1)  # (B, C)
                x[:, :, i, j] = level / (self.levels - 1)
        return x

    def sample(self, n: int, generator: Generator, *, label: int | None = None) -> Tensor:
        blank = torch.zeros(n, *self.shape, device=generator.device)
        return self.complete(blank, 0, generator, asked(n, label, self.classes, generator.device))

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        x, y, g = self.quantised(batch["x"][:SHOWN]), self.label(batch), seeded(batch["x"])
        known = self.shape[1] // 2
        half = x.clone()
        half[:, :, known:] = 0
        ends = [self.complete(x, known, g, None if y is None else y[:SHOWN]) for _ in range(3)]
        return {"samples": by_class(self.sample, self.classes, g), "completions": torch.stack([x, half, *ends])}
