"""Distances between sets of images' features, against torchmetrics, scikit-learn and closed forms."""

from math import e, log

import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torchmetrics.image.fid import _compute_fid
from torchmetrics.image.kid import maximum_mean_discrepancy

from didact.metrics import generative as g


def features(n, d, seed, shift=0.0):
    torch.manual_seed(seed)
    return torch.randn(n, d, dtype=torch.float64) @ torch.randn(d, d, dtype=torch.float64) + shift


def test_frechet_is_torchmetrics():
    x, y = features(200, 7, 0), features(150, 7, 1, shift=0.5)
    expected = _compute_fid(x.mean(0), x.T.cov(), y.mean(0), y.T.cov())
    assert g.frechet(x, y).item() == pytest.approx(expected.item(), rel=1e-8)
    assert g.frechet(x, x).item() == pytest.approx(0, abs=1e-8)


def test_frechet_of_numbers_is_that_of_means_and_deviations():
    torch.manual_seed(0)
    x, y = torch.randn(500, 1), 3 * torch.randn(400, 1) + 2
    expected = (x.mean() - y.mean()) ** 2 + (x.std() - y.std()) ** 2
    assert g.frechet(x, y).item() == pytest.approx(expected.item(), rel=1e-5)


def test_frechet_of_fewer_examples_than_features_is_finite():
    assert g.frechet(features(5, 30, 0), features(6, 30, 1)).isfinite()


def test_kernel_distance_is_torchmetrics():
    x, y = features(60, 5, 0), features(60, 5, 1)
    k = [(a @ b.T / 5 + 1) ** 3 for a, b in ((x, x), (x, y), (y, y))]
    expected = maximum_mean_discrepancy(*k)
    assert g.kernel_distance(x, y).item() == pytest.approx(expected.item(), rel=1e-9)


def test_manifold_is_that_of_neighbours():
    real, drawn = features(50, 3, 0), features(40, 3, 1)

    def inside(who, among):
        radius = NearestNeighbors(n_neighbors=4).fit(among.numpy()).kneighbors(among.numpy())[0][:, -1]
        return (torch.cdist(who, among).numpy() <= radius).any(1).mean()

    precision, recall = g.manifold(real, drawn)
    assert precision.item() == pytest.approx(inside(drawn, real)) and recall.item() == pytest.approx(inside(real, drawn))
    assert [v.item() for v in g.manifold(real, real[:1] + 1e-3 * torch.randn(40, 3))] == pytest.approx([1, 0], abs=0.05)  # collapsed


def test_manifold_of_features_far_from_the_origin():
    """A mean of 50 and a deviation of 0.01: in single precision every distance would be lost, and everything lie inside."""
    torch.manual_seed(0)
    real, drawn = 50 + 0.01 * torch.randn(2, 100, 16)
    a, b = real.double().numpy(), drawn.double().numpy()
    radius = NearestNeighbors(n_neighbors=4, algorithm="brute").fit(a).kneighbors(a)[0][:, -1]
    expected = (((b[:, None] - a) ** 2).sum(2) ** 0.5 <= radius).any(1).mean()
    assert 0.1 < expected < 0.9 and g.manifold(real, drawn)[0].item() == pytest.approx(expected)


def test_bits_of_a_fair_coin():
    assert g.bits_per_dim(torch.tensor([5 * log(0.5)]), 5).item() == pytest.approx(1)


def test_inception_score_lies_between_one_and_the_number_of_classes():
    sure = torch.eye(7).repeat(3, 1)
    assert g.inception_score(sure).item() == pytest.approx(7)
    assert g.inception_score(sure[:1].expand(9, 7)).item() == pytest.approx(1)
    assert g.inception_score(torch.full((9, 7), 1 / 7)).item() == pytest.approx(1)
    p = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64)
    q = p.mean(0)
    assert g.inception_score(p).item() == pytest.approx(e ** (p * (p / q).log()).sum(1).mean().item())


def test_collapse_is_seen_in_the_classes():
    real = torch.arange(5).repeat(20)
    assert g.class_coverage(real, real, 5) == 1 and g.class_entropy(real, 5).item() == pytest.approx(1)
    one = torch.full((100,), 3)
    assert g.class_coverage(one, real, 5).item() == pytest.approx(0.2) and g.class_entropy(one, 5) == 0
    nine = torch.arange(9).repeat(10)
    assert g.class_coverage(nine, torch.arange(10).repeat(9), 10).item() == 0.9     # to the last digit of a double, as JSON shows it
    assert g.which_classes(nine, torch.arange(10).repeat(9), 10)["class_coverage"] == 0.9
    rare = torch.cat([torch.zeros(96).long(), torch.tensor([1, 2, 3, 4])])      # each 1 %: less than a quarter of its share
    assert g.class_coverage(rare, real, 5).item() == pytest.approx(0.2)
    assert g.class_coverage(real, torch.arange(2).repeat(9), 5) == 1                # classes that are not there need not be drawn


def test_how_often_each_class_is_drawn():
    """Real 4 : 2 : 2 and nothing of a fourth class; drawn 6 : 1 : 2 and one of the fourth: 1.2, 0.4 and 0.8 times as often as real."""
    real = torch.tensor([0] * 4 + [1] * 2 + [2] * 2)
    drawn = torch.tensor([0] * 6 + [1] + [2] * 2 + [3])
    found = g.which_classes(drawn, real, 4)
    assert found["rarest"] == pytest.approx(0.1) and found["commonest"] == pytest.approx(0.6)
    assert found["evenness"] == pytest.approx(0.4 / 1.2)
    assert g.evenness(real, real, 4) == 1 and g.evenness(torch.full((5,), 3), real, 4) == 0
    assert g.evenness(torch.zeros(5, dtype=torch.long), real, 4) == 0                # a class that is missing


def test_perplexity_counts_codes_that_are_used_alike():
    assert g.perplexity(torch.tensor([5, 5, 0, 5, 5])).item() == pytest.approx(4)
    assert g.perplexity(torch.tensor([9, 0])).item() == pytest.approx(1)


def test_active_units():
    torch.manual_seed(0)
    assert g.active_units(torch.randn(500, 4) * torch.tensor([1.0, 0.2, 0.05, 0.0])) == 2
