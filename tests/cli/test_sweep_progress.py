"""Progress of a sweep: on a terminal a progress bar, elsewhere two lines per training."""

import io
import re

from rich.console import Console

from didact import recipes
from didact.cli.sweep_progress import SweepProgress
from didact.training.sweeps.sweep import sweep

FAST_OPTIONS = {"data": "iris", "hidden": (4,), "epochs": 3, "batch_size": 32, "device": "cpu"}
AXES = {"lr": (1e-3, 1e-2)}


class RecordingProgress(SweepProgress):
    """Records every status of the progress bar, which is redrawn too seldom to show them all."""

    def __init__(self, console):
        super().__init__(console)
        self.statuses = []

    def _update_bar(self, done, total, text):
        super()._update_bar(done, total, text)
        self.statuses.append((done, total, text))


def show_sweep(*, terminal, **options):
    progress = RecordingProgress(Console(file=io.StringIO(), force_terminal=terminal, width=120))
    sweep(recipes.mlp, AXES, on_event=progress, on_row=progress.report_row, **FAST_OPTIONS, **options)
    return progress


def test_sweep_progress_shows_epochs_and_steps_on_a_terminal(workdir):
    progress = show_sweep(terminal=True)
    steps = [status for status in progress.statuses if "epoch" in status[2]]
    assert re.fullmatch(r"epoch 3 of 3, step 12 of 12, 0\.0 s left", steps[-1][2])
    assert {(4, 12), (8, 12), (12, 12)} <= {status[:2] for status in steps}
    assert progress.bar.tasks[0].fields["status"] == "2 of 2 done, 0 running"
    progress.close()
    assert progress.bar is None


def test_sweep_progress_prints_two_lines_per_training_in_a_pipe(workdir):
    progress = show_sweep(terminal=False)
    lines = progress.console.file.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines[::2]] == ["1/2", "2/2"] and len(lines) == 4
    assert progress.bar is None


def test_sweep_progress_counts_parallel_trainings(workdir):
    progress = show_sweep(terminal=True, num_workers=2)
    assert [status[2] for status in progress.statuses] == [
        "0 of 2 done, 1 running", "0 of 2 done, 2 running", "1 of 2 done, 1 running", "2 of 2 done, 0 running",
    ]  # fmt: skip
    progress.close()


def test_sweep_progress_counts_earlier_trainings_as_done(workdir):
    sweep(recipes.mlp, AXES, **FAST_OPTIONS)
    (file,) = workdir.glob("runs/sweeps/*/sweep.jsonl")
    file.write_text(file.read_text().splitlines(keepends=True)[0])
    assert show_sweep(terminal=True).statuses[0] == (1, 2, "1 of 2 done, 1 running")


def test_sweep_progress_names_the_source_run_that_is_trained_first():
    progress = RecordingProgress(Console(file=io.StringIO(), force_terminal=True))
    step = {"step": 3, "total": 12, "epoch": 0.75, "seconds_left": 4.0}
    progress("begin", {"task": "vqvae first", **step})
    for payload in ({"recipe": "cnn", "trained_for": "transfer"}, {"recipe": "transfer"}):
        progress("start", payload)
        progress("step", step)
    progress.show_sampling(5, 40)
    position = "epoch 0.75 of 3, step 3 of 12, 4.0 s left"
    assert [status[2] for status in progress.statuses] == [
        f"vqvae first: {position}",
        f"cnn first: {position}",
        position,
    ]
    assert progress.bar.tasks[0].fields["status"] == "5 of 40 sampling steps"
    progress.close()


def test_sweep_progress_draws_no_bar_while_timing():
    progress = RecordingProgress(Console(file=io.StringIO(), force_terminal=True, highlight=False))
    progress("measure", {"number": 1, "of": 3, "cell": {"width": 8}, "seed": 0})
    progress("round", {"number": 1, "of": 5, "seed": 0})
    assert progress.statuses == [] and progress.bar is None and "round 1 of 5" in progress.console.file.getvalue()


def test_sweep_verb_clears_its_status_line(workdir, monkeypatch, capsys):
    from didact.cli import sweep_progress
    from didact.cli.main import main

    consoles = []
    monkeypatch.setattr(
        sweep_progress,
        "make_console",
        lambda stderr: consoles.append(Console(file=io.StringIO(), force_terminal=True, width=120)) or consoles[0],
    )
    assert (
        main(["sweep", "mlp", "lr=1e-3,1e-2", "--data", "iris", "--hidden", "4", "--epochs", "2", "--device", "cpu"])
        == 0
    )
    assert "2 of 2 done" in (output := consoles[0].file.getvalue())
    assert output.endswith("\x1b[2K"), "the last line is wiped"
    assert "validation accuracy" in capsys.readouterr().out
