"""Examples of one's own data are named by where they are found: a file of the folder, a line of the table."""

import os

import numpy as np
import pytest
import torch
from PIL import Image

from didact import recipes, report
from didact.data.core import SPLITS
from didact.data.load import load, reload_data
from didact.run import Run
from didact.training.run_training import train

QUICK_OPTIONS = {"epochs": 1, "batch_size": 16, "device": "cpu"}


def write_gray_squares(root, classes=("dark", "light"), images_per_class=12):
    """Squares of one gray level each, which identifies the file."""
    for k, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(images_per_class):
            Image.new("L", (16, 16), 10 * i + 128 * k).save(root / name / f"{i:02d}.png")
    return root


def write_numbered_csv(path, rows=60):
    """Each value is its line; an empty line shifts the next ones, and a quoted cell takes two lines."""
    lines = ["note,x,y"] + [f'"a\nb",{3 + 2 * i},{i % 2}' for i in range(rows)]
    lines.insert(1, "")
    path.write_text("\n".join(lines))
    return path


def iter_names_and_inputs(data, part):
    split = data.split(part)
    return zip(data.locate_examples(part, range(len(split))), split.batch(torch.arange(len(split)))["x"], strict=True)


@pytest.mark.parametrize("streamed", [False, True])
def test_image_examples_are_named_by_file_in_every_split(tmp_path, monkeypatch, streamed):
    monkeypatch.setenv("DIDACT_RESIDENT_BYTES", "1" if streamed else "1000000")
    root = write_gray_squares(tmp_path / "squares")
    data, names = load(str(root)), set()
    for part in SPLITS:
        for name, x in iter_names_and_inputs(data, part):
            assert round(255 * float(x.mean())) == int(np.asarray(Image.open(root / name)).mean())
            names.add(name)
    assert names == {os.path.join(k, f"{i:02d}.png") for k in ("dark", "light") for i in range(12)}


def test_table_examples_are_named_by_their_first_line(tmp_path):
    data = load(str(write_numbered_csv(tmp_path / "own.csv")))
    value_by_name = {
        name: float(x[data.feature_names.index("x")])
        for part in SPLITS
        for name, x in iter_names_and_inputs(data, part)
    }
    assert value_by_name == {f"own.csv, line {line}": line for line in range(3, 123, 2)}
    reloaded_data = reload_data(data, {part: data.indices[part] for part in SPLITS})
    assert reloaded_data.locate_examples("test", range(3)) == data.locate_examples("test", range(3))


def test_text_and_pair_examples_are_named_by_line(tmp_path):
    texts = tmp_path / "texts.csv"
    texts.write_text("text,mood\n" + "".join(f"word{i} {'good' if i % 2 else 'bad'},{i % 2}\n" for i in range(40)))
    data = load(str(texts), text="text")
    assert data.locate_examples("test", [0]) == [f"texts.csv, line {int(data.indices['test'][0]) + 2}"]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("english\tfrench\n" + "".join(f"a{i}\tb{i}\n" for i in range(40)))
    data = load(str(pairs), accepts=("pairs",))
    assert data.locate_examples("test", [0]) == [f"pairs.tsv, line {int(data.indices['test'][0]) + 2}"]


def test_word_windows_have_no_example_names(tmp_path):
    texts = tmp_path / "texts.csv"
    texts.write_text("text,mood\n" + "".join(f"one two three four five six seven,{i % 2}\n" for i in range(200)))
    assert load(str(texts), text="text", accepts=("words",)).locate_examples("test", [0]) == []


def test_report_names_files_and_lines_when_rewritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_gray_squares(tmp_path / "squares")
    write_numbered_csv(tmp_path / "own.csv")
    for recipe, data, ending in ((recipes.cnn, "squares", ".png"), (recipes.mlp, "own.csv", "")):
        arguments = {"model": "lenet5", "augment": ()} if recipe is recipes.cnn else {"hidden": (4,)}
        run = train(recipe, data=data, **arguments, **QUICK_OPTIONS)
        names = run.example_names("worst")
        assert len(names) == len(run.load("examples")["worst"]) and all(name.endswith(ending) for name in names)
        page = report.write_report(Run.open(run.folder)).read_text()
        assert [f"<small>{name}</small>" for name in names if f"<small>{name}</small>" not in page] == []
        assert "test example " not in page


def test_examples_of_named_sets_are_numbered(tmp_path):
    run = train(recipes.mlp, data="iris", hidden=(4,), runs=str(tmp_path), **QUICK_OPTIONS)
    assert run.example_names("best") == [f"test example {row:,}" for row in run.load("examples")["best"].tolist()]
    assert "test example " in report.write_report(run).read_text()
