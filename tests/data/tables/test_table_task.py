"""Classification or regression: inferred from the rows, or given with --task."""

import pandas as pd
import pytest
import torch

import didact
from didact import recipes
from didact.data.load import load, reload_data
from didact.data.tables.target import read_target
from didact.errors import UsageError


def write_ratings(folder, n=120):
    """Whole numbers from 1 to 5, which may be either."""
    path = folder / "films.csv"
    rows = [f"{i % 7},{'good' if i % 5 > 2 else 'bad'} film {i % 3},{1 + i % 5}" for i in range(n)]
    path.write_text("length,review,stars\n" + "\n".join(rows) + "\n")
    return path


def test_task_option_reads_integers_as_classes_or_numbers(tmp_path):
    path = str(write_ratings(tmp_path))
    inferred_data, number_data, class_data = (load(path, task=task) for task in (None, "number", "classes"))
    assert (inferred_data.task, number_data.task, class_data.task) == ("multiclass", "regression", "multiclass")
    assert (
        number_data.class_names == ()
        and number_data.train.columns["y"].dtype == torch.float32
        and class_data.class_names == tuple("12345")
    )
    assert any(
        "5 classes, read as multiclass classification; --task number reads a number" in note
        for note in inferred_data.notes
    )
    assert any("5 different numbers, read as regression, as --task says" in note for note in number_data.notes)
    assert any("read as multiclass classification, as --task says" in note for note in class_data.notes)
    for data in (inferred_data, number_data, class_data):
        reloaded_data = reload_data(data, data.indices)
        assert reloaded_data.task == data.task and reloaded_data.fingerprint == data.fingerprint


def test_task_option_applies_to_texts(tmp_path):
    path = str(write_ratings(tmp_path))
    assert [load(path, text="review", target="stars", task=task).task for task in (None, "number")] == [
        "multiclass",
        "regression",
    ]


def test_read_target_reads_many_numbers_as_classes():
    frame = pd.DataFrame({"y": [k for k in range(25) for _ in range(4)]})
    inferred_target = read_target(frame, "y")
    assert inferred_target.task == "regression" and inferred_target.note.endswith("; --task classes reads classes")
    class_target = read_target(frame, "y", "classes")
    assert (
        class_target.task == "multiclass"
        and class_target.class_names == tuple(map(str, range(25)))
        and class_target.y.tolist() == frame["y"].tolist()
    )
    decimal_target = read_target(pd.DataFrame({"y": [0.1234567, 0.1234568, 1.5] * 5}), "y", "classes")
    assert decimal_target.class_names == ("0.1234567", "0.1234568", "1.5")
    mixed_frame = pd.DataFrame({"y": [str(k) for k in range(25) for _ in range(8)] + ["?!"] * 4})
    assert "?!" in read_target(mixed_frame, "y", "classes").class_names
    # there is only one 7
    assert "--task" not in read_target(pd.DataFrame({"y": [0, 1, 2] * 30 + [7]}), "y").note
    assert "--task" not in read_target(pd.DataFrame({"y": ["a", "b"] * 9}), "y").note


@pytest.mark.parametrize(
    ("values", "task", "message"),
    [
        (
            ["1", "2", "three"] * 9,
            "number",
            "--task number expects numbers, but the target 'y' holds 'three' in line 2; leave it out",
        ),
        (range(300), "classes", "holds 300 different numbers in 300 rows, too many to be classes; leave it out"),
    ],
)
def test_read_target_refuses_an_impossible_task(values, task, message):
    with pytest.raises(UsageError, match=message):
        read_target(pd.DataFrame({"y": list(values)}), "y", task)


def test_rare_class_is_refused_with_task_classes(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{i},{i % 3}\n" for i in range(40)) + "1,9\n")
    with pytest.raises(UsageError, match=r"too few of: '9' \(1\)"):
        load(str(path), task="classes")


def test_task_option_is_stored_in_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = didact.train(recipes.mlp, data=write_ratings(tmp_path), target="stars", task="number", epochs=1)
    assert (
        run.metadata["settings"]["task"] == "number"
        and "--task number" in run.metadata["command_to_repeat"]
        and "rmse" in run.metadata["test"]
    )
    assert "rmse" in didact.inference.evaluate.evaluate(run)["test"]
    assert isinstance(didact.predict(run, "length=3,review=good film 1")[0]["stars"], float)
