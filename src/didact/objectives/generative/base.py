"""Generative objectives that sample in many passes (diffusion, flow matching): sample quality on part of a split."""

from math import nan

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.objectives.base import Objective, Player
from didact.objectives.generative.sample_quality import classifier_loss, compare_with_real, sample_quality_metrics

NUM_EVAL_SAMPLES = 1024  # the first examples of a split, each compared with a sample


class GenerativeObjective(Objective):
    """Monitors the Fréchet distance of thumbnails, as GANs do; a referee classifier is trained alongside.

    Sampling takes many passes, so only the first examples of a split have a sample: `has_sample`. The others have NaN
    in its place; a sample that is not finite makes the metrics NaN.
    """

    monitor = "frechet"
    noises: Tensor

    def __init__(self, shape: tuple[int, ...], *, num_classes: int = 0, referee: nn.Module | None = None):
        super().__init__()
        self.num_classes, self.referee = num_classes, referee
        self.register_buffer(
            "noises",
            torch.randn(NUM_EVAL_SAMPLES, *shape, generator=torch.Generator().manual_seed(0)),
            persistent=False,
        )

    def players(self) -> tuple[Player, ...]:
        referee_parameters = [] if self.referee is None else list(self.referee.parameters())
        referee_ids = {id(p) for p in referee_parameters}
        players = (Player(parameters=[p for p in self.parameters() if p.requires_grad and id(p) not in referee_ids]),)
        return (*players, Player("referee", referee_parameters)) if referee_parameters else players

    def training_loss(self, batch: Batch) -> dict[str, Tensor]:
        """The model's own loss."""
        raise NotImplementedError

    def sample_for_rows(self, row: Tensor, y: Tensor | None) -> Tensor:
        """Images in [0, 1] for these rows of a split; a row gets the same image in every batch."""
        raise NotImplementedError

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        if player == "referee":
            assert self.referee is not None
            return classifier_loss(self.referee, batch)
        return self.training_loss(batch)

    def get_labels(self, batch: Batch) -> Tensor | None:
        return batch["y"] if self.num_classes else None

    def compare_samples(self, batch: Batch) -> Batch:
        """Features of real images and of the samples that are compared with them."""
        x, row = batch["x"], batch["row"]
        index = (row < NUM_EVAL_SAMPLES).nonzero()[:, 0]
        samples = torch.full_like(x, nan)
        if len(index):
            y = self.get_labels(batch)
            samples[index] = self.sample_for_rows(row[index], None if y is None else y[index]).to(x.dtype)
        return compare_with_real(self.referee, batch, samples) | {"has_sample": row < NUM_EVAL_SAMPLES}

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        sampled = {name: column[outputs["has_sample"]] for name, column in outputs.items()}
        if sampled["sampled"].isfinite().all():
            return super().compute_metrics(outputs) | sample_quality_metrics(
                sampled, conditional=bool(self.num_classes)
            )
        placeholder = sampled | {"sampled": sampled["real"]}
        metric_names = sample_quality_metrics(placeholder, conditional=bool(self.num_classes))
        # samples that are not finite have no metrics
        return super().compute_metrics(outputs) | dict.fromkeys(metric_names, nan)
