"""What a CUDA graph cannot hold, found without a GPU: values that go from host to device, or back, inside a loss."""

import pytest
import torch
import torch.nn.functional as F

from didact.objectives.generative.vae import log_normal
from didact.registry import RECIPES
from didact.training.prepare import prepare
from helpers.device_only_mode import DeviceOnlyMode
from helpers.small_generative_runs import SMALL_GENERATIVE_RUNS


def test_small_runs_cover_every_generative_recipe():
    recipe_names = {
        r.name
        for r in RECIPES.values()
        if r.kind in ("generative", "self-supervised") and {"images", "table"} & set(r.accepts)
    }
    assert {name.split()[0] for name in SMALL_GENERATIVE_RUNS} == recipe_names


@pytest.mark.parametrize("case", SMALL_GENERATIVE_RUNS)
def test_every_generative_loss_stays_on_the_device(case, monkeypatch):
    # PyTorch's looks at y, except on CUDA
    monkeypatch.setattr(F, "one_hot", lambda y, k: (y[..., None] == torch.arange(k)).long())
    experiment = prepare(case.split()[0], SMALL_GENERATIVE_RUNS[case]).experiment
    objective, batch = experiment.objective.train(), experiment.data.train.batch(torch.arange(6))
    assert objective.capturable
    for player in objective.players():
        for p in objective.parameters():
            p.requires_grad_(any(p is own_parameter for own_parameter in player.parameters))
        with DeviceOnlyMode():
            loss = objective.loss(batch, player.name)["loss"]
            loss.backward()
        assert loss.isfinite()


def test_device_only_mode_notices_a_host_tensor():
    z = torch.zeros(2, 3)
    with DeviceOnlyMode():
        log_normal(z, 0.0, 0.0)
        with pytest.raises(AssertionError, match="cannot hold it"):
            log_normal(z, 0.0, torch.as_tensor(0.0))
