"""Images pixel by pixel: the exact likelihood of all of them at once, and drawing, which goes one after the other."""

from itertools import product
from math import log, prod

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.metrics.generative import bits_per_dim
from didact.models.pixelcnn import PixelCNN
from didact.models.pixelrnn import PixelRNN
from didact.objectives.core import Objective
from didact.objectives.pace import drawing
from didact.objectives.walks import SHOWN, asked, by_class, seeded
from didact.objectives.writing import COLD


class PixelByPixel(Objective):
    """min −Σ_i log p(x_i | x_<i) / (D log 2), in bits per dimension.  Van den Oord et al. 2016; Groudiev 9.2.

    The network reads (B, C, H, W) and answers (B, L C, H, W): logits of the L levels of each place, none from a place after it.
    The channels of a pixel are places too, each told of those before it: p(x_i | x_<i) = p(R | x_<i) p(G | R, x_<i) p(B | R, G, x_<i).
    """

    watch = "bits_per_dim"

    def __init__(self, network: PixelCNN | PixelRNN, shape: tuple[int, ...], *, levels: int = 16, classes: int = 0):
        super().__init__()
        self.network, self.shape, self.levels, self.classes = network, shape, levels, classes

    def leveled(self, x: Tensor) -> Tensor:
        """Images in [0, 1] -> the level of each place, (B, *shape)."""
        return (x * (self.levels - 1)).round().long()

    def read(self, k: Tensor) -> Tensor:
        """Levels -> what the network reads."""
        return k * (2 / (self.levels - 1)) - 1

    def shown(self, k: Tensor) -> Tensor:
        """Levels -> images in [0, 1]."""
        return k / (self.levels - 1)

    def logits(self, k: Tensor, y: Tensor | None) -> Tensor:
        """(B, L, C, H, W)."""
        found: Tensor = self.network(self.read(k), y).float().unflatten(1, (self.levels, -1))
        return found

    def label(self, batch: Batch) -> Tensor | None:
        return batch["y"] if self.classes else None

    def bits(self, x: Tensor, y: Tensor | None) -> Tensor:
        """Of each image, per place: (B,)."""
        k = self.leveled(x)
        return bits_per_dim(-F.cross_entropy(self.logits(k, y), k, reduction="none").flatten(1).sum(1), k[0].numel())

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        return {"loss": self.bits(batch["x"], self.label(batch)).mean()}

    def judge(self, batch: Batch) -> Batch:
        return {"loss": self.bits(batch["x"], self.label(batch))}

    def score(self, rows: Batch) -> dict[str, float]:
        bits = super().score(rows)["loss"]
        return {"loss": bits, self.watch: bits, "log_likelihood": -bits * log(2) * prod(self.shape)}

    @torch.no_grad()
    def continued(self, k: Tensor, known: int, generator: Generator, y: Tensor | None, temperature: float) -> Tensor:
        """Levels whose first `known` rows stay; every other place is drawn, in its turn. A temperature of 0 takes the likeliest."""
        k = k.clone()
        k[:, :, known:] = 0                                        # no place is told of what it is to become
        x, (_, C, H, W) = self.read(k), k.shape
        places = list(product(range(known, H), range(W), range(C)))
        for done, ((i, j, c), logits) in enumerate(zip(places, self.network.telling(x, y, known), strict=True), start=1):
            if temperature > COLD:
                level = torch.multinomial((logits.float() / temperature).softmax(1), 1, generator=generator)[:, 0]
            else:
                level = logits.argmax(1)
            k[:, c, i, j] = level
            x[:, :, i, j] = self.read(k[:, :, i : i + 1, j : j + 1])[..., 0, 0]
            drawing(done, len(places))
        return k

    def complete(self, x: Tensor, known: int, generator: Generator, y: Tensor | None = None, *, temperature: float = 1.0) -> Tensor:
        """Images whose first `known` rows of pixels stay, and are gone on with; each class in turn where none is given."""
        y = asked(len(x), None, self.classes, x.device) if y is None else y
        return self.shown(self.continued(self.leveled(x), known, generator, y, temperature))

    def sample(self, n: int, generator: Generator, *, label: int | None = None, temperature: float = 1.0) -> Tensor:
        blank = torch.zeros(n, *self.shape, dtype=torch.long, device=generator.device)
        y = asked(n, label, self.classes, generator.device)
        return self.shown(self.continued(blank, 0, generator, y, temperature))

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        x, y, g = batch["x"][:SHOWN], self.label(batch), seeded(batch["x"])
        known = x.shape[2] // 2
        whole = self.shown(self.leveled(x))
        half = whole.clone()
        half[:, :, known:] = 0
        ends = [self.complete(x, known, g, None if y is None else y[:SHOWN]) for _ in range(3)]
        return {"samples": by_class(self.sample, self.classes, g), "completions": torch.stack([whole, half, *ends])}
