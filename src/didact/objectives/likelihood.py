"""The exact likelihood of data under a flow: of rows of numbers, and of images made continuous."""

from math import log

import torch
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.errors import UsageError
from didact.metrics.generative import bits_per_dim
from didact.models.realnvp import NormalizingFlow
from didact.objectives.core import Objective
from didact.objectives.walks import SHOWN, between, rows_of, seeded

ROWS = 1024   # noises that judging goes through in turn
SIDE = 96     # pixels of a drawn density
EDGE = 0.05   # keeps the logit of a pixel finite


class Flow(Objective):
    """min −log p(x) of rows of numbers, standardised: p(x) = p((x − μ)/σ) / Π σ."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: NormalizingFlow, mean: Tensor, std: Tensor):
        super().__init__()
        self.network = network
        self.register_buffer("mean", mean.clone())
        self.register_buffer("std", std.clone())

    def log_p(self, x: Tensor) -> Tensor:
        """log p(x), (B,)."""
        found: Tensor = self.network((x - self.mean) / self.std)
        return found - self.std.expand_as(x[0]).log().sum()

    def points(self, n: int, generator: Generator) -> Tensor:
        """n new rows."""
        return self.network.decode(noise(n, self.network, generator)) * self.std + self.mean

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        return {"loss": -self.log_p(batch["x"]).mean()}

    def judge(self, batch: Batch) -> Batch:
        return {"loss": -self.log_p(batch["x"])}

    def score(self, rows: Batch) -> dict[str, float]:
        found = super().score(rows)
        return found | {"log_likelihood": -found["loss"]}

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        """Of two features: the density and points drawn from it, over the square in which nearly all of them lie, and its ends."""
        x = batch["x"]
        if x.ndim != 2 or x.shape[1] != 2:
            return {}
        drawn = self.points(20 * SIDE, seeded(x))
        low, high = drawn.quantile(0.002, dim=0), drawn.quantile(0.998, dim=0)
        right, up = (low[k] + torch.linspace(0, 1, SIDE, device=x.device) * (high - low)[k] for k in range(2))
        grid = torch.cartesian_prod(up.flip(0), right).flip(1)                  # row by row from the top, as (right, up)
        density = self.log_p(grid).exp()
        pictures = torch.stack([(density / density.max()).view(SIDE, SIDE), dots(drawn, low, high)])
        return {"density": pictures[None, :, None], "density ends": torch.stack([low, high])}


def dots(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Where points lie: (n, 2) -> (SIDE, SIDE)."""
    place = ((x - low) / (high - low) * SIDE).long()
    inside = ((place >= 0) & (place < SIDE)).all(1)
    right, up = place[inside].T
    picture = torch.zeros(SIDE * SIDE, device=x.device)
    return picture.index_add(0, (SIDE - 1 - up) * SIDE + right, torch.ones_like(right, dtype=picture.dtype)).clamp(max=1).view(SIDE, SIDE)


def noise(n: int, network: NormalizingFlow, generator: Generator) -> Tensor:
    return torch.randn(n, *network.shape, generator=generator, device=generator.device)


class ImageFlow(Objective):
    """min −log p of images with L levels made continuous: v = (level + u)/L, u even in [0, 1), seen as logit(e + (1 − 2e) v).

    log P(x) >= E_u log p(v) − D log L, so that bits per dimension are log₂ L − log p(v) / (D log 2).  Theis et al. 2016; Dinh et al. 2017.
    """

    watch = "bits_per_dim"
    classes = 0
    noises: Tensor

    def __init__(self, network: NormalizingFlow, shape: tuple[int, ...], *, levels: int = 16):
        super().__init__()
        self.network, self.levels = network, levels
        self.register_buffer("noises", torch.rand(ROWS, *shape, generator=torch.Generator().manual_seed(0)), persistent=False)

    def continuous(self, x: Tensor, u: Tensor) -> Tensor:
        """w = e + (1 − 2e) (level + u)/L."""
        return EDGE + (1 - 2 * EDGE) * ((x * (self.levels - 1)).round() + u) / self.levels

    def bits(self, x: Tensor, u: Tensor) -> Tensor:
        """Bits per dimension of each image, no less than the truth on average over u."""
        w = self.continuous(x, u)
        change = (log(1 - 2 * EDGE) - w.log() - (1 - w).log()).flatten(1).sum(1)      # of dlogit(w)/dv
        log_p: Tensor = self.network(w.logit()) + change
        return bits_per_dim(log_p - x[0].numel() * log(self.levels), x[0].numel())

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        return {"loss": self.bits(batch["x"], torch.rand_like(batch["x"])).mean()}

    def judge(self, batch: Batch) -> Batch:
        x, row = batch["x"], batch["row"]
        return {"loss": self.bits(x, self.noises[row % ROWS]), "size": torch.full_like(row, x[0].numel())}

    def score(self, rows: Batch) -> dict[str, float]:
        bits = super().score(rows)["loss"]
        return {"loss": bits, "bits_per_dim": bits, "log_likelihood": -bits * log(2) * float(rows["size"][0])}

    def shown(self, z: Tensor) -> Tensor:
        """Codes -> images in [0, 1], on their levels."""
        v = (self.network.decode(z).sigmoid() - EDGE) / (1 - 2 * EDGE)
        return (v * self.levels).floor().clamp(0, self.levels - 1) / (self.levels - 1)

    def codes(self, n: int, generator: Generator) -> Tensor:
        return noise(n, self.network, generator)

    def encode(self, batch: Batch) -> Tensor:
        """z = f(x), each pixel in the middle of its level."""
        x = batch["x"]
        return self.network.encode(self.continuous(x, torch.full_like(x, 0.5)).logit())[0]

    def walk(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.shown(z)

    def sample(self, n: int, generator: Generator, *, label: int | None = None, temperature: float = 1.0) -> Tensor:
        """n images from noise of deviation `temperature`: below 1, nearer to what is usual."""
        if label is not None:
            raise UsageError(f"this model was not told the classes, so none can be asked of it, got label {label}")
        return self.shown(temperature * noise(n, self.network, generator))

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        g, rows = seeded(batch["x"]), SHOWN // 2
        a, b = noise(2 * rows, self.network, g).flatten(1).chunk(2)
        walk = between(a, b).unflatten(1, self.network.shape)
        return {"samples": rows_of(self.sample(SHOWN * SHOWN, g)), "interpolation": rows_of(self.shown(walk))}
