"""Classes or a number: what the rows suggest, and what a person says instead."""

import pandas as pd
import pytest
import torch

import didact
from didact import recipes
from didact.data.load import load, reload
from didact.data.table import targets
from didact.errors import UsageError


def stars(folder, n=120):
    """Whole numbers from 1 to 5, which may be either."""
    path = folder / "films.csv"
    rows = [f"{i % 7},{'good' if i % 5 > 2 else 'bad'} film {i % 3},{1 + i % 5}" for i in range(n)]
    path.write_text("length,review,stars\n" + "\n".join(rows) + "\n")
    return path


def test_whole_numbers_are_what_one_says(tmp_path):
    path = str(stars(tmp_path))
    inferred, number, classes = (load(path, task=task) for task in (None, "number", "classes"))
    assert (inferred.task, number.task, classes.task) == ("multiclass", "regression", "multiclass")
    assert number.labels == () and number.train.columns["y"].dtype == torch.float32 and classes.labels == tuple("12345")
    assert any("5 classes, read as multiclass classification; --task number reads a number" in note for note in inferred.notes)
    assert any("5 different numbers, read as regression, as --task says" in note for note in number.notes)
    assert any("read as multiclass classification, as --task says" in note for note in classes.notes)
    for data in (inferred, number, classes):
        again = reload(data, data.indices)
        assert again.task == data.task and again.fingerprint == data.fingerprint


def test_texts_are_judged_in_both_ways(tmp_path):
    path = str(stars(tmp_path))
    assert [load(path, text="review", target="stars", task=task).task for task in (None, "number")] == ["multiclass", "regression"]


def test_many_numbers_can_be_classes_too():
    frame = pd.DataFrame({"y": [k for k in range(25) for _ in range(4)]})
    inferred = targets(frame, "y")
    assert inferred.task == "regression" and inferred.said.endswith("; --task classes reads classes")
    said = targets(frame, "y", "classes")
    assert said.task == "multiclass" and said.labels == tuple(map(str, range(25))) and said.y.tolist() == frame["y"].tolist()
    halves = targets(pd.DataFrame({"y": [0.1234567, 0.1234568, 1.5] * 5}), "y", "classes")
    assert halves.labels == ("0.1234567", "0.1234568", "1.5")
    mixed = pd.DataFrame({"y": [str(k) for k in range(25) for _ in range(8)] + ["?!"] * 4})
    assert "?!" in targets(mixed, "y", "classes").labels
    assert "--task" not in targets(pd.DataFrame({"y": [0, 1, 2] * 30 + [7]}), "y").said        # of the 7 there is but one
    assert "--task" not in targets(pd.DataFrame({"y": ["a", "b"] * 9}), "y").said


@pytest.mark.parametrize(("values", "task", "words"), [
    (["1", "2", "three"] * 9, "number", "--task number expects numbers, but the target 'y' holds 'three' in line 2; leave it out"),
    (range(300), "classes", "holds 300 different numbers in 300 rows, too many to be classes; leave it out"),
])
def test_what_cannot_be(values, task, words):
    with pytest.raises(UsageError, match=words):
        targets(pd.DataFrame({"y": list(values)}), "y", task)


def test_a_rare_class_is_refused_though_it_was_asked_for(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{i},{i % 3}\n" for i in range(40)) + "1,9\n")
    with pytest.raises(UsageError, match=r"too few of: '9' \(1\)"):
        load(str(path), task="classes")


def test_it_is_kept_in_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = didact.train(recipes.mlp, data=stars(tmp_path), target="stars", task="number", epochs=1)
    assert run.facts["settings"]["task"] == "number" and "--task number" in run.facts["repeat"] and "rmse" in run.facts["test"]
    assert "rmse" in didact.train.session.evaluate(run)["test"]
    assert isinstance(didact.predict(run, "length=3,review=good film 1")[0]["stars"], float)
