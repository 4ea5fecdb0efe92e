"""Every verb, as people read it and as programs do: `--json` is one document, alone on stdout."""

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
import workshop
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_digits

from didact.cli.main import VERBS, main
from didact.data.core import Data
from didact.objectives.abilities import ABILITIES
from didact.objectives.supervised import likelihood_of, supervised
from didact.optim.named import make
from didact.options import Range
from didact.recipes import mlp
from didact.registry import RECIPES, Recipe
from didact.train.experiment import Experiment
from didact.train.session import known_options

KEYS = {"recipe", "arguments", "run", "seconds", "validation", "test"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("verbs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        workshop.tables(where)
        workshop.runs(where)
    return where


@pytest.fixture
def place(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of small tables and runs of one's own to work in."""
    where = Path(shutil.copytree(built, tmp_path / "here", symlinks=True))
    monkeypatch.chdir(where)
    monkeypatch.delenv("DIDACT_DATA", raising=False)
    return where


@pytest.fixture
def said(capsys):
    """Run a command line that must succeed; what stands on stdout."""
    def run(words: str, *, quiet: bool = True) -> str:
        assert main(shlex.split(words)) == 0
        out, err = capsys.readouterr()
        assert not quiet or err == ""
        return out
    return run


@pytest.fixture
def told(said):
    """The same with --json: the document, which must be all of stdout."""
    def run(words: str, *, quiet: bool = True) -> Any:
        out = said(f"{words} --json", quiet=quiet)
        assert out.endswith("\n") and "NaN" not in out
        return json.loads(out)  # fails on a second document
    return run


KINDS = ("supervised", "self-supervised", "generative", "language", "translation", "tagging")


def test_list(said, told, place):
    rows = told("list")
    assert {row["name"] for row in rows} == set(RECIPES)
    for row in rows:
        assert row["kind"] in KINDS and row["chapter"] and row["summary"]
        assert row["sources"]                                             # which they are: tests/citations
        assert set(row["abilities"]) <= set(ABILITIES) and (row["abilities"] or row["kind"] == "language")
    text = said("list")
    assert all(row["name"] in text and row["summary"] in text and row["sources"][0] in text for row in rows)


def test_list_of_data(said, told, place):
    rows = {row["name"]: row for row in told("list --data")}
    assert rows["digits"] == {**rows["digits"], "kind": "images", "task": "multiclass", "at_hand": True}
    assert rows["mnist"]["licence"] and not rows["iris"]["summary"].endswith("\n")
    text = said("list --data")
    assert all(name in text for name in rows)


# those that learn from a table and whose layers are torch's own
SHOWN = sorted(name for name, recipe in RECIPES.items() if "table" in recipe.accepts and "dtype" not in recipe.options)


@pytest.mark.parametrize("name", SHOWN)
def test_show(said, told, place, name):
    facts = told(f"show {name} --data {'numbers.csv' if 'regression' in RECIPES[name].tasks else 'own.csv'}")
    assert facts["recipe"] == name and facts["health"]["splits"] == {"train": 42, "validation": 9, "test": 9}
    assert {o["flag"] for o in facts["options"]} == {o.flag for o in RECIPES[name].options.values()}
    weights = sum(row["parameters"] for row in facts["layers"]["rows"])
    assert facts["layers"]["total"] == facts["layers"]["trainable"] == weights > 0
    text = said(f"show {name} --data {'numbers.csv' if 'regression' in RECIPES[name].tasks else 'own.csv'}")
    assert f"{weights:,} parameters" in text and "--lr" in text and facts["sources"][0] in text


def test_train_and_evaluate_agree(said, told, place):
    trained = told("train mlp --data own.csv --hidden 8 --epochs 3 --seed 4", quiet=False)
    assert trained.keys() >= KEYS
    assert trained["recipe"] == "mlp" and trained["arguments"]["hidden"] == [8] and trained["arguments"]["epochs"] == 3
    run = Path(trained["run"])
    assert {f.name for f in run.iterdir()} >= {
        "run.json", "metrics.jsonl", "model.safetensors", "state.safetensors", "indices.safetensors", "report.html"}
    assert Path(trained["report"]) == run / "report.html"
    evaluated = told(f"evaluate {run}")
    assert evaluated.keys() >= KEYS and evaluated["arguments"] == trained["arguments"]
    for split in ("validation", "test"):
        assert evaluated[split] == pytest.approx(trained[split], rel=1e-5), split
        assert 0 <= evaluated[split]["accuracy"] <= 1 < evaluated["seconds"] + 1.1
    text = said("evaluate latest")
    assert f"accuracy {evaluated['test']['accuracy']:.4f}" in text and text.startswith("validation")
    again = told("train mlp --data own.csv --hidden 8 --epochs 3 --seed 4", quiet=False)
    assert again["test"] == trained["test"] and again["run"] != trained["run"]


def test_train_tells_people_what_it_does(place, capsys):
    assert main(shlex.split("train mlp --data own.csv --hidden 8 --epochs 5")) == 0
    out, err = capsys.readouterr()
    assert "42 train, 9 validation, 9 test" in err and "2 classes" in err and "target 'sold'" in err
    assert "9 validation and 9 test examples also stand in training" in err
    assert "network.hidden.0" in err and "41 parameters, 41 trainable, 0 tied" in err   # 3·8 + 8 + 8·1 + 1
    assert "device cpu" in err and "precision fp32" in err and "expected:" in err
    assert [line.split()[0] for line in out.splitlines()] == ["test", "run", "report"]
    assert out.splitlines()[1].split()[1] in err


def test_resume(said, told, place):
    ended = told("resume runs/mlp/cut", quiet=False)
    assert ended.keys() >= KEYS and ended["steps"] == 3 * 6 and ended["stopped"] == "budget"
    assert said("resume mlp/half", quiet=False).startswith("test ")


def test_predict_an_image(told, said, place):
    """Test digits written as image files are read back as what they were; larger ones are made small again."""
    run = told("train mlp --data digits --hidden 64 --epochs 12 --batch 64", quiet=False)["run"]
    rows = load_file(f"{run}/indices.safetensors")["test"][:40].tolist()
    digits = load_digits()
    for i in rows:
        levels = (digits.images[i] * 255 / 16).round().astype("uint8")
        Image.fromarray(levels).resize((32, 32), Image.Resampling.NEAREST).save(f"{i}.png")
    found = told(f"predict {run} " + " ".join(f"{i}.png" for i in rows))
    assert [row["input"] for row in found] == [f"{i}.png" for i in rows]
    assert sum(row["label"] == str(digits.target[i]) for row, i in zip(found, rows, strict=True)) >= 36
    for row in found:
        assert next(iter(row["probabilities"])) == row["label"] and row["probability"] == max(row["probabilities"].values())
    text = said(f"predict {run} {rows[0]}.png")
    assert text.startswith(f"{rows[0]}.png:  label {found[0]['label']}  probability ") and text.count("\n") == 1


@pytest.mark.parametrize(("run", "table", "answer"), [
    ("table", "own.csv", "sold"), ("table", "--from own.csv", "sold"), ("texts", "--from texts.csv", "mood"),
])
def test_predict_a_whole_csv_as_the_test_split_was_judged(told, place, run, table, answer):
    found = told(f"predict runs/mlp/{run} {table}")
    table = table.removeprefix("--from ")
    truth = [line.split(",")[-1] for line in Path(table).read_text().splitlines()[1:]]
    assert [row["input"] for row in found] == [f"{table}:{line}" for line in range(2, len(truth) + 2)]
    test = load_file(f"runs/mlp/{run}/indices.safetensors")["test"].tolist()
    right = sum(found[i]["label"] == truth[i] for i in test) / len(test)
    facts = json.loads(Path(f"runs/mlp/{run}/run.json").read_text())
    assert right == pytest.approx(facts["test"]["accuracy"]) and facts["data"]["target"] == answer


def test_predict_a_row_a_number_and_a_text(told, said, place):
    first = Path("own.csv").read_text().splitlines()[1].split(",")
    (row,) = told(f"predict runs/mlp/table size={first[0]},colour={first[1]}")
    assert row["probabilities"] == pytest.approx(told("predict runs/mlp/table own.csv")[0]["probabilities"])
    assert sum(row["probabilities"].values()) == pytest.approx(1)
    (price,) = told("predict runs/mlp/price a=3,b=4.5")
    assert set(price) == {"input", "price"} and isinstance(price["price"], float)
    (text,) = told("predict runs/mlp/texts 'a good film'")
    Path("note.txt").write_text("A good film!\n")
    assert told("predict runs/mlp/texts --from note.txt")[0]["probabilities"] == text["probabilities"]
    assert text["label"] in ("pos", "neg") and "label" in said("predict runs/mlp/texts 'a good film'")


def test_predict_with_passes_and_draws(told, said, place):
    plain, = told("predict runs/mlp/table size=1,colour=red")
    (row,) = told("predict runs/mlp/table size=1,colour=red --passes 200 --draws 50")
    assert "std" not in plain and 0 < row["std"] < 0.5
    assert len(row["draws"]) == 50 and set(row["draws"]) <= {"yes", "no"}
    (price,) = told("predict runs/mlp/price a=3,b=4.5 --draws 4")
    assert len(set(price["draws"])) == 4
    assert "std " in said("predict runs/mlp/table size=1,colour=red --passes 5")


def test_report(told, said, place):
    one = told("report runs/mlp/table")
    assert one == {"report": "runs/mlp/table/report.html", "runs": ["runs/mlp/table"]}
    page = Path(one["report"]).read_text()
    assert page.lower().startswith("<!doctype html") and "http-equiv" not in page and 'src="http' not in page
    assert said("report mlp/table mlp/plain --to both.html") == "both.html\n"
    both = Path("both.html").read_text()
    assert "2 runs" in both and "dropout" in both   # what differs between them
    assert told("report runs/mlp/table runs/mlp/plain")["report"] == "comparison.html"


def test_sweep_and_again(told, said, place):
    words = "sweep mlp dropout=0,0.3 lr=1e-3,1e-2 --data own.csv --epochs 1 --hidden 4 --metric f1"
    before = set(Path("runs/mlp").iterdir())
    swept = told(words, quiet=False)
    assert swept["axes"] == {"dropout": [0, 0.3], "lr": [1e-3, 1e-2]} and swept["metric"] == "f1"
    assert [(row["dropout"], row["lr"]) for row in swept["table"]] == [(0, 1e-3), (0, 1e-2), (0.3, 1e-3), (0.3, 1e-2)]
    made = set(Path("runs/mlp").iterdir()) - before
    assert len(made) == 4 and {str(run) for run in made} == {row["run"] for row in swept["runs"]}
    assert "<svg" in Path(swept["report"]).read_text()
    again = told(words, quiet=False)
    assert again == swept and set(Path("runs/mlp").iterdir()) - before == made
    text = said(words, quiet=False)
    assert " ".join(text.splitlines()[0].split()) == "dropout lr validation f1 ± test f1 ± seeds seconds" and len(text.splitlines()) == 6


def test_a_sweep_goes_on_past_a_cell_that_diverges(told, place):
    words = "sweep mlp lr=1e-2,1e18 --optimizer sgd --data own.csv --epochs 4 --hidden 4 --activation relu"
    swept = told(words, quiet=False)
    assert [row["diverged"] for row in swept["table"]] == [0, 1]
    assert swept["table"][1]["validation"] is None and "not a finite number at step" in swept["runs"][1]["diverged"]
    assert Path(swept["runs"][1]["run"]).is_dir()
    assert told(words, quiet=False) == swept, "a diverged cell is an answer: it is not trained again"


def test_sweep_goes_on_where_it_was_cut_short(told, place):
    words = "sweep mlp lr=1e-3,1e-2 --data own.csv --epochs 1 --hidden 4"
    swept = told(words, quiet=False)
    (lines,) = Path("runs/sweeps").glob("*/sweep.jsonl")
    lines.write_text(lines.read_text().splitlines()[0] + "\n")
    again = told(words, quiet=False)
    assert again["runs"][0] == swept["runs"][0] and again["runs"][1]["run"] != swept["runs"][1]["run"]
    assert again["runs"][1]["test"] == swept["runs"][1]["test"]


def test_doctor(told, said, place):
    found = told("doctor")
    assert found["ok"] is all(row["ok"] for row in found["findings"])
    names = {row["what"] for row in found["findings"]}
    assert names >= {"python", "torch", "cpu", "memory", "DIDACT_DATA", "data mnist", "runs folder", "pandas", "tensorboardX"}
    assert all(row["what"] in said("doctor") for row in found["findings"])


def blocks(text: str) -> dict[str, str]:
    """What --help says of each option, by its flag."""
    parts = re.split(r"\n  (?=-)", text.split("Options:")[1])
    return {part.split()[0].split(",")[0]: " ".join(part.split()) for part in parts[1:]}


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_help_shows_type_default_and_a_line_for_every_option(said, name):
    shown = blocks(said(f"train {name} --help"))
    for option in known_options(RECIPES[name]).values():
        block = shown[f"--{option.flag}"]
        assert option.help and option.help in block
        assert option.kind is bool or option.describe in block
        assert option.default in (None, ()) or f"[default: {option.shown}]" in block, block


def test_the_signature_is_the_command_line(said, told, place, monkeypatch):
    def toy(data: Data, *, knobs: Annotated[int, Range(1, 9), "how many knobs"] = 3, steps: int = 2) -> Experiment:
        """A recipe that is written in this test alone."""
        likelihood = likelihood_of(data)
        network = mlp(data, hidden=(knobs,)).objective.network
        return Experiment(data=data, objective=supervised(network, likelihood), optimizer=make("sgd"), steps=steps, batch=8)

    monkeypatch.setitem(RECIPES, "toy", Recipe("toy", toy, "iris", ("table",), (), "supervised", "x", ("Gaba 1",), ("classify",)))
    assert blocks(said("train toy --help"))["--knobs"] == "--knobs int from 1 to 9 how many knobs [default: 3]"
    assert told("train toy --knobs 5", quiet=False)["arguments"] == {"knobs": 5, "steps": 2}
    assert [row["knobs"] for row in told("sweep toy knobs=1,2", quiet=False)["table"]] == [1, 2]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(said, verb):
    text = said(f"{verb} --help")
    assert text.startswith(f"Usage: didact {verb}") and len(text.splitlines()) > 3


def test_the_front_page_names_every_verb(said):
    text = said("--help")
    assert all(f"{verb} " in text and purpose.split(",")[0] in " ".join(text.split()) for verb, purpose in VERBS.items())
    assert said("") == text
    assert re.fullmatch(r"didact \d+\.\d+\.\d+\n", said("--version"))


def python(code: str) -> str:
    """What a fresh interpreter prints; with compiled modules kept, as they are wherever people work."""
    surroundings = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([sys.executable, "-c", code], env=surroundings, capture_output=True, text=True, check=True).stdout


def test_help_answers_at_once_and_without_torch():
    seen = python("import sys; from didact.cli.main import main; main(['--help']); print(sorted(sys.modules))").splitlines()[-1]
    assert "'click'" in seen
    assert not [name for name in ("torch", "numpy", "pandas", "sklearn", "matplotlib", "rich") if f"'{name}'" in seen]
    seconds = []
    for _ in range(5):
        started = perf_counter()
        subprocess.run([sys.executable, "-m", "didact", "--help"], capture_output=True, check=True)
        seconds.append(perf_counter() - started)
    assert median(seconds) < 0.3


def test_importing_everything_costs_a_tenth_of_torch_at_most():
    code = """if 1:
        from time import process_time as clock    # of this process alone: others share the cores
        a = clock()
        import didact
        b = clock()
        import torch
        c = clock()
        didact.recipes, didact.fit, didact.load, didact.train, didact.evaluate, didact.resume, didact.predict, didact.report, didact.Run
        d = clock()
        import sys
        assert not {"pandas", "sklearn", "matplotlib", "PIL", "rich", "click"} & sys.modules.keys()
        print((b - a + d - c) / (c - b), (b - a) / (c - b))
    """
    python(code)  # compiles
    shares = [tuple(map(float, python(code).split())) for _ in range(2)]
    assert min(everything for everything, _ in shares) < 0.25  # every recipe and every family of networks
    assert min(alone for _, alone in shares) < 0.05
