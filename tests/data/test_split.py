import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from didact.data.core import SPLITS
from didact.data.split import train_val_test_split

SPLIT_FRACTIONS = st.sampled_from([(0.15, 0.15), (0.1, 0.2), (0.3, 0.3), (0.05, 0.02), (0.45, 0.45)])


def make_labels(sizes):
    y = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return y[torch.randperm(len(y), generator=torch.Generator().manual_seed(1))]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(3, 60), min_size=1, max_size=12), SPLIT_FRACTIONS, st.integers(0, 1000))
def test_train_val_test_split_is_disjoint_complete_and_stratified(sizes, fractions, seed):
    y = make_labels(sizes)
    indices = train_val_test_split(len(y), y, fractions=fractions, seed=seed)
    assert torch.cat([indices[part] for part in SPLITS]).sort().values.tolist() == list(range(len(y)))
    for part, fraction in zip(("validation", "test"), fractions, strict=True):
        counts = torch.bincount(y[indices[part]], minlength=len(sizes))
        assert (counts - fraction * torch.tensor(sizes)).abs().max() <= 1
    # else a class may have too few examples for every split
    is_large = torch.tensor(sizes) * min(fractions) >= 1
    counts = torch.bincount(y[indices["train"]], minlength=len(sizes))
    assert ((counts - (1 - sum(fractions)) * torch.tensor(sizes)).abs()[is_large] <= 1 + 1e-9).all()
    for part in SPLITS:
        assert torch.bincount(y[indices[part]], minlength=len(sizes)).min() >= 1, part
        assert indices[part].tolist() == sorted(indices[part].tolist())
    same_indices = train_val_test_split(len(y), y, fractions=fractions, seed=seed)
    assert all(torch.equal(indices[part], same_indices[part]) for part in SPLITS)


@settings(deadline=None)
@given(st.integers(3, 500), st.integers(0, 100))
def test_train_val_test_split_without_classes(n, seed):
    indices = train_val_test_split(n, seed=seed)
    assert sorted(torch.cat(list(indices.values())).tolist()) == list(range(n))
    for part in ("validation", "test"):
        assert len(indices[part]) >= 1
        assert abs(len(indices[part]) - 0.15 * n) <= 1


@settings(deadline=None)
@given(st.lists(st.integers(4, 40), min_size=2, max_size=6), st.integers(0, 100))
def test_given_test_split_is_kept(sizes, seed):
    y = make_labels(sizes)
    test_indices = torch.cat([(y == k).nonzero()[:2, 0] for k in range(len(sizes))])
    indices = train_val_test_split(len(y), y, test_indices=test_indices, fractions=(0.1, 0.0), seed=seed)
    assert indices["test"].tolist() == sorted(test_indices.tolist())
    assert sorted(torch.cat(list(indices.values())).tolist()) == list(range(len(y)))
    for part in SPLITS:
        assert torch.bincount(y[indices[part]], minlength=len(sizes)).min() >= 1


def test_rounding_is_balanced_between_classes():
    y = make_labels([5] * 10)
    indices = train_val_test_split(50, y)
    assert [len(indices[part]) for part in SPLITS] == [30, 10, 10]  # at least one of each class, though 0.15 x 5 < 1
    y = make_labels([10] * 10)
    assert [len(train_val_test_split(100, y)[part]) for part in SPLITS] == [70, 15, 15]


def test_seed_decides_the_split_and_shuffles_rows():
    first, second = train_val_test_split(1000, seed=0), train_val_test_split(1000, seed=1)
    assert not torch.equal(first["test"], second["test"])
    assert first["test"].float().mean() == pytest.approx(500, abs=80)


@pytest.mark.parametrize("sizes", [[1], [2], [1, 1, 5], [2, 2, 30]])
def test_classes_too_small_for_three_splits_stay_in_training(sizes):
    y = make_labels(sizes)
    indices = train_val_test_split(len(y), y)
    assert sorted(torch.cat(list(indices.values())).tolist()) == list(range(len(y)))
    assert torch.bincount(y[indices["train"]], minlength=len(sizes)).min() >= 1
