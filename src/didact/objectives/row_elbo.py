"""A variational autoencoder of a table: codes of rows, and rows drawn from codes."""

from typing import Any

import torch
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.models.vae import VAE
from didact.objectives.elbo import ELBO
from didact.objectives.rows import DRAWN, Mixed, Rows
from didact.objectives.walks import asked


class RowELBO(ELBO):
    """The same bound with p(row | z) mixed: Gaussian for numbers, Bernoulli for gaps, categorical for categories."""

    pictured = DRAWN

    pixels: Mixed
    restore = encode = None  # type: ignore[assignment]   # a row that is given lacks the target, one of the columns here

    def __init__(self, network: VAE, rows: Rows, **words: Any):
        super().__init__(network, Mixed(rows), **words)

    def seen(self, batch: Batch) -> Tensor:
        return self.pixels.rows.seen(batch)

    def given_back(self, x: Tensor, out: Tensor) -> Batch:
        rows, back = self.pixels.rows, self.pixels.mode(out)
        found = {}
        if len(rows.numbers):                            # 1 by saying the mean each time
            there = rows.present(x)
            error = (back - x)[:, rows.numbers].square() * there
            found["number_error"] = error.sum(1) / there.sum(1).clamp(min=1)
        if rows.categories:
            right = torch.stack([(back[:, a:b] * x[:, a:b]).sum(1) for a, b in rows.categories])
            found["category_accuracy"] = right.mean(0)
        return found

    def sample(self, n: int, generator: Generator, *, label: int | None = None) -> Tensor:
        """n rows of p(row | z), in the table's own units, for codes from the prior."""
        y = asked(n, label, self.classes, generator.device)
        out, rows = self.network.decode(self.codes(n, generator), y), self.pixels.rows
        return rows.classed(rows.drawn(rows.units(self.pixels.draw(out, generator))), y)

    def shown(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.pixels.rows.classed(super().shown(z, y), y)

    def tabulate(self, x: Tensor) -> tuple[list[str], list[list[str]]]:
        return self.pixels.rows.tabulate(x)

    def exhibit(self, batch: Batch) -> Batch:
        return {}

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        return self.pixels.rows.gallery(batch, self.sample)
