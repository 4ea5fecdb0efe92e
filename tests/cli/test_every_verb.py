"""Every command, for people and with --json, which is one document, alone on stdout."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated, Any

import pytest
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_digits

from didact.cli.main import VERBS, main
from didact.data.core import Data
from didact.objectives.abilities import ABILITIES
from didact.objectives.supervised import likelihood_for, make_supervised
from didact.optim.factory import make_optimizer
from didact.options import Range
from didact.recipes import mlp
from didact.registry import RECIPES, Recipe
from didact.training.experiment import Experiment
from didact.training.prepare import known_options
from helpers import data_zoo

RESULT_KEYS = {"recipe", "arguments", "run", "seconds", "validation", "test"}


@pytest.fixture(scope="module")
def zoo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verbs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        data_zoo.write_tables(folder)
        data_zoo.train_runs(folder)
    return folder


@pytest.fixture
def workdir(zoo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of small tables and runs to work in."""
    folder = Path(shutil.copytree(zoo_folder, tmp_path / "here", symlinks=True))
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DIDACT_DATA", raising=False)
    return folder


@pytest.fixture
def run_cli(capsys):
    """Run a command line that must succeed; its stdout."""
    def run(words: str, *, quiet: bool = True) -> str:
        assert main(shlex.split(words)) == 0
        out, err = capsys.readouterr()
        assert not quiet or err == ""
        return out
    return run


@pytest.fixture
def run_cli_json(run_cli):
    """The same with --json: the document, which must be all of stdout."""
    def run(words: str, *, quiet: bool = True) -> Any:
        out = run_cli(f"{words} --json", quiet=quiet)
        assert out.endswith("\n") and "NaN" not in out
        return json.loads(out)  # fails on a second document
    return run


KINDS = ("supervised", "self-supervised", "generative", "language", "translation", "tagging")


def test_list_prints_every_recipe(run_cli, run_cli_json, workdir):
    rows = run_cli_json("list")
    assert {row["name"] for row in rows} == set(RECIPES)
    for row in rows:
        assert row["kind"] in KINDS and row["chapter"] and row["summary"]
        assert row["sources"]                                             # which they are: tests/citations
        assert set(row["abilities"]) <= set(ABILITIES) and (row["abilities"] or row["kind"] == "language")
    text = run_cli("list")
    assert all(row["name"] in text and row["summary"] in text and row["sources"][0] in text for row in rows)
    assert max(map(len, text.splitlines())) <= 100, "a recipe is one line, and its sources are folded"


def test_list_prints_every_dataset(run_cli, run_cli_json, workdir):
    rows = {row["name"]: row for row in run_cli_json("list --data")}
    assert rows["digits"] == {**rows["digits"], "kind": "images", "task": "multiclass", "available": True}
    assert rows["mnist"]["license"] and not rows["iris"]["summary"].endswith("\n")
    text = run_cli("list --data")
    assert all(name in text for name in rows)


# those that learn from a table and whose layers are torch's own
TABLE_RECIPES = sorted(
    name for name, recipe in RECIPES.items() if "table" in recipe.accepts and "dtype" not in recipe.options
)


@pytest.mark.parametrize("name", TABLE_RECIPES)
def test_show_lists_options_splits_and_parameters(run_cli, run_cli_json, workdir, name):
    description = run_cli_json(
        f"show {name} --data {'numbers.csv' if 'regression' in RECIPES[name].tasks else 'own.csv'}"
    )
    assert description["recipe"] == name
    assert description["health"]["splits"] == {"train": 42, "validation": 9, "test": 9}
    assert {o["flag"] for o in description["options"]} == {o.flag for o in RECIPES[name].options.values()}
    weights = sum(row["parameters"] for row in description["layers"]["rows"])
    assert description["layers"]["total"] == description["layers"]["trainable"] == weights > 0
    text = run_cli(f"show {name} --data {'numbers.csv' if 'regression' in RECIPES[name].tasks else 'own.csv'}")
    assert f"{weights:,} parameters" in text and "--lr" in text and description["sources"][0] in text


def test_evaluate_repeats_the_scores_of_train(run_cli, run_cli_json, workdir):
    train_result = run_cli_json("train mlp --data own.csv --hidden 8 --epochs 3 --seed 4", quiet=False)
    assert train_result.keys() >= RESULT_KEYS
    assert (
        train_result["recipe"] == "mlp"
        and train_result["arguments"]["hidden"] == [8]
        and train_result["arguments"]["epochs"] == 3
    )
    run = Path(train_result["run"])
    assert {f.name for f in run.iterdir()} >= {
        "run.json", "metrics.jsonl", "model.safetensors", "state.safetensors", "indices.safetensors", "report.html"}
    assert Path(train_result["report"]) == run / "report.html"
    evaluate_result = run_cli_json(f"evaluate {run}")
    assert evaluate_result.keys() >= RESULT_KEYS and evaluate_result["arguments"] == train_result["arguments"]
    for split in ("validation", "test"):
        assert evaluate_result[split] == pytest.approx(train_result[split], rel=1e-5), split
        assert 0 <= evaluate_result[split]["accuracy"] <= 1 < evaluate_result["seconds"] + 1.1
    text = run_cli("evaluate latest")
    assert f"accuracy {evaluate_result['test']['accuracy']:.4f}" in text and text.startswith("validation")
    rerun = run_cli_json("train mlp --data own.csv --hidden 8 --epochs 3 --seed 4", quiet=False)
    assert rerun["test"] == train_result["test"] and rerun["run"] != train_result["run"]


def test_train_prints_splits_layers_and_paths(workdir, capsys):
    assert main(shlex.split("train mlp --data own.csv --hidden 8 --epochs 5")) == 0
    out, err = capsys.readouterr()
    assert "42 train, 9 validation, 9 test" in err and "2 classes" in err and "target 'sold'" in err
    assert "9 validation and 9 test examples also occur in training" in err
    assert "network.hidden.0" in err and "41 parameters, 41 trainable, 0 tied" in err   # 3·8 + 8 + 8·1 + 1
    assert "device cpu" in err and "precision fp32" in err and "expected:" in err
    firsts = ["test", "class", "logistic", "gradient", "run", "report"]  # baselines under the test metrics
    assert [line.split()[0] for line in out.splitlines()] == firsts
    assert out.splitlines()[4].split()[1] in err


def test_resume_finishes_an_interrupted_run(run_cli, run_cli_json, workdir):
    result = run_cli_json("resume runs/mlp/cut", quiet=False)
    assert result.keys() >= RESULT_KEYS and result["steps"] == 3 * 6 and result["stop_reason"] == "budget"
    assert run_cli("resume mlp/half", quiet=False).startswith("test ")


def test_predict_reads_image_files(run_cli_json, run_cli, workdir):
    """Test digits written as image files are read back as what they were; larger ones are made small again."""
    run = run_cli_json("train mlp --data digits --hidden 64 --epochs 12 --batch-size 64", quiet=False)["run"]
    rows = load_file(f"{run}/indices.safetensors")["test"][:40].tolist()
    digits = load_digits()
    for i in rows:
        levels = (digits.images[i] * 255 / 16).round().astype("uint8")
        Image.fromarray(levels).resize((32, 32), Image.Resampling.NEAREST).save(f"{i}.png")
    predictions = run_cli_json(f"predict {run} " + " ".join(f"{i}.png" for i in rows))
    assert [row["input"] for row in predictions] == [f"{i}.png" for i in rows]
    assert sum(row["label"] == str(digits.target[i]) for row, i in zip(predictions, rows, strict=True)) >= 36
    for row in predictions:
        assert next(iter(row["probabilities"])) == row["label"] and row["probability"] == max(
            row["probabilities"].values()
        )
    text = run_cli(f"predict {run} {rows[0]}.png")
    assert text.startswith(f"{rows[0]}.png:  label {predictions[0]['label']}  probability ") and text.count("\n") == 1


@pytest.mark.parametrize(("run", "table", "target"), [
    ("table", "own.csv", "sold"), ("table", "--from own.csv", "sold"), ("texts", "--from texts.csv", "mood"),
])
def test_predict_on_a_csv_matches_the_test_accuracy(run_cli_json, workdir, run, table, target):
    predictions = run_cli_json(f"predict runs/mlp/{run} {table}")
    table = table.removeprefix("--from ")
    truth = [line.split(",")[-1] for line in Path(table).read_text().splitlines()[1:]]
    assert [row["input"] for row in predictions] == [f"{table}:{line}" for line in range(2, len(truth) + 2)]
    test = load_file(f"runs/mlp/{run}/indices.safetensors")["test"].tolist()
    accuracy = sum(predictions[i]["label"] == truth[i] for i in test) / len(test)
    metadata = json.loads(Path(f"runs/mlp/{run}/run.json").read_text())
    assert accuracy == pytest.approx(metadata["test"]["accuracy"]) and metadata["data"]["target"] == target


def test_predict_reads_rows_numbers_and_texts(run_cli_json, run_cli, workdir):
    first = Path("own.csv").read_text().splitlines()[1].split(",")
    (row,) = run_cli_json(f"predict runs/mlp/table size={first[0]},colour={first[1]}")
    assert row["probabilities"] == pytest.approx(run_cli_json("predict runs/mlp/table own.csv")[0]["probabilities"])
    assert sum(row["probabilities"].values()) == pytest.approx(1)
    (price,) = run_cli_json("predict runs/mlp/price a=3,b=4.5")
    assert set(price) == {"input", "price"} and isinstance(price["price"], float)
    (text,) = run_cli_json("predict runs/mlp/texts 'a good film'")
    Path("note.txt").write_text("A good film!\n")
    assert run_cli_json("predict runs/mlp/texts --from note.txt")[0]["probabilities"] == text["probabilities"]
    assert text["label"] in ("pos", "neg") and "label" in run_cli("predict runs/mlp/texts 'a good film'")


def test_predict_with_mc_passes_and_samples(run_cli_json, run_cli, workdir):
    plain, = run_cli_json("predict runs/mlp/table size=1,colour=red")
    (row,) = run_cli_json("predict runs/mlp/table size=1,colour=red --mc-passes 200 --num-samples 50")
    assert "std" not in plain and 0 < row["std"] < 0.5
    assert len(row["samples"]) == 50 and set(row["samples"]) <= {"yes", "no"}
    (price,) = run_cli_json("predict runs/mlp/price a=3,b=4.5 --num-samples 4")
    assert len(set(price["samples"])) == 4
    assert "std " in run_cli("predict runs/mlp/table size=1,colour=red --mc-passes 5")


def test_report_of_one_run_and_of_several(run_cli_json, run_cli, workdir):
    result = run_cli_json("report runs/mlp/table")
    assert result == {"report": "runs/mlp/table/report.html", "runs": ["runs/mlp/table"]}
    page = Path(result["report"]).read_text()
    assert page.lower().startswith("<!doctype html") and "http-equiv" not in page and 'src="http' not in page
    assert run_cli("report mlp/table mlp/plain --output both.html") == "both.html\n"
    comparison = Path("both.html").read_text()
    assert "2 runs" in comparison and "dropout" in comparison   # what differs between them
    assert run_cli_json("report runs/mlp/table runs/mlp/plain")["report"] == "comparison.html"


def test_sweep_trains_each_cell_once(run_cli_json, run_cli, workdir):
    words = "sweep mlp dropout=0,0.3 lr=1e-3,1e-2 --data own.csv --epochs 1 --hidden 4 --metric f1"
    before = set(Path("runs/mlp").iterdir())
    result = run_cli_json(words, quiet=False)
    assert result["axes"] == {"dropout": [0, 0.3], "lr": [1e-3, 1e-2]} and result["metric"] == "f1"
    assert [(row["dropout"], row["lr"]) for row in result["table"]] == [(0, 1e-3), (0, 1e-2), (0.3, 1e-3), (0.3, 1e-2)]
    new_runs = set(Path("runs/mlp").iterdir()) - before
    assert len(new_runs) == 4 and {str(run) for run in new_runs} == {row["run"] for row in result["runs"]}
    assert "<svg" in Path(result["report"]).read_text()
    rerun = run_cli_json(words, quiet=False)
    assert rerun == result and set(Path("runs/mlp").iterdir()) - before == new_runs
    text = run_cli(words, quiet=False)
    assert (
        " ".join(text.splitlines()[0].split()) == "dropout lr validation f1 ± test f1 ± seeds seconds"
        and len(text.splitlines()) == 6
    )


def test_sweep_continues_after_a_diverged_cell(run_cli_json, workdir):
    words = "sweep mlp lr=1e-2,1e18 --optimizer sgd --data own.csv --epochs 4 --hidden 4 --activation relu"
    result = run_cli_json(words, quiet=False)
    assert [row["diverged"] for row in result["table"]] == [0, 1]
    assert result["table"][1]["validation"] is None and "not a finite number at step" in result["runs"][1]["diverged"]
    assert Path(result["runs"][1]["run"]).is_dir()
    assert run_cli_json(words, quiet=False) == result, "a diverged cell is an answer: it is not trained again"


def test_sweep_resumes_where_it_was_interrupted(run_cli_json, workdir):
    words = "sweep mlp lr=1e-3,1e-2 --data own.csv --epochs 1 --hidden 4"
    result = run_cli_json(words, quiet=False)
    (lines,) = Path("runs/sweeps").glob("*/sweep.jsonl")
    lines.write_text(lines.read_text().splitlines()[0] + "\n")
    rerun = run_cli_json(words, quiet=False)
    assert rerun["runs"][0] == result["runs"][0] and rerun["runs"][1]["run"] != result["runs"][1]["run"]
    assert rerun["runs"][1]["test"] == result["runs"][1]["test"]


def test_doctor_lists_its_findings(run_cli_json, run_cli, workdir):
    result = run_cli_json("doctor")
    assert result["ok"] is all(row["ok"] for row in result["findings"])
    names = {row["check"] for row in result["findings"]}
    assert names >= {
        "python",
        "torch",
        "cpu",
        "memory",
        "DIDACT_DATA",
        "data mnist",
        "runs folder",
        "pandas",
        "tensorboardX",
    }
    assert all(row["check"] in run_cli("doctor") for row in result["findings"])


def split_option_help(text: str) -> dict[str, str]:
    """The help text of each option by its flag; words that are broken at a hyphen are joined."""
    parts = re.split(r"\n  (?=-)", re.sub(r"(?<=\w-)\n +(?=\w)", "", text.partition("\nOptions:")[2]))
    return {part.split()[0].split(",")[0]: " ".join(part.split()) for part in parts[1:]}


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_help_shows_type_default_and_description_of_every_option(run_cli, name):
    help_blocks = split_option_help(run_cli(f"train {name} --help"))
    for option in known_options(RECIPES[name]).values():
        block = help_blocks[f"--{option.flag}"]
        assert option.help and option.help in block
        assert option.kind is bool or option.value_syntax in block or " | ".join(map(str, option.choices)) in block
        assert option.default in (None, ()) or f"[default: {option.default_text}]" in block, block


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_alias_is_a_flag_of_one_option(run_cli, name):
    options = known_options(RECIPES[name])
    names = [known_name for option in options.values() for known_name in (option.name, *option.aliases)]
    assert len(names) == len(set(names))
    help_text = run_cli(f"train {name} --help")
    for option in options.values():
        assert all(f"--{alias.replace('_', '-')}" in help_text for alias in option.aliases if len(alias) > 1)


def test_signature_defines_the_command_line(run_cli, run_cli_json, workdir, monkeypatch):
    def toy(data: Data, *, knobs: Annotated[int, Range(1, 9), "how many knobs"] = 3, steps: int = 2) -> Experiment:
        """A recipe that is written in this test alone."""
        likelihood = likelihood_for(data)
        network = mlp(data, hidden=(knobs,)).objective.network
        return Experiment(
            data=data,
            objective=make_supervised(network, likelihood),
            optimizer=make_optimizer("sgd"),
            steps=steps,
            batch_size=8,
        )

    monkeypatch.setitem(
        RECIPES, "toy", Recipe("toy", toy, "iris", ("table",), (), "supervised", "x", ("Gaba 1",), ("classify",))
    )
    assert (
        split_option_help(run_cli("train toy --help"))["--knobs"]
        == "--knobs int from 1 to 9 how many knobs [default: 3]"
    )
    assert run_cli_json("train toy --knobs 5", quiet=False)["arguments"] == {"knobs": 5, "steps": 2}
    assert [row["knobs"] for row in run_cli_json("sweep toy knobs=1,2", quiet=False)["table"]] == [1, 2]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(run_cli, verb):
    text = run_cli(f"{verb} --help")
    assert text.startswith(f"Usage: didact {verb}") and len(text.splitlines()) > 3


def test_help_lists_every_verb(run_cli):
    text = run_cli("--help")
    assert all(
        f"{verb} " in text and purpose.split(",")[0] in " ".join(text.split()) for verb, purpose in VERBS.items()
    )
    assert run_cli("") == text
    assert re.fullmatch(r"didact \d+\.\d+\.\d+\n", run_cli("--version"))


def run_python(code: str) -> str:
    """The output of a fresh interpreter, with compiled modules in a cache, as in everyday use."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_help_is_fast_and_imports_no_torch():
    modules = run_python(
        "import sys; from didact.cli.main import main; main(['--help']); print(sorted(sys.modules))"
    ).splitlines()[-1]
    assert "'click'" in modules
    assert not [
        name for name in ("torch", "numpy", "pandas", "sklearn", "matplotlib", "rich") if f"'{name}'" in modules
    ]
    seconds = []
    for _ in range(5):
        start = perf_counter()
        subprocess.run([sys.executable, "-m", "didact", "--help"], capture_output=True, check=True)
        seconds.append(perf_counter() - start)
    assert median(seconds) < 0.3


def test_import_costs_a_quarter_of_torch_at_most():
    code = """if 1:
        from time import process_time as clock    # of this process alone: others share the cores
        a = clock()
        import didact
        b = clock()
        import torch
        c = clock()
        didact.recipes, didact.fit, didact.load, didact.train, didact.evaluate, didact.resume
        didact.predict, didact.report, didact.Run
        d = clock()
        import sys
        assert not {"pandas", "sklearn", "matplotlib", "PIL", "rich", "click"} & sys.modules.keys()
        print((b - a + d - c) / (c - b), (b - a) / (c - b))
    """
    run_python(code)  # compiles
    shares = [tuple(map(float, run_python(code).split())) for _ in range(6)]  # the least: others use the cores too
    assert min(full_share for full_share, _ in shares) < 0.25  # every recipe and every family of networks
    assert min(package_share for _, package_share in shares) < 0.05
