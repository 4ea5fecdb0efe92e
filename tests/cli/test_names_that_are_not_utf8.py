"""File and folder names of old archives are Latin-1: read, shown with the byte written out, and predicted from."""

import json
import os
from pathlib import Path

import pytest
from PIL import Image

from didact.cli.main import main

CAFE = os.fsdecode(b"caf\xe9")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="names are Unicode there")


@pytest.fixture
def in_folder(workdir):
    for k in range(12):
        for name in (CAFE, "tea"):
            Path("images", name).mkdir(parents=True, exist_ok=True)
            Image.new("L", (4, 4), 20 * k).save(f"images/{name}/{CAFE}{k}.png")
            Path("texts", name).mkdir(parents=True, exist_ok=True)
            Path(f"texts/{name}/{CAFE}{k}.txt").write_text(f"{name == 'tea'} {k} " * 9)
    Path(f"{CAFE}.csv").write_text("a,b,y\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(60)))


CASES = {
    "images": ("mlp", "images", f"images/{CAFE}/{CAFE}1.png"),
    "texts": ("fasttext", "texts", "a text"),
    "table": ("mlp", f"{CAFE}.csv", f"{CAFE}.csv"),
}


@pytest.mark.parametrize("case", CASES)
def test_train_predict_and_report(in_folder, case, capsys):
    recipe, data, given = CASES[case]
    assert main(["train", recipe, "--data", data, "--steps", "1"]) == 0
    shown = capsys.readouterr()
    assert "caf\\xe9" in shown.err and "\udce9" not in shown.out + shown.err
    assert main(["evaluate", "latest"]) == main(["report", "latest"]) == 0
    capsys.readouterr()
    assert main(["predict", "latest", given, "--json"]) == 0
    assert "\udce9" not in json.dumps(capsys.readouterr().out, ensure_ascii=False)


def test_compare_and_sweep(in_folder):
    assert main(["compare", f"{CAFE}.csv", "--folds", "2", "--recipes", "mlp", "--steps", "1", "--no-baselines"]) == 0
    assert main(["sweep", "mlp", "lr=0.1", "--data", f"{CAFE}.csv", "--steps", "1"]) == 0


def test_folder_of_runs_is_refused_before_training(in_folder, capsys):
    assert main(["train", "mlp", "--data", "iris", "--steps", "1", "--runs", CAFE]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("didact: --runs expects a path in UTF-8, got caf\\xe9/mlp")
    assert not Path(CAFE).exists()


@pytest.mark.parametrize("words", [["list"], ["show"], ["train"], ["train", "mlp", "--data"], ["check"], ["report"]])
def test_words_that_are_not_utf8_are_refused_in_one_line(words, workdir, capsys):
    assert main([*words, CAFE]) == 2
    assert capsys.readouterr().err.count("\n") == 1
