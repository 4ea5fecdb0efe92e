"""Sets without files: scikit-learn's own and those made on the spot."""

import numpy as np
import pytest
import torch
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from didact.data import builtin, made
from didact.data.core import SPLITS
from didact.data.fetch import SOURCES, source

HERE = sorted(name for name, s in SOURCES.items() if s.load.__module__ in (builtin.__name__, made.__name__))


def whole(data, column):
    """All rows of a column, back in the source's order."""
    parts = torch.cat([data.split(s).columns[column] for s in SPLITS])
    return parts[torch.cat([data.indices[s] for s in SPLITS]).argsort()]


@pytest.mark.parametrize("name", HERE)
def test_what_is_said_of_a_set_is_true_of_it(name):
    told, data = SOURCES[name], SOURCES[name].load()
    assert (data.name, data.kind, data.task) == (name, told.kind, told.task)
    assert told.summary.endswith(".") or told.summary.endswith(")") or ":" in told.summary
    assert told.licence and not told.files
    assert data.kind == "images" or len(data.names) == data.features
    assert data.encoder is not None
    rows = torch.cat([data.indices[s] for s in SPLITS]).sort().values
    assert rows.equal(torch.arange(len(rows))), "every row in one split"


@pytest.mark.parametrize("name", HERE)
def test_the_seed_splits_and_changes_nothing_else(name):
    a, b, again = SOURCES[name].load(seed=0), SOURCES[name].load(seed=1), SOURCES[name].load(seed=0)
    assert a.fingerprint == b.fingerprint
    assert not a.indices["test"].equal(b.indices["test"])
    assert all(a.indices[s].equal(again.indices[s]) for s in SPLITS)
    for s in SPLITS:
        gaps = [abs(i - j) for i, j in zip(a.counts[s], b.counts[s], strict=True)]
        assert max(gaps, default=0) <= 1, "stratified, whatever the seed"


@pytest.mark.parametrize(
    ("name", "counts", "features"),
    [("iris", (50, 50, 50), 4), ("wine", (59, 71, 48), 13), ("breast_cancer", (212, 357), 30)],
)
def test_tables_are_those_of_scikit_learn(name, counts, features):
    data, bunch = SOURCES[name].load(), getattr(datasets, f"load_{name}")()
    assert tuple(np.sum([data.counts[s] for s in SPLITS], axis=0)) == counts
    assert data.shape == (features,)
    assert data.labels == tuple(bunch.target_names)
    assert data.names == tuple(bunch.feature_names)
    assert whole(data, "x").dtype == torch.float32
    np.testing.assert_array_equal(whole(data, "x").numpy(), bunch.data.astype(np.float32))
    np.testing.assert_array_equal(whole(data, "y").numpy(), bunch.target)


def test_iris_begins_as_in_fishers_table():
    data = builtin.iris()
    torch.testing.assert_close(whole(data, "x")[0], torch.tensor([5.1, 3.5, 1.4, 0.2]))
    assert data.labels == ("setosa", "versicolor", "virginica")


def test_breast_cancer_counts_malignant_as_class_zero():
    assert builtin.breast_cancer().labels == ("malignant", "benign")


def test_diabetes_is_in_its_own_units():
    data = builtin.diabetes()
    assert data.names[0] == "age"
    assert whole(data, "x")[0, 0] == 59  # years, not scikit-learn's scaled column
    assert whole(data, "y")[:3].tolist() == [151, 75, 141]
    assert whole(data, "y").dtype == torch.float32
    assert data.labels == ()


def test_digits_are_bytes_that_fill_their_range():
    data = builtin.digits()
    x = whole(data, "x")
    assert (x.dtype, tuple(x.shape)) == (torch.uint8, (1797, 1, 8, 8))
    assert x[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]  # 0 0 5 13 9 1 0 0 of 16, times 255, rounded
    assert x.max() == 255
    assert torch.bincount(whole(data, "y")).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    decoded = data.train.batch(torch.arange(5))["x"]
    assert decoded.dtype == torch.float32
    assert decoded.max() <= 1


def test_moons_without_noise_are_those_of_scikit_learn():
    x, y = made.two_moons(50, noise=0.0)
    x_ref, y_ref = datasets.make_moons(100, shuffle=False, noise=None)
    np.testing.assert_allclose(x, x_ref, atol=1e-12)
    np.testing.assert_array_equal(y, y_ref)


def test_noise_of_the_moons_has_the_deviation_asked_for():
    noise = made.two_moons(1000, noise=0.15)[0] - made.two_moons(1000, noise=0.0)[0]
    np.testing.assert_allclose(noise.std(axis=0), 0.15, rtol=0.05)


def test_spirals_need_more_than_a_line():
    data = made.spirals()
    x, y = (data.train.columns[c].numpy() for c in "xy")
    x_test, y_test = (data.test.columns[c].numpy() for c in "xy")
    assert LogisticRegression().fit(x, y).score(x_test, y_test) < 0.75
    assert KNeighborsClassifier(5).fit(x, y).score(x_test, y_test) > 0.99
    assert sum(data.counts["train"]) == 1400


def test_the_second_spiral_is_the_first_turned_by_half():
    x, _ = made.two_spirals(500, noise=0.0)
    np.testing.assert_array_equal(x[:500], -x[500:])
    r = np.linalg.norm(x[:500], axis=1)
    np.testing.assert_allclose(np.cos(3 * np.pi * r), x[:500, 0] / r, atol=1e-9)


def test_sine_scatters_by_a_tenth_everywhere():
    data = made.sine()
    x, y = whole(data, "x")[:, 0], whole(data, "y")
    rest = y - x.sin()
    assert len(x) == 1000
    assert x.abs().max() <= torch.pi
    assert abs(rest.mean()) < 0.01
    assert rest[x < 0].std() == pytest.approx(0.1, rel=0.08)
    assert rest[x > 0].std() == pytest.approx(0.1, rel=0.08)


def test_sine_hetero_scatters_as_its_truth_says():
    data = made.sine_hetero()
    x, y = whole(data, "x")[:, 0], whole(data, "y")
    rest = y - x.sin()
    s = torch.from_numpy(made.sine_deviation(x.double().numpy()))
    for low, high in ((-torch.pi, -1), (-1, 1), (1, torch.pi)):
        third = (x >= low) & (x < high)
        assert (rest / s)[third].std() == pytest.approx(1, rel=0.12)
    assert made.sine_deviation(np.array([-np.pi, np.pi])) == pytest.approx([0.05, 0.45])


def test_least_squares_finds_the_weights_of_sparse_linear():
    data, truth = made.sparse_linear(), made.sparse_truth()
    x, y = whole(data, "x").double().numpy(), whole(data, "y").double().numpy()
    w, *_ = np.linalg.lstsq(x, y, rcond=None)
    assert x.shape == (400, 100)
    assert np.count_nonzero(truth) == 10
    np.testing.assert_allclose(w, truth, atol=4 * 0.5 / np.sqrt(300))  # 4 standard errors, 400 rows less 100 weights
    assert np.std(y - x @ truth) == pytest.approx(0.5, rel=0.1)
    assert any(f"x{j} " in note for note in data.notes for j in np.flatnonzero(truth))


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="two data sets are named 'iris'"):
        source(kind="table", task="multiclass", licence="")(builtin.iris)
