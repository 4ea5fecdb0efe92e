"""`didact train FILE`: a recipe is chosen for data of every kind, and said with its reason and the whole command."""

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_diabetes

import didact
from didact.cli.main import main
from didact.data.load import READERS, list_datasets
from didact.errors import UsageError
from didact.recipes import _choose_recipe
from didact.recipes._choose_recipe import choose_recipe
from didact.registry import RECIPES
from didact.run import Run


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_everything()


def write_image(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)


def write_everything() -> None:
    """One of each form in which people have data."""
    rng = np.random.default_rng(0)
    diabetes = load_diabetes(as_frame=True).frame.iloc[:120]
    diabetes.to_csv("table.csv", index=False)
    pd.DataFrame({"t": pd.date_range("2020-01-01", periods=200).astype(str), "load": rng.random(200).round(3)}).to_csv(
        "series.csv", index=False
    )
    pd.DataFrame({"load": rng.random(200).round(3)}).to_csv("numbers.csv", index=False)
    words = ["good", "bad", "film", "plot", "music", "long", "short", "dull", "bright", "old"]
    texts = [" ".join(rng.choice(words, 12)) for _ in range(60)]
    labels = ["yes", "no"] * 30
    pd.DataFrame({"id": range(60), "body": texts, "stars": labels}).to_csv("reviews.csv", index=False)
    pd.DataFrame({"name": [f"Na{i}me" for i in range(60)], "sex": labels}).to_csv("names.csv", index=False)
    pd.DataFrame(
        {"day": pd.date_range("2020-01-01", periods=60).astype(str), "weather": rng.choice(["sun", "rain"], 60),
         "rented": rng.integers(0, 99, 60)}
    ).to_csv("days.csv", index=False)
    for i in range(6):
        for label in ("cat", "dog"):
            write_image(Path(f"photos/{label}/{i}.png"), i)
        write_image(Path(f"faces/{i}.png"), i)
        write_image(Path(f"named/images/{i}.png"), i)
        write_image(Path(f"street/images/{i}.png"), i)
        Path("street/masks").mkdir(exist_ok=True)
        Image.fromarray((rng.random((16, 16)) > 0.5).astype(np.uint8)).save(f"street/masks/{i}.png")
        write_image(Path(f"cells/{i}.png"), i)
    pd.DataFrame({"file": [f"{i}.png" for i in range(6)], "label": ["a", "b"] * 3}).to_csv(
        "named/labels.csv", index=False
    )
    boxes = [{"id": i, "image_id": i, "category_id": 1, "bbox": [1, 1, 8, 8]} for i in range(6)]
    images = [{"id": i, "file_name": f"{i}.png", "width": 16, "height": 16} for i in range(6)]
    Path("cells/annotations.json").write_text(
        json.dumps({"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cell"}]})
    )
    Path("book.txt").write_text("It was the best of times, it was the worst of times. " * 60)
    for label in ("pos", "neg"):
        Path("notes", label).mkdir(parents=True)
        for i in range(10):
            Path("notes", label, f"{i}.txt").write_text(f"a {label} note number {i}")
    Path("books").mkdir()
    Path("books/one.txt").write_text("once upon a time " * 200)


EXPECTED = {
    "table.csv": "tabular", "series.csv": "forecast", "numbers.csv": "forecast", "reviews.csv": "fasttext",
    "names.csv": "fasttext", "days.csv": "tabular", "photos": "cnn", "faces": "vae", "named": "cnn",
    "named/labels.csv": "cnn", "street": "segmentation", "cells": "detection", "book.txt": "gpt", "books": "gpt",
    "notes": "fasttext",
}  # fmt: skip


@pytest.mark.parametrize("data, recipe", EXPECTED.items())
def test_each_form_of_data_has_its_recipe(data, recipe):
    choice = choose_recipe(data)
    assert choice.recipe == recipe and choice.reason.startswith(data)


def test_the_forms_cover_every_kind_that_is_read():
    kinds = {kind for recipe in EXPECTED.values() for kind in RECIPES[recipe].accepts}
    assert {reader.kind for reader in READERS} - {"pairs"} <= kinds       # pairs are told by --data of a recipe alone


@pytest.mark.parametrize("kind, task", sorted(_choose_recipe._RECIPE_OF_KIND))
def test_a_chosen_recipe_accepts_the_kind(kind, task):
    recipe = RECIPES[_choose_recipe._RECIPE_OF_KIND[kind, task]]
    assert kind in recipe.accepts and (not task or task == "none" or task in recipe.tasks)


@pytest.mark.parametrize("name", sorted(list_datasets()))
def test_every_dataset_has_a_recipe_that_accepts_it(name):
    entry, recipe = list_datasets()[name], RECIPES[choose_recipe(name).recipe]
    assert entry.kind in recipe.accepts or recipe.data == name
    assert not recipe.tasks or entry.task in recipe.tasks


@pytest.mark.parametrize("data", sorted(EXPECTED.keys() - {"names.csv", "books", "named", "numbers.csv"}))
def test_the_line_that_is_said_is_the_command_that_runs(data, capsys):
    assert main(["train", data, "--steps", "1", "--runs", "runs"]) == 0
    line = capsys.readouterr().err.splitlines()[0]
    command = shlex.split(line.rpartition("; ")[2])
    assert command[:5] == ["didact", "train", EXPECTED[data], "--data", data] and "recipe" in line
    assert Run.open("latest").metadata["recipe"] == EXPECTED[data]
    assert main([*command[1:], "--json"]) == 0                        # typed again


def test_a_target_decides():
    assert choose_recipe("series.csv", target="load").recipe == "forecast"
    assert choose_recipe("table.csv", target="bmi").recipe == "tabular"
    assert choose_recipe("reviews.csv", target="stars").options == {"text": "body"}
    assert choose_recipe("table.csv", text="sex").recipe == "fasttext"


def test_names_among_many_features_are_no_texts():
    """As in the Titanic's table, where each passenger's name is another."""
    frame = pd.DataFrame({f"f{i}": range(50) for i in range(6)} | {"survived": [0, 1] * 25})
    frame.insert(0, "name", [f"Mr. {i} of {i} and so on and on {i}" for i in range(50)])
    frame.to_csv("titanic.csv", index=False)
    assert choose_recipe("titanic.csv", target="survived").recipe == "tabular"


def test_few_images_are_transferred_where_the_weights_are_installed(monkeypatch):
    monkeypatch.setattr(_choose_recipe, "find_spec", lambda name: object())
    choice = choose_recipe("photos")
    assert choice.recipe == "transfer" and choice.options["weights"] == "lite0"
    assert "12 images of 2 classes, few" in choice.reason


def test_a_large_file_is_judged_by_its_head(monkeypatch):
    monkeypatch.setattr(_choose_recipe, "_HEAD_BYTES", 2000)
    assert choose_recipe("series.csv").recipe == "forecast"
    assert choose_recipe("table.csv").recipe == "tabular"


def test_from_python_and_by_show(capsys):
    run = didact.train(data="table.csv", target="bmi", steps=1)
    assert run.metadata["recipe"] == "tabular" and run.metadata["data"]["target"] == "bmi"
    assert main(["show", "table.csv", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["recipe"] == "tabular" and err.startswith("table.csv is a table of 11 columns")
    assert main(["train", "--data", "book.txt", "--steps", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recipe"] == "gpt"


@pytest.mark.parametrize(
    "words, expected",
    [
        ("train none.csv", "no recipe, dataset, file or folder named 'none.csv'; there is no such file"),
        ("train mpl", "no recipe named 'mpl'; did you mean 'mlp'?"),
        ("train photos/cat/0.png", "is one image: to train, give a folder of them, one subfolder per class"),
        ("train runs.zip", "no recipe, dataset, file or folder named 'runs.zip'; there is no such file"),
        ("train", "expects a recipe's name first"),
        ("train --steps 3", "expects a recipe's name first"),
        ("train table.csv --target none", "has no column 'none' to be the target"),
        ("train table.csv --kernel-size 3", "--kernel-size"),
    ],
)
def test_what_cannot_be_chosen_is_refused(words, expected, capsys):
    assert main(shlex.split(words)) == 2
    assert expected in capsys.readouterr().err.splitlines()[-1]


def test_data_in_python_need_a_name_or_a_path():
    with pytest.raises(UsageError, match="without a recipe, data is a name or a path"):
        didact.train()
