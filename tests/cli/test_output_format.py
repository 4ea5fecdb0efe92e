"""Numbers, plurals and predictions as they are printed; `none` as a value on the command line."""

import io

import pytest
from PIL import Image
from rich.console import Console

from didact.cli.main import main
from didact.cli.options import format_metric, format_short, parse_options
from didact.cli.progress import TrainingProgress, describe_health
from didact.cli.verbs.predict import format_prediction
from didact.cli.verbs.sample import show_samples
from didact.registry import RECIPES
from didact.run import Run
from didact.training.prepare import known_options


def print_plan(**plan: int) -> str:
    """The lines before the first step."""
    output = io.StringIO()
    TrainingProgress(Console(file=output, width=200)).on_start(
        {
            "recipe": "mlp",
            "data": {"name": "own", "kind": "table", "task": "binary"},
            "health": {"splits": {}, "shape": [2], "notes": []},
            "layers": {"rows": [], "total": 0, "trainable": 0, "tied": 0},
            "device": "cpu",
            "precision": "fp32",
            "settings": {"seed": 0},
            "plan": plan,
            "run": "runs/mlp/x",
        }
    )
    return output.getvalue()


@pytest.mark.parametrize(("plan", "words"), [
    ((1500, 1, 128, 40), "1,500 steps of 40 examples (1,500 epochs); run"),
    ((1, 1, 1, 40), "1 step of 1 example (1 epoch); run"),
    ((5, 10, 8, 80), "5 steps of 8 examples (0.5 epochs); run"),
    ((1_999_600, 2000, 8, 16_000), "(1,000 epochs)"),
    ((1, 30_000, 8, 240_000), "(less than 0.001 epochs)"),
])
def test_plan_is_printed_in_plain_numbers(plan, words):
    names = ("total_rounds", "rounds_per_epoch", "batch_size", "num_examples")
    assert words in print_plan(**dict(zip(names, plan, strict=True)))


def test_format_short_has_no_powers_of_ten():
    assert [format_short(x) for x in (0, 0.0333, 1, 12.25, 99.96, 999.6, 123_456)] == [
        "0",
        "0.0333",
        "1",
        "12.2",
        "100",
        "1,000",
        "123,456",
    ]
    assert [format_short(x, 4) for x in (0.5, 12.25, 999.96, 12_345.5)] == ["0.5", "12.25", "1000", "12,346"]


def test_format_metric_keeps_digits_below_ten_million():
    assert [format_metric(x) for x in (207_535.25, -14_041.4, 9_999_999, 12_345_678)] == [
        "207,535",
        "-14,041",
        "9,999,999",
        "1.235e+07",
    ]
    assert [format_metric(x) for x in (0, 0.97414, 9_999.5, 1.234e-5, None)] == [
        "0.0000",
        "0.9741",
        "9999.5000",
        "1.234e-05",
        "–",
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"labels": ["comedy", "drama"]}, "labels comedy, drama"),
        ({"labels": []}, "labels none"),
        ({"samples": ["yes", "no"]}, "samples yes, no"),
        ({"samples": [1.5, 20_000.0]}, "samples 1.5000, 20,000"),
        ({"samples": [[1.0, 0.0], [0.0, 0.0]]}, "samples (1.0000, 0.0000), (0.0000, 0.0000)"),
    ],
)
def test_format_prediction_of_several_values(row, words):
    assert format_prediction({"input": "a.csv", **row}) == f"a.csv:  {words}"


def test_check_prints_computed_values_as_stated(capsys):
    assert main(["check", "C4.8"]) == 0
    out = capsys.readouterr().out
    assert out.count("5, 7") == 2 and "(5, 7)" not in out


@pytest.mark.parametrize(
    ("task", "unit"), [("multiclass", "examples"), ("segmentation", "pixels"), ("detection", "boxes")]
)
def test_class_count_of_one_is_singular(task, unit):
    lines = describe_health({"splits": {"train": 3}, "shape": [2], "task": task, "classes": {"a": 3}, "notes": []})
    assert lines[1] == f"1 class (training {unit}): a 3"


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"num_samples": 1}, "1 image in a.png"),
        ({"num_samples": 2}, "2 images in a.png"),
        ({"num_samples": 1, "columns": ["x"]}, "1 row in a.png"),
        ({"num_samples": 1, "inpainted": "x.png", "keep": "top"}, "1 completion of the top half of x.png in a.png"),
        ({"num_samples": 3, "inpainted": "x.png", "keep": "top"}, "3 completions"),
        ({"num_samples": 1, "interpolated": True}, "1 interpolation between two codes in a.png"),
    ],
)
def test_show_samples_counts_in_singular_and_plural(capsys, result, words):
    show_samples({"file": "a.png", **result})
    assert words in capsys.readouterr().out


def test_parse_options_reads_none_where_the_default_is_a_number():
    options = known_options(RECIPES["diffusion"])
    values, _ = parse_options("train", options, ["--ema", "none", "--steps", "3"], about="")
    assert options["ema"].default is not None and values == {"ema": None, "steps": 3}


def test_data_named_none_is_a_folder(workdir, capsys):
    assert main(["train", "mlp", "--data", "none", "--steps", "1"]) == 2
    assert "no dataset, file or folder named 'none'" in capsys.readouterr().err
    for k in range(24):
        (workdir / "none" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 10 * k).save(workdir / "none" / "ab"[k % 2] / f"{k}.png")
    assert main(["train", "mlp", "--data", "none", "--hidden", "4", "--steps", "1", "--device", "cpu"]) == 0
    assert Run.open("mlp/latest").metadata["data"]["source"]["path"] == str(workdir / "none")
