import json
from collections import Counter

import pytest
import torch

from didact.data.assemble import assemble, moments
from didact.data.core import SPLITS, Resident
from didact.data.health import constant, duplicates, examine, imbalance, refuse, summary
from didact.data.spec import from_spec, spec
from didact.data.table import TableEncoder
from didact.errors import UsageError


def classes(n=90, weights=(1, 1, 1)):
    generator = torch.Generator().manual_seed(0)
    y = torch.cat([torch.full((n * w // sum(weights),), k) for k, w in enumerate(weights)])
    x = torch.randn(len(y), 4, generator=generator)
    return {"x": x, "y": y}


def made(columns, **more):
    labels = [f"c{k}" for k in range(int(columns["y"].max()) + 1)]
    names = ("a", "b", "c", "d")
    return assemble("made", "table", columns, task="multiclass", labels=labels, names=names, encoder=TableEncoder.numeric(names), **more)


def test_a_healthy_set_says_nothing():
    assert made(classes()).notes == ()


def test_imbalance_is_told():
    data = made(classes(180, (1, 1, 4)))
    assert imbalance(data) == 4.0
    assert "'c2' is 4.0 times as frequent as 'c0' (84 to 21 in training)" in data.notes[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.int64])
def test_duplicates_are_those_that_python_finds(dtype):
    columns = classes(300)
    columns["x"] = torch.randint(0, 3, (300, 4), generator=torch.Generator().manual_seed(1)).to(dtype)
    data = made(columns)
    rows = {part: [tuple(row) for row in data.split(part).columns["x"].tolist()] for part in SPLITS}
    train = Counter(rows["train"])
    expected = {part: sum(row in train for row in rows[part]) for part in ("validation", "test")}
    assert duplicates(data) == expected and expected["test"] > 0
    assert any(f"{expected['test']} test examples also stand in training" in note for note in data.notes)


def test_constant_features_are_named():
    columns = classes(3000)
    columns["x"][:, 1] = 3.0
    columns["x"][:, 2] = 0.0
    columns["x"][2999, 3] = 1e6
    data = made(columns)
    assert constant(data) == [1, 2]
    assert "2 of 4 inputs never change in training: b, c" in data.notes
    assert data.mean[1] == 3.0 and data.std[1] == 1.0 and data.std[2] == 1.0


@pytest.mark.parametrize(("change", "words"), [
    ({"x": torch.tensor([[1.0], [float("nan")], [2.0]])}, "must be finite, but 1 of 3 rows are not, first 1"),
    ({"x": torch.tensor([[1.0], [float("inf")], [2.0]])}, "must be finite"),
    ({"y": torch.tensor([1.0, float("nan"), 2.0])}, "targets .* must be finite, but 1"),
    ({"y": torch.ones(3)}, "target .* is 1 in every row"),
    ({"x": torch.ones(2, 1), "y": torch.ones(2)}, "holds 2 examples"),
])
def test_refused(change, words):
    columns = {"x": torch.ones(3, 1), "y": torch.arange(3.0), **change}
    with pytest.raises(UsageError, match=words):
        refuse("made", len(columns["x"]), columns, task="regression")


@pytest.mark.parametrize(("y", "labels", "words"), [
    ([0, 0, 0], ["a"], "only one class, 'a'"),
    ([0, 1, 2], list("abcd"), "3 examples of 4 classes: fewer examples than classes"),
    ([0, 0, 0, 1, 1], ["a", "b"], r"too few of: 'b' \(2\)"),
    ([0, 0, 0, 2, 2, 2], list("abc"), r"too few of: 'b' \(0\)"),
])
def test_classes_refused(y, labels, words):
    with pytest.raises(UsageError, match=words):
        refuse("made", len(y), {"x": torch.ones(len(y), 1), "y": torch.tensor(y)}, task="multiclass", labels=labels)


def test_a_brought_test_split_may_lack_a_class_but_training_may_not():
    columns = classes(30)                                     # rows 0 … 9 are c0
    with pytest.raises(UsageError, match="no training example of: c0"):
        made(columns, test=torch.arange(10))
    assert "no test example of: c1, c2" in made(columns, test=torch.arange(5)).notes


def test_the_summary_is_json_and_counts():
    data = made(classes(180, (1, 1, 4)))
    report = json.loads(json.dumps(summary(data)))
    assert report["splits"] == {"train": 126, "validation": 27, "test": 27}
    assert report["classes"] == {"c0": 21, "c1": 21, "c2": 84} and report["imbalance"] == 4.0
    assert report["duplicates"] == {"validation": 0, "test": 0} and report["shape"] == [4]
    assert report["notes"] == list(data.notes)


def test_a_specification_rebuilds_everything_but_the_examples():
    data = made(classes(), source={"name": "made", "seed": 1})
    again = from_spec(json.loads(json.dumps(spec(data))))
    for name in ("name", "kind", "task", "shape", "labels", "names", "target", "target_mean", "target_std", "encoder",
                 "source", "counts", "notes", "fingerprint"):
        assert getattr(again, name) == getattr(data, name), name
    assert torch.equal(again.mean, data.mean) and torch.equal(again.std, data.std)


def test_moments_keep_their_digits_and_small_scales():
    x = torch.stack([torch.arange(1000.0) + 2**23, torch.arange(1000.0) * 1e-12, torch.full((1000,), 0.1)], 1)
    mean, std = moments(Resident({"x": x}), chunk=300)
    torch.testing.assert_close(mean, x.double().mean(0).float())
    torch.testing.assert_close(std[:2], x.double().std(0, correction=0).float()[:2], rtol=1e-6, atol=0)
    assert std[2] == 1


def test_regression_measures_its_targets():
    y = torch.arange(40.0)
    data = assemble("line", "table", {"x": y[:, None].clone(), "y": y}, task="regression")
    trained = data.train.columns["y"]
    assert data.target_mean == pytest.approx(trained.mean().item())
    assert data.target_std == pytest.approx(trained.std(correction=0).item())
    assert examine(data).counts == dict.fromkeys(SPLITS, ())
