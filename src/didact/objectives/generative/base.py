"""Models whose drawing takes many passes: judged as the games are, on the first examples of a split."""

from math import nan

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.objectives.base import Objective, Player
from didact.objectives.generative.sample_quality import classifier_loss, compare_with_real, sample_quality_metrics

NUM_EVAL_SAMPLES = 1024  # examples of a split beside which an image is drawn


class GenerativeObjective(Objective):
    """The Fréchet distance of thumbnails is watched, as for the games; the referee learns beside the model and
    never touches it.

    Drawing may take many passes, so that only the first examples of a split have an image drawn beside them:
    `there`. NaN stands with the
    others, but one that is drawn spoils the scores.
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
        """Images in [0, 1] beside these rows of a split, the same for a row in whatever batch it comes."""
        raise NotImplementedError

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        if player == "referee":
            assert self.referee is not None
            return classifier_loss(self.referee, batch)
        return self.training_loss(batch)

    def get_labels(self, batch: Batch) -> Tensor | None:
        return batch["y"] if self.num_classes else None

    def compare_samples(self, batch: Batch) -> Batch:
        """Rows of real images and of those drawn beside them."""
        x, row = batch["x"], batch["row"]
        index = (row < NUM_EVAL_SAMPLES).nonzero()[:, 0]
        samples = torch.full_like(x, nan)
        if len(index):
            y = self.get_labels(batch)
            samples[index] = self.sample_for_rows(row[index], None if y is None else y[index]).to(x.dtype)
        return compare_with_real(self.referee, batch, samples) | {"there": row < NUM_EVAL_SAMPLES}

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        sampled = {name: column[outputs["there"]] for name, column in outputs.items()}
        if sampled["drawn"].isfinite().all():
            return super().compute_metrics(outputs) | sample_quality_metrics(
                sampled, conditional=bool(self.num_classes)
            )
        metric_names = sample_quality_metrics(sampled | {"drawn": sampled["real"]}, conditional=bool(self.num_classes))
        # of images that are no numbers there is none to tell
        return super().compute_metrics(outputs) | dict.fromkeys(metric_names, nan)
