"""The adversarial game over the rows of a table."""

from typing import Any

from torch import Generator, Tensor, nn

from didact.data.core import Batch
from didact.objectives.adversarial import Adversarial
from didact.objectives.rows import DRAWN, Rows
from didact.objectives.walks import asked


class RowGame(Adversarial):
    """The same game; what is watched is the Fréchet distance between rows, their numbers of mean 0 and deviation 1."""

    pictured = DRAWN

    def __init__(self, generator: nn.Module, discriminator: nn.Module, rows: Rows, **words: Any):
        super().__init__(generator, discriminator, **words)
        self.rows = rows

    def seen(self, batch: Batch) -> Tensor:
        return self.rows.seen(batch)

    def outside(self, x: Tensor) -> Tensor:
        """Rows in the table's own units."""
        return self.rows.own(x)

    def shown(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.rows.classed(super().shown(z, y), y)

    def sample(self, n: int, generator: Generator, *, label: int | None = None) -> Tensor:
        y = asked(n, label, self.classes, generator.device)
        s = self.generator(self.codes(n, generator), y).float()
        return self.rows.classed(self.rows.drawn(self.rows.units(s)), y)

    def compared(self, batch: Batch, made: Tensor) -> Batch:
        return {"real": self.seen(batch), "drawn": made}

    def tabulate(self, x: Tensor) -> tuple[list[str], list[list[str]]]:
        return self.rows.tabulate(x)

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        return self.rows.gallery(batch, self.sample)
