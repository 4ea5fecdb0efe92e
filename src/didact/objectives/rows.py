"""The rows of a table as a model that draws new ones sees them: numbers of one scale, gaps, categories.

An encoded row holds, column by column, a number (and whether it is missing), or a category as a vector of one 1. What a network says
of a row has the same places: a mean for each number, a logit for each gap and for each value of a category.
"""

from collections.abc import Callable
from math import log, pi

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from didact.data.columns import Category
from didact.data.core import Batch, Data
from didact.data.rows import FREE, columns_of, decimals, joined, target_columns, training_rows, written
from didact.objectives.pixels import Pixels
from didact.objectives.walks import seeded

DRAWN = 512   # rows for the report
HEAP = 0.05   # share of the training rows on an edge from which on the table itself is cut off there


class Rows(nn.Module):
    """Where the numbers, gaps and categories of a row lie, and what is usual in them. `joint` rows hold the target too.

    Where the class is `told` instead, the network reads and makes the other columns; a row that is drawn has its class behind them.
    What was measured in the training rows is kept with the weights, so that a run can write rows without its data.
    """

    location: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor
    heaped: Tensor
    places: Tensor
    numbers: Tensor
    gaps: Tensor
    gap_of: Tensor

    def __init__(self, data: Data, *, joint: bool, told: bool = False):
        super().__init__()
        assert not (joint and told), "a class that is told is not learned"
        joint = joint and data.task != "none"
        self.columns = columns_of(data, joint=joint)
        self.joint, self.task, self.classes = joint, data.task, data.classes
        self.told = target_columns(data) if told else ()
        self.categories: list[tuple[int, int]] = []      # from … to
        numbers, gaps, gap_of, at = [], [], [], 0
        for column in self.columns:
            n = len(column.features)
            if isinstance(column, Category):
                self.categories.append((at, at + n))
            else:
                numbers.append(at)
                gaps += [at + 1] * column.missing
                gap_of.append(at + 1 if column.missing else -1)
            at += n
        self.features = at
        for name, index in (("numbers", numbers), ("gaps", gaps), ("gap_of", gap_of)):
            self.register_buffer(name, torch.tensor(index, dtype=torch.long), persistent=False)
        self.register_buffer("location", torch.zeros(at))
        self.register_buffer("scale", torch.ones(at))
        self.register_buffer("low", torch.zeros(at))
        self.register_buffer("high", torch.ones(at))
        self.register_buffer("heaped", torch.zeros(2, at, dtype=torch.bool))
        self.register_buffer("places", torch.full((at,), float(FREE)))
        seen = training_rows(data, joint=joint)
        if seen is not None and numbers:
            self.measure(seen)

    @property
    def width(self) -> int:
        """Numbers of a row in which a category is one: its place among its values."""
        return self.features - sum(b - a - 1 for a, b in self.categories)

    def measure(self, r: Tensor) -> None:
        """Mean, deviation, range, heaps on its edges, and decimals of each number."""
        some = r[:, self.numbers]
        deviation = some.std(0, correction=0)
        self.location[self.numbers] = some.mean(0)
        self.scale[self.numbers] = torch.where(deviation > 0, deviation, 1.0)
        low, high = some.amin(0), some.amax(0)
        self.low[self.numbers], self.high[self.numbers] = low, high
        self.heaped[:, self.numbers] = torch.stack([(some == edge).double().mean(0) > HEAP for edge in (low, high)])
        self.places[self.numbers] = torch.tensor([float(decimals(column)) for column in some.T])

    def encoded(self, batch: Batch) -> Tensor:
        """Rows (B, F) in their own units."""
        return joined(batch, self.task, self.classes) if self.joint else batch["x"]

    def seen(self, batch: Batch) -> Tensor:
        """Rows (B, F), their numbers of mean 0 and deviation 1."""
        return (self.encoded(batch) - self.location) / self.scale

    def own(self, s: Tensor) -> Tensor:
        """Back in the table's own units, and usual."""
        return self.usual(self.units(s))

    def units(self, s: Tensor) -> Tensor:
        """Back in the table's own units."""
        return s * self.scale + self.location

    def usual(self, r: Tensor) -> Tensor:
        """No number beyond what was met in training, nor with more decimals."""
        r = r.clamp(self.low, self.high)
        step = 10.0 ** -self.places
        return torch.where(self.places >= 0, (r / step).round() * step, r)

    def drawn(self, r: Tensor) -> Tensor:
        """Drawn rows made usual: a number beyond an edge is reflected in it, x -> 2 edge − x, since all of those put on the edge would heap
        up there (as a density is mended at its boundary: Silverman 1986, 2.10). Where the table itself has such a heap, as of the zeros of
        an amount, they belong to it; and what lies a whole range beyond stays on the edge for all to see.
        """
        half = torch.where(self.places >= 0, 0.5 * 10.0 ** -self.places, 0.0)         # what rounds to the edge lies on it
        low, high = self.low - half, self.high + half
        below, above = (r < low) & ~self.heaped[0], (r > high) & ~self.heaped[1]
        near = (r > 2 * low - high) & (r < 2 * high - low)
        return self.usual(torch.where(near & below, 2 * low - r, torch.where(near & above, 2 * high - r, r)))

    def present(self, s: Tensor) -> Tensor:
        """1 for each number that is there, 0 for one that is missing: (B, numbers)."""
        padded = F.pad(s, (0, 1))                        # the last place, −1, is that of columns without gaps
        return 1 - padded[:, self.gap_of]

    def settled(self, s: Tensor) -> Tensor:
        """What a network said, as a row: a gap where it is likelier than not, the likeliest value of each category."""
        s = s.clone()
        s[:, self.gaps] = (s[:, self.gaps] > 0).to(s.dtype)
        for a, b in self.categories:
            s[:, a:b] = F.one_hot(s[:, a:b].argmax(1), b - a).to(s.dtype)
        return s

    def classed(self, r: Tensor, y: Tensor | None) -> Tensor:
        """Rows with the class that was told behind them, as the table has it."""
        return r if y is None else joined({"x": r, "y": y}, self.task, self.classes)

    def gallery(self, batch: Batch, sample: Callable[[int, Generator], Tensor]) -> dict[str, Tensor]:
        """Real rows and drawn ones, in their own units, for the report."""
        real = self.classed(self.encoded(batch), batch["y"] if self.told else None)
        return {"real rows": real, "drawn rows": sample(DRAWN, seeded(real))}

    def tabulate(self, r: Tensor) -> tuple[list[str], list[list[str]]]:
        """The columns' names, and rows in their own units as text."""
        columns, places = (*self.columns, *self.told), [int(d) for d in self.places.tolist()]
        return [column.name for column in columns], written(columns, r, places + [FREE] * (r.shape[1] - len(places)))


class Mixed(Pixels):
    """p(row | out) = Π N(x; out, σ²) over numbers that are there · Π Bernoulli over gaps · Π Categorical over categories.

    One σ for each column of numbers, learned. Rows come with numbers of mean 0 and deviation 1, but the density is that in the table's
    own units, p(s) / Π scale over the numbers that are there, so that it can be held against any other model of the table.
    """

    def __init__(self, rows: Rows):
        super().__init__()
        self.rows = rows
        self.log_variance = nn.Parameter(torch.full((len(rows.numbers),), -2.0))

    def nll(self, out: Tensor, s: Tensor) -> Tensor:
        """−log p, (B,)."""
        out, rows = out.flatten(1).float(), self.rows
        v = self.log_variance.clamp(-9, 9)               # a constant column would have none
        each = 0.5 * ((out[:, rows.numbers] - s[:, rows.numbers]).square() * (-v).exp() + v + log(2 * pi)) + rows.scale[rows.numbers].log()
        found = (each * rows.present(s)).sum(1)
        found = found + F.binary_cross_entropy_with_logits(out[:, rows.gaps], s[:, rows.gaps], reduction="none").sum(1)
        for a, b in rows.categories:
            found = found - (s[:, a:b] * out[:, a:b].log_softmax(1)).sum(1)
        return found

    def mode(self, out: Tensor) -> Tensor:
        return self.rows.settled(out.flatten(1).float())

    def mean(self, out: Tensor) -> Tensor:
        """The likeliest row, in its own units: no table holds the mean of two categories."""
        return self.rows.own(self.mode(out))

    def draw(self, out: Tensor, generator: Generator) -> Tensor:
        """One row for each out; a mean alone would leave out how much numbers vary."""
        out, rows = out.flatten(1).float(), self.rows
        s = out.clone()
        deviation = (0.5 * self.log_variance.clamp(-9, 9)).exp()
        s[:, rows.numbers] += deviation * torch.randn(len(out), len(rows.numbers), generator=generator, device=out.device)
        chance = torch.rand(len(out), len(rows.gaps), generator=generator, device=out.device)
        s[:, rows.gaps] = (chance < out[:, rows.gaps].sigmoid()).float()
        for a, b in rows.categories:
            s[:, a:b] = F.one_hot(torch.multinomial(out[:, a:b].softmax(1), 1, generator=generator)[:, 0], b - a).float()
        return s
