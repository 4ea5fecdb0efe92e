"""A run's folder: found by its name, held by one process, whole or not there."""

import subprocess
import sys

import pytest

import didact
from didact import recipes
from didact.data.load import load
from didact.errors import UsageError
from didact.run import Run, find_run

HOLD_LOCK_SCRIPT = """
import sys
from pathlib import Path
from didact.run import Run
with Run(Path(sys.argv[1])).lock():
    print("held", flush=True)
    input()
"""


@pytest.fixture
def trained_run(workdir):
    return didact.train(recipes.mlp, data="iris", hidden=(4,), epochs=1)


def test_locked_run_is_trained_by_one_process_at_a_time(trained_run):
    trained_run.update_metadata(status="stopped")
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK_SCRIPT, str(trained_run.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    with pytest.raises(UsageError, match="is being trained by another process"):
        didact.training.resume.resume(trained_run)
    process.kill()
    process.communicate()
    with trained_run.lock():
        pass


def test_locked_removes_leftover_temporary_files(trained_run):
    leftover = trained_run.folder / ".state.safetensors.4711.tmp"
    leftover.write_bytes(b"half")
    with trained_run.lock():
        assert not leftover.exists()
    assert trained_run.has("state.safetensors")


def test_existing_run_folder_is_not_overwritten(trained_run, monkeypatch):
    files_before = {path.name: path.read_bytes() for path in trained_run.folder.iterdir() if path.is_file()}
    monkeypatch.setattr(Run, "at_new_path", lambda root, recipe: trained_run)
    with pytest.raises(UsageError, match="exists already"):
        didact.train(recipes.mlp, data="iris", hidden=(7,), epochs=1)
    assert {path.name: path.read_bytes() for path in trained_run.folder.iterdir() if path.is_file()} == files_before


def test_find_run_resolves_names(trained_run):
    root = trained_run.folder.parent.parent
    for name in ("latest", "mlp/latest", f"{root}/mlp/latest", trained_run.folder.name[-4:]):
        assert find_run(name, root) == trained_run.folder
    with pytest.raises(UsageError, match="no run named 'nope'"):
        find_run("nope", root)
    with pytest.raises(UsageError, match=r"no run of 'consistency' under .*, which holds runs of mlp; train one first"):
        find_run("consistency/latest", root)
    with pytest.raises(UsageError, match=r"there is no run under .* yet; train one first"):
        find_run("mlp/latest", root / "empty")


def test_reproduce_command_names_data_loaded_in_python(workdir):
    wine_run = didact.train(recipes.mlp, data=load("wine", seed=3), hidden=(4,), epochs=1)
    assert wine_run.metadata["command_to_repeat"] == "didact train mlp --hidden 4 --epochs 1 --data wine --split-seed 3"
    (workdir / "own.csv").write_text("a,b,kind\n" + "".join(f"{i},{i % 7},{'xy'[i % 2]}\n" for i in range(60)))
    csv_run = didact.train(recipes.mlp, data=load("own.csv", target="kind"), hidden=(4,), epochs=1)
    assert f"--data {workdir / 'own.csv'} --target kind" in csv_run.metadata["command_to_repeat"]


def test_interrupted_run_has_status_stopped(workdir, monkeypatch):
    monkeypatch.setattr("didact.training.loop.Trainer.stop_requested", lambda self, patience: self.state.step == 3)
    with pytest.raises(didact.training.interrupts.Interrupted, match="stopped at step 3 of"):
        didact.train(recipes.mlp, data="iris", hidden=(4,), epochs=2, batch_size=16)
    assert Run.open("latest").metadata["status"] == "stopped"
