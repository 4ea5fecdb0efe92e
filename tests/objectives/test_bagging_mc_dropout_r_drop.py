"""Bagging, MC dropout and R-Drop against their definitions."""

import pytest
import torch
from torch import nn

from didact.objectives.bagging import BaggedClassify, BaggedRegress
from didact.objectives.distributions.classification import Bernoulli, Categorical
from didact.objectives.distributions.regression import Normal
from didact.objectives.mc_dropout import mc_dropout
from didact.objectives.supervised import RDrop, Regress


def test_bagging_members_minimize_their_own_bootstrap_loss():
    """The weighted loss equals the mean loss over examples sampled with replacement, copied out."""
    torch.manual_seed(0)
    x, y = torch.randn(40, 3), torch.randn(40)
    ensemble = BaggedRegress([nn.Linear(3, 1) for _ in range(4)], Normal(), num_examples=40)
    loss = ensemble.loss({"x": x, "y": y, "row": torch.arange(40)})["loss"]
    rows = [torch.repeat_interleave(torch.arange(40), counts.long()) for counts in ensemble.counts]
    assert all(len(r) == 40 for r in rows)
    bootstrap_losses = torch.stack(
        [nn.functional.mse_loss(net(x[r])[:, 0], y[r]) for net, r in zip(ensemble.networks, rows, strict=True)]
    )
    torch.testing.assert_close(loss, bootstrap_losses.mean())


@pytest.mark.parametrize(("outputs", "likelihood"), [(3, Categorical(3)), (1, Bernoulli())])
def test_bagged_classifier_averages_probabilities(outputs, likelihood):
    torch.manual_seed(1)
    ensemble = BaggedClassify([nn.Linear(3, outputs) for _ in range(5)], likelihood, num_examples=10)
    x = torch.randn(7, 3)
    mean = torch.stack([likelihood.probabilities(net(x)) for net in ensemble.networks]).mean(0)
    torch.testing.assert_close(ensemble.classify({"x": x}), mean, atol=1e-5, rtol=0)


def test_bagging_of_one_member_has_no_std():
    ensemble = BaggedRegress([nn.Linear(3, 1)], Normal(), num_examples=4)
    batch = {"x": torch.randn(5, 3)}
    assert ensemble.regress(batch).std is None
    torch.testing.assert_close(ensemble.regress(batch).mean, ensemble.networks[0](batch["x"])[:, 0])


def test_bagged_classifier_samples_follow_the_mean_prediction():
    torch.manual_seed(0)
    ensemble = BaggedClassify([nn.Linear(2, 3) for _ in range(4)], Categorical(3), num_examples=4)
    batch = {"x": torch.randn(1, 2).expand(20_000, 2)}
    shares = torch.bincount(ensemble.draw(batch), minlength=3) / 20_000
    torch.testing.assert_close(shares, ensemble.classify(batch)[0], atol=0.015, rtol=0)


def test_bagged_regressor_std_is_the_disagreement():
    ensemble = BaggedRegress([nn.Linear(2, 1) for _ in range(3)], Normal(mean=5.0, std=2.0), num_examples=10)
    x = torch.randn(4, 2)
    means = torch.stack([5 + 2 * net(x)[:, 0] for net in ensemble.networks])
    prediction = ensemble.regress({"x": x})
    torch.testing.assert_close(prediction.mean, means.mean(0))
    torch.testing.assert_close(prediction.std, means.std(0))


def test_mc_dropout_has_the_moments_of_its_masks():
    """f = Σ m_j w_j / (1 - p): mean Σ w_j, variance Σ w_j² p / (1 - p), for x = 1."""
    torch.manual_seed(2)
    w = torch.tensor([[1.0, -2.0, 0.5, 3.0]])
    linear = nn.Linear(4, 1, bias=False)
    linear.weight.data = w.clone()
    objective = Regress(nn.Sequential(nn.Dropout(0.3), linear), Normal()).eval()
    prediction = mc_dropout(objective, {"x": torch.ones(2000, 4)}, passes=50)
    assert prediction.mean.mean().item() == pytest.approx(w.sum().item(), abs=0.05)
    assert prediction.std.square().mean().item() * 50 / 49 == pytest.approx(
        (w.square().sum() * 0.3 / 0.7).item(), rel=0.03
    )
    assert not objective.training


def test_mc_dropout_std_of_two_passes_is_half_their_difference():
    """With dropout ½ the output is 0 or 2: two different passes have mean 1 and standard deviation 1."""
    torch.manual_seed(0)
    linear = nn.Linear(1, 1, bias=False)
    nn.init.ones_(linear.weight)
    prediction = mc_dropout(
        Regress(nn.Sequential(nn.Dropout(0.5), linear), Normal()).eval(), {"x": torch.ones(100, 1)}, passes=2
    )
    assert set(prediction.mean.tolist()) == {0.0, 1.0, 2.0} and torch.equal(
        prediction.std, (prediction.mean == 1).float()
    )


def test_r_drop_without_dropout_is_twice_the_cross_entropy():
    net = nn.Linear(4, 3)
    batch = {"x": torch.randn(6, 4), "y": torch.tensor([0, 1, 2, 0, 1, 2])}
    parts = RDrop(net, Categorical(3), alpha=5.0).loss(batch)
    torch.testing.assert_close(parts["loss"], 2 * nn.functional.cross_entropy(net(batch["x"]), batch["y"]))
    assert parts["disagreement"].item() == pytest.approx(0.0, abs=1e-6)


def test_r_drop_matches_torch_distributions():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    batch = {"x": torch.randn(6, 4), "y": torch.tensor([0, 1, 2, 0, 1, 2])}
    torch.manual_seed(9)
    out1, out2 = net(torch.cat([batch["x"]] * 2)).chunk(2)
    p, q = (torch.distributions.Categorical(logits=o) for o in (out1, out2))
    kl = 0.5 * (torch.distributions.kl_divergence(p, q) + torch.distributions.kl_divergence(q, p)).mean()
    torch.manual_seed(9)
    torch.testing.assert_close(RDrop(net, Categorical(3)).loss(batch)["disagreement"], kl)
