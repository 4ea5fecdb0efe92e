"""Texts that are empty, too long, of other bytes, words or labels than expected: each is handled, or refused in one line."""

import json
import shlex

import pytest

import didact
from didact.cli.main import main
from didact.registry import RECIPES

PRAISE, BLAME = "a fine film,yes\n", "a dull film,no\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two runs and the files of the cases."""
    to = tmp_path_factory.mktemp("texts")
    small = {"layers": 1, "heads": 2, "width": 16, "steps": 3, "runs": str(to / "runs")}
    (to / "own.csv").write_text("review,liked\n" + (PRAISE + BLAME) * 20 + ",yes\n")         # one review is empty
    (to / "gpt").symlink_to(didact.train(RECIPES["gpt"], data="python_topics", context=16, **small).folder)
    own = {"data": str(to / "own.csv"), "text": "review", "target": "liked"}
    (to / "judge").symlink_to(didact.train(RECIPES["text_transformer"], hidden=16, length=6, **own, **small).folder)
    (to / "empty.txt").write_text("")
    (to / "blank.txt").write_text(" \n")
    (to / "latin.txt").write_bytes("café ".encode("latin-1") * 900)
    (to / "half.tsv").write_text("a cat\tun chat\n" * 20 + "a dog\t\n")
    (to / "lone.csv").write_text("review,liked\n" + (PRAISE + BLAME) * 20 + "a film,perhaps\n")
    (to / "unsure.csv").write_text("review,liked\n" + (PRAISE + BLAME) * 20 + "a film,\n")
    (to / "bare").mkdir()
    (to / "bare" / "notes.rst").write_text("no text that is read")
    (to / "silent.csv").write_text("review,liked\n" + ",yes\n,no\n" * 20)
    return to


@pytest.mark.parametrize(("words", "came", "help"), [
    ("train char_rnn --data empty.txt", "empty.txt holds 0 characters", "needs at least 1281"),
    ("train gpt --data blank.txt", "blank.txt holds 2 characters", "needs at least 1281"),
    ("train gpt --data latin.txt", "latin.txt is not UTF-8 text (byte 3)", "save it as UTF-8"),
    ("train gpt --data latin.txt --tokens bpe", "latin.txt is not UTF-8 text (byte 3)", "save it as UTF-8"),
    ("train gpt --data bare", "bare is a folder without texts (.txt, .md) or images", "put some there, or name a file"),
    ("train text_rnn --data bare", "bare is a folder without texts (.txt, .md) or images", "put some there, or name a file"),
    ("train seq2seq --data bare", "bare is a folder without texts (.txt, .md) or images", "put some there, or name a file"),
    ("train gpt --data own.csv", "'own' is table", "give a text file (.txt, .md) or a folder of them"),
    ("train gpt --data own.csv --text review", "'own' are binary", "give a text file (.txt, .md) or a folder of them"),
    ("train text_rnn --data own.csv", "'own' is table", "give a CSV file with --text COLUMN"),
    ("train text_rnn --data python_topics", "'python_topics' are language", "give a CSV file with --text COLUMN"),
    ("train gpt --data python_topics --model llama --heads 4 --width 12", "got 12", "the width must be a multiple of 8"),
    ("predict gpt --from latin.txt", "latin.txt is not UTF-8 text (byte 3)", "save it as UTF-8"),
    ("predict gpt --from no.txt", "cannot read the text no.txt", "No such file"),
    ("predict judge --from latin.txt", "latin.txt: it is not UTF-8", "expected UTF-8 text"),
    ("predict gpt The --beam 3", "--beam 3 looks for the likeliest translation", "leave it out"),
    ("predict gpt ''", "got ''", "needs at least one token"),
    ("predict judge ''", "got ''", "expected a text"),
    ("predict gpt 日本", "characters that training did not: '日本'", "leave them out"),
    ("sample gpt --prompt 日本", "characters that training did not: '日本'", "leave them out"),
    ("train seq2seq --data half.tsv", "line 21 of half.tsv", "two sentences with a tab between"),
    ("train text_rnn --data lone.csv --text review --target liked", "too few of: 'perhaps' (1)", "lone"),
    ("train text_transformer --data silent.csv --text review --target liked", "none of the 28 texts", "choose another with --text"),
    ("train text_rnn --data unsure.csv --text review --target liked", "missing in 1 of 41 rows, first in line 42", "fill it in"),
    ("train fine_tune --data lone.csv --text review --target liked", "too few of: 'perhaps' (1)", "lone"),
])
def test_refused_in_one_line(place, monkeypatch, capsys, words, came, help):
    monkeypatch.chdir(place)
    code = main(shlex.split(words))
    out, err = capsys.readouterr()
    assert code == 2 and not out
    last = err.strip().splitlines()[-1]
    assert last.startswith("didact: ") and came in last and help in last, last


def answer(capsys, place, run, *inputs):
    assert main(["predict", str(place / run), *inputs, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_of_a_long_text_as_much_is_read_as_fits(place, capsys):
    """A classifier reads the beginning, a network that goes on the end."""
    long, short = answer(capsys, place, "judge", "a fine film " * 500, "a fine film " * 2)
    assert long["probability"] == pytest.approx(short["probability"], rel=1e-5)
    long, short = answer(capsys, place, "gpt", "The class of " * 99, ("The class of " * 99)[-16:])
    assert long["probability"] == pytest.approx(short["probability"], rel=1e-5)


def test_words_that_training_did_not_hold_are_read_as_unknown(place, capsys):
    one, two, three = answer(capsys, place, "judge", "a zebra film", "a qwertz film", "a fine film")
    assert one["probability"] == two["probability"] != three["probability"]
