"""Mamba, xLSTM and every form of attention through the recipes: trained, resumed, made to write, explained, compared."""

import json

import pytest
import torch
from killing import ends_alike

import didact
from didact.cli.main import main
from didact.errors import UsageError
from didact.explain.runs import explain
from didact.layers.forms import FORMS, SPANNED
from didact.layers.mixing import MIXERS
from didact.registry import RECIPES
from didact.run import Run
from didact.train.eight_bits import eight_bits
from didact.train.experiment import Start
from didact.train.session import evaluate, prepare, restored
from didact.train.use import predict

LINE = "to be or not to be, that is the question.\n"
BOOK = {"steps": 50, "context": 16, "batch": 16, "lr": 2e-2, "hidden": 16, "width": 16}
TEXTS = {"layers": 2, "heads": 2, "width": 32, "hidden": 32, "dropout": 0.0, "batch": 32, "lr": 1e-2}
GPTS = {"layers": 2, "heads": 2, "width": 32, "context": 24, "batch": 16, "lr": 1e-2, "steps": 60}
BUT = ["the story was good but the music was dull", "the story was dull but the music was good"]


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """A run of char_rnn with each cell."""
    to = tmp_path_factory.mktemp("books")
    (to / "book.txt").write_text(LINE * 60)
    return {cell: didact.train(RECIPES["char_rnn"], cell=cell, data=str(to / "book.txt"), runs=str(to), **BOOK) for cell in MIXERS}


@pytest.mark.parametrize("cell", MIXERS)
def test_it_learns_a_text_that_repeats_and_writes_it_from_its_state(books, cell, capsys):
    run = books[cell]
    assert run.facts["test"]["perplexity"] < 2                                # 15 characters; the commonest alone give 9
    assert evaluate(run)["test"]["perplexity"] == pytest.approx(run.facts["test"]["perplexity"], rel=1e-4)
    assert main(["sample", str(run.folder), "--prompt", LINE[:24], "--tokens", "12", "--temperature", "0"]) == 0
    assert capsys.readouterr().out.startswith(LINE[:34])


@pytest.mark.parametrize("cell", MIXERS)
def test_in_eight_bits_it_still_knows_the_text(books, cell):
    found = eight_bits(books[cell])
    assert found["int8"]["test"]["perplexity"] == pytest.approx(found["test"]["perplexity"], rel=0.05)


@pytest.mark.parametrize("cell", MIXERS)
def test_its_gates_and_memory_are_explained(books, cell, tmp_path):
    (one,) = explain(books[cell], ["to be or not"], to=tmp_path)["explained"]
    assert set(one["methods"]) == {"gates", "memory"} and one["methods"]["memory"][0] == pytest.approx(1)
    assert len(one["methods"]["memory"]) == 12 and len(one["figures"]) == 2
    with pytest.raises(UsageError, match="no method for this network named 'attention'"):
        explain(books[cell], ["to be or not"], to=tmp_path, methods=("attention",))


def test_memories_are_drawn_side_by_side(books, tmp_path, capsys):
    runs = [str(run.folder) for run in books.values()]
    words = ["explain", runs[0], "to be or not", "--method", "memory", "--to", str(tmp_path), "--json"]
    assert main([*words, *[word for run in runs[1:] for word in ("--beside", run)]]) == 0
    told = json.loads(capsys.readouterr().out)["explained"]
    assert [row["memory"] for row in told] == [f"cell {cell}" for cell in MIXERS] and all(len(row["norms"]) == 12 for row in told)


@pytest.mark.parametrize("cell", MIXERS)
def test_every_cell_learns_what_comes_after_but(cell, here):
    run = didact.train(RECIPES["text_rnn"], cell=cell, steps=40, batch=32, lr=2e-2, hidden=8, width=8, dropout=0.1, pool="last")
    assert run.facts["test"]["accuracy"] > 0.85                               # a bag of words: 0.5
    assert [a["label"] for a in predict(run, BUT)] == ["negative", "positive"]


@pytest.mark.parametrize("form", [form for form in FORMS if form != "full"])       # the catalogue's tests train that one
def test_every_form_learns_what_comes_after_but(form, here):
    span = {"span": 3} if form in SPANNED else {}
    run = didact.train(RECIPES["text_transformer"], attention=form, steps=60, **TEXTS, **span)
    assert run.facts["test"]["accuracy"] > 0.85                               # a bag of words: 0.5
    assert [a["label"] for a in predict(run, BUT)] == ["negative", "positive"]
    asking = [m for name, m in restored(run)[0].named_modules() if name.endswith("attention.sublayer")]
    kinds = {type(getattr(m, "form", m)).__name__ for m in asking}
    assert len(kinds) == (2 if form == "strided" else 1) and "SelfAttention" not in kinds


@pytest.mark.parametrize("form", [form for form in FORMS if form != "full"])
def test_a_gpt_of_every_form_learns_a_text_that_repeats_and_writes_it(form, here, capsys):
    (here / "book.txt").write_text("to be or not " * 140)
    span = {"span": 4} if form in SPANNED else {}
    run = didact.train(RECIPES["gpt"], data="book.txt", attention=form, **GPTS, **span)
    assert run.facts["test"]["perplexity"] < 1.2                              # who knows the last character alone: 2.2
    assert evaluate(run)["test"]["perplexity"] == pytest.approx(run.facts["test"]["perplexity"], rel=1e-4)
    assert main(["sample", str(run.folder), "--prompt", "or not to", "--tokens", "40", "--temperature", "0"]) == 0
    assert capsys.readouterr().out.startswith("or not to be or not to be or not to be or n")
    (one,) = explain(run, ["to be or not"], to=here / "seen")["explained"]
    assert [len(heads) for heads in one["methods"]["attention"]] == [2, 2]
    assert "red adds and blue takes away" in (here / "seen/index.html").read_text(encoding="utf-8")


def test_weights_go_on_with_the_form_that_they_were_trained_with(here):
    (here / "book.txt").write_text(LINE * 60)
    small = {**GPTS, "data": "book.txt", "steps": 2, "attention": "local", "span": 3}
    run = didact.train(RECIPES["gpt"], **small)
    assert didact.train(RECIPES["gpt"], **small, weights=str(run.folder), lora=2).facts["notes"]
    with pytest.raises(UsageError, match="was trained with --attention local, got --attention full; give the same"):
        didact.train(RECIPES["gpt"], **{**small, "attention": "full", "span": None}, weights=str(run.folder))
    with pytest.raises(UsageError, match="was trained with --span 3, got --span 4; give the same"):
        didact.train(RECIPES["gpt"], **{**small, "span": 4}, weights=str(run.folder))


TINY = {
    "gpt": {"data": "book.txt", "layers": 1, "heads": 1, "width": 8, "context": 8, "batch": 4, "steps": 1},
    "text_transformer": {"layers": 1, "heads": 1, "width": 8, "hidden": 8, "length": 12, "batch": 8, "steps": 1, "dropout": 0.0},
}


@pytest.fixture
def book(here):
    (here / "book.txt").write_text(LINE * 60)
    return here


def began(name, run, **changes):
    """What an experiment of the same size that begins with the weights of a run says of them."""
    return prepare(name, {**TINY[name], **changes, "weights": str(run.folder)}).experiment.begin(Start(torch.device("cpu")))


@pytest.mark.parametrize("name", TINY)
def test_weights_are_compared_by_the_span_that_counts(name, book):
    run = didact.train(RECIPES[name], **TINY[name], attention="local")
    assert began(name, run, attention="local", span=8)                         # 8 where none was given
    with pytest.raises(UsageError, match="was trained with --span 8, got --span 3; give the same"):
        began(name, run, attention="local", span=3)
    run = didact.train(RECIPES[name], **TINY[name], attention="linear", span=3)
    assert began(name, run, attention="linear")                                # which knows no span


@pytest.mark.parametrize("name", TINY)
def test_weights_of_a_run_that_is_older_than_an_option_are_those_of_its_default(name, book):
    run = didact.train(RECIPES[name], **TINY[name])
    facts = run.facts
    for option in ("attention", "span", "experts"):
        facts["arguments"].pop(option, None)
    (run.folder / "run.json").write_text(json.dumps(facts))
    assert began(name, run)
    with pytest.raises(UsageError, match="was trained with --attention full, got --attention tiled; give the same"):
        began(name, run, attention="tiled")


@pytest.mark.parametrize("name", TINY)
def test_what_a_form_does_not_heed_is_noted(name, book):
    def notes(**changes):
        return " ".join(prepare(name, {**TINY[name], **changes}).experiment.notes)

    assert "--span 4 is for --attention local, strided, topk: to tiled attention it does nothing" in notes(attention="tiled", span=4)
    assert "--dropout 0.2 drops no weights of local attention" in notes(attention="local", dropout=0.2)
    quiet = notes(attention="local", span=4) + notes(dropout=0.2) + notes(attention="tiled")
    assert "--span" not in quiet and "--dropout" not in quiet


@pytest.mark.parametrize("name", TINY)
def test_a_span_beyond_the_text_is_a_line_like_any_other(name, book, capsys):
    small = [word for option, value in TINY[name].items() for word in (f"--{option}", str(value))]
    for form in SPANNED:
        assert main(["train", name, *small, "--layers", "2", "--attention", form, "--span", "1000000000", "--json"]) == 0
        run = Run.open(json.loads(capsys.readouterr().out)["run"])
        assert run.facts["test"]["loss"] < 10
    if name == "gpt":
        assert main(["sample", str(run.folder), "--prompt", "to be", "--tokens", "9"]) == 0


@pytest.mark.parametrize("cell", ["mamba", pytest.param("slstm", marks=pytest.mark.slow), pytest.param("mlstm", marks=pytest.mark.slow)])
def test_killed_and_resumed_it_ends_with_the_same_weights(cell, here):
    (here / "book.txt").write_text(LINE * 60)
    ends_alike("char_rnn", at=5, data="book.txt", cell=cell, **BOOK | {"steps": 8}, layers=2, dropout=0.2, save_every=1e-3)


def test_a_sweep_compares_forms_and_the_heads_of_one_are_drawn(here, capsys):
    small = ["--steps", "2", "--layers", "1", "--heads", "2", "--width", "8", "--hidden", "8", "--json"]
    assert main(["sweep", "text_transformer", "attention=linear,local", "--span", "3", *small]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["attention"] for row in told["table"]} == {"linear", "local"}
    (one,) = explain(Run.open(told["runs"][0]["run"]), BUT[:1], methods=("attention",))["explained"]
    assert len(one["methods"]["attention"]) == 1 and len(one["methods"]["attention"][0]) == 2


@pytest.mark.parametrize(("words", "told"), [
    ("train text_transformer --attention linaer", "--attention cannot be 'linaer'; did you mean 'linear'"),
    ("train text_transformer --attention local --span 0", "--span expects int at least 1, got 0"),
    ("train text_transformer --attention differential --width 6 --heads 2", "multiple of 2 heads=4, got dim=6"),
    ("train char_rnn --cell mamba --init random", "--init random is for rnn, lstm and gru; mamba begins as its paper says"),
    ("train char_rnn --cell manba", "--cell cannot be 'manba'; did you mean 'mamba'"),
    ("train seq2seq --cell mamba", "--cell cannot be 'mamba'"),
    ("train gpt --data book.txt --attention linaer", "--attention cannot be 'linaer'; did you mean 'linear'"),
    ("train gpt --data book.txt --model llama --attention local", "--model llama knows full attention alone, got --attention local"),
    ("train gpt --data book.txt --attention differential --width 20 --heads 4", "must be even, got 5"),
])
def test_bad_input_is_one_line(words, told, here, capsys):
    (here / "book.txt").write_text(LINE * 60)
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1
