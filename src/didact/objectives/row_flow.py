"""The exact likelihood of a table's rows under a flow: what comes in steps is made continuous first."""

from math import log, pi

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.errors import UsageError
from didact.models.realnvp import NormalizingFlow
from didact.objectives.likelihood import Flow, noise
from didact.objectives.rows import DRAWN, Rows

ROWS = 1024   # noises that judging goes through in turn
EDGE = 1e-3   # of either tail, cut off a normal number that stands for a missing one: it stays finite


class RowFlow(Flow):
    """min −log p(v), v = c + (u − ½) step, c one number for each column (and gap), u even in [0, 1).

    The step is that of a number's last decimal, 1 for a category's place among its values, 0 for a number that has no steps: of whole
    numbers and categories log P(row) >= E_u log p(v), as of the levels of a pixel (Theis et al. 2016). A missing number is noise of a
    known density q, and so log p(what is there) >= E log p(v) − log q.
    """

    pictured = DRAWN

    classes = 0
    noises: Tensor
    kept: Tensor
    counted: Tensor

    def __init__(self, network: NormalizingFlow, rows: Rows, train: Tensor | None = None):
        kept = [k for k in range(rows.features) if not any(a < k < b for a, b in rows.categories)]  # of a category, its first place
        super().__init__(network, torch.zeros(len(kept)), torch.ones(len(kept)))
        self.rows = rows
        self.register_buffer("kept", torch.tensor(kept), persistent=False)
        counted = torch.ones(rows.features, dtype=torch.bool).index_fill(0, rows.numbers, False)   # categories and gaps
        self.register_buffer("counted", counted, persistent=False)
        self.register_buffer("noises", torch.rand(ROWS, len(kept), generator=torch.Generator().manual_seed(0)), persistent=False)
        if train is not None:
            c = self.flat(train)
            deviation = c.std(0, correction=0)
            self.mean.copy_(c.mean(0))
            self.std.copy_(torch.where(deviation > 0, deviation, 1.0))

    def flat(self, r: Tensor) -> Tensor:
        """Encoded rows -> one number for each column and gap; of a category, its place among the values: (B, F) -> (B, C)."""
        r = r.clone()
        for a, b in self.rows.categories:
            r[:, a] = r[:, a:b].argmax(1).to(r.dtype)
        return r[:, self.kept]

    def unfolded(self, v: Tensor) -> Tensor:
        """Back: usual numbers, the nearest category, a gap or none."""
        return self.rows.usual(self.nearest(v))

    def nearest(self, v: Tensor) -> Tensor:
        """The nearest category, a gap or none; numbers as they are."""
        r = torch.zeros(len(v), self.rows.features, device=v.device).index_copy(1, self.kept, v)
        for a, b in self.rows.categories:
            r[:, a:b] = F.one_hot(r[:, a].round().long().clamp(0, b - a - 1), b - a).to(r.dtype)
        r[:, self.rows.gaps] = (r[:, self.rows.gaps] > 0.5).to(r.dtype)
        return r

    def steps(self) -> Tensor:
        """Of each of the C numbers."""
        places = self.rows.places
        decimal = torch.where(places >= 0, 10.0**-places, 0.0)
        return torch.where(self.counted, 1.0, decimal)[self.kept]

    def continuous(self, batch: Batch, u: Tensor) -> tuple[Tensor, Tensor]:
        """v, and log q of the noise in it, (B,)."""
        r = self.rows.encoded(batch)
        there = torch.ones_like(r).index_copy(1, self.rows.numbers, self.rows.present(r))[:, self.kept] > 0.5
        z = torch.special.ndtri(EDGE + (1 - 2 * EDGE) * u)
        v = torch.where(there, self.flat(r) + (u - 0.5) * self.steps(), self.mean + self.std * z)
        log_q = -0.5 * (z.square() + log(2 * pi)) - self.std.log() - log(1 - 2 * EDGE)
        return v, (log_q * ~there).sum(1)

    def nll(self, batch: Batch, u: Tensor) -> Tensor:
        """−log p of the rows, (B,), no less than the truth on average over u."""
        v, log_q = self.continuous(batch, u)
        return log_q - self.log_p(v)

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        u = torch.rand(len(batch["x"]), len(self.kept), device=batch["x"].device)
        return {"loss": self.nll(batch, u).mean()}

    def judge(self, batch: Batch) -> Batch:
        return {"loss": self.nll(batch, self.noises[batch["row"] % ROWS])}

    def codes(self, n: int, generator: Generator) -> Tensor:
        return noise(n, self.network, generator)

    def decoded(self, z: Tensor) -> Tensor:
        return self.network.decode(z) * self.std + self.mean

    def walk(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.unfolded(self.decoded(z))

    def sample(self, n: int, generator: Generator, *, label: int | None = None, temperature: float = 1.0) -> Tensor:
        """n rows in the table's own units, from noise of deviation `temperature`: below 1, nearer to what is usual."""
        if label is not None:
            raise UsageError(f"this model was not told the classes, so none can be asked of it, got label {label}")
        return self.rows.drawn(self.nearest(self.decoded(temperature * self.codes(n, generator))))

    def tabulate(self, x: Tensor) -> tuple[list[str], list[list[str]]]:
        return self.rows.tabulate(x)

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        """Of two numbers, their density too."""
        plain = len(self.rows.numbers) == self.rows.features
        return self.rows.gallery(batch, self.sample) | (super().gallery({"x": self.rows.encoded(batch)}) if plain else {})
