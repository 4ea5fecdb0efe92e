"""What `didact predict` and `didact explain` are given is a text where the run reads texts, and never looked up among files."""

import json
from pathlib import Path

import pytest

import didact
from didact.cli.main import main
from didact.registry import RECIPES
from didact.train.use import predict

OWN = "review,liked\n" + "a fine film,yes\na dull film,no\n" * 20
PAIRS = "".join(f"Anna sees {n}\tAnna sieht {n}\n" for n in range(40))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of each kind that reads texts, and files that are named like texts."""
    to = tmp_path_factory.mktemp("texts")
    (to / "own.csv").write_text(OWN)
    (to / "own.tsv").write_text(PAIRS)
    (to / "book.txt").write_text("the cat sat on the mat and saw a dog. " * 60)
    small = {"runs": str(to / "runs"), "steps": 2}
    made = {
        "bag": ("mlp", {"data": str(to / "own.csv"), "text": "review", "target": "liked", "hidden": 4}),
        "order": ("text_rnn", {"data": str(to / "own.csv"), "text": "review", "target": "liked", "hidden": 4, "length": 6}),
        "pairs": ("seq2seq", {"data": str(to / "own.tsv")}),
        "stream": ("gpt", {"data": str(to / "book.txt"), "context": 16, "layers": 1, "heads": 2, "width": 16}),
        "masked": ("bert", {"data": str(to / "book.txt"), "context": 16, "layers": 1, "heads": 2, "width": 16}),
    }
    return {name: didact.train(RECIPES[recipe], **options, **small).folder for name, (recipe, options) in made.items()}


ASKED = {"bag": "secret", "order": "secret", "pairs": "Anna", "stream": "the cat", "masked": "the <mask>"}


@pytest.mark.parametrize("run", ASKED)
def test_a_text_that_is_the_name_of_a_file_stays_a_text_and_from_reads_the_file(here, place, capsys, run):
    (here / "cat.txt").write_text(ASKED[run])
    (here / "mat<mask>").write_text("no text")
    name = "mat<mask>" if run == "masked" else "cat.txt"
    capsys.readouterr()
    if run != "stream":                         # which knows no letter x
        code = main(["predict", str(place[run]), name, "--json"])
        out, err = capsys.readouterr()
        assert code == 0 and f"{name!r} is taken as a text; --from {name} reads the file of that name" in err
        assert json.loads(out)[0]["input"] == name and "no text" not in out
    (said,) = predict(place[run], ASKED[run])
    assert main(["predict", str(place[run]), "--from", "cat.txt", "--json"]) == 0
    out, err = capsys.readouterr()
    (found,) = json.loads(out)
    assert not err and found.pop("input").startswith("cat.txt") and found == {k: v for k, v in said.items() if k != "input"}
    assert predict(place[run], Path("cat.txt"))[0] == {"input": "cat.txt:1" if run == "pairs" else "cat.txt", **found}


@pytest.mark.parametrize("run", ["bag", "order", "pairs"])
def test_a_file_of_the_machine_is_not_read_unless_it_is_asked_for(here, place, capsys, run):
    (here / "hostname").write_text("Anna sees a fine film")
    fine, other = predict(place[run], ["Anna sees a fine film", str(here / "hostname")])
    assert other["input"] == str(here / "hostname")
    if run != "pairs":
        assert fine["probabilities"] != other["probabilities"]


def test_explain_takes_texts_in_the_same_way(here, place, capsys):
    (here / "film.txt").write_text("a fine film")
    for run in ("bag", "order"):
        assert main(["explain", str(place[run]), "film.txt", "--to", "page"]) == 0
        assert "'film.txt' is taken as a text" in capsys.readouterr().err
        assert main(["explain", str(place[run]), "--from", "film.txt", "--to", "page", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["explained"][0]["input"] == "film.txt"


def test_the_help_says_the_rule(capsys):
    for verb in ("predict", "explain"):
        assert main([verb, "--help"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "--from FILE" in said and "files of texts are given with --from" in said
