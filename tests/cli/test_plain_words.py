"""What is told while a run trains, in plain numbers and right plurals; and that `none` on the command line is heard."""

import io

import pytest
from PIL import Image
from rich.console import Console

from didact.cli.main import main
from didact.cli.predict import line
from didact.cli.progress import Screen, describe_health
from didact.cli.sample import show
from didact.cli.words import figure, number, parse
from didact.registry import RECIPES
from didact.run import Run
from didact.train.session import known_options


def told(**plan: int) -> str:
    """The lines before the first step."""
    paper = io.StringIO()
    Screen(Console(file=paper, width=200)).on_start({
        "recipe": "mlp", "data": {"name": "own", "kind": "table", "task": "binary"}, "health": {"splits": {}, "shape": [2], "notes": []},
        "layers": {"rows": [], "total": 0, "trainable": 0, "tied": 0}, "device": "cpu", "precision": "fp32", "settings": {"seed": 0},
        "plan": plan, "run": "runs/mlp/x",
    })
    return paper.getvalue()


@pytest.mark.parametrize(("plan", "words"), [
    ({"total": 1500, "epoch": 1, "batch": 128, "rows": 40}, "1,500 steps of 40 examples (1,500 epochs); run"),
    ({"total": 1, "epoch": 1, "batch": 1, "rows": 40}, "1 step of 1 example (1 epoch); run"),
    ({"total": 5, "epoch": 10, "batch": 8, "rows": 80}, "5 steps of 8 examples (0.5 epochs); run"),
    ({"total": 1_999_600, "epoch": 2000, "batch": 8, "rows": 16_000}, "(1,000 epochs)"),
    ({"total": 1, "epoch": 30_000, "batch": 8, "rows": 240_000}, "(less than 0.001 epochs)"),
])
def test_the_plan(plan, words):
    assert words in told(**plan)


def test_figures_have_no_powers_of_ten():
    assert [figure(x) for x in (0, 0.0333, 1, 12.25, 99.96, 999.6, 123_456)] == ["0", "0.0333", "1", "12.2", "100", "1,000", "123,456"]
    assert [figure(x, 4) for x in (0.5, 12.25, 999.96, 12_345.5)] == ["0.5", "12.25", "1000", "12,346"]


def test_numbers_keep_their_digits_below_ten_millions():
    assert [number(x) for x in (207_535.25, -14_041.4, 9_999_999, 12_345_678)] == ["207,535", "-14,041", "9,999,999", "1.235e+07"]
    assert [number(x) for x in (0, 0.97414, 9_999.5, 1.234e-5, None)] == ["0.0000", "0.9741", "9999.5000", "1.234e-05", "–"]


@pytest.mark.parametrize(("row", "words"), [
    ({"labels": ["comedy", "drama"]}, "labels comedy, drama"), ({"labels": []}, "labels none"), ({"draws": ["yes", "no"]}, "draws yes, no"),
    ({"draws": [1.5, 20_000.0]}, "draws 1.5000, 20,000"), ({"draws": [[1.0, 0.0], [0.0, 0.0]]}, "draws (1.0000, 0.0000), (0.0000, 0.0000)"),
])
def test_several_answers(row, words):
    assert line({"input": "a.csv", **row}) == f"a.csv:  {words}"


def test_what_is_computed_is_written_as_it_is_stated(capsys):
    assert main(["check", "C4.8"]) == 0
    out = capsys.readouterr().out
    assert out.count("5, 7") == 2 and "(5, 7)" not in out


@pytest.mark.parametrize(("task", "what"), [("multiclass", "examples"), ("segmentation", "pixels"), ("detection", "boxes")])
def test_one_class(task, what):
    lines = describe_health({"splits": {"train": 3}, "shape": [2], "task": task, "classes": {"a": 3}, "notes": []})
    assert lines[1] == f"1 class (training {what}): a 3"


@pytest.mark.parametrize(("result", "words"), [
    ({"n": 1}, "1 image in a.png"), ({"n": 2}, "2 images in a.png"), ({"n": 1, "columns": ["x"]}, "1 row in a.png"),
    ({"n": 1, "kept": "top"}, "1 way to go on from the top half in a.png"), ({"n": 3, "kept": "top"}, "3 ways to go on"),
    ({"n": 1, "interpolated": True}, "1 way between two codes in a.png"),
])
def test_what_was_drawn(capsys, result, words):
    show({"file": "a.png", **result})
    assert words in capsys.readouterr().out


def test_none_is_heard_where_the_default_is_a_number():
    known = known_options(RECIPES["diffusion"])
    given, _ = parse("train", known, ["--ema", "none", "--steps", "3"], about="")
    assert known["ema"].default is not None and given == {"ema": None, "steps": 3}


def test_a_folder_named_none_is_a_folder(here, capsys):
    assert main(["train", "mlp", "--data", "none", "--steps", "1"]) == 2
    assert "no data set, file or folder named 'none'" in capsys.readouterr().err
    for k in range(24):
        (here / "none" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 10 * k).save(here / "none" / "ab"[k % 2] / f"{k}.png")
    assert main(["train", "mlp", "--data", "none", "--hidden", "4", "--steps", "1", "--device", "cpu"]) == 0
    assert Run.open("mlp/latest").facts["data"]["source"]["path"] == str(here / "none")
