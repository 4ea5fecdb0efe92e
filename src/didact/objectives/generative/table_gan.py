"""Generative adversarial networks for the rows of a table."""

from typing import Any

from torch import Generator, Tensor, nn

from didact.data.core import Batch
from didact.objectives.generative.gan import GANObjective
from didact.objectives.generative.table_rows import NUM_TABLE_SAMPLES, RowLayout
from didact.samplers.latent import labels_to_sample


class TableGAN(GANObjective):
    """The GAN objective for rows; monitored is the Fréchet distance between standardized rows."""

    gallery_size = NUM_TABLE_SAMPLES

    def __init__(self, generator: nn.Module, discriminator: nn.Module, rows: RowLayout, **gan_options: Any):
        super().__init__(generator, discriminator, **gan_options)
        self.rows = rows

    def get_inputs(self, batch: Batch) -> Tensor:
        return self.rows.standardize_rows(batch)

    def to_data_space(self, x: Tensor) -> Tensor:
        """Rows in the table's own units."""
        return self.rows.unstandardize_and_clip(x)

    def decode(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.rows.append_label(super().decode(z, y), y)

    def sample(self, n: int, generator: Generator, *, label: int | None = None) -> Tensor:
        y = labels_to_sample(n, label, self.num_classes, generator.device)
        s = self.generator(self.sample_latents(n, generator), y).float()
        return self.rows.append_label(self.rows.reflect_at_edges(self.rows.unstandardize(s)), y)

    def compare_samples(self, batch: Batch, generated: Tensor) -> Batch:
        return {"real": self.get_inputs(batch), "sampled": generated}

    def tabulate(self, x: Tensor) -> tuple[list[str], list[list[str]]]:
        return self.rows.tabulate(x)

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        return self.rows.gallery(batch, self.sample)
