"""Flows: the way back is exact, volumes are the Jacobian's, and a density integrates to one."""

from math import log

import pytest
import torch

import didact
from didact.errors import UsageError
from didact.models.realnvp import RealNVP
from didact.objectives.likelihood import Flow, ImageFlow
from didact.registry import RECIPES


def flow(shape, steps=4):
    torch.manual_seed(0)
    return RealNVP(shape=shape, hidden=16, steps=steps)


@pytest.mark.parametrize("shape", [(2,), (5,), (1, 4, 6), (3, 8, 8), (1, 5, 7)])
def test_there_and_back(shape):
    network, x = flow(shape), 2 * torch.randn(7, *shape)
    z, _ = network.encode(x)
    assert z.shape[1:] == network.shape and not torch.allclose(z.flatten(1), x.flatten(1), atol=0.1)
    torch.testing.assert_close(network.decode(z), x, rtol=0, atol=1e-4)


@pytest.mark.parametrize("shape", [(2,), (5,), (1, 4, 6), (1, 5, 3)])
def test_log_determinant_is_the_jacobians(shape):
    network, x = flow(shape).double(), torch.randn(3, *shape, dtype=torch.double)
    _, found = network.encode(x)
    for row, log_det in zip(x, found, strict=True):
        n = row.numel()
        jacobian = torch.autograd.functional.jacobian(lambda r: network.encode(r[None])[0][0], row).reshape(n, n)
        torch.testing.assert_close(log_det, jacobian.det().abs().log(), rtol=1e-5, atol=1e-5)


def test_what_is_kept_is_kept():
    layer, x = flow((4,)).layers[0], torch.randn(3, 4)
    y, _ = layer(x)
    kept = layer.mask.bool()
    assert torch.equal(y[:, kept], x[:, kept]) and not torch.isclose(y[:, ~kept], x[:, ~kept]).any()


def test_density_integrates_to_one():
    objective = Flow(flow((2,)), torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]))
    side = torch.linspace(-12, 12, 400)
    x = torch.cartesian_prod(1 + 0.5 * side, -2 + 3 * side)
    cell = 0.5 * 3 * (24 / 399) ** 2
    assert objective.log_p(x).exp().sum().item() * cell == pytest.approx(1, abs=0.01)


def test_images_cost_their_levels_when_nothing_is_known():
    """An even density over v costs log₂ L bits a dimension; the logit's own density is the correction."""
    objective = ImageFlow(flow((1, 4, 4)), (1, 4, 4), levels=8)
    x, u = torch.randint(0, 8, (5, 1, 4, 4)) / 7, torch.rand(5, 1, 4, 4)
    v = ((7 * x).round() + u) / 8
    w = (0.05 + 0.9 * v).double().requires_grad_()
    (slope,) = torch.autograd.grad(w.logit().sum(), w)
    objective.network.forward = lambda y: -(0.9 * slope).log().flatten(1).sum(1)   # exactly undoes the change of variables
    torch.testing.assert_close(objective.bits(x.double(), u.double()), torch.full((5,), log(8, 2), dtype=torch.double))


def test_moons_are_learned(here):
    run = didact.train(RECIPES["realnvp"], epochs=8)
    assert run.facts["test"]["log_likelihood"] > -1.7           # one Gaussian, fitted to the training points, gives −1.99, the truth −1.43
    assert run.load("gallery")["density"].shape == (1, 2, 1, 96, 96)


def test_images_are_learned_and_drawn(here):
    run = didact.train(RECIPES["realnvp"], data="digits", epochs=2, couplings=2, hidden=16)
    assert run.facts["test"]["bits_per_dim"] < 3.6              # pixels alike cost 4
    with pytest.raises(UsageError, match="not told the classes"):
        ImageFlow(flow((1, 4, 4)), (1, 4, 4)).sample(1, torch.Generator(), label=1)
