"""Variational autoencoders for the rows of a table."""

from typing import Any

import torch
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.models.generative.vae import VAE
from didact.objectives.generative.table_rows import NUM_TABLE_SAMPLES, MixedRowLikelihood, RowLayout
from didact.objectives.generative.vae import VAEObjective
from didact.samplers.latent import labels_to_sample


class TableVAE(VAEObjective):
    """The ELBO with a mixed p(row | z): Gaussian numbers, Bernoulli missing-value flags, categorical categories."""

    gallery_size = NUM_TABLE_SAMPLES

    pixels: MixedRowLikelihood
    restore = encode = None  # type: ignore[assignment]   # an input row lacks the target, which is a column here

    def __init__(self, network: VAE, rows: RowLayout, **vae_options: Any):
        super().__init__(network, MixedRowLikelihood(rows), **vae_options)

    def get_inputs(self, batch: Batch) -> Tensor:
        return self.pixels.rows.standardize_rows(batch)

    def reconstruction_metrics(self, x: Tensor, out: Tensor) -> Batch:
        layout, reconstruction = self.pixels.rows, self.pixels.mode(out)
        outputs = {}
        if len(layout.numbers):                            # 1 by saying the mean each time
            present = layout.presence_mask(x)
            error = (reconstruction - x)[:, layout.numbers].square() * present
            outputs["number_error"] = error.sum(1) / present.sum(1).clamp(min=1)
        if layout.categories:
            num_correct = torch.stack([(reconstruction[:, a:b] * x[:, a:b]).sum(1) for a, b in layout.categories])
            outputs["category_accuracy"] = num_correct.mean(0)
        return outputs

    def sample(self, n: int, generator: Generator, *, label: int | None = None) -> Tensor:
        """n rows from p(row | z), in the table's own units, for codes from the prior."""
        y = labels_to_sample(n, label, self.num_classes, generator.device)
        out, layout = self.network.decode(self.sample_latents(n, generator), y), self.pixels.rows
        return layout.append_label(layout.reflect_at_edges(layout.unstandardize(self.pixels.sample(out, generator))), y)

    def decode(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.pixels.rows.append_label(super().decode(z, y), y)

    def tabulate(self, x: Tensor) -> tuple[list[str], list[list[str]]]:
        return self.pixels.rows.tabulate(x)

    def report_examples(self, batch: Batch) -> Batch:
        return {}

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        return self.pixels.rows.gallery(batch, self.sample)
