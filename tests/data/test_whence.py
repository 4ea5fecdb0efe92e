"""Examples of one's own data are called what a person finds them by: a file inside the folder, a line of the table."""

import os

import numpy as np
import pytest
import torch
from PIL import Image

from didact import recipes, report
from didact.data.core import SPLITS
from didact.data.load import load, reload
from didact.run import Run
from didact.train.session import train

QUICK = {"epochs": 1, "batch": 16, "device": "cpu"}


def painted(root, classes=("dark", "light"), each=12):
    """Squares of one grey level each, so that a picture says which file it is of."""
    for k, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(each):
            Image.new("L", (16, 16), 10 * i + 128 * k).save(root / name / f"{i:02d}.png")
    return root


def written(path, rows=60):
    """Each value tells its line; an empty line shifts those behind it, and a cell in quotation marks takes two."""
    lines = ["note,x,y"] + [f'"a\nb",{3 + 2 * i},{i % 2}' for i in range(rows)]
    lines.insert(1, "")
    path.write_text("\n".join(lines))
    return path


def names_and_inputs(data, part):
    split = data.split(part)
    return zip(data.called(part, range(len(split))), split.batch(torch.arange(len(split)))["x"], strict=True)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_image_is_called_by_its_file_in_whatever_split_it_lies(tmp_path, monkeypatch, streamed):
    monkeypatch.setenv("DIDACT_RESIDENT_BYTES", "1" if streamed else "1000000")
    root = painted(tmp_path / "squares")
    data, seen = load(str(root)), set()
    for part in SPLITS:
        for name, x in names_and_inputs(data, part):
            assert round(255 * float(x.mean())) == int(np.asarray(Image.open(root / name)).mean())
            seen.add(name)
    assert seen == {os.path.join(k, f"{i:02d}.png") for k in ("dark", "light") for i in range(12)}


def test_a_row_is_called_by_the_line_that_it_begins_on(tmp_path):
    data = load(str(written(tmp_path / "own.csv")))
    found = {name: float(x[data.names.index("x")]) for part in SPLITS for name, x in names_and_inputs(data, part)}
    assert found == {f"own.csv, line {line}": line for line in range(3, 123, 2)}
    again = reload(data, {part: data.indices[part] for part in SPLITS})
    assert again.called("test", range(3)) == data.called("test", range(3))


def test_texts_and_pairs_are_called_by_their_line(tmp_path):
    texts = tmp_path / "texts.csv"
    texts.write_text("text,mood\n" + "".join(f"word{i} {'good' if i % 2 else 'bad'},{i % 2}\n" for i in range(40)))
    data = load(str(texts), text="text")
    assert data.called("test", [0]) == [f"texts.csv, line {int(data.indices['test'][0]) + 2}"]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("english\tfrench\n" + "".join(f"a{i}\tb{i}\n" for i in range(40)))
    data = load(str(pairs), accepts=("pairs",))
    assert data.called("test", [0]) == [f"pairs.tsv, line {int(data.indices['test'][0]) + 2}"]


def test_words_of_a_text_are_no_rows(tmp_path):
    texts = tmp_path / "texts.csv"
    texts.write_text("text,mood\n" + "".join(f"one two three four five six seven,{i % 2}\n" for i in range(200)))
    assert load(str(texts), text="text", accepts=("words",)).called("test", [0]) == []


def test_reports_name_files_and_lines_also_when_written_anew(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    painted(tmp_path / "squares")
    written(tmp_path / "own.csv")
    for recipe, data, ending in ((recipes.cnn, "squares", ".png"), (recipes.mlp, "own.csv", "")):
        given = {"model": "lenet5", "augment": ()} if recipe is recipes.cnn else {"hidden": (4,)}
        run = train(recipe, data=data, **given, **QUICK)
        names = run.called("worst")
        assert len(names) == len(run.load("examples")["worst"]) and all(name.endswith(ending) for name in names)
        page = report.write(Run.open(run.folder)).read_text()
        assert [f"<small>{name}</small>" for name in names if f"<small>{name}</small>" not in page] == []
        assert "test example " not in page


def test_a_set_known_by_name_keeps_its_numbers(tmp_path):
    run = train(recipes.mlp, data="iris", hidden=(4,), runs=str(tmp_path), **QUICK)
    assert run.called("best") == [f"test example {row:,}" for row in run.load("examples")["best"].tolist()]
    assert "test example " in report.write(run).read_text()
