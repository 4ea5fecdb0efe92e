"""Normalizing flows for the rows of a table: the exact likelihood, after discrete values are dequantized."""

from math import log, pi

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.errors import UsageError
from didact.models.generative.realnvp import NormalizingFlow
from didact.objectives.generative.flow import FlowObjective, sample_noise
from didact.objectives.generative.table_rows import NUM_TABLE_SAMPLES, RowLayout

_NUM_EVAL_NOISES = 1024   # fixed noises that evaluation uses in turn
_TAIL_CUTOFF = 1e-3       # a missing number becomes normal noise without this part of either tail: it stays finite


class TableFlow(FlowObjective):
    """min −log p(v), v = c + (u − ½) step, c one number for each column and missing-value flag, u uniform in [0, 1).

    The step is that of a number's last decimal, 1 for the index of a category, 0 for a continuous number: for integers
    and categories log P(row) >= E_u log p(v), as for the levels of a pixel (Theis et al. 2016). A missing number is
    noise of a known density q, and so log p(what is present) >= E log p(v) − log q.
    """

    gallery_size = NUM_TABLE_SAMPLES

    num_classes = 0
    noises: Tensor
    column_index: Tensor
    is_discrete: Tensor

    def __init__(self, network: NormalizingFlow, rows: RowLayout, train: Tensor | None = None):
        # a category is stored at its first position
        column_index = [k for k in range(rows.num_features) if not any(a < k < b for a, b in rows.categories)]
        super().__init__(network, torch.zeros(len(column_index)), torch.ones(len(column_index)))
        self.rows = rows
        self.register_buffer("column_index", torch.tensor(column_index), persistent=False)
        # categories and missing-value flags
        is_discrete = torch.ones(rows.num_features, dtype=torch.bool).index_fill(0, rows.numbers, False)
        self.register_buffer("is_discrete", is_discrete, persistent=False)
        self.register_buffer(
            "noises",
            torch.rand(_NUM_EVAL_NOISES, len(column_index), generator=torch.Generator().manual_seed(0)),
            persistent=False,
        )
        if train is not None:
            c = self.flatten_rows(train)
            std = c.std(0, correction=0)
            self.mean.copy_(c.mean(0))
            self.std.copy_(torch.where(std > 0, std, 1.0))

    def flatten_rows(self, r: Tensor) -> Tensor:
        """Encoded rows -> one number for each column and flag, the index of a category's value: (B, F) -> (B, C)."""
        r = r.clone()
        for a, b in self.rows.categories:
            r[:, a] = r[:, a:b].argmax(1).to(r.dtype)
        return r[:, self.column_index]

    def unflatten_clipped_rows(self, v: Tensor) -> Tensor:
        """The inverse, within the training range."""
        return self.rows.clip_to_training_range(self.unflatten_rows(v))

    def unflatten_rows(self, v: Tensor) -> Tensor:
        """The inverse: the nearest category, missing or not; numbers as they are."""
        r = torch.zeros(len(v), self.rows.num_features, device=v.device).index_copy(1, self.column_index, v)
        for a, b in self.rows.categories:
            r[:, a:b] = F.one_hot(r[:, a].round().long().clamp(0, b - a - 1), b - a).to(r.dtype)
        r[:, self.rows.gaps] = (r[:, self.rows.gaps] > 0.5).to(r.dtype)
        return r

    def step_sizes(self) -> Tensor:
        """The step of each of the C numbers."""
        decimals = self.rows.decimals
        decimal_step = torch.where(decimals >= 0, 10.0**-decimals, 0.0)
        return torch.where(self.is_discrete, 1.0, decimal_step)[self.column_index]

    def dequantize(self, batch: Batch, u: Tensor) -> tuple[Tensor, Tensor]:
        """v, and log q of the noise in it, (B,)."""
        r = self.rows.encode_rows(batch)
        present = (
            torch.ones_like(r).index_copy(1, self.rows.numbers, self.rows.presence_mask(r))[:, self.column_index] > 0.5
        )
        z = torch.special.ndtri(_TAIL_CUTOFF + (1 - 2 * _TAIL_CUTOFF) * u)
        v = torch.where(present, self.flatten_rows(r) + (u - 0.5) * self.step_sizes(), self.mean + self.std * z)
        log_q = -0.5 * (z.square() + log(2 * pi)) - self.std.log() - log(1 - 2 * _TAIL_CUTOFF)
        return v, (log_q * ~present).sum(1)

    def nll(self, batch: Batch, u: Tensor) -> Tensor:
        """−log p of the rows, (B,): on average over u no less than that of P(row)."""
        v, log_q = self.dequantize(batch, u)
        return log_q - self.log_p(v)

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        u = torch.rand(len(batch["x"]), len(self.column_index), device=batch["x"].device)
        return {"loss": self.nll(batch, u).mean()}

    def evaluate_batch(self, batch: Batch) -> Batch:
        return {"loss": self.nll(batch, self.noises[batch["row"] % _NUM_EVAL_NOISES])}

    def sample_latents(self, n: int, generator: Generator) -> Tensor:
        return sample_noise(n, self.network, generator)

    def decode_latents(self, z: Tensor) -> Tensor:
        return self.network.decode(z) * self.std + self.mean

    def walk(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.unflatten_clipped_rows(self.decode_latents(z))

    def sample(self, n: int, generator: Generator, *, label: int | None = None, temperature: float = 1.0) -> Tensor:
        """n rows in the table's own units. `temperature` is the noise's standard deviation: below 1, typical rows."""
        if label is not None:
            raise UsageError(f"this model is not class-conditional, so no class can be sampled, got {label}")
        return self.rows.reflect_at_edges(
            self.unflatten_rows(self.decode_latents(temperature * self.sample_latents(n, generator)))
        )

    def tabulate(self, x: Tensor) -> tuple[list[str], list[list[str]]]:
        return self.rows.tabulate(x)

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        """Real and sampled rows; for two numbers also their density."""
        only_numbers = len(self.rows.numbers) == self.rows.num_features
        return self.rows.gallery(batch, self.sample) | (
            super().gallery({"x": self.rows.encode_rows(batch)}) if only_numbers else {}
        )
