"""Bagging, MC dropout and R-Drop against their definitions."""

import pytest
import torch
from torch import nn

from didact.objectives.bagging import BaggedClassify, BaggedRegress
from didact.objectives.likelihoods import Bernoulli, Categorical
from didact.objectives.regressions import Normal
from didact.objectives.supervised import RDrop, Regress
from didact.objectives.uncertainty import mc_dropout


def test_each_member_minimises_its_own_bootstrap():
    """The weighted loss equals the mean loss over rows drawn with replacement, copied out."""
    torch.manual_seed(0)
    x, y = torch.randn(40, 3), torch.randn(40)
    bag = BaggedRegress([nn.Linear(3, 1) for _ in range(4)], Normal(), rows=40)
    ours = bag.loss({"x": x, "y": y, "row": torch.arange(40)})["loss"]
    rows = [torch.repeat_interleave(torch.arange(40), counts.long()) for counts in bag.counts]
    assert all(len(r) == 40 for r in rows)
    copied = torch.stack([nn.functional.mse_loss(net(x[r])[:, 0], y[r]) for net, r in zip(bag.networks, rows, strict=True)])
    torch.testing.assert_close(ours, copied.mean())


@pytest.mark.parametrize(("outputs", "likelihood"), [(3, Categorical(3)), (1, Bernoulli())])
def test_members_vote_with_probabilities(outputs, likelihood):
    torch.manual_seed(1)
    bag = BaggedClassify([nn.Linear(3, outputs) for _ in range(5)], likelihood, rows=10)
    x = torch.randn(7, 3)
    mean = torch.stack([likelihood.probabilities(net(x)) for net in bag.networks]).mean(0)
    torch.testing.assert_close(bag.classify({"x": x}), mean, atol=1e-5, rtol=0)


def test_one_member_alone_cannot_disagree():
    one = BaggedRegress([nn.Linear(3, 1)], Normal(), rows=4)
    batch = {"x": torch.randn(5, 3)}
    assert one.regress(batch).std is None
    torch.testing.assert_close(one.regress(batch).mean, one.networks[0](batch["x"])[:, 0])


def test_draws_follow_the_mean_prediction():
    torch.manual_seed(0)
    bag = BaggedClassify([nn.Linear(2, 3) for _ in range(4)], Categorical(3), rows=4)
    batch = {"x": torch.randn(1, 2).expand(20_000, 2)}
    shares = torch.bincount(bag.draw(batch), minlength=3) / 20_000
    torch.testing.assert_close(shares, bag.classify(batch)[0], atol=0.015, rtol=0)


def test_disagreement_is_the_deviation():
    bag = BaggedRegress([nn.Linear(2, 1) for _ in range(3)], Normal(mean=5.0, std=2.0), rows=10)
    x = torch.randn(4, 2)
    means = torch.stack([5 + 2 * net(x)[:, 0] for net in bag.networks])
    found = bag.regress({"x": x})
    torch.testing.assert_close(found.mean, means.mean(0))
    torch.testing.assert_close(found.std, means.std(0))


def test_dropout_left_on_has_the_moments_of_its_masks():
    """f = Σ m_j w_j / (1 - p): mean Σ w_j, variance Σ w_j² p / (1 - p), for x = 1."""
    torch.manual_seed(2)
    w = torch.tensor([[1.0, -2.0, 0.5, 3.0]])
    linear = nn.Linear(4, 1, bias=False)
    linear.weight.data = w.clone()
    objective = Regress(nn.Sequential(nn.Dropout(0.3), linear), Normal()).eval()
    found = mc_dropout(objective, {"x": torch.ones(2000, 4)}, passes=50)
    assert found.mean.mean().item() == pytest.approx(w.sum().item(), abs=0.05)
    assert found.std.square().mean().item() * 50 / 49 == pytest.approx((w.square().sum() * 0.3 / 0.7).item(), rel=0.03)
    assert not objective.training


def test_two_passes_deviate_by_half_of_what_lies_between_them():
    """A half dropped answers 0 or 2: twice the same deviates by 0, one of each has mean 1 and deviation 1."""
    torch.manual_seed(0)
    linear = nn.Linear(1, 1, bias=False)
    nn.init.ones_(linear.weight)
    found = mc_dropout(Regress(nn.Sequential(nn.Dropout(0.5), linear), Normal()).eval(), {"x": torch.ones(100, 1)}, passes=2)
    assert set(found.mean.tolist()) == {0.0, 1.0, 2.0} and torch.equal(found.std, (found.mean == 1).float())


def test_r_drop_without_dropout_is_twice_the_cross_entropy():
    net = nn.Linear(4, 3)
    batch = {"x": torch.randn(6, 4), "y": torch.tensor([0, 1, 2, 0, 1, 2])}
    parts = RDrop(net, Categorical(3), alpha=5.0).loss(batch)
    torch.testing.assert_close(parts["loss"], 2 * nn.functional.cross_entropy(net(batch["x"]), batch["y"]))
    assert parts["disagreement"].item() == pytest.approx(0.0, abs=1e-6)


def test_r_drop_against_torch_distributions():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    batch = {"x": torch.randn(6, 4), "y": torch.tensor([0, 1, 2, 0, 1, 2])}
    torch.manual_seed(9)
    out1, out2 = net(torch.cat([batch["x"]] * 2)).chunk(2)
    p, q = (torch.distributions.Categorical(logits=o) for o in (out1, out2))
    kl = 0.5 * (torch.distributions.kl_divergence(p, q) + torch.distributions.kl_divergence(q, p)).mean()
    torch.manual_seed(9)
    torch.testing.assert_close(RDrop(net, Categorical(3)).loss(batch)["disagreement"], kl)
