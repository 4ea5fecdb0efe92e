"""What a kill or a power cut may leave beside or instead of a run's files, and what resume makes of it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import didact
from didact import files
from didact.registry import RECIPES
from didact.run import Run
from didact.train.loop import Training
from didact.train.session import resume

SMALL = {"data": "iris", "hidden": (4,), "epochs": 6, "batch": 16}


@pytest.fixture(autouse=True)
def checkpoint_every_step(monkeypatch):
    monkeypatch.setattr(Training, "save_due", lambda self, gap: self.run is not None)


@pytest.fixture
def killed_run(here, monkeypatch) -> Run:
    """A run that died at step 20, with a best state behind it."""
    advance = Training.advance

    def dying(self, stored, rows):
        if self.state.step == 20:
            raise SystemExit
        advance(self, stored, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "advance", dying)
        with pytest.raises(SystemExit):
            didact.train(RECIPES["mlp"], **SMALL)
    return Run.open("mlp/latest")


def dead_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_leftovers_of_killed_writes_are_removed(killed_run):
    """Our own temporary files, and the one that safetensors fills before ours: a checkpoint's size each."""
    gone = [f".state.safetensors.{dead_process()}.tmp", ".tmpAb3dE9", f".run.json.{dead_process()}.tmp"]
    for name in gone:
        (killed_run.folder / name).write_bytes(b"half")
    names = {p.name for p in resume(killed_run).folder.iterdir()}
    assert not names & set(gone) and not [name for name in names if "tmp" in name]


def test_a_finished_run_loses_its_leftovers_when_its_file_is_written_again(tmp_path):
    left, other = tmp_path / f".report.html.{dead_process()}.tmp", tmp_path / f".report.html.{os.getppid()}.tmp"
    for path in (left, other):
        path.write_text("half")
    files.write_text(tmp_path / "report.html", "whole")
    assert not left.exists() and other.exists()  # another process is in the middle of that one


def test_folders_are_flushed_after_a_rename(tmp_path, monkeypatch):
    flushed = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    files.write_text(tmp_path / "x.json", "{}")
    assert flushed[-1] == tmp_path and len(flushed) == 2  # the file before, its folder after
    Run(tmp_path / "mlp" / "a").make()
    assert flushed[-1] == tmp_path / "mlp"


def test_the_log_is_flushed_before_the_state_that_counts_on_it(here, monkeypatch):
    order = []
    sync_log, save_state = Run.sync_log, Run.save_state
    monkeypatch.setattr(Run, "sync_log", lambda self: (order.append("log"), sync_log(self)))
    monkeypatch.setattr(Run, "save_state", lambda self, state: (order.append("state"), save_state(self, state)))
    didact.train(RECIPES["mlp"], **SMALL)
    assert order == ["log", "state"] * (len(order) // 2) and order


def test_best_weights_older_than_the_state_says_are_refused(killed_run):
    best = killed_run.load_state()["state"]["best_step"]
    assert best > 5 and int(killed_run.header("model")["step"]) == best
    killed_run.save("model", killed_run.load("model"), step="5")
    with pytest.raises(ValueError, match=f"holds the weights of step 5, but the best so far were of step {best}"):
        resume(killed_run)
    killed_run.save("model", killed_run.load("model"))
    with pytest.raises(ValueError, match="holds the weights of step \\?"):
        resume(killed_run)


def test_a_log_that_lost_its_tail_is_said(killed_run):
    log = killed_run.folder / "metrics.jsonl"
    size = killed_run.load_state()["state"]["log_size"]
    os.truncate(log, size - 7)
    heard = []
    resume(killed_run, tell=lambda event, facts: heard.append((event, facts)))
    notes = next(facts["notes"] for event, facts in heard if event == "start")
    assert "metrics.jsonl has lost its last 7 bytes: the curves have a gap before step 20" in notes


@pytest.mark.parametrize(("old", "new"), [("b", "c"), ("y", "z"), ("red", "blue")])
def test_names_that_have_changed_since_the_split_are_refused(old, new, here, monkeypatch):
    """A column, the target, a class: the numbers are the same, so that the fingerprint does not tell."""
    table = "a,b,y\n" + "".join(f"{i % 7},{i * i % 11},{'red' if i % 2 else 'green'}\n" for i in range(60))
    Path("t.csv").write_text(table)
    advance = Training.advance

    def dying(self, stored, rows):
        if self.state.step == 3:
            raise SystemExit
        advance(self, stored, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "advance", dying)
        with pytest.raises(SystemExit):
            didact.train(RECIPES["mlp"], data="t.csv", steps=6, hidden=(4,))
    Path("t.csv").write_text(re.sub(rf"\b{old}\b", new, table))
    with pytest.raises(ValueError, match=r"has changed since the run split it|has no column .y. to be the target"):
        resume(Run.open("mlp/latest"))
    Path("t.csv").write_text(table)
    assert resume(Run.open("mlp/latest")).facts["status"] == "finished"
