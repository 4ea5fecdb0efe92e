"""A training that is killed on its way and resumed."""

from typing import Any

import pytest
import torch

import didact
from didact.api import resume
from didact.registry import RECIPES
from didact.run import Run
from didact.training.loop import Trainer


def assert_resumed_equals_uninterrupted(name: str, kill_step: int = 7, **budget: Any) -> None:
    """Killed before step `at` and resumed, the recipe ends with the weights that it reaches in one go."""
    uninterrupted_run = didact.train(RECIPES[name], **budget)
    train_round = Trainer.train_round

    def die_at_step(self, stored, rows):
        if self.state.step == kill_step:
            raise SystemError("killed")
        train_round(self, stored, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train_round", die_at_step)
        with pytest.raises(SystemError):
            didact.train(RECIPES[name], **budget)
    resumed_run = resume(Run.open(f"{name}/latest"))
    assert resumed_run.folder != uninterrupted_run.folder
    for key, weight in uninterrupted_run.load("model").items():
        assert torch.equal(weight, resumed_run.load("model")[key]), key
