"""Models that draw beside the first examples of a split: those alone are compared, and each of them counts."""

from functools import partial
from math import isfinite, isnan

import pytest
import torch
from torch import nn

from didact.data.assemble import assemble
from didact.metrics.generative import frechet
from didact.objectives.drawing import ROWS, Drawing
from didact.objectives.referee import thumbnails
from didact.train.experiment import Experiment, Settings
from didact.train.loop import Training


class Painter(Drawing):
    """Draws its noises, and from the `spoiled` row on what is no number."""

    def __init__(self, spoiled=ROWS, **words):
        super().__init__((1, 8, 8), **words)
        self.w, self.spoiled = nn.Parameter(torch.ones(())), spoiled

    def learn(self, batch):
        return {"loss": self.w.square()}

    def drawn(self, row, y):
        return torch.where((row < self.spoiled)[:, None, None, None], self.noises[row], float("nan"))

    def judge(self, batch):
        return {"loss": self.w.detach().square().expand(len(batch["x"])), **self.compared(batch)}


def split(n, seed=0):
    x = torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return {"x": x, "y": torch.arange(n) % 3, "row": torch.arange(n)}


def test_rows_without_an_image_beside_them_do_not_count():
    batch, painter = split(ROWS + 50), Painter()
    expected = frechet(thumbnails(batch["x"][:ROWS]), thumbnails(painter.noises))
    assert painter.score(painter.judge(batch))["frechet"] == pytest.approx(expected.item())


@pytest.mark.parametrize("good", [199, 10, 0])
@pytest.mark.parametrize("referee", [False, True])
@torch.no_grad()
def test_an_image_that_is_no_number_spoils_the_score(good, referee):
    batch, words = split(200), {"referee": nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), "classes": 3} if referee else {}
    whole, spoiled = (p.score(p.judge(batch)) for p in (Painter(**words), Painter(good, **words)))
    assert whole.keys() == spoiled.keys() and all(map(isfinite, whole.values()))
    assert spoiled["loss"] == 1 and all(isnan(value) for name, value in spoiled.items() if name != "loss")


def test_training_goes_on_by_the_loss():
    batch = split(60)
    data = assemble("noise", "images", {"x": batch["x"], "y": batch["y"]}, task="multiclass", labels="abc")
    experiment = Experiment(data=data, objective=Painter(5), optimizer=partial(torch.optim.SGD, lr=0.1), batch=20, epochs=3)
    training = Training(experiment, Settings(), device=torch.device("cpu"))
    state = training.train()
    assert isnan(state.validation["frechet"]) and state.stopped == "budget" and state.best_step == state.step
