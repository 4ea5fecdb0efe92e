"""The rows of a table for generative models: standardized numbers, missing-value flags and one-hot categories.

An encoded row holds, column by column, a number (and whether it is missing), or a category as a one-hot vector. A
network's output has the same layout: a mean for each number, a logit for each missing value and each value of a
category.
"""

from collections.abc import Callable
from math import log, pi

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from didact.data.core import Batch, Data
from didact.data.tables.columns import CategoricalColumn
from didact.data.tables.row_decoder import (
    UNLIMITED_DECIMALS,
    concat_target,
    decode_rows,
    get_row_columns,
    get_target_columns,
    get_training_rows,
    infer_decimals,
    join_date_parts,
)
from didact.objectives.distributions.pixels import PixelDistribution
from didact.samplers.latent import seeded_generator

NUM_TABLE_SAMPLES = 512     # rows for the report
_EDGE_HEAP_FRACTION = 0.05   # from this fraction of the training rows at an edge, the table itself is cut off there


class RowLayout(nn.Module):
    """The layout of encoded rows: numbers, missing-value flags, categories; and statistics of the training rows.

    `joint` rows include the target. If `conditional`, the network models the other columns given the class, and a
    sampled row has its class appended. The statistics are saved with the weights, so that a run can write rows without
    its data.
    """

    location: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor
    heaped: Tensor
    decimals: Tensor
    numbers: Tensor
    gaps: Tensor
    gap_of: Tensor

    def __init__(self, data: Data, *, joint: bool, conditional: bool = False):
        super().__init__()
        assert not (joint and conditional), "a class that is given is not modeled"
        joint = joint and data.task != "none"
        self.columns = get_row_columns(data, joint=joint)
        self.joint, self.task, self.num_classes = joint, data.task, data.num_classes
        self.condition_columns = get_target_columns(data) if conditional else ()
        self.categories: list[tuple[int, int]] = []      # start and end of each one-hot vector
        numbers, gaps, gap_of, offset = [], [], [], 0
        for column in self.columns:
            n = len(column.feature_names)
            if isinstance(column, CategoricalColumn):
                self.categories.append((offset, offset + n))
            else:
                numbers.append(offset)
                gaps += [offset + 1] * column.has_missing
                gap_of.append(offset + 1 if column.has_missing else -1)
            offset += n
        self.num_features = offset
        for name, index in (("numbers", numbers), ("gaps", gaps), ("gap_of", gap_of)):
            self.register_buffer(name, torch.tensor(index, dtype=torch.long), persistent=False)
        self.register_buffer("location", torch.zeros(offset))
        self.register_buffer("scale", torch.ones(offset))
        self.register_buffer("low", torch.zeros(offset))
        self.register_buffer("high", torch.ones(offset))
        self.register_buffer("heaped", torch.zeros(2, offset, dtype=torch.bool))
        self.register_buffer("decimals", torch.full((offset,), float(UNLIMITED_DECIMALS)))
        train_rows = get_training_rows(data, joint=joint)
        if train_rows is not None and numbers:
            self.fit_statistics(train_rows)

    @property
    def flat_width(self) -> int:
        """The length of a row in which a category is one number: the index of its value."""
        return self.num_features - sum(b - a - 1 for a, b in self.categories)

    def fit_statistics(self, r: Tensor) -> None:
        """Mean, standard deviation, range, heaps at its edges, and decimals of each number."""
        values = r[:, self.numbers]
        std = values.std(0, correction=0)
        self.location[self.numbers] = values.mean(0)
        self.scale[self.numbers] = torch.where(std > 0, std, 1.0)
        low, high = values.amin(0), values.amax(0)
        self.low[self.numbers], self.high[self.numbers] = low, high
        self.heaped[:, self.numbers] = torch.stack(
            [(values == edge).double().mean(0) > _EDGE_HEAP_FRACTION for edge in (low, high)]
        )
        self.decimals[self.numbers] = torch.tensor([float(infer_decimals(column)) for column in values.T])

    def encode_rows(self, batch: Batch) -> Tensor:
        """Rows (B, F) in their own units."""
        return concat_target(batch, self.task, self.num_classes) if self.joint else batch["x"]

    def standardize_rows(self, batch: Batch) -> Tensor:
        """Rows (B, F), their numbers with mean 0 and standard deviation 1."""
        return (self.encode_rows(batch) - self.location) / self.scale

    def unstandardize_and_clip(self, s: Tensor) -> Tensor:
        """Rows in the table's own units, within the training range."""
        return self.clip_to_training_range(self.unstandardize(s))

    def unstandardize(self, s: Tensor) -> Tensor:
        """Rows in the table's own units."""
        return s * self.scale + self.location

    def clip_to_training_range(self, r: Tensor) -> Tensor:
        """No number outside the training range, nor with more decimals."""
        r = r.clamp(self.low, self.high)
        step = 10.0 ** -self.decimals
        return torch.where(self.decimals >= 0, (r / step).round() * step, r)

    def reflect_at_edges(self, r: Tensor) -> Tensor:
        """Sampled rows within the training range: a number beyond an edge is reflected at it, x -> 2 edge − x.

        Clipping would heap all of them up at the edge (as for a density estimate at its boundary: Silverman 1986,
        2.10). Where the table itself has such a heap, as of the zeros of an amount, they belong to it; and numbers
        beyond a whole range stay at the edge, where they can be seen.
        """
        # what rounds to the edge is at it
        half = torch.where(self.decimals >= 0, 0.5 * 10.0 ** -self.decimals, 0.0)
        low, high = self.low - half, self.high + half
        below, above = (r < low) & ~self.heaped[0], (r > high) & ~self.heaped[1]
        within_range = (r > 2 * low - high) & (r < 2 * high - low)
        return self.clip_to_training_range(
            torch.where(within_range & below, 2 * low - r, torch.where(within_range & above, 2 * high - r, r))
        )

    def presence_mask(self, s: Tensor) -> Tensor:
        """1 for each number that is present, 0 for a missing one: (B, numbers)."""
        padded = F.pad(s, (0, 1))                        # index −1: for columns without missing values
        return 1 - padded[:, self.gap_of]

    def harden_rows(self, s: Tensor) -> Tensor:
        """A network's output as a row: the likeliest category, and a missing value where that is likelier than not."""
        s = s.clone()
        s[:, self.gaps] = (s[:, self.gaps] > 0).to(s.dtype)
        for a, b in self.categories:
            s[:, a:b] = F.one_hot(s[:, a:b].argmax(1), b - a).to(s.dtype)
        return s

    def append_label(self, r: Tensor, y: Tensor | None) -> Tensor:
        """Rows with their class appended, encoded as in the table."""
        return r if y is None else concat_target({"x": r, "y": y}, self.task, self.num_classes)

    def gallery(self, batch: Batch, sample: Callable[[int, Generator], Tensor]) -> dict[str, Tensor]:
        """Real and sampled rows, in their own units, for the report."""
        real_rows = self.append_label(self.encode_rows(batch), batch["y"] if self.condition_columns else None)
        return {"real rows": real_rows, "sampled rows": sample(NUM_TABLE_SAMPLES, seeded_generator(real_rows))}

    def tabulate(self, r: Tensor) -> tuple[list[str], list[list[str]]]:
        """The columns' names, and rows in their own units as text."""
        columns, decimals = (*self.columns, *self.condition_columns), [int(d) for d in self.decimals.tolist()]
        return join_date_parts(
            columns, decode_rows(columns, r, decimals + [UNLIMITED_DECIMALS] * (r.shape[1] - len(decimals)))
        )


class MixedRowLikelihood(PixelDistribution):
    """p(row | out) = Π N(x; out, σ²) over present numbers · Π Bernoulli over flags · Π Categorical over categories.

    One σ for each column of numbers, learned. Rows come standardized, but the density is that in the table's own units,
    p(s) / Π scale over the present numbers, so that it can be compared with any other model of the table.
    """

    def __init__(self, rows: RowLayout):
        super().__init__()
        self.rows = rows
        self.log_variance = nn.Parameter(torch.full((len(rows.numbers),), -2.0))

    def nll(self, out: Tensor, s: Tensor) -> Tensor:
        """−log p, (B,)."""
        out, layout = out.flatten(1).float(), self.rows
        v = self.log_variance.clamp(-9, 9)  # a constant column would have no lower bound
        gaussian_nll = (
            0.5 * ((out[:, layout.numbers] - s[:, layout.numbers]).square() * (-v).exp() + v + log(2 * pi))
            + layout.scale[layout.numbers].log()
        )
        total = (gaussian_nll * layout.presence_mask(s)).sum(1)
        total = total + F.binary_cross_entropy_with_logits(
            out[:, layout.gaps], s[:, layout.gaps], reduction="none"
        ).sum(1)
        for a, b in layout.categories:
            total = total - (s[:, a:b] * out[:, a:b].log_softmax(1)).sum(1)
        return total

    def mode(self, out: Tensor) -> Tensor:
        return self.rows.harden_rows(out.flatten(1).float())

    def mean(self, out: Tensor) -> Tensor:
        """The likeliest row, in its own units: two categories have no mean."""
        return self.rows.unstandardize_and_clip(self.mode(out))

    def sample(self, out: Tensor, generator: Generator) -> Tensor:
        """A sample for each output; a mean alone would miss the spread of the numbers."""
        out, layout = out.flatten(1).float(), self.rows
        s = out.clone()
        std = (0.5 * self.log_variance.clamp(-9, 9)).exp()
        s[:, layout.numbers] += std * torch.randn(len(out), len(layout.numbers), generator=generator, device=out.device)
        uniform = torch.rand(len(out), len(layout.gaps), generator=generator, device=out.device)
        s[:, layout.gaps] = (uniform < out[:, layout.gaps].sigmoid()).float()
        for a, b in layout.categories:
            s[:, a:b] = F.one_hot(
                torch.multinomial(out[:, a:b].softmax(1), 1, generator=generator)[:, 0], b - a
            ).float()
        return s
