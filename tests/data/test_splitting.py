import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from didact.data.core import SPLITS
from didact.data.splitting import three_way

SHARES = st.sampled_from([(0.15, 0.15), (0.1, 0.2), (0.3, 0.3), (0.05, 0.02), (0.45, 0.45)])


def labelled(sizes):
    y = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return y[torch.randperm(len(y), generator=torch.Generator().manual_seed(1))]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(3, 60), min_size=1, max_size=12), SHARES, st.integers(0, 1000))
def test_disjoint_complete_stratified_and_every_class_everywhere(sizes, fractions, seed):
    y = labelled(sizes)
    rows = three_way(len(y), y, fractions=fractions, seed=seed)
    assert torch.cat([rows[part] for part in SPLITS]).sort().values.tolist() == list(range(len(y)))
    for part, share in zip(("validation", "test"), fractions, strict=True):
        counts = torch.bincount(y[rows[part]], minlength=len(sizes))
        assert (counts - share * torch.tensor(sizes)).abs().max() <= 1
    roomy = torch.tensor(sizes) * min(fractions) >= 1            # else a class may be short in training to be everywhere
    counts = torch.bincount(y[rows["train"]], minlength=len(sizes))
    assert ((counts - (1 - sum(fractions)) * torch.tensor(sizes)).abs()[roomy] <= 1 + 1e-9).all()
    for part in SPLITS:
        assert torch.bincount(y[rows[part]], minlength=len(sizes)).min() >= 1, part
        assert rows[part].tolist() == sorted(rows[part].tolist())
    again = three_way(len(y), y, fractions=fractions, seed=seed)
    assert all(torch.equal(rows[part], again[part]) for part in SPLITS)


@settings(deadline=None)
@given(st.integers(3, 500), st.integers(0, 100))
def test_without_classes(n, seed):
    rows = three_way(n, seed=seed)
    assert sorted(torch.cat(list(rows.values())).tolist()) == list(range(n))
    for part in ("validation", "test"):
        assert len(rows[part]) >= 1
        assert abs(len(rows[part]) - 0.15 * n) <= 1


@settings(deadline=None)
@given(st.lists(st.integers(4, 40), min_size=2, max_size=6), st.integers(0, 100))
def test_a_test_split_that_the_set_brings_stays(sizes, seed):
    y = labelled(sizes)
    brought = torch.cat([(y == k).nonzero()[:2, 0] for k in range(len(sizes))])
    rows = three_way(len(y), y, test=brought, fractions=(0.1, 0.0), seed=seed)
    assert rows["test"].tolist() == sorted(brought.tolist())
    assert sorted(torch.cat(list(rows.values())).tolist()) == list(range(len(y)))
    for part in SPLITS:
        assert torch.bincount(y[rows[part]], minlength=len(sizes)).min() >= 1


def test_rounding_is_passed_on_between_classes():
    y = labelled([5] * 10)
    rows = three_way(50, y)
    assert [len(rows[part]) for part in SPLITS] == [30, 10, 10]  # at least one of each class, though 0.15 x 5 < 1
    y = labelled([10] * 10)
    assert [len(three_way(100, y)[part]) for part in SPLITS] == [70, 15, 15]


def test_the_seed_decides_and_the_rows_are_mixed():
    first, second = three_way(1000, seed=0), three_way(1000, seed=1)
    assert not torch.equal(first["test"], second["test"])
    assert first["test"].float().mean() == pytest.approx(500, abs=80)


@pytest.mark.parametrize("sizes", [[1], [2], [1, 1, 5], [2, 2, 30]])
def test_classes_too_small_for_three_splits_stay_in_training(sizes):
    y = labelled(sizes)
    rows = three_way(len(y), y)
    assert sorted(torch.cat(list(rows.values())).tolist()) == list(range(len(y)))
    assert torch.bincount(y[rows["train"]], minlength=len(sizes)).min() >= 1
