"""A training that is killed on its way and resumed."""

from typing import Any

import pytest
import torch

import didact
from didact.registry import RECIPES
from didact.run import Run
from didact.train.loop import Training
from didact.train.session import resume


def ends_alike(name: str, at: int = 7, **budget: Any) -> None:
    """Killed before step `at` and resumed, the recipe ends with the weights that it reaches in one go."""
    whole = didact.train(RECIPES[name], **budget)
    advance = Training.advance

    def killed(self, stored, rows):
        if self.state.step == at:
            raise SystemError("killed")
        advance(self, stored, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "advance", killed)
        with pytest.raises(SystemError):
            didact.train(RECIPES[name], **budget)
    resumed = resume(Run.open(f"{name}/latest"))
    assert resumed.folder != whole.folder
    for key, weight in whole.load("model").items():
        assert torch.equal(weight, resumed.load("model")[key]), key
