"""Progress of sampling; bits per dimension come with their formula."""

import io
from math import log

import pytest
from rich.console import Console

import didact
from didact.charts.format import format_metric_formula
from didact.cli.main import main
from didact.cli.progress import SlowTaskProgress, TrainingProgress
from didact.registry import RECIPES
from didact.report import page

SMALL = {"channels": 4, "num_layers": 1, "levels": 2, "steps": 2}


@pytest.fixture
def no_delay(monkeypatch):
    monkeypatch.setattr(SlowTaskProgress, "DELAY_S", 0.0)


def test_slow_task_progress_prints_tenths_of_a_long_sampling(no_delay):
    output = io.StringIO()
    progress = TrainingProgress(Console(file=output, width=200))
    for _ in range(2):                                           # the second is a new task
        for step in range(1, 41):
            progress.show_sampling(step, 40)
    lines = output.getvalue().splitlines()
    assert len(lines) == 22 and lines[0] == lines[11] == "  1 of 40 sampling steps"
    assert lines[10].startswith("  40 of 40 sampling steps")
    SlowTaskProgress.DELAY_S = 2.0
    progress.show_sampling(1, 2)
    progress.show_sampling(2, 2)
    assert len(output.getvalue().splitlines()) == 22


def test_long_evaluation_shows_its_progress(monkeypatch):
    output = io.StringIO()
    progress = TrainingProgress(Console(file=output, width=200))

    def evaluate() -> None:
        for done in range(1, 41):
            progress("evaluate_batch", {"split": "test", "done": done, "total": 40})

    evaluate()
    assert output.getvalue() == ""                              # it is quick
    monkeypatch.setattr("didact.cli.progress._QUIET_EVALUATION_S", 0.0)
    evaluate()
    lines = output.getvalue().splitlines()
    assert len(lines) == 11 and lines[0] == "  1 of 40 test examples evaluated"
    assert lines[10].startswith("  40 of 40 test examples evaluated, ")


def test_evaluate_shows_its_progress(workdir, no_delay, capsys):
    assert main(["train", "mlp", "--steps", "2"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "latest", "--json"]) == 0
    assert "  539 of 539 examples evaluated" in capsys.readouterr().err


def test_progress_bar_shows_sampling_steps_on_a_terminal(no_delay):
    progress = TrainingProgress(Console(file=io.StringIO(), force_terminal=True))
    payload = {"timed": 0, "total": 9, "step": 1, "loss": {}, "validation": {}, "monitor": "loss"}
    payload |= {"lr": 1.0, "rows_per_second": 1.0, "seconds_left": 1.0}
    progress.on_step(payload)
    progress.show_sampling(3, 40)
    assert progress.bar.tasks[0].fields["status"] == "3 of 40 sampling steps" and progress.sampling_progress is None
    progress.close()
    progress.show_sampling(39, 40)                                       # the gallery, when the bar is gone
    assert progress.sampling_progress is not None
    progress.show_sampling(40, 40)
    assert progress.sampling_progress is None


def test_train_evaluate_and_sample_show_sampling_progress(workdir, no_delay, capsys):
    flags = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["train", "pixelcnn", *flags]) == 0
    out, stderr = capsys.readouterr()
    # glimpses at both ends and the samples of the gallery
    assert stderr.count(" 64 of 64 sampling steps") >= 3
    assert stderr.count(" 32 of 32 sampling steps") == 3         # its completions
    assert "bits_per_dim = −log p(x) / (D log 2) = " in out and " / (64 · 0.6931)" in out
    assert main(["evaluate", "pixelcnn/latest"]) == 0
    assert capsys.readouterr().out.count("bits_per_dim = −log p(x) / (D log 2) = ") == 2
    assert main(["sample", "pixelcnn/latest", "--n", "3", "--output", "new.png"]) == 0
    assert " 64 of 64 sampling steps" in capsys.readouterr().err
    sizes = ["--channels", "4", "--time-dim", "4", "--timesteps", "6", "--sampling-steps", "6"]
    assert main(["train", "diffusion", *sizes, "--steps", "2"]) == 0
    assert " 6 of 6 sampling steps" in capsys.readouterr().err
    assert main(["sample", "diffusion/latest", "--n", "600", "--output", "new.png"]) == 0
    assert " 12 of 12 sampling steps" in capsys.readouterr().err                        # 512 and 88: six steps each


def test_bits_per_dim_formula_follows_from_nats(workdir):
    run = didact.train(RECIPES["realnvp"], data="digits", steps=1, hidden=4, num_couplings=2)
    test = run.metadata["test"]
    formula_text = format_metric_formula("bits_per_dim", test)
    nats, dimensions = (float(word) for word in formula_text.split(" = ")[1].replace(" / (", " ").split()[:2])
    assert dimensions == 64 and nats / (64 * log(2)) == pytest.approx(test["bits_per_dim"], abs=1e-3)
    assert formula_text in page.write_report(run).read_text(encoding="utf-8")
    assert (
        format_metric_formula("frechet", {"frechet": 1.0, "log_likelihood": -3.0})
        == format_metric_formula("bits_per_dim", {"bits_per_dim": 1.0})
        == ""
    )


@pytest.mark.parametrize("name", ["pixelcnn", "pixelrnn", "realnvp"])
def test_show_prints_the_bits_per_dim_formula(name, capsys):
    assert main(["show", name]) == 0
    assert "−log p(x) / (D log 2)" in " ".join(capsys.readouterr().out.split())
