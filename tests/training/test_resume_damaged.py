"""What a kill or a power cut may leave beside or instead of a run's files, and what resume makes of it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import didact
from didact import files
from didact.api import resume
from didact.cli.main import main
from didact.registry import RECIPES
from didact.run import Run
from didact.training.loop import Trainer

SMALL = {"data": "iris", "hidden": (4,), "epochs": 6, "batch_size": 16}


@pytest.fixture(autouse=True)
def checkpoint_every_step(monkeypatch):
    monkeypatch.setattr(Trainer, "is_save_due", lambda self, gap: self.run is not None)


@pytest.fixture
def killed_run(workdir, monkeypatch) -> Run:
    """A run that died at step 20, with a best state behind it."""
    train_round = Trainer.train_round

    def die_at_step(self, stored, rows):
        if self.state.step == 20:
            raise SystemExit
        train_round(self, stored, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_round", die_at_step)
        with pytest.raises(SystemExit):
            didact.train(RECIPES["mlp"], **SMALL)
    return Run.open("mlp/latest")


def get_dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_resume_removes_leftovers_of_killed_writes(killed_run):
    """Our own temporary files, and the one that safetensors fills before ours: a checkpoint's size each."""
    leftovers = [f".state.safetensors.{get_dead_pid()}.tmp", ".tmpAb3dE9", f".run.json.{get_dead_pid()}.tmp"]
    for name in leftovers:
        (killed_run.folder / name).write_bytes(b"half")
    names = {p.name for p in resume(killed_run).folder.iterdir()}
    assert not names & set(leftovers) and not [name for name in names if "tmp" in name]


def test_write_removes_leftovers_of_dead_processes(tmp_path):
    leftover, live_file = tmp_path / f".report.html.{get_dead_pid()}.tmp", tmp_path / f".report.html.{os.getppid()}.tmp"
    for path in (leftover, live_file):
        path.write_text("half")
    files.write_text(tmp_path / "report.html", "whole")
    assert not leftover.exists() and live_file.exists()  # another process is in the middle of that one


def test_write_flushes_the_folder_after_the_rename(tmp_path, monkeypatch):
    flushed_paths = []
    fsync = os.fsync

    def record_fsync(descriptor: int) -> None:
        flushed_paths.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record_fsync)
    files.write_text(tmp_path / "x.json", "{}")
    assert flushed_paths[-1] == tmp_path and len(flushed_paths) == 2  # the file before, its folder after
    Run(tmp_path / "mlp" / "a").make_folder()
    assert flushed_paths[-1] == tmp_path / "mlp"


def test_log_is_flushed_before_the_state(workdir, monkeypatch):
    order = []
    sync_log, save_state = Run.sync_log, Run.save_state
    monkeypatch.setattr(Run, "sync_log", lambda self: (order.append("log"), sync_log(self)))
    monkeypatch.setattr(Run, "save_state", lambda self, state: (order.append("state"), save_state(self, state)))
    didact.train(RECIPES["mlp"], **SMALL)
    assert order == ["log", "state"] * (len(order) // 2) and order


def test_resume_refuses_best_weights_of_another_step(killed_run):
    best = killed_run.load_state()["state"]["best_step"]
    assert best > 5 and int(killed_run.read_header("model")["step"]) == best
    killed_run.save("model", killed_run.load("model"), step="5")
    with pytest.raises(ValueError, match=f"holds the weights of step 5, but the best so far were of step {best}"):
        resume(killed_run)
    killed_run.save("model", killed_run.load("model"))
    with pytest.raises(ValueError, match="holds the weights of step \\?"):
        resume(killed_run)


def test_resume_notes_a_truncated_log(killed_run):
    log = killed_run.folder / "metrics.jsonl"
    size = killed_run.load_state()["state"]["log_size"]
    os.truncate(log, size - 7)
    events = []
    resume(killed_run, on_event=lambda event, facts: events.append((event, facts)))
    notes = next(payload["notes"] for event, payload in events if event == "start")
    assert "metrics.jsonl has lost its last 7 bytes: the curves have a gap before step 20" in notes


@pytest.mark.parametrize(("old", "new"), [("b", "c"), ("y", "z"), ("red", "blue")])
def test_resume_refuses_data_whose_names_have_changed(old, new, workdir, monkeypatch):
    """A column, the target, a class: the numbers are the same, so that the fingerprint does not tell."""
    table = "a,b,y\n" + "".join(f"{i % 7},{i * i % 11},{'red' if i % 2 else 'green'}\n" for i in range(60))
    Path("t.csv").write_text(table)
    train_round = Trainer.train_round

    def die_at_step(self, stored, rows):
        if self.state.step == 3:
            raise SystemExit
        train_round(self, stored, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_round", die_at_step)
        with pytest.raises(SystemExit):
            didact.train(RECIPES["mlp"], data="t.csv", steps=6, hidden=(4,))
    Path("t.csv").write_text(re.sub(rf"\b{old}\b", new, table))
    with pytest.raises(ValueError, match=r"has changed since the run split it|has no column .y. to be the target"):
        resume(Run.open("mlp/latest"))
    Path("t.csv").write_text(table)
    assert resume(Run.open("mlp/latest")).metadata["status"] == "finished"


@pytest.mark.parametrize("damage", [
    lambda m: m.pop("plan"), lambda m: m["plan"].pop("num_examples"), lambda m: m.pop("layers"),
    lambda m: m.pop("health"), lambda m: m["settings"].pop("seed"), lambda m: m.pop("device"),
])  # fmt: skip
def test_resume_shows_what_it_trains_where_run_json_does_not_say_it(killed_run, damage, capsys):
    path = killed_run.folder / "run.json"
    metadata = json.loads(path.read_text())
    damage(metadata)
    path.write_text(json.dumps(metadata))
    assert main(["resume", str(killed_run.folder)]) == 0
    assert "42 steps of 16 examples (6 epochs)" in capsys.readouterr().err
    assert Run(killed_run.folder).metadata["status"] == "finished"


@pytest.mark.parametrize(("keys", "value"), [
    (("plan", "num_examples"), "7"), (("baselines", 0, "metrics"), 3), (("baselines", 0), None),
    (("health", "counts"), []), (("data", "source", "target"), 7), (("data", "source", "kind"), []),
])  # fmt: skip
def test_resume_refuses_values_of_another_kind_in_run_json(workdir, keys, value):
    run = didact.train(RECIPES["mlp"], **SMALL)
    metadata = json.loads((run.folder / "run.json").read_text())
    metadata["data"]["source"] |= {"target": "", "kind": "table"}
    entry = metadata
    for key in keys[:-1]:
        entry = entry[key]
    entry[keys[-1]] = value
    (run.folder / "run.json").write_text(json.dumps(metadata))
    name = re.escape("".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip("."))
    with pytest.raises(ValueError, match=f"run.json: {name} must be .*, got .*; the run's folder is damaged"):
        resume(Run(run.folder))


def test_resume_writes_the_report_of_a_run_that_was_killed_before_it(workdir):
    run = didact.train(RECIPES["mlp"], **SMALL)
    (run.folder / "report.html").unlink()
    leftover = run.folder / f".report.html.{get_dead_pid()}.tmp"
    leftover.write_text("half")
    before = (run.folder / "model.safetensors").read_bytes()
    assert main(["resume", str(run.folder)]) == 0
    assert (run.folder / "report.html").exists() and not leftover.exists()
    assert (run.folder / "model.safetensors").read_bytes() == before
    assert main(["resume", str(run.folder)]) == 2


@pytest.mark.parametrize("damage", [
    lambda data: data["class_counts"]["train"].pop(), lambda data: data["class_names"].pop(),
    lambda data: data["class_names"].append("d"),
])  # fmt: skip
def test_report_refuses_counts_of_other_classes(workdir, damage, capsys):
    run = didact.train(RECIPES["mlp"], **SMALL)
    metadata = json.loads((run.folder / "run.json").read_text())
    damage(metadata["data"])
    (run.folder / "run.json").write_text(json.dumps(metadata))
    assert main(["report", str(run.folder)]) == 2
    assert "run.json counts" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [lambda s: s[1].__setitem__(0, None), lambda s: s.pop(), lambda s: s.insert(0, "x")])
def test_damaged_statistics_of_a_series_are_refused(workdir, damage, capsys):
    run = didact.train(RECIPES["forecast"], hidden_size=4, window=12, steps=1)
    metadata = json.loads((run.folder / "run.json").read_text())
    damage(next(iter(metadata["data"]["encoder"]["statistics"].values())))
    (run.folder / "run.json").write_text(json.dumps(metadata))
    assert main(["predict", str(run.folder), "1,2,3"]) == 2
    assert "run.json does not describe a run" in capsys.readouterr().err
