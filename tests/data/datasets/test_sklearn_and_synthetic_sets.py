"""Datasets without files: scikit-learn's and synthetic ones."""

import numpy as np
import pytest
import torch
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from didact.data.core import SPLITS
from didact.data.datasets import sklearn_sets
from didact.data.datasets.download import DATASETS, register_dataset
from didact.data.datasets.synthetic import points

OFFLINE_SETS = sorted(
    name for name, s in DATASETS.items() if s.load.__module__ in (sklearn_sets.__name__, points.__name__)
)


def concat_splits(data, column):
    """All rows of a column, back in the source's order."""
    column_parts = torch.cat([data.split(s).columns[column] for s in SPLITS])
    return column_parts[torch.cat([data.indices[s] for s in SPLITS]).argsort()]


@pytest.mark.parametrize("name", OFFLINE_SETS)
def test_dataset_entry_describes_its_data(name):
    entry, data = DATASETS[name], DATASETS[name].load()
    assert (data.name, data.kind, data.task) == (name, entry.kind, entry.task)
    assert entry.summary.endswith(".") or entry.summary.endswith(")") or ":" in entry.summary
    assert entry.license and not entry.files
    assert data.kind == "images" or len(data.feature_names) == data.num_features
    assert data.encoder is not None
    rows = torch.cat([data.indices[s] for s in SPLITS]).sort().values
    assert rows.equal(torch.arange(len(rows))), "every row in one split"


@pytest.mark.parametrize("name", OFFLINE_SETS)
def test_seed_changes_only_the_split(name):
    a, b, same_seed_data = DATASETS[name].load(seed=0), DATASETS[name].load(seed=1), DATASETS[name].load(seed=0)
    assert a.fingerprint == b.fingerprint
    assert not a.indices["test"].equal(b.indices["test"])
    assert all(a.indices[s].equal(same_seed_data.indices[s]) for s in SPLITS)
    for s in SPLITS:
        gaps = [abs(i - j) for i, j in zip(a.class_counts[s], b.class_counts[s], strict=True)]
        assert max(gaps, default=0) <= 1, "stratified, whatever the seed"


@pytest.mark.parametrize(
    ("name", "counts", "features"),
    [("iris", (50, 50, 50), 4), ("wine", (59, 71, 48), 13), ("breast_cancer", (212, 357), 30)],
)
def test_tables_equal_scikit_learn(name, counts, features):
    data, bunch = DATASETS[name].load(), getattr(datasets, f"load_{name}")()
    assert tuple(np.sum([data.class_counts[s] for s in SPLITS], axis=0)) == counts
    assert data.shape == (features,)
    assert data.class_names == tuple(bunch.target_names)
    assert data.feature_names == tuple(bunch.feature_names)
    assert concat_splits(data, "x").dtype == torch.float32
    np.testing.assert_array_equal(concat_splits(data, "x").numpy(), bunch.data.astype(np.float32))
    np.testing.assert_array_equal(concat_splits(data, "y").numpy(), bunch.target)


def test_iris_begins_as_in_fishers_table():
    data = sklearn_sets.iris()
    torch.testing.assert_close(concat_splits(data, "x")[0], torch.tensor([5.1, 3.5, 1.4, 0.2]))
    assert data.class_names == ("setosa", "versicolor", "virginica")


def test_breast_cancer_counts_malignant_as_class_zero():
    assert sklearn_sets.breast_cancer().class_names == ("malignant", "benign")


def test_diabetes_is_in_original_units():
    data = sklearn_sets.diabetes()
    assert data.feature_names[0] == "age"
    assert concat_splits(data, "x")[0, 0] == 59  # years, not scikit-learn's scaled column
    assert concat_splits(data, "y")[:3].tolist() == [151, 75, 141]
    assert concat_splits(data, "y").dtype == torch.float32
    assert data.class_names == ()


def test_digits_are_bytes_that_fill_their_range():
    data = sklearn_sets.digits()
    x = concat_splits(data, "x")
    assert (x.dtype, tuple(x.shape)) == (torch.uint8, (1797, 1, 8, 8))
    assert x[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]  # 0 0 5 13 9 1 0 0 of 16, times 255, rounded
    assert x.max() == 255
    assert torch.bincount(concat_splits(data, "y")).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    decoded = data.train.batch(torch.arange(5))["x"]
    assert decoded.dtype == torch.float32
    assert decoded.max() <= 1


def test_make_moons_without_noise_equals_scikit_learn():
    x, y = points.make_moons(50, noise=0.0)
    x_ref, y_ref = datasets.make_moons(100, shuffle=False, noise=None)
    np.testing.assert_allclose(x, x_ref, atol=1e-12)
    np.testing.assert_array_equal(y, y_ref)


def test_make_moons_noise_has_the_given_std():
    noise = points.make_moons(1000, noise=0.15)[0] - points.make_moons(1000, noise=0.0)[0]
    np.testing.assert_allclose(noise.std(axis=0), 0.15, rtol=0.05)


def test_spirals_are_not_linearly_separable():
    data = points.spirals()
    x, y = (data.train.columns[c].numpy() for c in "xy")
    x_test, y_test = (data.test.columns[c].numpy() for c in "xy")
    assert LogisticRegression().fit(x, y).score(x_test, y_test) < 0.75
    assert KNeighborsClassifier(5).fit(x, y).score(x_test, y_test) > 0.99
    assert sum(data.class_counts["train"]) == 1400


def test_second_spiral_is_the_first_rotated_by_half_a_turn():
    x, _ = points.make_spirals(500, noise=0.0)
    np.testing.assert_array_equal(x[:500], -x[500:])
    r = np.linalg.norm(x[:500], axis=1)
    np.testing.assert_allclose(np.cos(3 * np.pi * r), x[:500, 0] / r, atol=1e-9)


def test_sine_noise_has_constant_std():
    data = points.sine()
    x, y = concat_splits(data, "x")[:, 0], concat_splits(data, "y")
    residuals = y - x.sin()
    assert len(x) == 1000
    assert x.abs().max() <= torch.pi
    assert abs(residuals.mean()) < 0.01
    assert residuals[x < 0].std() == pytest.approx(0.1, rel=0.08)
    assert residuals[x > 0].std() == pytest.approx(0.1, rel=0.08)


def test_sine_hetero_noise_follows_sine_std():
    data = points.sine_hetero()
    x, y = concat_splits(data, "x")[:, 0], concat_splits(data, "y")
    residuals = y - x.sin()
    std = torch.from_numpy(points.sine_std(x.double().numpy()))
    for low, high in ((-torch.pi, -1), (-1, 1), (1, torch.pi)):
        in_interval = (x >= low) & (x < high)
        assert (residuals / std)[in_interval].std() == pytest.approx(1, rel=0.12)
    assert points.sine_std(np.array([-np.pi, np.pi])) == pytest.approx([0.05, 0.45])


def test_least_squares_finds_the_weights_of_sparse_linear():
    data, true_weights = points.sparse_linear(), points.sparse_weights()
    x, y = concat_splits(data, "x").double().numpy(), concat_splits(data, "y").double().numpy()
    w, *_ = np.linalg.lstsq(x, y, rcond=None)
    assert x.shape == (400, 100)
    assert np.count_nonzero(true_weights) == 10
    # 4 standard errors, 400 rows less 100 weights
    np.testing.assert_allclose(w, true_weights, atol=4 * 0.5 / np.sqrt(300))
    assert np.std(y - x @ true_weights) == pytest.approx(0.5, rel=0.1)
    assert any(f"x{j} " in note for note in data.notes for j in np.flatnonzero(true_weights))


def test_register_dataset_refuses_a_second_name():
    with pytest.raises(ValueError, match="two datasets are named 'iris'"):
        register_dataset(kind="table", task="multiclass", license="")(sklearn_sets.iris)
