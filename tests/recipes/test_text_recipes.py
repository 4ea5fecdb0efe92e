"""Recurrent recipes from the command's point of view: trained, evaluated, resumed, predicted, on known and on one's own texts."""

import json

import pytest
from killing import ends_alike

import didact
from beside import has_public
from didact import report
from didact.cli.main import main
from didact.data.load import load
from didact.errors import UsageError
from didact.registry import RECIPES
from didact.run import Run
from didact.train.session import evaluate
from didact.train.use import predict

SMALL = {"hidden": 16, "width": 8}


def same(one, two):
    return all(one[k] == pytest.approx(two[k], rel=1e-4, abs=1e-6) for k in one)


def test_a_book_of_ones_own(here):
    (here / "book.txt").write_text("to be or not to be, that is the question. " * 120)
    run = didact.train(RECIPES["char_rnn"], data="book.txt", steps=150, context=20, batch=16, lr=2e-2, hidden=32, width=16)
    assert run.facts["test"]["perplexity"] < 1.5                              # a text that repeats; 15 characters by chance
    assert same(run.facts["test"], evaluate(run)["test"])
    (here / "book.txt").unlink()                                              # the run is enough to go on
    answer = predict(run, ["or not to b", "that is the que"])
    assert [a["label"] for a in answer] == ["e", "s"]
    page = report.write(run).read_text()
    assert "bits per character" in page


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_every_cell_learns_what_comes_after_but(cell, here):
    run = didact.train(RECIPES["text_rnn"], cell=cell, epochs=2, lr=1e-2, **SMALL)
    assert run.facts["test"]["accuracy"] > 0.9                                # a bag of words: 0.5
    answers = predict(run, ["the story was good but the music was dull", "the story was dull but the music was good"])
    assert [a["label"] for a in answers] == ["negative", "positive"]
    page = report.write(run).read_text()
    assert 'class="sentence"' in page and "least usual words" not in page


def test_a_bag_of_words_cannot_know_what_comes_after_but(here):
    run = didact.train(RECIPES["mlp"], data="verdicts", epochs=5, hidden=(16,))
    assert run.facts["test"]["accuracy"] < 0.62


def test_texts_of_ones_own_with_augmentation_and_pooling(here):
    rows = [f"{'good' if i % 2 else 'bad'} film number {i},{'yes' if i % 2 else 'no'}" for i in range(60)]
    (here / "own.csv").write_text("review,liked\n" + "\n".join(rows) + "\n")
    for pool in ("last", "mean"):
        run = didact.train(
            RECIPES["text_rnn"], data="own.csv", text="review", target="liked", epochs=6, pool=pool, bidirectional=pool == "last",
            augment=("deletion", "swap", "insertion"), vocabulary=20, length=4, lr=1e-2, **SMALL,
        )
        assert run.facts["test"]["accuracy"] > 0.8
        assert same(run.facts["test"], evaluate(run)["test"])
    assert predict(run, ["a good thing"])[0]["label"] == "yes"


@pytest.mark.parametrize("name", ["text_rnn", "text_transformer", "fine_tune"])
def test_words_are_changed_from_the_command_line_and_the_report_says_so(name, here, capsys):
    rows = [f"{'good' if i % 2 else 'bad'} film number {i},{'yes' if i % 2 else 'no'}" for i in range(60)]
    (here / "own.csv").write_text("review,liked\n" + "\n".join(rows) + "\n")
    own = ["--data", "own.csv", "--text", "review", "--target", "liked", "--hidden", "16", "--width", "8", "--epochs", "1"]
    if name == "fine_tune":
        own += ["--learn", "scratch", "--heads", "2"]
    losses = []
    for words in (["--augment", "deletion,swap,insertion"], []):
        assert main(["train", name, *own, *words, "--json"]) == 0
        run = Run.open(json.loads(capsys.readouterr().out)["run"])
        losses.append(run.facts["test"]["loss"])
        assert ("deletion,swap,insertion</li>" in (run.folder / "report.html").read_text(encoding="utf-8")) == bool(words)
    assert losses[0] != losses[1]                                             # the same seed: only the words differ


@pytest.mark.parametrize("name", ["char_rnn", "text_rnn"])
def test_killed_and_resumed_it_ends_with_the_same_weights(name, here):
    ends_alike(name, steps=12, batch=16, layers=2, dropout=0.2, save_every=1e-3, **SMALL)


def test_number_words_become_digits(here):
    run = didact.train(RECIPES["seq2seq"], steps=120, batch=64, attention="general", hidden=48, width=32, lr=8e-3)
    assert run.facts["test"]["accuracy"] > 0.5                                 # the next digit; 0.2 by chance
    assert set(predict(run, ["twelve"])[0]) == {"input", "translation"}
    assert same(run.facts["test"], evaluate(run)["test"])


def test_translations_of_ones_own_are_judged_by_bleu(here):
    nouns, verbs = {"cat": "chat", "dog": "chien", "man": "homme", "king": "roi", "bird": "merle"}, {"sees": "voit", "bites": "mord"}
    rows = [(f"the {a} {v} the {b}", f"le {nouns[a]} {verbs[v]} le {nouns[b]}") for a in nouns for v in verbs for b in nouns]
    (here / "own.tsv").write_text("\n".join("\t".join(row) for row in 4 * rows) + "\n")
    run = didact.train(RECIPES["seq2seq"], data="own.tsv", steps=60, batch=32, attention="general", lr=2e-2, **SMALL)
    assert run.facts["test"]["bleu"] > 80                                      # a word order by chance: below 10
    assert evaluate(run)["test"]["bleu"] == pytest.approx(run.facts["test"]["bleu"])
    assert "BLEU" in report.write(run).read_text()
    assert predict(run, ["the king sees the cat"], beam=4)[0]["translation"] == "le roi voit le chat"
    for beam, told in ((0, "beams must be from 1 to"), (999, "beams must be from 1 to .*, the tokens that this model knows, got 999")):
        with pytest.raises(UsageError, match=told):
            predict(run, ["the king"], beam=beam)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["bahdanau", "general"])
def test_number_words_become_digits_without_a_mistake(attention, here):
    assert didact.train(RECIPES["seq2seq"], attention=attention).facts["test"]["exact"] >= 0.99


@pytest.mark.slow
@pytest.mark.skipif(not has_public("rt_polarity"), reason="DIDACT_DATA holds no rt_polarity")
def test_sentences_of_reviews(here):
    assert didact.train(RECIPES["text_rnn"], data="rt_polarity", epochs=5).facts["test"]["accuracy"] > 0.72


@pytest.mark.slow
@pytest.mark.skipif(not has_public("tinyshakespeare"), reason="DIDACT_DATA holds no tinyshakespeare")
def test_shakespeare_by_characters(here):
    assert load("tinyshakespeare").classes == 65
    run = didact.train(RECIPES["char_rnn"], data="tinyshakespeare")
    assert run.facts["validation"]["loss"] < 1.85                              # measured 1.767; 4.17 by chance


@pytest.mark.slow
@pytest.mark.skipif(not has_public("tinyshakespeare"), reason="DIDACT_DATA holds no tinyshakespeare")
def test_shakespeare_by_the_gpt_that_is_trained_when_nothing_is_said(here):
    run = didact.train(RECIPES["gpt"], data="tinyshakespeare")
    print(f"{run.facts['seconds']:.0f} s")                                     # three minutes on two cores, less on a free machine
    assert run.facts["validation"]["loss"] <= 1.88 and run.facts["seconds"] < 600
