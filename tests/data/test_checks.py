import json
from collections import Counter

import pytest
import torch

from didact.data.build import Examples, build_data, compute_mean_std
from didact.data.checks import (
    add_health_notes,
    compute_imbalance,
    count_duplicates,
    find_constant_features,
    summarize_health,
    validate,
)
from didact.data.core import SPLITS, TensorSplit
from didact.data.serialize import data_from_json, data_to_json
from didact.data.tables.table import TableEncoder
from didact.errors import UsageError


def make_columns(n=90, weights=(1, 1, 1)):
    generator = torch.Generator().manual_seed(0)
    y = torch.cat([torch.full((n * w // sum(weights),), k) for k, w in enumerate(weights)])
    x = torch.randn(len(y), 4, generator=generator)
    return {"x": x, "y": y}


def build_table(columns, *, source=None, **split):
    labels = [f"c{k}" for k in range(int(columns["y"].max()) + 1)]
    names = ("a", "b", "c", "d")
    examples = Examples(
        "made",
        "table",
        columns,
        task="multiclass",
        class_names=labels,
        feature_names=names,
        encoder=TableEncoder.numeric(names),
        source=source or {},
    )
    return build_data(examples, **split)


def test_clean_data_has_no_notes():
    assert build_table(make_columns()).notes == ()


def test_class_imbalance_is_noted():
    data = build_table(make_columns(180, (1, 1, 4)))
    assert compute_imbalance(data) == 4.0
    assert "'c2' is 4.0 times as frequent as 'c0' (84 to 21 in training)" in data.notes[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.int64])
def test_count_duplicates_equals_python_counter(dtype):
    columns = make_columns(300)
    columns["x"] = torch.randint(0, 3, (300, 4), generator=torch.Generator().manual_seed(1)).to(dtype)
    data = build_table(columns)
    rows = {part: [tuple(row) for row in data.split(part).columns["x"].tolist()] for part in SPLITS}
    train = Counter(rows["train"])
    expected = {part: sum(row in train for row in rows[part]) for part in ("validation", "test")}
    assert count_duplicates(data) == expected and expected["test"] > 0
    assert any(f"{expected['test']} test examples also occur in training" in note for note in data.notes)


def test_constant_features_are_noted():
    columns = make_columns(3000)
    columns["x"][:, 1] = 3.0
    columns["x"][:, 2] = 0.0
    columns["x"][2999, 3] = 1e6
    data = build_table(columns)
    assert find_constant_features(data) == [1, 2]
    assert "2 of 4 inputs never change in training: b, c" in data.notes
    assert data.mean[1] == 3.0 and data.std[1] == 1.0 and data.std[2] == 1.0


@pytest.mark.parametrize(("new_columns", "message"), [
    ({"x": torch.tensor([[1.0], [float("nan")], [2.0]])}, "must be finite, but 1 of 3 rows are not, first 1"),
    ({"x": torch.tensor([[1.0], [float("inf")], [2.0]])}, "must be finite"),
    ({"y": torch.tensor([1.0, float("nan"), 2.0])}, "targets .* must be finite, but 1"),
    ({"y": torch.ones(3)}, "target .* is 1 in every row"),
    ({"x": torch.ones(2, 1), "y": torch.ones(2)}, "holds 2 examples"),
])
def test_validate_refuses_non_finite_and_constant_columns(new_columns, message):
    columns = {"x": torch.ones(3, 1), "y": torch.arange(3.0), **new_columns}
    with pytest.raises(UsageError, match=message):
        validate("made", len(columns["x"]), columns, task="regression")


@pytest.mark.parametrize(("y", "labels", "message"), [
    ([0, 0, 0], ["a"], "only one class, 'a'"),
    ([0, 1, 2], list("abcd"), "3 examples of 4 classes: fewer examples than classes"),
    ([0, 0, 0, 1, 1], ["a", "b"], r"too few of: 'b' \(2\)"),
    ([0, 0, 0, 2, 2, 2], list("abc"), r"too few of: 'b' \(0\)"),
])
def test_validate_refuses_missing_and_rare_classes(y, labels, message):
    with pytest.raises(UsageError, match=message):
        validate(
            "made", len(y), {"x": torch.ones(len(y), 1), "y": torch.tensor(y)}, task="multiclass", class_names=labels
        )


def test_given_test_split_may_lack_a_class_but_training_may_not():
    columns = make_columns(30)                                     # rows 0 … 9 are c0
    with pytest.raises(UsageError, match="no training example of: c0"):
        build_table(columns, test_indices=torch.arange(10))
    assert "no test example of: c1, c2" in build_table(columns, test_indices=torch.arange(5)).notes


def test_summarize_health_is_json_with_counts():
    data = build_table(make_columns(180, (1, 1, 4)))
    report = json.loads(json.dumps(summarize_health(data)))
    assert report["splits"] == {"train": 126, "validation": 27, "test": 27}
    assert report["classes"] == {"c0": 21, "c1": 21, "c2": 84} and report["imbalance"] == 4.0
    assert report["duplicates"] == {"validation": 0, "test": 0} and report["shape"] == [4]
    assert report["notes"] == list(data.notes)


def test_data_from_json_restores_everything_but_the_examples():
    data = build_table(make_columns(), source={"name": "made", "seed": 1})
    restored_data = data_from_json(json.loads(json.dumps(data_to_json(data))))
    for name in (
        "name", "kind", "task", "shape", "class_names", "feature_names", "target", "target_mean", "target_std",
        "encoder", "source", "class_counts", "notes", "fingerprint",
    ):
        assert getattr(restored_data, name) == getattr(data, name), name
    assert torch.equal(restored_data.mean, data.mean) and torch.equal(restored_data.std, data.std)


def test_compute_mean_std_keeps_digits_and_small_scales():
    x = torch.stack([torch.arange(1000.0) + 2**23, torch.arange(1000.0) * 1e-12, torch.full((1000,), 0.1)], 1)
    mean, std = compute_mean_std(TensorSplit({"x": x}), chunk_size=300)
    torch.testing.assert_close(mean, x.double().mean(0).float())
    torch.testing.assert_close(std[:2], x.double().std(0, correction=0).float()[:2], rtol=1e-6, atol=0)
    assert std[2] == 1


def test_regression_data_has_target_mean_and_std():
    y = torch.arange(40.0)
    data = build_data(Examples("line", "table", {"x": y[:, None].clone(), "y": y}, task="regression"))
    training_targets = data.train.columns["y"]
    assert data.target_mean == pytest.approx(training_targets.mean().item())
    assert data.target_std == pytest.approx(training_targets.std(correction=0).item())
    assert add_health_notes(data).class_counts == dict.fromkeys(SPLITS, ())
