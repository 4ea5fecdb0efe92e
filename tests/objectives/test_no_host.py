"""What a CUDA graph cannot hold, found without a GPU: numbers that go from the host to the device, or back, inside a loss."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from didact.objectives.elbo import log_normal
from didact.registry import RECIPES
from didact.train.session import prepare
from small import SMALL

HOST = {"aten::lift_fresh", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::masked_select", "aten::equal"}


class Device(TorchDispatchMode):
    """Refuses what a captured step could not do."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.name().split(".")[0] not in HOST, f"{func} inside the loss: a CUDA graph cannot hold it"
        return func(*args, **(kwargs or {}))


def test_every_family_is_here():
    named = {r.name for r in RECIPES.values() if r.kind in ("generative", "self-supervised") and {"images", "table"} & set(r.accepts)}
    assert {name.split()[0] for name in SMALL} == named


@pytest.mark.parametrize("case", SMALL)
def test_a_loss_stays_on_the_device(case, monkeypatch):
    monkeypatch.setattr(F, "one_hot", lambda y, k: (y[..., None] == torch.arange(k)).long())    # PyTorch's looks at y, except on CUDA
    experiment = prepare(case.split()[0], SMALL[case]).experiment
    objective, batch = experiment.objective.train(), experiment.data.train.batch(torch.arange(6))
    assert objective.capturable
    for player in objective.players():
        for p in objective.parameters():
            p.requires_grad_(any(p is mine for mine in player.parameters))
        with Device():
            loss = objective.loss(batch, player.name)["loss"]
            loss.backward()
        assert loss.isfinite()


def test_a_number_brought_along_is_noticed():
    z = torch.zeros(2, 3)
    with Device():
        log_normal(z, 0.0, 0.0)
        with pytest.raises(AssertionError, match="cannot hold it"):
            log_normal(z, 0.0, torch.as_tensor(0.0))
