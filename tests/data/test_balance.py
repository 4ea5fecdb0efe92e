import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from didact.data.assemble import assemble
from didact.data.balance import class_weights, oversample, undersample
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


def test_only_classes_can_be_balanced():
    y = torch.arange(20.0)
    line = assemble("line", "table", {"x": y[:, None], "y": y}, task="regression")
    for act in (class_weights, oversample, undersample):
        with pytest.raises(UsageError, match="only classes"):
            act(line)
