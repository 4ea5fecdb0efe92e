"""`didact sample` on language models."""

import io
import json
import re

import pytest
from rich.console import Console

import didact
from didact.cli.main import main
from didact.cli.progress import SlowTaskProgress
from didact.registry import RECIPES

SMALL_GPT = {"num_layers": 1, "num_heads": 2, "embed_dim": 32, "context_length": 16, "steps": 60, "lr": 1e-2}


@pytest.fixture(scope="module")
def gpt_run(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    return didact.train(RECIPES["gpt"], data="python_topics", runs=str(runs), **SMALL_GPT)


def run_sample(capsys, run, *words):
    code = main(["sample", str(run.folder), *words])
    return code, *capsys.readouterr()


def test_sample_continues_the_prompt(gpt_run, capsys):
    code, out, _ = run_sample(capsys, gpt_run, "--prompt", "The class", "--tokens", "40", "--seed", "3")
    assert code == 0 and out.startswith("The class") and len(out) == len("The class") + 40 + 1     # and a line end
    assert run_sample(capsys, gpt_run, "--prompt", "The class", "--tokens", "40", "--seed", "3")[1] == out
    assert run_sample(capsys, gpt_run, "--prompt", "The class", "--tokens", "40", "--seed", "4")[1] != out


def test_sample_prints_several_texts_as_json(gpt_run, capsys):
    code, out, _ = run_sample(
        capsys, gpt_run, "--prompt", "a", "--tokens", "20", "--n", "3", "--top-k", "5", "--temperature", "0.7", "--json"
    )
    result = json.loads(out)
    assert code == 0 and len(set(result["texts"])) == 3 and all(len(text) == 20 for text in result["texts"])
    assert result["decoding"] == {"temperature": 0.7, "top_k": 5, "top_p": None, "num_beams": 1}


def test_greedy_and_beam_search_need_no_seed(gpt_run, capsys):
    one, two = (
        run_sample(capsys, gpt_run, "--prompt", "The ", "--tokens", "9", "--temperature", "0", "--seed", s)[1]
        for s in ("0", "1")
    )
    assert one == two
    assert run_sample(capsys, gpt_run, "--prompt", "The ", "--tokens", "9", "--beam", "3")[0] == 0


@pytest.mark.parametrize(("words", "complaint"), [
    (("--prompt", "é"), "the text holds characters unseen in training: 'é'; leave them out"),
    (("--prompt", "a" * 17), "the prompt has 17 tokens, but this model reads 16 at most; shorten it"),
    (("--prompt", ""), ""),
    (("--temperature", "-0.5"), "-0.5 is not in the range x>=0"),
    (("--top-k", "1000"), "the size of the vocabulary, got 1000"),
    (("--top-k", "0"), "top-k must be from 1 to"),
    (("--top-p", "2"), "top-p is a probability above 0 and up to 1, got 2"),
    (("--beam", "3", "--n", "2"), "beam search finds one text, got --num-samples 2; leave out --num-samples or"),
    (
        ("--beam", "3", "--tokens", "99"),
        "1 tokens of the prompt and 99 new ones are more than the 16 it can hold; generate fewer",
    ),
    (("--beam", "3", "--top-k", "2", "--tokens", "9"), "leave out temperature, top-k and top-p"),
    (("--label", "cat"), "--class does not apply"),
])
def test_sample_refuses_bad_text_options_in_one_line(gpt_run, capsys, words, complaint):
    code, out, err = run_sample(capsys, gpt_run, *words)
    if not complaint:          # an empty prompt is a new line
        assert code == 0
        return
    assert code == 2 and not out
    assert err.startswith("didact: ") and complaint in err and err.count("\n") == 1


def test_char_rnn_writes_text(tmp_path, capsys):
    (tmp_path / "book.txt").write_text("to be or not to be, that is the question.\n" * 120)
    run = didact.train(
        RECIPES["char_rnn"],
        data=str(tmp_path / "book.txt"),
        runs=str(tmp_path),
        steps=150,
        context_length=20,
        batch_size=16,
        lr=2e-2,
        hidden_size=32,
    )
    code, out, _ = run_sample(
        capsys, run, "--prompt", "to be or not to be, that", "--tokens", "17", "--temperature", "0"
    )
    # echo's line end makes the last of the 17 a pair
    assert code == 0 and out == "to be or not to be, that is the question.\n"
    assert run_sample(capsys, run, "--prompt", "to be or not to b", "--tokens", "3", "--beam", "3")[1].startswith(
        "to be or not to be, "
    )


def test_bpe_tokens_are_written_as_text(tmp_path, capsys):
    (tmp_path / "book.txt").write_text(
        "to be or not to be, that is the question: whether it is nobler to suffer.\n" * 150
    )
    words = [
        "train",
        "gpt",
        "--data",
        str(tmp_path / "book.txt"),
        "--tokens",
        "bpe",
        "--runs",
        str(tmp_path / "runs"),
        "--steps",
        "60",
    ]
    sizes = ["--num-layers", "1", "--num-heads", "2", "--embed-dim", "32", "--context-length", "16"]
    assert main([*words, *sizes, "--lr", "1e-2"]) == 0
    capsys.readouterr()
    code = main(
        [
            "sample",
            "latest",
            "--runs",
            str(tmp_path / "runs"),
            "--prompt",
            "to be or not",
            "--tokens",
            "4",
            "--temperature",
            "0",
        ]
    )
    out = capsys.readouterr().out
    assert code == 0 and out.startswith("to be or not to be, that")


@pytest.fixture(scope="module")
def runs_without_line_breaks(tmp_path_factory):
    """A text without a line break, as characters without a sign at all, and as words."""
    folder = tmp_path_factory.mktemp("unbroken")
    (folder / "flat.txt").write_text("abcdefgh" * 400)
    (folder / "book.txt").write_text("to be or not to be, that is the question. " * 120)
    (folder / "bare.txt").write_text("row row row your boat gently down the stream " * 160)
    kinds = {"flat": "characters", "book": "words", "bare": "words"}
    options_by_name = {
        name: {"data": str(folder / f"{name}.txt"), "tokens": kind, "runs": str(folder), **SMALL_GPT}
        for name, kind in kinds.items()
    }
    return {name: didact.train(RECIPES["gpt"], **options) for name, options in options_by_name.items()}


@pytest.mark.parametrize(
    ("name", "beginning"), [("flat", "bcdefgh"), ("book", "to be or not to be, that"), ("bare", "row")]
)
def test_sample_without_a_prompt_starts_with_a_known_token(runs_without_line_breaks, capsys, name, beginning):
    code, out, _ = run_sample(capsys, runs_without_line_breaks[name], "--tokens", "8", "--temperature", "0")
    assert code == 0 and beginning in out and len(out.split()) == (1 if name == "flat" else 8 - out.count(","))
    code, out, err = run_sample(capsys, runs_without_line_breaks[name], "--top-p", "2")
    # not of the prompt that was not given
    assert code == 2 and "top-p is a probability" in err


def test_sample_separates_words_from_the_prompt(runs_without_line_breaks, capsys):
    code, out, _ = run_sample(
        capsys, runs_without_line_breaks["book"], "--prompt", "to be or not", "--tokens", "8", "--temperature", "0"
    )
    assert code == 0 and out == "to be or not to be, that is the question.\n"
    assert (
        run_sample(
            capsys, runs_without_line_breaks["book"], "--prompt", "or not to be", "--tokens", "2", "--temperature", "0"
        )[1]
        == "or not to be, that\n"
    )
    _, out, _ = run_sample(
        capsys, runs_without_line_breaks["book"], "--prompt", "be or", "--tokens", "3", "--temperature", "0", "--json"
    )
    assert json.loads(out)["texts"] == [" not to be"]


def test_slow_text_generation_shows_progress(gpt_run, capsys, monkeypatch):
    _, _, err = run_sample(capsys, gpt_run, "--tokens", "50")
    assert not err
    monkeypatch.setattr(SlowTaskProgress, "DELAY_S", 0.0)
    code, out, err = run_sample(capsys, gpt_run, "--tokens", "50", "--json")
    lines = err.splitlines()
    assert code == 0 and json.loads(out)["texts"] and 8 <= len(lines) <= 11
    assert re.fullmatch(r"  45 of 50 tokens, [1-9][\d,]* a second", lines[-1])
    terminal_progress = SlowTaskProgress("tokens", Console(file=io.StringIO(), force_terminal=True))
    with terminal_progress:
        terminal_progress(3, 50)
    assert "3 of 50 tokens" in terminal_progress.console.file.getvalue()
    clock = iter((0.0, 10.0, 14.0))                                          # ten seconds of loading are not counted
    monkeypatch.setattr("didact.cli.progress.perf_counter", lambda: next(clock))
    progress = SlowTaskProgress("tokens", Console(file=io.StringIO()))
    progress(1, 50)
    progress(21, 50)
    assert progress.console.file.getvalue().splitlines() == ["  1 of 50 tokens", "  21 of 50 tokens, 5 a second"]
