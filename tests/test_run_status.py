"""How far a run is: told by its folder and its lock together, without torch; and its log while it trains."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import didact
from didact.cli.main import main
from didact.errors import UsageError
from didact.registry import RECIPES
from didact.run import Run
from didact.train import loop
from didact.train.interrupt import DivergedError
from didact.train.loop import Training
from didact.train.session import resume

SMALL = {"data": "iris", "hidden": (4,), "epochs": 6, "batch": 16}
HOLD = """
import sys
from pathlib import Path
from didact.run import Run
with Run(Path(sys.argv[1])).held():
    print("held", flush=True)
    input()
"""


@pytest.fixture
def run(here) -> Run:
    return didact.train(RECIPES["mlp"], **SMALL | {"epochs": 1})


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """The process dies before it makes this step: nothing is saved or said."""
    advance = Training.advance

    def dying(self, stored, rows):
        if self.state.step == step:
            raise SystemExit
        advance(self, stored, rows)

    monkeypatch.setattr(Training, "advance", dying)


def test_a_killed_run_is_not_running(run):
    assert run.status == "finished"
    run.note(status="running")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(run.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    assert run.status == "running"
    holder.kill()
    holder.communicate()
    assert run.status == "killed"
    with run.held():
        assert run.status == "running"    # asked by the process that trains itself
    run.note(status="stopped")
    assert run.status == "stopped"


def test_a_run_is_running_from_its_first_file_on(here):
    heard = []

    def tell(event: str, facts: dict) -> None:
        if event in ("start", "evaluate", "finish"):
            heard.append((event, Run.open("latest").status))

    didact.train(RECIPES["mlp"], tell=tell, **SMALL)
    assert set(heard) == {("start", "running"), ("evaluate", "running"), ("finish", "finished")}


def test_who_asks_does_not_keep_others_from_training(run):
    """Asking takes the lock for a moment; a training that begins in that moment waits for it."""
    asks = "import sys\nfrom pathlib import Path\nfrom didact.run import Run\nwhile True: Run(Path(sys.argv[1])).is_held()\n"
    others = [subprocess.Popen([sys.executable, "-c", asks, str(run.folder)]) for _ in range(2)]
    try:
        time.sleep(0.5)
        for _ in range(300):
            with run.held():
                pass
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_the_list_of_runs_tells_killed_and_damaged_ones(run, capsys):
    broken = Run.create("runs", "cnn")
    (broken.folder / "run.json").write_text("3")
    run.note(status="running")
    capsys.readouterr()
    assert main(["list", "--runs", "--json"]) == 0
    by_name = {row["run"]: row for row in json.loads(capsys.readouterr().out)}
    assert by_name[f"mlp/{run.folder.name}"]["status"] == "killed" and by_name[f"mlp/{run.folder.name}"]["data"] == "iris"
    assert by_name[f"cnn/{broken.folder.name}"]["status"] == "damaged" and "run.json" in by_name[f"cnn/{broken.folder.name}"]["wrong"]
    assert main(["list", "--runs", "runs"]) == 0
    assert "killed" in capsys.readouterr().out
    assert main(["list", "--runs", "nowhere"]) == 0 and main(["list", "--runs", "--data"]) == 2


def test_the_report_tells_a_killed_run(here, monkeypatch):
    stop_at(monkeypatch, 20)
    with pytest.raises(SystemExit):
        didact.train(RECIPES["mlp"], **SMALL)
    run = Run.open("latest")
    page = didact.report.write(run).read_text()
    assert "it is killed" in page and "it is running" not in page
    assert "<td>killed</td>" in didact.report.compare([run, run], Path("two.html")).read_text().replace(' class="n"', "")


def test_runs_are_listed_without_torch(run):
    code = "import sys\nfrom didact.cli.main import main\nassert main(['list', '--runs', '--json']) == 0\n"
    code += "print(sorted({'torch', 'numpy', 'pandas'} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert json.loads(told[0])[0]["status"] == "finished" and told[1] == "[]"


def test_measurements_are_written_a_quarter_of_a_second_after_they_are_made(here, monkeypatch):
    advance, measured, late = Training.advance, {}, []

    def slow(self, stored, rows):
        time.sleep(0.03)
        if self.state.step == 70:
            raise SystemExit
        advance(self, stored, rows)
        now = time.perf_counter()
        measured[self.state.step] = now
        written = {row["step"] for row in self.run.metrics}
        late.append(max((now - then for step, then in measured.items() if step not in written), default=0.0))

    monkeypatch.setattr(Training, "advance", slow)
    with pytest.raises(SystemExit):
        didact.train(RECIPES["mlp"], data="iris", hidden=(4,), steps=500, save_every=1000.0, log_every=1)    # judged every 50
    assert len(measured) == 70 and 0 < max(late) < loop.BREATH + 0.1


def test_lines_written_after_the_last_checkpoint_are_not_there_twice(here, monkeypatch):
    whole = didact.train(RECIPES["mlp"], **SMALL, log_every=1)
    monkeypatch.setattr(loop, "BREATH", 0.0)
    with monkeypatch.context() as patch:
        stop_at(patch, 20)
        with pytest.raises(SystemExit):
            didact.train(RECIPES["mlp"], **SMALL, log_every=1)
    run = Run.open("latest")
    logged, kept = run.metrics[-1]["step"], run.load_state()["state"]["step"]
    assert logged > kept, "nothing was written after the checkpoint: this proves nothing"
    resume(run)
    assert [row | {"seconds": 0} for row in run.metrics] == [row | {"seconds": 0} for row in whole.metrics]
    assert (run.folder / "model.safetensors").read_bytes() == (whole.folder / "model.safetensors").read_bytes()


def test_a_diverged_run_keeps_no_line_behind_its_last_good_state(here, monkeypatch):
    """The gradient of step 10 is no number, its loss is one: that line may be written before anyone knows."""
    monkeypatch.setattr(loop, "BREATH", 0.0)
    with pytest.raises(DivergedError) as error:
        didact.train(RECIPES["mlp"], **SMALL, log_every=1, optimizer="sgd", lr=1e6, momentum=0.0)
    run = error.value.run
    assert all(row["step"] <= run.load_state()["state"]["step"] for row in run.metrics)
    assert run.load_state()["state"]["log_size"] == run.log_size


def test_half_a_line_is_cut_before_the_next_is_written(here, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Training, "save_due", lambda self, gap: self.run is not None)
        stop_at(patch, 20)
        with pytest.raises(SystemExit):
            didact.train(RECIPES["mlp"], **SMALL, log_every=1)
    run = Run.open("latest")
    log = run.folder / "metrics.jsonl"
    log.write_bytes(log.read_bytes()[:-7])
    resume(run)
    steps = [row["step"] for row in run.metrics if "train" in row]
    assert steps == [step for step in range(1, 43) if step != 20] and run.status == "finished"


@pytest.mark.parametrize("target", ["there.txt", "not-there.txt"])
def test_a_link_in_place_of_the_log_is_not_followed(target, here, monkeypatch):
    stop_at(monkeypatch, 3)
    with pytest.raises(SystemExit):
        didact.train(RECIPES["mlp"], **SMALL, log_every=1)
    monkeypatch.undo()
    monkeypatch.chdir(here)
    run, other = Run.open("latest"), here / target
    (run.folder / "metrics.jsonl").unlink(missing_ok=True)
    if target == "there.txt":
        other.write_text("mine\n" * 1000)
    (run.folder / "metrics.jsonl").symlink_to(other)
    with pytest.raises(UsageError, match=r"metrics\.jsonl"):
        resume(run)
    assert other.read_text() == "mine\n" * 1000 if target == "there.txt" else not other.exists()


def test_weights_stay_exact_while_the_log_is_written(here, monkeypatch):
    """Reading the losses earlier changes no number of the training."""
    one = didact.train(RECIPES["vae"], widths=(8,), steps=6, log_every=1).load("model")
    monkeypatch.setattr(loop, "BREATH", 0.0)
    other = didact.train(RECIPES["vae"], widths=(8,), steps=6, log_every=1).load("model")
    assert all(torch.equal(one[name], other[name]) for name in one)
