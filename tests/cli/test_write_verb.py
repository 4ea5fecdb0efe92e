"""didact sample on a run that writes."""

import io
import json
import re

import pytest
from rich.console import Console

import didact
from didact.cli.main import main
from didact.cli.progress import Waiting
from didact.registry import RECIPES


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    small = {"layers": 1, "heads": 2, "width": 32, "context": 16, "steps": 60, "lr": 1e-2}
    return didact.train(RECIPES["gpt"], data="python_topics", runs=str(runs), **small)


def sample(capsys, run, *words):
    code = main(["sample", str(run.folder), *words])
    return code, *capsys.readouterr()


def test_it_goes_on_from_the_prompt(written, capsys):
    code, out, _ = sample(capsys, written, "--prompt", "The class", "--tokens", "40", "--seed", "3")
    assert code == 0 and out.startswith("The class") and len(out) == len("The class") + 40 + 1     # and a line end
    assert sample(capsys, written, "--prompt", "The class", "--tokens", "40", "--seed", "3")[1] == out
    assert sample(capsys, written, "--prompt", "The class", "--tokens", "40", "--seed", "4")[1] != out


def test_several_texts_as_json(written, capsys):
    code, out, _ = sample(capsys, written, "--prompt", "a", "--tokens", "20", "--n", "3", "--top-k", "5", "--temperature", "0.7", "--json")
    answer = json.loads(out)
    assert code == 0 and len(set(answer["texts"])) == 3 and all(len(text) == 20 for text in answer["texts"])
    assert answer["manner"] == {"temperature": 0.7, "top_k": 5, "top_p": None, "beam": 1}


def test_greedy_and_beams_need_no_luck(written, capsys):
    one, two = (sample(capsys, written, "--prompt", "The ", "--tokens", "9", "--temperature", "0", "--seed", s)[1] for s in ("0", "1"))
    assert one == two
    assert sample(capsys, written, "--prompt", "The ", "--tokens", "9", "--beam", "3")[0] == 0


@pytest.mark.parametrize(("words", "complaint"), [
    (("--prompt", "é"), "the text holds characters that training did not: 'é'; leave them out"),
    (("--prompt", "a" * 17), "the prompt has 17 tokens, but this model reads 16 at most; shorten it"),
    (("--prompt", ""), ""),
    (("--temperature", "-0.5"), "-0.5 is not in the range x>=0"),
    (("--top-k", "1000"), "the tokens that this model knows, got 1000"),
    (("--top-k", "0"), "top-k must be from 1 to"),
    (("--top-p", "2"), "top-p is a probability above 0 and up to 1, got 2"),
    (("--beam", "3", "--n", "2"), "beams find one text, the likeliest, got --n 2; leave out --n or --beam"),
    (("--beam", "3", "--tokens", "99"), "1 tokens read and 99 to write are more than the 16 it can hold; write fewer"),
    (("--beam", "3", "--top-k", "2", "--tokens", "9"), "leave out temperature, top-k and top-p"),
    (("--label", "cat"), "--label does not apply"),
])
def test_bad_input_is_one_line(written, capsys, words, complaint):
    code, out, err = sample(capsys, written, *words)
    if not complaint:          # an empty prompt is a new line
        assert code == 0
        return
    assert code == 2 and not out
    assert err.startswith("didact: ") and complaint in err and err.count("\n") == 1


def test_a_recurrent_network_writes_too(tmp_path, capsys):
    (tmp_path / "book.txt").write_text("to be or not to be, that is the question.\n" * 120)
    run = didact.train(
        RECIPES["char_rnn"], data=str(tmp_path / "book.txt"), runs=str(tmp_path), steps=150, context=20, batch=16, lr=2e-2, hidden=32,
    )
    code, out, _ = sample(capsys, run, "--prompt", "to be or not to be, that", "--tokens", "17", "--temperature", "0")
    assert code == 0 and out == "to be or not to be, that is the question.\n"     # echo's line end makes the last of the 17 a pair
    assert sample(capsys, run, "--prompt", "to be or not to b", "--tokens", "3", "--beam", "3")[1].startswith("to be or not to be, ")


def test_pieces_of_words_are_written_as_text(tmp_path, capsys):
    (tmp_path / "book.txt").write_text("to be or not to be, that is the question: whether it is nobler to suffer.\n" * 150)
    words = ["train", "gpt", "--data", str(tmp_path / "book.txt"), "--tokens", "bpe", "--runs", str(tmp_path / "runs"), "--steps", "60"]
    assert main([*words, "--layers", "1", "--heads", "2", "--width", "32", "--context", "16", "--lr", "1e-2"]) == 0
    capsys.readouterr()
    code = main(["sample", "latest", "--runs", str(tmp_path / "runs"), "--prompt", "to be or not", "--tokens", "4", "--temperature", "0"])
    out = capsys.readouterr().out
    assert code == 0 and out.startswith("to be or not to be, that")


SMALL = {"layers": 1, "heads": 2, "width": 32, "context": 16, "steps": 60, "lr": 1e-2}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A text without a line break, as characters without a sign at all, and as words."""
    to = tmp_path_factory.mktemp("unbroken")
    (to / "flat.txt").write_text("abcdefgh" * 400)
    (to / "book.txt").write_text("to be or not to be, that is the question. " * 120)
    (to / "bare.txt").write_text("row row row your boat gently down the stream " * 160)
    kinds = {"flat": "characters", "book": "words", "bare": "words"}
    made = {name: {"data": str(to / f"{name}.txt"), "tokens": kind, "runs": str(to), **SMALL} for name, kind in kinds.items()}
    return {name: didact.train(RECIPES["gpt"], **given) for name, given in made.items()}


@pytest.mark.parametrize(("name", "told"), [("flat", "bcdefgh"), ("book", "to be or not to be, that"), ("bare", "row")])
def test_without_a_prompt_it_begins_with_what_it_knows(unbroken, capsys, name, told):
    code, out, _ = sample(capsys, unbroken[name], "--tokens", "8", "--temperature", "0")
    assert code == 0 and told in out and len(out.split()) == (1 if name == "flat" else 8 - out.count(","))
    code, out, err = sample(capsys, unbroken[name], "--top-p", "2")
    assert code == 2 and "top-p is a probability" in err                                   # not of the prompt that was not given


def test_words_are_not_glued_to_the_prompt(unbroken, capsys):
    code, out, _ = sample(capsys, unbroken["book"], "--prompt", "to be or not", "--tokens", "8", "--temperature", "0")
    assert code == 0 and out == "to be or not to be, that is the question.\n"
    assert sample(capsys, unbroken["book"], "--prompt", "or not to be", "--tokens", "2", "--temperature", "0")[1] == "or not to be, that\n"
    _, out, _ = sample(capsys, unbroken["book"], "--prompt", "be or", "--tokens", "3", "--temperature", "0", "--json")
    assert json.loads(out)["texts"] == [" not to be"]


def test_who_waits_longer_than_two_seconds_sees_how_far_it_is(written, capsys, monkeypatch):
    _, _, err = sample(capsys, written, "--tokens", "50")
    assert not err
    monkeypatch.setattr(Waiting, "PATIENCE", 0.0)
    code, out, err = sample(capsys, written, "--tokens", "50", "--json")
    lines = err.splitlines()
    assert code == 0 and json.loads(out)["texts"] and 8 <= len(lines) <= 11
    assert re.fullmatch(r"  45 of 50 tokens, [1-9][\d,]* a second", lines[-1])
    moving = Waiting("tokens", Console(file=io.StringIO(), force_terminal=True))
    with moving:
        moving(3, 50)
    assert "3 of 50 tokens" in moving.console.file.getvalue()
    clock = iter((0.0, 10.0, 14.0))                                          # ten seconds of loading are not counted
    monkeypatch.setattr("didact.cli.progress.perf_counter", lambda: next(clock))
    waiting = Waiting("tokens", Console(file=io.StringIO()))
    waiting(1, 50)
    waiting(21, 50)
    assert waiting.console.file.getvalue().splitlines() == ["  1 of 50 tokens", "  21 of 50 tokens, 5 a second"]
