"""`didact predict` and `didact explain` on text models: an input is a text, never the name of a file."""

import json
from pathlib import Path

import pytest

import didact
from didact.cli.main import main
from didact.inference.predict import predict
from didact.registry import RECIPES

REVIEWS = "review,liked\n" + "a fine film,yes\na dull film,no\n" * 20
PAIRS = "".join(f"Anna sees {n}\tAnna sieht {n}\n" for n in range(40))


@pytest.fixture(scope="module")
def text_runs(tmp_path_factory):
    """A run of each kind that reads texts, and files that are named like texts."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "own.csv").write_text(REVIEWS)
    (folder / "own.tsv").write_text(PAIRS)
    (folder / "book.txt").write_text("the cat sat on the mat and saw a dog. " * 60)
    small_options = {"runs": str(folder / "runs"), "steps": 2}
    sizes = {"context_length": 16, "num_layers": 1, "num_heads": 2, "embed_dim": 16}
    configs = {
        "bag": ("mlp", {"data": str(folder / "own.csv"), "text": "review", "target": "liked", "hidden": 4}),
        "order": (
            "text_rnn",
            {"data": str(folder / "own.csv"), "text": "review", "target": "liked", "hidden_size": 4, "max_length": 6},
        ),
        "pairs": ("seq2seq", {"data": str(folder / "own.tsv")}),
        "stream": ("gpt", {"data": str(folder / "book.txt"), **sizes}),
        "masked": ("bert", {"data": str(folder / "book.txt"), **sizes}),
    }
    return {
        name: didact.train(RECIPES[recipe], **options, **small_options).folder
        for name, (recipe, options) in configs.items()
    }


INPUTS = {"bag": "secret", "order": "secret", "pairs": "Anna", "stream": "the cat", "masked": "the <mask>"}


@pytest.mark.parametrize("run", INPUTS)
def test_predict_takes_a_file_name_as_text_and_from_reads_the_file(workdir, text_runs, capsys, run):
    (workdir / "cat.txt").write_text(INPUTS[run])
    (workdir / "mat<mask>").write_text("no text")
    name = "mat<mask>" if run == "masked" else "cat.txt"
    capsys.readouterr()
    if run != "stream":                         # which knows no letter x
        code = main(["predict", str(text_runs[run]), name, "--json"])
        out, err = capsys.readouterr()
        assert code == 0 and f"{name!r} is taken as a text; --from {name} reads the file of that name" in err
        assert json.loads(out)[0]["input"] == name and "no text" not in out
    (prediction,) = predict(text_runs[run], INPUTS[run])
    assert main(["predict", str(text_runs[run]), "--from", "cat.txt", "--json"]) == 0
    out, err = capsys.readouterr()
    (file_prediction,) = json.loads(out)
    assert (
        not err
        and file_prediction.pop("input").startswith("cat.txt")
        and file_prediction == {k: v for k, v in prediction.items() if k != "input"}
    )
    assert predict(text_runs[run], Path("cat.txt"))[0] == {
        "input": "cat.txt:1" if run == "pairs" else "cat.txt",
        **file_prediction,
    }


@pytest.mark.parametrize("run", ["bag", "order", "pairs"])
def test_predict_reads_no_file_without_from(workdir, text_runs, capsys, run):
    (workdir / "hostname").write_text("Anna sees a fine film")
    text_prediction, name_prediction = predict(text_runs[run], ["Anna sees a fine film", str(workdir / "hostname")])
    assert name_prediction["input"] == str(workdir / "hostname")
    if run != "pairs":
        assert text_prediction["probabilities"] != name_prediction["probabilities"]


def test_explain_takes_texts_like_predict(workdir, text_runs, capsys):
    (workdir / "film.txt").write_text("a fine film")
    for run in ("bag", "order"):
        assert main(["explain", str(text_runs[run]), "film.txt", "--output", "page"]) == 0
        assert "'film.txt' is taken as a text" in capsys.readouterr().err
        assert main(["explain", str(text_runs[run]), "--from", "film.txt", "--output", "page", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["explained"][0]["input"] == "film.txt"


def test_help_of_predict_and_explain_states_from(capsys):
    for verb in ("predict", "explain"):
        assert main([verb, "--help"]) == 0
        output = " ".join(capsys.readouterr().out.split())
        assert "--from FILE" in output and "files of texts are given with --from" in output
