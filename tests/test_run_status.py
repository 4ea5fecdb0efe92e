"""How far a run is: told by its folder and its lock together, without torch; and its log while it trains."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import didact
from didact.api import resume
from didact.cli.main import main
from didact.errors import UsageError
from didact.registry import RECIPES
from didact.run import Run
from didact.training import loop
from didact.training.interrupts import DivergedError
from didact.training.loop import Trainer

SMALL_RUN = {"data": "iris", "hidden": (4,), "epochs": 6, "batch_size": 16}
HOLD_LOCK_SCRIPT = """
import sys
from pathlib import Path
from didact.run import Run
with Run(Path(sys.argv[1])).lock():
    print("held", flush=True)
    input()
"""


@pytest.fixture
def trained_run(workdir) -> Run:
    return didact.train(RECIPES["mlp"], **SMALL_RUN | {"epochs": 1})


def exit_at_step(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """The process dies before it makes this step: nothing is saved or said."""
    train_round = Trainer.train_round

    def train_round_or_exit(self, stored, example_rows):
        if self.state.step == step:
            raise SystemExit
        train_round(self, stored, example_rows)

    monkeypatch.setattr(Trainer, "train_round", train_round_or_exit)


def test_status_of_a_killed_run_is_killed(trained_run):
    assert trained_run.status == "finished"
    trained_run.update_metadata(status="running")
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK_SCRIPT, str(trained_run.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    assert trained_run.status == "running"
    process.kill()
    process.communicate()
    assert trained_run.status == "killed"
    with trained_run.lock():
        assert trained_run.status == "running"    # asked by the process that trains itself
    trained_run.update_metadata(status="stopped")
    assert trained_run.status == "stopped"


def test_status_is_running_from_the_first_file_on(workdir):
    event_statuses = []

    def on_event(event: str, facts: dict) -> None:
        if event in ("start", "evaluate", "finish"):
            event_statuses.append((event, Run.open("latest").status))

    didact.train(RECIPES["mlp"], on_event=on_event, **SMALL_RUN)
    assert set(event_statuses) == {("start", "running"), ("evaluate", "running"), ("finish", "finished")}


def test_reading_status_does_not_block_training(trained_run):
    """Asking takes the lock for a moment; a training that begins in that moment waits for it."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom didact.run import Run\nwhile True: "
        "Run(Path(sys.argv[1])).is_held()\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", script, str(trained_run.folder)]) for _ in range(2)]
    try:
        time.sleep(0.5)
        for _ in range(300):
            with trained_run.lock():
                pass
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_list_runs_shows_killed_and_damaged_runs(trained_run, capsys):
    damaged_run = Run.create("runs", "cnn")
    (damaged_run.folder / "run.json").write_text("3")
    trained_run.update_metadata(status="running")
    capsys.readouterr()
    assert main(["list", "--runs", "--json"]) == 0
    by_name = {row["run"]: row for row in json.loads(capsys.readouterr().out)}
    assert (
        by_name[f"mlp/{trained_run.folder.name}"]["status"] == "killed"
        and by_name[f"mlp/{trained_run.folder.name}"]["data"] == "iris"
    )
    assert (
        by_name[f"cnn/{damaged_run.folder.name}"]["status"] == "damaged"
        and "run.json" in by_name[f"cnn/{damaged_run.folder.name}"]["error"]
    )
    assert main(["list", "--runs", "runs"]) == 0
    assert "killed" in capsys.readouterr().out
    assert main(["list", "--runs", "nowhere"]) == 0 and main(["list", "--runs", "--data"]) == 2


def test_report_shows_that_a_run_was_killed(workdir, monkeypatch):
    exit_at_step(monkeypatch, 20)
    with pytest.raises(SystemExit):
        didact.train(RECIPES["mlp"], **SMALL_RUN)
    run = Run.open("latest")
    page = didact.report.write_report(run).read_text()
    assert "it is killed" in page and "it is running" not in page
    assert "<td>killed</td>" in didact.report.compare_runs([run, run], Path("two.html")).read_text().replace(
        ' class="n"', ""
    )


def test_list_runs_does_not_import_torch(trained_run):
    code = "import sys\nfrom didact.cli.main import main\nassert main(['list', '--runs', '--json']) == 0\n"
    code += "print(sorted({'torch', 'numpy', 'pandas'} & set(sys.modules)))"
    stdout_lines = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert json.loads(stdout_lines[0])[0]["status"] == "finished" and stdout_lines[1] == "[]"


def test_metrics_are_written_within_the_progress_interval(workdir, monkeypatch):
    train_round, step_times, delays = Trainer.train_round, {}, []

    def slow_train_round(self, stored, example_rows):
        time.sleep(0.03)
        if self.state.step == 70:
            raise SystemExit
        train_round(self, stored, example_rows)
        now = time.perf_counter()
        step_times[self.state.step] = now
        written_steps = {row["step"] for row in self.run.metrics}
        delays.append(
            max((now - step_time for step, step_time in step_times.items() if step not in written_steps), default=0.0)
        )

    monkeypatch.setattr(Trainer, "train_round", slow_train_round)
    with pytest.raises(SystemExit):
        # judged every 50
        didact.train(RECIPES["mlp"], data="iris", hidden=(4,), steps=500, save_every=1000.0, log_every=1)
    assert len(step_times) == 70 and 0 < max(delays) < loop.PROGRESS_INTERVAL_S + 0.1


def test_resume_does_not_duplicate_log_lines(workdir, monkeypatch):
    uninterrupted_run = didact.train(RECIPES["mlp"], **SMALL_RUN, log_every=1)
    monkeypatch.setattr(loop, "PROGRESS_INTERVAL_S", 0.0)
    with monkeypatch.context() as patch:
        exit_at_step(patch, 20)
        with pytest.raises(SystemExit):
            didact.train(RECIPES["mlp"], **SMALL_RUN, log_every=1)
    run = Run.open("latest")
    last_logged_step, checkpoint_step = run.metrics[-1]["step"], run.load_state()["state"]["step"]
    assert last_logged_step > checkpoint_step, "nothing was written after the checkpoint: this proves nothing"
    resume(run)
    assert [row | {"seconds": 0} for row in run.metrics] == [row | {"seconds": 0} for row in uninterrupted_run.metrics]
    assert (run.folder / "model.safetensors").read_bytes() == (
        uninterrupted_run.folder / "model.safetensors"
    ).read_bytes()


def test_diverged_run_log_ends_at_its_last_checkpoint(workdir, monkeypatch):
    """The gradient of step 10 is no number, its loss is one: that line may be written before anyone knows."""
    monkeypatch.setattr(loop, "PROGRESS_INTERVAL_S", 0.0)
    with pytest.raises(DivergedError) as error:
        didact.train(RECIPES["mlp"], **SMALL_RUN, log_every=1, optimizer="sgd", lr=1e6, momentum=0.0)
    run = error.value.run
    assert all(row["step"] <= run.load_state()["state"]["step"] for row in run.metrics)
    assert run.load_state()["state"]["log_size"] == run.log_size


def test_resume_truncates_a_partial_log_line(workdir, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "is_save_due", lambda self, gap: self.run is not None)
        exit_at_step(patch, 20)
        with pytest.raises(SystemExit):
            didact.train(RECIPES["mlp"], **SMALL_RUN, log_every=1)
    run = Run.open("latest")
    log = run.folder / "metrics.jsonl"
    log.write_bytes(log.read_bytes()[:-7])
    resume(run)
    steps = [row["step"] for row in run.metrics if "train" in row]
    assert steps == [step for step in range(1, 43) if step != 20] and run.status == "finished"


@pytest.mark.parametrize("target", ["there.txt", "not-there.txt"])
def test_resume_does_not_follow_a_symlinked_log(target, workdir, monkeypatch):
    exit_at_step(monkeypatch, 3)
    with pytest.raises(SystemExit):
        didact.train(RECIPES["mlp"], **SMALL_RUN, log_every=1)
    monkeypatch.undo()
    monkeypatch.chdir(workdir)
    run, link_target = Run.open("latest"), workdir / target
    (run.folder / "metrics.jsonl").unlink(missing_ok=True)
    if target == "there.txt":
        link_target.write_text("mine\n" * 1000)
    (run.folder / "metrics.jsonl").symlink_to(link_target)
    with pytest.raises(UsageError, match=r"metrics\.jsonl"):
        resume(run)
    assert link_target.read_text() == "mine\n" * 1000 if target == "there.txt" else not link_target.exists()


def test_writing_the_log_does_not_change_the_weights(workdir, monkeypatch):
    """Reading the losses earlier changes no number of the training."""
    weights = didact.train(RECIPES["vae"], hidden=(8,), steps=6, log_every=1).load("model")
    monkeypatch.setattr(loop, "PROGRESS_INTERVAL_S", 0.0)
    other_weights = didact.train(RECIPES["vae"], hidden=(8,), steps=6, log_every=1).load("model")
    assert all(torch.equal(weights[name], other_weights[name]) for name in weights)
