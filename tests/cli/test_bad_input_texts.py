"""Texts that are empty, too long or not UTF-8, unknown words and labels: handled, or refused in one line."""

import json
import shlex

import pytest

import didact
from didact.cli.main import main
from didact.registry import RECIPES

PRAISE, BLAME = "a fine film,yes\n", "a dull film,no\n"


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """Two runs and the files of the cases."""
    folder = tmp_path_factory.mktemp("texts")
    small_options = {"num_layers": 1, "num_heads": 2, "embed_dim": 16, "steps": 3, "runs": str(folder / "runs")}
    (folder / "own.csv").write_text("review,liked\n" + (PRAISE + BLAME) * 20 + ",yes\n")  # one review is empty
    (folder / "gpt").symlink_to(
        didact.train(RECIPES["gpt"], data="python_topics", context_length=16, **small_options).folder
    )
    table_options = {"data": str(folder / "own.csv"), "text": "review", "target": "liked"}
    (folder / "judge").symlink_to(
        didact.train(RECIPES["text_transformer"], ffn_dim=16, max_length=6, **table_options, **small_options).folder
    )
    (folder / "empty.txt").write_text("")
    (folder / "blank.txt").write_text(" \n")
    (folder / "latin.txt").write_bytes("café ".encode("latin-1") * 900)
    (folder / "half.tsv").write_text("a cat\tun chat\n" * 20 + "a dog\t\n")
    (folder / "lone.csv").write_text("review,liked\n" + (PRAISE + BLAME) * 20 + "a film,perhaps\n")
    (folder / "unsure.csv").write_text("review,liked\n" + "a film,\n" * 40 + PRAISE)
    (folder / "bare").mkdir()
    (folder / "bare" / "notes.rst").write_text("no text that is read")
    (folder / "silent.csv").write_text("review,liked\n" + ",yes\n,no\n" * 20)
    return folder


@pytest.mark.parametrize(
    ("words", "expected", "hint"),
    [
        ("train char_rnn --data empty.txt", "empty.txt holds 0 characters", "needs at least 1281"),
        ("train gpt --data blank.txt", "blank.txt holds 2 characters", "needs at least 1281"),
        ("train gpt --data latin.txt", "latin.txt is not UTF-8 text (byte 3)", "save it as UTF-8"),
        ("train gpt --data latin.txt --tokens bpe", "latin.txt is not UTF-8 text (byte 3)", "save it as UTF-8"),
        (
            "train gpt --data bare",
            "bare is a folder without texts (.txt, .md) or images",
            "put some there, or name a file",
        ),
        (
            "train text_rnn --data bare",
            "bare is a folder without texts (.txt, .md) or images",
            "put some there, or name a file",
        ),
        (
            "train seq2seq --data bare",
            "bare is a folder without texts (.txt, .md) or images",
            "put some there, or name a file",
        ),
        ("train gpt --data own.csv", "'own' is table", "give a text file (.txt, .md) or a folder of them"),
        (
            "train gpt --data own.csv --text review",
            "'own' are binary",
            "give a text file (.txt, .md) or a folder of them",
        ),
        ("train text_rnn --data own.csv", "'own' is table", "give a CSV file with --text COLUMN"),
        ("train text_rnn --data python_topics", "'python_topics' are language", "give a CSV file with --text COLUMN"),
        (
            "train gpt --data python_topics --model llama --num-heads 4 --embed-dim 12",
            "got 12",
            "embed_dim must be a multiple of 8",
        ),
        ("predict gpt --from latin.txt", "latin.txt is not UTF-8 text (byte 3)", "save it as UTF-8"),
        ("predict gpt --from no.txt", "cannot read the text no.txt", "No such file"),
        ("predict judge --from latin.txt", "latin.txt: it is not UTF-8", "expected UTF-8 text"),
        ("predict gpt The --beam 3", "--num-beams 3 is for translations", "leave it out"),
        ("predict gpt ''", "got ''", "needs at least one token"),
        ("predict judge ''", "got ''", "expected a text"),
        ("predict gpt 日本", "characters unseen in training: '日本'", "leave them out"),
        ("sample gpt --prompt 日本", "characters unseen in training: '日本'", "leave them out"),
        ("train seq2seq --data half.tsv", "line 21 of half.tsv", "two sentences with a tab between"),
        ("train text_rnn --data lone.csv --text review --target liked", "too few of: 'perhaps' (1)", "lone"),
        (
            "train text_transformer --data silent.csv --text review --target liked",
            "none of the 28 texts",
            "choose another with --text",
        ),
        (
            "train text_rnn --data unsure.csv --text review --target liked",
            "missing in 40 of 41 rows, first in line 2",
            "at least two classes",
        ),
        ("train fine_tune --data lone.csv --text review --target liked", "too few of: 'perhaps' (1)", "lone"),
    ],
)
def test_bad_text_is_refused_in_one_line(workdir, monkeypatch, capsys, words, expected, hint):
    monkeypatch.chdir(workdir)
    code = main(shlex.split(words))
    out, err = capsys.readouterr()
    assert code == 2 and not out
    last_line = err.strip().splitlines()[-1]
    assert last_line.startswith("didact: ") and expected in last_line and hint in last_line, last_line


def predict_json(capsys, workdir, run, *inputs):
    assert main(["predict", str(workdir / run), *inputs, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_long_text_is_truncated_to_what_the_model_reads(workdir, capsys):
    """A classifier reads the beginning, a language model the end."""
    long, short = predict_json(capsys, workdir, "judge", "a fine film " * 500, "a fine film " * 2)
    assert long["probability"] == pytest.approx(short["probability"], rel=1e-5)
    long, short = predict_json(capsys, workdir, "gpt", "The class of " * 99, ("The class of " * 99)[-16:])
    assert long["probability"] == pytest.approx(short["probability"], rel=1e-5)


def test_unseen_words_are_read_as_unknown(workdir, capsys):
    one, two, three = predict_json(capsys, workdir, "judge", "a zebra film", "a qwertz film", "a fine film")
    assert one["probability"] == two["probability"] != three["probability"]
