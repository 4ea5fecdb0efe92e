"""Distances between features of images, against torchmetrics, scikit-learn and closed forms."""

from math import e, log

import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torchmetrics.image.fid import _compute_fid
from torchmetrics.image.kid import maximum_mean_discrepancy

from didact.metrics import generative as g


def make_features(n, d, seed, shift=0.0):
    torch.manual_seed(seed)
    return torch.randn(n, d, dtype=torch.float64) @ torch.randn(d, d, dtype=torch.float64) + shift


def test_gaussian_frechet_distance_equals_torchmetrics():
    x, y = make_features(200, 7, 0), make_features(150, 7, 1, shift=0.5)
    expected = _compute_fid(x.mean(0), x.T.cov(), y.mean(0), y.T.cov())
    assert g.gaussian_frechet_distance(x, y).item() == pytest.approx(expected.item(), rel=1e-8)
    assert g.gaussian_frechet_distance(x, x).item() == pytest.approx(0, abs=1e-8)


def test_gaussian_frechet_distance_of_scalars_has_its_closed_form():
    torch.manual_seed(0)
    x, y = torch.randn(500, 1), 3 * torch.randn(400, 1) + 2
    expected = (x.mean() - y.mean()) ** 2 + (x.std() - y.std()) ** 2
    assert g.gaussian_frechet_distance(x, y).item() == pytest.approx(expected.item(), rel=1e-5)


def test_gaussian_frechet_distance_of_fewer_examples_than_features_is_finite():
    assert g.gaussian_frechet_distance(make_features(5, 30, 0), make_features(6, 30, 1)).isfinite()


def test_kernel_distance_equals_torchmetrics():
    x, y = make_features(60, 5, 0), make_features(60, 5, 1)
    k = [(a @ b.T / 5 + 1) ** 3 for a, b in ((x, x), (x, y), (y, y))]
    expected = maximum_mean_discrepancy(*k)
    assert g.kernel_distance(x, y).item() == pytest.approx(expected.item(), rel=1e-9)


def test_manifold_precision_recall_equals_nearest_neighbors():
    real_features, generated_features = make_features(50, 3, 0), make_features(40, 3, 1)

    def share_inside(points, manifold):
        radius = NearestNeighbors(n_neighbors=4).fit(manifold.numpy()).kneighbors(manifold.numpy())[0][:, -1]
        return (torch.cdist(points, manifold).numpy() <= radius).any(1).mean()

    precision, recall = g.manifold_precision_recall(real_features, generated_features)
    assert precision.item() == pytest.approx(
        share_inside(generated_features, real_features)
    ) and recall.item() == pytest.approx(share_inside(real_features, generated_features))
    # collapsed
    assert [
        v.item() for v in g.manifold_precision_recall(real_features, real_features[:1] + 1e-3 * torch.randn(40, 3))
    ] == pytest.approx([1, 0], abs=0.05)


def test_manifold_precision_recall_of_features_far_from_the_origin():
    """Mean 50 and standard deviation 0.01: in float32 all distances would be lost, and everything would lie inside."""
    torch.manual_seed(0)
    real_features, generated_features = 50 + 0.01 * torch.randn(2, 100, 16)
    a, b = real_features.double().numpy(), generated_features.double().numpy()
    radius = NearestNeighbors(n_neighbors=4, algorithm="brute").fit(a).kneighbors(a)[0][:, -1]
    expected = (((b[:, None] - a) ** 2).sum(2) ** 0.5 <= radius).any(1).mean()
    assert 0.1 < expected < 0.9 and g.manifold_precision_recall(real_features, generated_features)[
        0
    ].item() == pytest.approx(expected)


def test_bits_per_dim_of_a_fair_coin_is_one():
    assert g.bits_per_dim(torch.tensor([5 * log(0.5)]), 5).item() == pytest.approx(1)


def test_inception_score_lies_between_one_and_the_number_of_classes():
    one_hot = torch.eye(7).repeat(3, 1)
    assert g.inception_score(one_hot).item() == pytest.approx(7)
    assert g.inception_score(one_hot[:1].expand(9, 7)).item() == pytest.approx(1)
    assert g.inception_score(torch.full((9, 7), 1 / 7)).item() == pytest.approx(1)
    p = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64)
    q = p.mean(0)
    assert g.inception_score(p).item() == pytest.approx(e ** (p * (p / q).log()).sum(1).mean().item())


def test_class_coverage_and_entropy_detect_mode_collapse():
    real_classes = torch.arange(5).repeat(20)
    assert g.class_coverage(real_classes, real_classes, 5) == 1 and g.class_entropy(
        real_classes, 5
    ).item() == pytest.approx(1)
    one_class = torch.full((100,), 3)
    assert (
        g.class_coverage(one_class, real_classes, 5).item() == pytest.approx(0.2) and g.class_entropy(one_class, 5) == 0
    )
    nine_classes = torch.arange(9).repeat(10)
    # to the last digit of a double, as JSON shows it
    assert g.class_coverage(nine_classes, torch.arange(10).repeat(9), 10).item() == 0.9
    assert g.class_metrics(nine_classes, torch.arange(10).repeat(9), 10)["class_coverage"] == 0.9
    # each 1 %: less than a quarter of its share
    rare_classes = torch.cat([torch.zeros(96).long(), torch.tensor([1, 2, 3, 4])])
    assert g.class_coverage(rare_classes, real_classes, 5).item() == pytest.approx(0.2)
    # classes that are not real need not be generated
    assert g.class_coverage(real_classes, torch.arange(2).repeat(9), 5) == 1


def test_class_metrics_by_hand():
    """Real 4 : 2 : 2 and none of a fourth class; generated 6 : 1 : 2 and one of the fourth: 1.2, 0.4 and 0.8 times as
    often as real.
    """
    real_classes = torch.tensor([0] * 4 + [1] * 2 + [2] * 2)
    generated_classes = torch.tensor([0] * 6 + [1] + [2] * 2 + [3])
    values = g.class_metrics(generated_classes, real_classes, 4)
    assert values["rarest"] == pytest.approx(0.1) and values["commonest"] == pytest.approx(0.6)
    assert values["evenness"] == pytest.approx(0.4 / 1.2)
    assert (
        g.class_evenness(real_classes, real_classes, 4) == 1
        and g.class_evenness(torch.full((5,), 3), real_classes, 4) == 0
    )
    # a class that is missing
    assert g.class_evenness(torch.zeros(5, dtype=torch.long), real_classes, 4) == 0


def test_perplexity_counts_equally_used_codes():
    assert g.perplexity(torch.tensor([5, 5, 0, 5, 5])).item() == pytest.approx(4)
    assert g.perplexity(torch.tensor([9, 0])).item() == pytest.approx(1)


def test_active_units_counts_varying_dimensions():
    torch.manual_seed(0)
    assert g.active_units(torch.randn(500, 4) * torch.tensor([1.0, 0.2, 0.05, 0.0])) == 2
