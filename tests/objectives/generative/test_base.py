"""Objectives that sample for the first examples of a split: only those are compared, and each of them counts."""

from functools import partial
from math import isfinite, isnan

import pytest
import torch
from torch import nn

from didact.data.build import Examples, build_data
from didact.metrics.generative import gaussian_frechet_distance
from didact.objectives.generative.base import NUM_EVAL_SAMPLES, GenerativeObjective
from didact.objectives.generative.sample_quality import make_thumbnails
from didact.training.experiment import Experiment, Settings
from didact.training.loop import Trainer


class PainterObjective(GenerativeObjective):
    """Samples its noises, and NaN from the row `spoiled` on."""

    def __init__(self, first_nan_row=NUM_EVAL_SAMPLES, **options):
        super().__init__((1, 8, 8), **options)
        self.w, self.first_nan_row = nn.Parameter(torch.ones(())), first_nan_row

    def training_loss(self, batch):
        return {"loss": self.w.square()}

    def sample_for_rows(self, row, y):
        return torch.where((row < self.first_nan_row)[:, None, None, None], self.noises[row], float("nan"))

    def evaluate_batch(self, batch):
        return {"loss": self.w.detach().square().expand(len(batch["x"])), **self.compare_samples(batch)}


def make_split(n, seed=0):
    x = torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return {"x": x, "y": torch.arange(n) % 3, "row": torch.arange(n)}


def test_samples_without_a_real_image_are_not_compared():
    batch, painter = make_split(NUM_EVAL_SAMPLES + 50), PainterObjective()
    expected = gaussian_frechet_distance(
        make_thumbnails(batch["x"][:NUM_EVAL_SAMPLES]), make_thumbnails(painter.noises)
    )
    assert painter.compute_metrics(painter.evaluate_batch(batch))["frechet"] == pytest.approx(expected.item())


@pytest.mark.parametrize("num_valid", [199, 10, 0])
@pytest.mark.parametrize("referee", [False, True])
@torch.no_grad()
def test_nan_image_makes_the_sample_metrics_nan(num_valid, referee):
    batch, options = (
        make_split(200),
        {"referee": nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), "num_classes": 3} if referee else {},
    )
    clean_metrics, nan_metrics = (
        p.compute_metrics(p.evaluate_batch(batch))
        for p in (PainterObjective(**options), PainterObjective(num_valid, **options))
    )
    assert clean_metrics.keys() == nan_metrics.keys() and all(map(isfinite, clean_metrics.values()))
    assert nan_metrics["loss"] == 1 and all(isnan(value) for name, value in nan_metrics.items() if name != "loss")


def test_training_continues_with_nan_sample_metrics():
    batch = make_split(60)
    data = build_data(
        Examples(
            "noise",
            "images",
            {"x": batch["x"], "y": batch["y"]},
            task="multiclass",
            class_names="abc",
        ),
    )
    experiment = Experiment(
        data=data, objective=PainterObjective(5), optimizer=partial(torch.optim.SGD, lr=0.1), batch_size=20, epochs=3
    )
    trainer = Trainer(experiment, Settings(), device=torch.device("cpu"))
    state = trainer.train()
    assert isnan(state.validation["frechet"]) and state.stop_reason == "budget" and state.best_step == state.step
