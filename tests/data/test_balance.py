import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from didact.data.assemble import assemble
from didact.data.balance import chosen, class_weights, oversample, undersample
from didact.errors import UsageError


@pytest.fixture
def data():
    y = torch.tensor([0] * 100 + [1] * 20 + [2] * 47)
    x = torch.arange(len(y), dtype=torch.float32)[:, None]
    return assemble("made", "table", {"x": x, "y": y}, task="multiclass", labels="abc")


def test_weights_equal_scikit_learn(data):
    y = data.train.columns["y"].numpy()
    w = class_weights(data)
    reference = torch.from_numpy(compute_class_weight("balanced", classes=np.arange(3), y=y))
    torch.testing.assert_close(w.double(), reference, rtol=1e-6, atol=0)
    assert w[y].mean().item() == pytest.approx(1)


def test_oversampling_loses_no_row_and_repeats_evenly(data):
    more = oversample(data, seed=3)
    n = data.counts["train"]
    assert more.counts["train"] == (max(n),) * 3 and more.counts["test"] == data.counts["test"]
    rows, times = more.train.columns["x"][:, 0].unique(return_counts=True)
    assert torch.equal(rows, data.train.columns["x"][:, 0].sort().values)
    rare = times[(rows >= 100) & (rows < 120)]
    assert rare.max() - rare.min() <= 1 and rare.sum() == max(n)
    assert torch.equal(more.train.columns["x"], oversample(data, seed=3).train.columns["x"])
    assert not torch.equal(more.train.columns["x"], oversample(data, seed=4).train.columns["x"])
    assert torch.equal(more.indices["train"], data.indices["train"]) and "oversampled" in more.notes[-1]


def test_undersampling_repeats_none(data):
    less = undersample(data, seed=3)
    assert less.counts["train"] == (min(data.counts["train"]),) * 3 and len(less.train) == sum(less.counts["train"])
    rows = less.train.columns["x"][:, 0]
    assert len(rows.unique()) == len(rows) and set(rows.tolist()) <= set(data.train.columns["x"][:, 0].tolist())


def test_what_stands_in_both_is_counted_anew_for_the_rows_that_are_left():
    y = torch.tensor([0, 1] * 100)
    x = torch.arange(200).float()[:, None] % 40                             # every example five times
    data = assemble("made", "table", {"x": x, "y": y}, task="binary", labels="ab")
    assert data.duplicates == {"validation": 30, "test": 30} and sum("also stand in training" in note for note in data.notes) == 1
    less = chosen(data, lambda rows, _: rows[:2], 0, "two of each class")
    kept = set(less.train.columns["x"][:, 0].tolist())
    expected = {part: sum(v in kept for v in less.split(part).columns["x"][:, 0].tolist()) for part in ("validation", "test")}
    assert less.duplicates == expected and 0 < sum(expected.values()) < 20
    told = [note for note in less.notes if "also stand in training" in note]
    assert told == [f"{expected['validation']} validation and {expected['test']} test examples also stand in training"]
    none = chosen(data, lambda rows, _: rows[:0], 0, "none")
    assert none.duplicates == {"validation": 0, "test": 0} and not any("also stand" in note for note in none.notes)


def test_only_classes_can_be_balanced():
    y = torch.arange(20.0)
    line = assemble("line", "table", {"x": y[:, None], "y": y}, task="regression")
    for act in (class_weights, oversample, undersample):
        with pytest.raises(UsageError, match="only classes"):
            act(line)
