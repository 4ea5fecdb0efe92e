"""Whoever waits for a drawing is told how far it is; and bits per dimension come with their formula."""

import io
from math import log

import pytest
from rich.console import Console

import didact
from didact.cli.main import main
from didact.cli.progress import Screen, Waiting
from didact.registry import RECIPES
from didact.report import page
from didact.report.words import formula

SMALL = {"width": 4, "depth": 1, "levels": 2, "steps": 2}


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(Waiting, "PATIENCE", 0.0)


def test_a_long_drawing_is_told_in_tenths_and_a_short_one_not(impatient):
    paper = io.StringIO()
    screen = Screen(Console(file=paper, width=200))
    for _ in range(2):                                           # the second begins anew
        for done in range(1, 41):
            screen.drawing(done, 40)
    lines = paper.getvalue().splitlines()
    assert len(lines) == 22 and lines[0] == lines[11] == "  1 of 40 steps of drawing"
    assert lines[10].startswith("  40 of 40 steps of drawing")
    Waiting.PATIENCE = 2.0
    screen.drawing(1, 2)
    screen.drawing(2, 2)
    assert len(paper.getvalue().splitlines()) == 22


def test_on_a_terminal_the_bar_says_it(impatient):
    screen = Screen(Console(file=io.StringIO(), force_terminal=True))
    facts = {"timed": 0, "total": 9, "step": 1, "loss": {}, "validation": {}, "watch": "loss"}
    facts |= {"lr": 1.0, "rows_per_second": 1.0, "seconds_left": 1.0}
    screen.on_step(facts)
    screen.drawing(3, 40)
    assert screen.bar.tasks[0].fields["facts"] == "3 of 40 steps of drawing" and screen.waiting is None
    screen.close()
    screen.drawing(39, 40)                                       # the gallery, when the bar is gone
    assert screen.waiting is not None
    screen.drawing(40, 40)
    assert screen.waiting is None


def test_glimpses_gallery_and_the_verb_tell(here, impatient, capsys):
    assert main(["train", "pixelcnn", *[word for name, value in SMALL.items() for word in (f"--{name}", str(value))]]) == 0
    out, told = capsys.readouterr()
    assert told.count(" 64 of 64 steps of drawing") >= 3         # glimpses at both ends and the samples of the gallery
    assert told.count(" 32 of 32 steps of drawing") == 3         # its completions
    assert "bits_per_dim = −log p(x) / (D log 2) = " in out and " / (64 · 0.6931)" in out
    assert main(["evaluate", "pixelcnn/latest"]) == 0
    assert capsys.readouterr().out.count("bits_per_dim = −log p(x) / (D log 2) = ") == 2
    assert main(["sample", "pixelcnn/latest", "--n", "3", "--to", "new.png"]) == 0
    assert " 64 of 64 steps of drawing" in capsys.readouterr().err
    assert main(["train", "diffusion", "--widths", "4", "--time", "4", "--T", "6", "--sampling-steps", "6", "--steps", "2"]) == 0
    assert " 6 of 6 steps of drawing" in capsys.readouterr().err
    assert main(["sample", "diffusion/latest", "--n", "600", "--to", "new.png"]) == 0
    assert " 12 of 12 steps of drawing" in capsys.readouterr().err                        # 512 and 88: six steps each


def test_bits_follow_from_nats(here):
    run = didact.train(RECIPES["realnvp"], data="digits", steps=1, hidden=4, couplings=2)
    test = run.facts["test"]
    how = formula("bits_per_dim", test)
    nats, size = (float(word) for word in how.split(" = ")[1].replace(" / (", " ").split()[:2])
    assert size == 64 and nats / (64 * log(2)) == pytest.approx(test["bits_per_dim"], abs=1e-3)
    assert how in page.write(run).read_text(encoding="utf-8")
    assert formula("frechet", {"frechet": 1.0, "log_likelihood": -3.0}) == formula("bits_per_dim", {"bits_per_dim": 1.0}) == ""


@pytest.mark.parametrize("name", ["pixelcnn", "pixelrnn", "realnvp"])
def test_show_prints_the_formula(name, capsys):
    assert main(["show", name]) == 0
    assert "−log p(x) / (D log 2)" in " ".join(capsys.readouterr().out.split())
