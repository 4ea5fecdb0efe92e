import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from didact.data.balance import class_weights, oversample, resample_by_class, undersample
from didact.data.build import Examples, build_data
from didact.errors import UsageError


@pytest.fixture
def data():
    y = torch.tensor([0] * 100 + [1] * 20 + [2] * 47)
    x = torch.arange(len(y), dtype=torch.float32)[:, None]
    return build_data(Examples("made", "table", {"x": x, "y": y}, task="multiclass", class_names="abc"))


def test_class_weights_equal_scikit_learn(data):
    y = data.train.columns["y"].numpy()
    w = class_weights(data)
    reference = torch.from_numpy(compute_class_weight("balanced", classes=np.arange(3), y=y))
    torch.testing.assert_close(w.double(), reference, rtol=1e-6, atol=0)
    assert w[y].mean().item() == pytest.approx(1)


def test_oversample_loses_no_row_and_repeats_evenly(data):
    oversampled_data = oversample(data, seed=3)
    n = data.class_counts["train"]
    assert (
        oversampled_data.class_counts["train"] == (max(n),) * 3
        and oversampled_data.class_counts["test"] == data.class_counts["test"]
    )
    rows, repeats = oversampled_data.train.columns["x"][:, 0].unique(return_counts=True)
    assert torch.equal(rows, data.train.columns["x"][:, 0].sort().values)
    rare_repeats = repeats[(rows >= 100) & (rows < 120)]
    assert rare_repeats.max() - rare_repeats.min() <= 1 and rare_repeats.sum() == max(n)
    assert torch.equal(oversampled_data.train.columns["x"], oversample(data, seed=3).train.columns["x"])
    assert not torch.equal(oversampled_data.train.columns["x"], oversample(data, seed=4).train.columns["x"])
    assert (
        torch.equal(oversampled_data.indices["train"], data.indices["train"])
        and "oversampled" in oversampled_data.notes[-1]
    )


def test_undersample_repeats_no_row(data):
    undersampled_data = undersample(data, seed=3)
    assert undersampled_data.class_counts["train"] == (min(data.class_counts["train"]),) * 3 and len(
        undersampled_data.train
    ) == sum(undersampled_data.class_counts["train"])
    rows = undersampled_data.train.columns["x"][:, 0]
    assert len(rows.unique()) == len(rows) and set(rows.tolist()) <= set(data.train.columns["x"][:, 0].tolist())


def test_resample_by_class_recounts_duplicates():
    y = torch.tensor([0, 1] * 100)
    x = torch.arange(200).float()[:, None] % 40                             # every example five times
    data = build_data(Examples("made", "table", {"x": x, "y": y}, task="binary", class_names="ab"))
    assert (
        data.duplicates == {"validation": 30, "test": 30}
        and sum("also occur in training" in note for note in data.notes) == 1
    )
    resampled_data = resample_by_class(data, lambda rows, _: rows[:2], 0, "two of each class")
    training_values = set(resampled_data.train.columns["x"][:, 0].tolist())
    expected = {
        part: sum(v in training_values for v in resampled_data.split(part).columns["x"][:, 0].tolist())
        for part in ("validation", "test")
    }
    assert resampled_data.duplicates == expected and 0 < sum(expected.values()) < 20
    duplicate_notes = [note for note in resampled_data.notes if "also occur in training" in note]
    assert duplicate_notes == [
        f"{expected['validation']} validation and {expected['test']} test examples also occur in training"
    ]
    empty_data = resample_by_class(data, lambda rows, _: rows[:0], 0, "none")
    assert empty_data.duplicates == {"validation": 0, "test": 0} and not any(
        "also occur" in note for note in empty_data.notes
    )


def test_only_classes_can_be_balanced():
    y = torch.arange(20.0)
    regression_data = build_data(Examples("line", "table", {"x": y[:, None], "y": y}, task="regression"))
    for balance in (class_weights, oversample, undersample):
        with pytest.raises(UsageError, match="only classes"):
            balance(regression_data)
