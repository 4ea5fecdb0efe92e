"""Many trainings on a screen: how far each is and how many are done, where a line can be written over; elsewhere a line for each."""

import io
import re

from rich.console import Console

from didact import recipes
from didact.cli.lines import Lines
from didact.train.sweep import sweep

FEW = {"data": "iris", "hidden": (4,), "epochs": 3, "batch": 32, "device": "cpu"}
AXES = {"lr": (1e-3, 1e-2)}


class Noted(Lines):
    """Keeps every line that was ever at the foot of the terminal: they are drawn too seldom to be found in what was written."""

    def __init__(self, console):
        super().__init__(console)
        self.foot = []

    def show(self, done, total, words):
        super().show(done, total, words)
        self.foot.append((done, total, words))


def shown(*, terminal, **given):
    screen = Noted(Console(file=io.StringIO(), force_terminal=terminal, width=120))
    sweep(recipes.mlp, AXES, tell=screen, done=screen.row, **FEW, **given)
    return screen


def test_on_a_terminal_the_training_says_how_far_it_is(here):
    screen = shown(terminal=True)
    steps = [foot for foot in screen.foot if "epoch" in foot[2]]
    assert re.fullmatch(r"epoch 3 of 3, step 12 of 12, 0\.0 s left", steps[-1][2])
    assert {(4, 12), (8, 12), (12, 12)} <= {foot[:2] for foot in steps}
    assert screen.bar.tasks[0].fields["facts"] == "2 of 2 done, 0 under way"
    screen.close()
    assert screen.bar is None


def test_in_a_pipe_each_training_has_its_line_and_its_answer(here):
    screen = shown(terminal=False)
    lines = screen.console.file.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines[::2]] == ["1/2", "2/2"] and len(lines) == 4
    assert screen.bar is None


def test_beside_each_other_they_are_counted(here):
    screen = shown(terminal=True, beside=2)
    assert [foot[2] for foot in screen.foot] == [
        "0 of 2 done, 1 under way", "0 of 2 done, 2 under way", "1 of 2 done, 1 under way", "2 of 2 done, 0 under way",
    ]  # fmt: skip
    screen.close()


def test_what_was_trained_before_is_done(here):
    sweep(recipes.mlp, AXES, **FEW)
    (file,) = here.glob("runs/sweeps/*/sweep.jsonl")
    file.write_text(file.read_text().splitlines(keepends=True)[0])
    assert shown(terminal=True).foot[0] == (1, 2, "1 of 2 done, 1 under way")


def test_what_is_trained_first_is_named():
    screen = Noted(Console(file=io.StringIO(), force_terminal=True))
    step = {"step": 3, "total": 12, "epoch": 0.75, "seconds_left": 4.0}
    screen("begin", {"what": "vqvae first", **step})
    for facts in ({"recipe": "cnn", "serves": "transfer"}, {"recipe": "transfer"}):
        screen("start", facts)
        screen("step", step)
    screen.drawing(5, 40)
    far = "epoch 0.75 of 3, step 3 of 12, 4.0 s left"
    assert [foot[2] for foot in screen.foot] == [f"vqvae first: {far}", f"cnn first: {far}", far]
    assert screen.bar.tasks[0].fields["facts"] == "5 of 40 steps of drawing"
    screen.close()


def test_nothing_moves_beside_a_clock():
    screen = Noted(Console(file=io.StringIO(), force_terminal=True, highlight=False))
    screen("measure", {"number": 1, "of": 3, "cell": {"width": 8}, "seed": 0})
    screen("round", {"number": 1, "of": 5, "seed": 0})
    assert screen.foot == [] and screen.bar is None and "round 1 of 5" in screen.console.file.getvalue()


def test_the_verb_leaves_nothing_at_the_foot(here, monkeypatch, capsys):
    from didact.cli import lines
    from didact.cli.main import main

    made = []
    monkeypatch.setattr(lines, "paper", lambda stderr: made.append(Console(file=io.StringIO(), force_terminal=True, width=120)) or made[0])
    assert main(["sweep", "mlp", "lr=1e-3,1e-2", "--data", "iris", "--hidden", "4", "--epochs", "2", "--device", "cpu"]) == 0
    assert "2 of 2 done" in (written := made[0].file.getvalue())
    assert written.endswith("\x1b[2K"), "the last line is wiped"
    assert "validation accuracy" in capsys.readouterr().out
