"""A run's folder: found by its name, held by one process, whole or not there."""

import subprocess
import sys

import pytest

import didact
from didact import recipes
from didact.data.load import load
from didact.errors import UsageError
from didact.run import Run, find

HOLD = """
import sys
from pathlib import Path
from didact.run import Run
with Run(Path(sys.argv[1])).held():
    print("held", flush=True)
    input()
"""


@pytest.fixture
def run(here):
    return didact.train(recipes.mlp, data="iris", hidden=(4,), epochs=1)


def test_a_run_is_trained_by_one_process_at_a_time(run):
    run.note(status="stopped")
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(run.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    with pytest.raises(UsageError, match="is being trained by another process"):
        didact.train.session.resume(run)
    other.kill()
    other.communicate()
    with run.held():
        pass


def test_what_a_killed_write_left_is_swept_up(run):
    left = run.folder / ".state.safetensors.4711.tmp"
    left.write_bytes(b"half")
    with run.held():
        assert not left.exists()
    assert run.has("state.safetensors")


def test_a_folder_that_another_run_made_in_the_same_second_is_left_alone(run, monkeypatch):
    before = {path.name: path.read_bytes() for path in run.folder.iterdir() if path.is_file()}
    monkeypatch.setattr(Run, "plan", lambda root, recipe: run)
    with pytest.raises(UsageError, match="is there already"):
        didact.train(recipes.mlp, data="iris", hidden=(7,), epochs=1)
    assert {path.name: path.read_bytes() for path in run.folder.iterdir() if path.is_file()} == before


def test_names_of_runs(run):
    root = run.folder.parent.parent
    for name in ("latest", "mlp/latest", f"{root}/mlp/latest", run.folder.name[-4:]):
        assert find(name, root) == run.folder
    with pytest.raises(UsageError, match="no run named 'nope'"):
        find("nope", root)
    with pytest.raises(UsageError, match=r"no run of 'consistency' under .*, which holds runs of mlp; train one first"):
        find("consistency/latest", root)
    with pytest.raises(UsageError, match=r"there is no run under .* yet; train one first"):
        find("mlp/latest", root / "empty")


def test_data_loaded_in_python_are_named_in_the_command(here):
    wine = didact.train(recipes.mlp, data=load("wine", seed=3), hidden=(4,), epochs=1)
    assert wine.facts["repeat"] == "didact train mlp --hidden 4 --epochs 1 --data wine --split-seed 3"
    (here / "own.csv").write_text("a,b,kind\n" + "".join(f"{i},{i % 7},{'xy'[i % 2]}\n" for i in range(60)))
    own = didact.train(recipes.mlp, data=load("own.csv", target="kind"), hidden=(4,), epochs=1)
    assert f"--data {here / 'own.csv'} --target kind" in own.facts["repeat"]


def test_an_interrupted_run_says_so(here, monkeypatch):
    monkeypatch.setattr("didact.train.loop.Training.asked", lambda self, patience: self.state.step == 3)
    with pytest.raises(didact.train.interrupt.Interrupted, match="stopped at step 3 of"):
        didact.train(recipes.mlp, data="iris", hidden=(4,), epochs=2, batch=16)
    assert Run.open("latest").facts["status"] == "stopped"
