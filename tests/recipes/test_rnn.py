"""Recurrent recipes on the command line: train, evaluate, resume, predict, on known and on own texts."""

import json

import pytest

import didact
from didact import report
from didact.cli.main import main
from didact.data.load import load
from didact.errors import UsageError
from didact.inference.evaluate import evaluate
from didact.inference.predict import predict
from didact.registry import RECIPES
from didact.run import Run
from helpers.killed_training import assert_resumed_equals_uninterrupted
from helpers.public_data import has_public_data

SMALL = {"hidden_size": 16, "embed_dim": 8}


def has_same_scores(one, two):
    return all(one[k] == pytest.approx(two[k], rel=1e-4, abs=1e-6) for k in one)


def test_char_rnn_learns_a_text_file(workdir):
    (workdir / "book.txt").write_text("to be or not to be, that is the question. " * 120)
    run = didact.train(
        RECIPES["char_rnn"],
        data="book.txt",
        steps=150,
        context_length=20,
        batch_size=16,
        lr=2e-2,
        hidden_size=32,
        embed_dim=16,
    )
    # a text that repeats; 15 characters by chance
    assert run.metadata["test"]["perplexity"] < 1.5
    assert has_same_scores(run.metadata["test"], evaluate(run)["test"])
    (workdir / "book.txt").unlink()                                              # the run needs it no more
    predictions = predict(run, ["or not to b", "that is the que"])
    assert [a["label"] for a in predictions] == ["e", "s"]
    page = report.write_report(run).read_text()
    assert "bits per character" in page


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_text_rnn_learns_what_follows_but_with_every_cell(cell, workdir):
    run = didact.train(RECIPES["text_rnn"], cell=cell, epochs=2, lr=1e-2, **SMALL)
    assert run.metadata["test"]["accuracy"] > 0.9  # a bag of words: 0.5
    predictions = predict(
        run, ["the story was good but the music was dull", "the story was dull but the music was good"]
    )
    assert [a["label"] for a in predictions] == ["negative", "positive"]
    page = report.write_report(run).read_text()
    assert 'class="sentence"' in page and "least usual words" not in page


def test_bag_of_words_cannot_learn_what_follows_but(workdir):
    run = didact.train(RECIPES["mlp"], data="verdicts", epochs=5, hidden=(16,))
    assert run.metadata["test"]["accuracy"] < 0.62


def test_text_rnn_learns_a_csv_with_augmentation_and_pooling(workdir):
    rows = [f"{'good' if i % 2 else 'bad'} film number {i},{'yes' if i % 2 else 'no'}" for i in range(60)]
    (workdir / "own.csv").write_text("review,liked\n" + "\n".join(rows) + "\n")
    for pool in ("last", "mean"):
        run = didact.train(
            RECIPES["text_rnn"],
            data="own.csv",
            text="review",
            target="liked",
            epochs=6,
            pool=pool,
            bidirectional=pool == "last",
            augment=("deletion", "swap", "insertion"),
            vocab_size=20,
            max_length=4,
            lr=1e-2,
            **SMALL,
        )
        assert run.metadata["test"]["accuracy"] > 0.8
        assert has_same_scores(run.metadata["test"], evaluate(run)["test"])
    assert predict(run, ["a good thing"])[0]["label"] == "yes"


@pytest.mark.parametrize("name", ["text_rnn", "text_transformer", "fine_tune"])
def test_text_augmentation_changes_the_loss_and_is_reported(name, workdir, capsys):
    rows = [f"{'good' if i % 2 else 'bad'} film number {i},{'yes' if i % 2 else 'no'}" for i in range(60)]
    (workdir / "own.csv").write_text("review,liked\n" + "\n".join(rows) + "\n")
    table_options = [
        "--data",
        "own.csv",
        "--text",
        "review",
        "--target",
        "liked",
        "--hidden-size" if name == "text_rnn" else "--ffn-dim",
        "16",
        "--embed-dim",
        "8",
        "--epochs",
        "1",
    ]
    if name == "fine_tune":
        table_options += ["--mode", "scratch", "--num-heads", "2"]
    losses = []
    for words in (["--augment", "deletion,swap,insertion"], []):
        assert main(["train", name, *table_options, *words, "--json"]) == 0
        run = Run.open(json.loads(capsys.readouterr().out)["run"])
        losses.append(run.metadata["test"]["loss"])
        assert ("deletion,swap,insertion</li>" in (run.folder / "report.html").read_text(encoding="utf-8")) == bool(
            words
        )
    assert losses[0] != losses[1]                                             # the same seed: only the words differ


@pytest.mark.parametrize("name", ["char_rnn", "text_rnn"])
def test_resumed_rnn_ends_with_the_same_weights(name, workdir):
    assert_resumed_equals_uninterrupted(
        name, steps=12, batch_size=16, num_layers=2, dropout=0.2, save_every=1e-3, **SMALL
    )


def test_seq2seq_learns_number_words(workdir):
    run = didact.train(
        RECIPES["seq2seq"], steps=120, batch_size=64, attention="general", hidden_size=48, embed_dim=32, lr=8e-3
    )
    assert run.metadata["test"]["accuracy"] > 0.5                                 # the next digit; 0.2 by chance
    assert set(predict(run, ["twelve"])[0]) == {"input", "translation"}
    assert has_same_scores(run.metadata["test"], evaluate(run)["test"])


def test_seq2seq_learns_a_tsv_and_is_evaluated_by_bleu(workdir):
    nouns, verbs = (
        {"cat": "chat", "dog": "chien", "man": "homme", "king": "roi", "bird": "merle"},
        {"sees": "voit", "bites": "mord"},
    )
    rows = [
        (f"the {a} {v} the {b}", f"le {nouns[a]} {verbs[v]} le {nouns[b]}") for a in nouns for v in verbs for b in nouns
    ]
    (workdir / "own.tsv").write_text("\n".join("\t".join(row) for row in 4 * rows) + "\n")
    run = didact.train(
        RECIPES["seq2seq"], data="own.tsv", steps=60, batch_size=32, attention="general", lr=2e-2, **SMALL
    )
    assert run.metadata["test"]["bleu"] > 80                                      # a word order by chance: below 10
    assert evaluate(run)["test"]["bleu"] == pytest.approx(run.metadata["test"]["bleu"])
    assert "BLEU" in report.write_report(run).read_text()
    assert predict(run, ["the king sees the cat"], num_beams=4)[0]["translation"] == "le roi voit le chat"
    for beam, message in (
        (0, "number of beams must be from 1 to"),
        (999, "number of beams must be from 1 to .*, the size of the vocabulary, got 999"),
    ):
        with pytest.raises(UsageError, match=message):
            predict(run, ["the king"], num_beams=beam)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["bahdanau", "general"])
def test_seq2seq_translates_number_words_without_errors(attention, workdir):
    assert didact.train(RECIPES["seq2seq"], attention=attention).metadata["test"]["exact"] >= 0.99


@pytest.mark.slow
@pytest.mark.skipif(not has_public_data("rt_polarity"), reason="DIDACT_DATA holds no rt_polarity")
def test_text_rnn_learns_reviews(workdir):
    assert didact.train(RECIPES["text_rnn"], data="rt_polarity", epochs=5).metadata["test"]["accuracy"] > 0.72


@pytest.mark.slow
@pytest.mark.skipif(not has_public_data("tinyshakespeare"), reason="DIDACT_DATA holds no tinyshakespeare")
def test_char_rnn_learns_shakespeare(workdir):
    assert load("tinyshakespeare").num_classes == 65
    run = didact.train(RECIPES["char_rnn"], data="tinyshakespeare")
    assert run.metadata["validation"]["loss"] < 1.85                              # measured 1.767; 4.17 by chance


@pytest.mark.slow
@pytest.mark.skipif(not has_public_data("tinyshakespeare"), reason="DIDACT_DATA holds no tinyshakespeare")
def test_default_gpt_learns_shakespeare(workdir):
    run = didact.train(RECIPES["gpt"], data="tinyshakespeare")
    # three minutes on two cores, less on a free machine
    print(f"{run.metadata['seconds']:.0f} s")
    assert run.metadata["validation"]["loss"] <= 1.88 and run.metadata["seconds"] < 600
