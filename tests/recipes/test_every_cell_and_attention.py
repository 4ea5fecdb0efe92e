"""Mamba, xLSTM and every attention variant through the recipes: train, resume, generate, explain, compare."""

import json

import pytest
import torch

import didact
from didact.cli.main import main
from didact.errors import UsageError
from didact.explain.explain_run import explain_run
from didact.inference.evaluate import evaluate
from didact.inference.evaluate_int8 import evaluate_int8
from didact.inference.predict import predict
from didact.layers.attention.variants import VARIANTS, WINDOW_VARIANTS
from didact.layers.recurrent.mixer_stack import MIXERS
from didact.registry import RECIPES
from didact.run import Run
from didact.training.experiment import InitContext
from didact.training.prepare import prepare
from didact.training.restore import load_model
from helpers.killed_training import assert_resumed_equals_uninterrupted

LINE = "to be or not to be, that is the question.\n"
CHAR_RNN_OPTIONS = {"steps": 50, "context_length": 16, "batch_size": 16, "lr": 2e-2, "hidden_size": 16, "embed_dim": 16}
CLASSIFIER_OPTIONS = {
    "num_layers": 2,
    "num_heads": 2,
    "embed_dim": 32,
    "ffn_dim": 32,
    "dropout": 0.0,
    "batch_size": 32,
    "lr": 1e-2,
}
GPT_OPTIONS = {
    "num_layers": 2,
    "num_heads": 2,
    "embed_dim": 32,
    "context_length": 24,
    "batch_size": 16,
    "lr": 1e-2,
    "steps": 60,
}
BUT_SENTENCES = ["the story was good but the music was dull", "the story was dull but the music was good"]


@pytest.fixture(scope="module")
def runs_by_cell(tmp_path_factory):
    """A run of char_rnn with each cell."""
    folder = tmp_path_factory.mktemp("books")
    (folder / "book.txt").write_text(LINE * 60)
    return {
        cell: didact.train(
            RECIPES["char_rnn"], cell=cell, data=str(folder / "book.txt"), runs=str(folder), **CHAR_RNN_OPTIONS
        )
        for cell in MIXERS
    }


@pytest.mark.parametrize("cell", MIXERS)
def test_char_rnn_learns_a_repeating_text_with_every_cell(runs_by_cell, cell, capsys):
    run = runs_by_cell[cell]
    # 15 characters; the commonest alone give 9
    assert run.metadata["test"]["perplexity"] < 2
    assert evaluate(run)["test"]["perplexity"] == pytest.approx(run.metadata["test"]["perplexity"], rel=1e-4)
    assert main(["sample", str(run.folder), "--prompt", LINE[:24], "--tokens", "12", "--temperature", "0"]) == 0
    assert capsys.readouterr().out.startswith(LINE[:34])


@pytest.mark.parametrize("cell", MIXERS)
def test_int8_keeps_the_perplexity_of_every_cell(runs_by_cell, cell):
    result = evaluate_int8(runs_by_cell[cell])
    assert result["int8"]["test"]["perplexity"] == pytest.approx(result["test"]["perplexity"], rel=0.05)


@pytest.mark.parametrize("cell", MIXERS)
def test_explain_shows_gates_and_memory_of_every_cell(runs_by_cell, cell, tmp_path):
    (explanation,) = explain_run(runs_by_cell[cell], ["to be or not"], out_dir=tmp_path)["explained"]
    assert set(explanation["methods"]) == {"gates", "memory"} and explanation["methods"]["memory"][0] == pytest.approx(
        1
    )
    assert len(explanation["methods"]["memory"]) == 12 and len(explanation["figures"]) == 2
    with pytest.raises(UsageError, match="no method for this network named 'attention'"):
        explain_run(runs_by_cell[cell], ["to be or not"], out_dir=tmp_path, methods=("attention",))


def test_explain_compares_the_memories_of_several_runs(runs_by_cell, tmp_path, capsys):
    runs = [str(run.folder) for run in runs_by_cell.values()]
    words = ["explain", runs[0], "to be or not", "--method", "memory", "--output", str(tmp_path), "--json"]
    assert main([*words, *[word for run in runs[1:] for word in ("--compare", run)]]) == 0
    explanations = json.loads(capsys.readouterr().out)["explained"]
    assert [row["memory"] for row in explanations] == [f"cell {cell}" for cell in MIXERS] and all(
        len(row["norms"]) == 12 for row in explanations
    )


@pytest.mark.parametrize("cell", MIXERS)
def test_text_rnn_learns_what_follows_but_with_every_cell(cell, workdir):
    run = didact.train(
        RECIPES["text_rnn"],
        cell=cell,
        steps=40,
        batch_size=32,
        lr=2e-2,
        hidden_size=8,
        embed_dim=8,
        dropout=0.1,
        pool="last",
    )
    assert run.metadata["test"]["accuracy"] > 0.85                               # a bag of words: 0.5
    assert [a["label"] for a in predict(run, BUT_SENTENCES)] == ["negative", "positive"]


# the catalogue's tests train that one
@pytest.mark.parametrize("attention", [form for form in VARIANTS if form != "full"])
def test_text_transformer_learns_what_follows_but_with_every_attention(attention, workdir):
    span = {"window": 3} if attention in WINDOW_VARIANTS else {}
    run = didact.train(RECIPES["text_transformer"], attention=attention, steps=60, **CLASSIFIER_OPTIONS, **span)
    assert run.metadata["test"]["accuracy"] > 0.85                               # a bag of words: 0.5
    assert [a["label"] for a in predict(run, BUT_SENTENCES)] == ["negative", "positive"]
    attention_layers = [m for name, m in load_model(run)[0].named_modules() if name.endswith("attention.sublayer")]
    class_names = {type(getattr(m, "form", m)).__name__ for m in attention_layers}
    assert len(class_names) == (2 if attention == "strided" else 1) and "MultiHeadAttention" not in class_names


@pytest.mark.parametrize("attention", [form for form in VARIANTS if form != "full"])
def test_gpt_learns_a_repeating_text_with_every_attention(attention, workdir, capsys):
    (workdir / "book.txt").write_text("to be or not " * 140)
    span = {"window": 4} if attention in WINDOW_VARIANTS else {}
    run = didact.train(RECIPES["gpt"], data="book.txt", attention=attention, **GPT_OPTIONS, **span)
    # who knows the last character alone: 2.2
    assert run.metadata["test"]["perplexity"] < 1.2
    assert evaluate(run)["test"]["perplexity"] == pytest.approx(run.metadata["test"]["perplexity"], rel=1e-4)
    assert main(["sample", str(run.folder), "--prompt", "or not to", "--tokens", "40", "--temperature", "0"]) == 0
    assert capsys.readouterr().out.startswith("or not to be or not to be or not to be or n")
    (explanation,) = explain_run(run, ["to be or not"], out_dir=workdir / "seen")["explained"]
    assert [len(heads) for heads in explanation["methods"]["attention"]] == [2, 2]
    assert "red is positive and blue negative" in (workdir / "seen/index.html").read_text(encoding="utf-8")


def test_initial_weights_need_the_attention_of_their_run(workdir):
    (workdir / "book.txt").write_text(LINE * 60)
    small_options = {**GPT_OPTIONS, "data": "book.txt", "steps": 2, "attention": "local", "window": 3}
    run = didact.train(RECIPES["gpt"], **small_options)
    assert didact.train(RECIPES["gpt"], **small_options, weights=str(run.folder), lora_rank=2).metadata["notes"]
    with pytest.raises(UsageError, match="was trained with --attention local, got --attention full; give the same"):
        didact.train(RECIPES["gpt"], **{**small_options, "attention": "full", "window": None}, weights=str(run.folder))
    with pytest.raises(UsageError, match="was trained with --window 3, got --window 4; give the same"):
        didact.train(RECIPES["gpt"], **{**small_options, "window": 4}, weights=str(run.folder))


TINY_OPTIONS = {
    "gpt": {
        "data": "book.txt",
        "num_layers": 1,
        "num_heads": 1,
        "embed_dim": 8,
        "context_length": 8,
        "batch_size": 4,
        "steps": 1,
    },
    "text_transformer": {
        "num_layers": 1,
        "num_heads": 1,
        "embed_dim": 8,
        "ffn_dim": 8,
        "max_length": 12,
        "batch_size": 8,
        "steps": 1,
        "dropout": 0.0,
    },
}


@pytest.fixture
def book_folder(workdir):
    (workdir / "book.txt").write_text(LINE * 60)
    return workdir


def load_weights_notes(name, run, **changes):
    """The notes of an experiment of the same size that starts from the weights of a run."""
    return prepare(name, {**TINY_OPTIONS[name], **changes, "weights": str(run.folder)}).experiment.initialize_weights(
        InitContext(torch.device("cpu"))
    )


@pytest.mark.parametrize("name", TINY_OPTIONS)
def test_initial_weights_need_the_window_of_their_run(name, book_folder):
    run = didact.train(RECIPES[name], **TINY_OPTIONS[name], attention="local")
    assert load_weights_notes(name, run, attention="local", window=8)                         # 8 where none was given
    with pytest.raises(UsageError, match="was trained with --window 8, got --window 3; give the same"):
        load_weights_notes(name, run, attention="local", window=3)
    run = didact.train(RECIPES[name], **TINY_OPTIONS[name], attention="linear", window=3)
    assert load_weights_notes(name, run, attention="linear")                                # which knows no span


@pytest.mark.parametrize("name", TINY_OPTIONS)
def test_initial_weights_of_an_older_run_take_the_default_options(name, book_folder):
    run = didact.train(RECIPES[name], **TINY_OPTIONS[name])
    metadata = run.metadata
    for option in ("attention", "window", "num_experts"):
        metadata["arguments"].pop(option, None)
    (run.folder / "run.json").write_text(json.dumps(metadata))
    assert load_weights_notes(name, run)
    with pytest.raises(UsageError, match="was trained with --attention full, got --attention tiled; give the same"):
        load_weights_notes(name, run, attention="tiled")


@pytest.mark.parametrize("name", TINY_OPTIONS)
def test_option_without_effect_on_an_attention_is_noted(name, book_folder):
    def get_notes(**changes):
        return " ".join(prepare(name, {**TINY_OPTIONS[name], **changes}).experiment.notes)

    assert "--window 4 is for --attention local, strided, topk: to tiled attention it does nothing" in get_notes(
        attention="tiled", window=4
    )
    assert "--dropout 0.2 drops hidden units only: local attention" in get_notes(attention="local", dropout=0.2)
    other_notes = get_notes(attention="local", window=4) + get_notes(dropout=0.2) + get_notes(attention="tiled")
    assert "--window" not in other_notes and "--dropout" not in other_notes


@pytest.mark.parametrize("name", TINY_OPTIONS)
def test_window_longer_than_the_text_trains(name, book_folder, capsys):
    small_options = [
        word for option, value in TINY_OPTIONS[name].items() for word in (f"--{option.replace('_', '-')}", str(value))
    ]
    for form in WINDOW_VARIANTS:
        assert (
            main(
                [
                    "train",
                    name,
                    *small_options,
                    "--num-layers",
                    "2",
                    "--attention",
                    form,
                    "--window",
                    "1000000000",
                    "--json",
                ]
            )
            == 0
        )
        run = Run.open(json.loads(capsys.readouterr().out)["run"])
        assert run.metadata["test"]["loss"] < 10
    if name == "gpt":
        assert main(["sample", str(run.folder), "--prompt", "to be", "--tokens", "9"]) == 0


@pytest.mark.parametrize(
    "cell", ["mamba", pytest.param("slstm", marks=pytest.mark.slow), pytest.param("mlstm", marks=pytest.mark.slow)]
)
def test_resumed_char_rnn_ends_with_the_same_weights(cell, workdir):
    (workdir / "book.txt").write_text(LINE * 60)
    assert_resumed_equals_uninterrupted(
        "char_rnn",
        kill_step=5,
        data="book.txt",
        cell=cell,
        **CHAR_RNN_OPTIONS | {"steps": 8},
        num_layers=2,
        dropout=0.2,
        save_every=1e-3,
    )


def test_sweep_compares_attention_variants(workdir, capsys):
    small_options = [
        "--steps",
        "2",
        "--num-layers",
        "1",
        "--num-heads",
        "2",
        "--embed-dim",
        "8",
        "--ffn-dim",
        "8",
        "--json",
    ]
    assert main(["sweep", "text_transformer", "attention=linear,local", "--window", "3", *small_options]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {row["attention"] for row in result["table"]} == {"linear", "local"}
    (explanation,) = explain_run(Run.open(result["runs"][0]["run"]), BUT_SENTENCES[:1], methods=("attention",))[
        "explained"
    ]
    assert len(explanation["methods"]["attention"]) == 1 and len(explanation["methods"]["attention"][0]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train text_transformer --attention linaer", "--attention cannot be 'linaer'; did you mean 'linear'"),
        ("train text_transformer --attention local --window 0", "--window expects int at least 1, got 0"),
        (
            "train text_transformer --attention differential --embed-dim 6 --num-heads 2",
            "multiple of 2 num_heads=4, got dim=6",
        ),
        (
            "train char_rnn --cell mamba --recurrent-init random",
            "--recurrent-init random is for rnn, lstm and gru; mamba is initialized as in its paper",
        ),
        ("train char_rnn --cell manba", "--cell cannot be 'manba'; did you mean 'mamba'"),
        ("train seq2seq --cell mamba", "--cell cannot be 'mamba'"),
        ("train gpt --data book.txt --attention linaer", "--attention cannot be 'linaer'; did you mean 'linear'"),
        (
            "train gpt --data book.txt --model llama --attention local",
            "--model llama has only full attention, got --attention local",
        ),
        ("train gpt --data book.txt --attention differential --embed-dim 20 --num-heads 4", "must be even, got 5"),
    ],
)
def test_bad_cell_or_attention_is_refused_in_one_line(words, message, workdir, capsys):
    (workdir / "book.txt").write_text(LINE * 60)
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
