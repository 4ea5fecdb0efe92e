"""A run killed at any moment resumes and ends with the very same bytes."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from didact import files
from didact.cli.main import main
from didact.run import Run

pytestmark = pytest.mark.xdist_group("resume")  # one worker: the run that was never killed is made once

# A child that trains with dropout, averaged weights and augmentation, checkpointing often. KILL names where it dies:
# after a number of rounds, or inside the writing of a checkpoint, halfway through the file.
CHILD = """
import os, signal, sys
import torch
torch.set_num_threads(1)
import didact.recipes, didact.train.loop as loop, didact.files as files
from didact.cli.main import main
loop.SAVE_GAP = 0.0
where, when = sys.argv[1], int(sys.argv[2])

def die():
    os.kill(os.getpid(), signal.SIGKILL)

if where == "round":
    advance, count = loop.Training.advance, [0]
    def counted(self, *words):
        advance(self, *words)
        count[0] += 1
        if count[0] == when: die()
    loop.Training.advance = counted
if where == "writing":
    write, count = files.write_tensors, [0]
    def broken(path, tensors, **facts):
        count[0] += 1
        if count[0] == when:
            beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            write(path.with_name("whole"), tensors, **facts)
            data = path.with_name("whole").read_bytes()
            path.with_name("whole").unlink()
            beside.write_bytes(data[: len(data) // 2])
            die()
        write(path, tensors, **facts)
    files.write_tensors = broken
sys.exit(main(sys.argv[3:]))
"""

ARGUMENTS = [
    *("--epochs", "4", "--hidden", "16", "--dropout", "0.3", "--ema", "0.9", "--augment", "noise", "--clip-norm", "1"),
    *("--save-every", "0.01", "--seed", "5", "--optimizer", "adamw", "--json"),
]


def child(where: str, when: int, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", CHILD, where, str(when), *words], cwd=folder, capture_output=True, text=True, env=environment, timeout=120
    )


def digest(run: Run) -> dict[str, str]:
    return {name: hashlib.sha256((run.folder / f"{name}.safetensors").read_bytes()).hexdigest() for name in ("model", "test")}


def only_run(folder: Path) -> Run:
    (found,) = folder.glob("runs/mlp/*/run.json")
    return Run(found.parent)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same training, never killed."""
    folder = tmp_path_factory.mktemp("whole")
    done = child("never", 0, ["train", "mlp", *ARGUMENTS], folder)
    assert done.returncode == 0, done.stderr
    return only_run(folder)


def moments() -> list[Any]:
    generator = random.Random(2)
    found = [("round", generator.randrange(1, 160)) for _ in range(2)] + [("writing", 2), ("writing", generator.randrange(4, 40))]
    return [found[0], found[2], *(pytest.param(*moment, marks=pytest.mark.slow) for moment in (found[1], found[3]))]


@pytest.mark.parametrize(("where", "when"), moments())
def test_killed_and_resumed_is_byte_identical(where, when, whole, tmp_path):
    killed = child(where, when, ["train", "mlp", *ARGUMENTS], tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = child("never", 0, ["resume", "latest", "--json"], tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    run = only_run(tmp_path)
    assert digest(run) == digest(whole)
    assert json.loads(resumed.stdout)["test"] == whole.facts["test"]
    assert run.facts["fingerprint"] == whole.facts["fingerprint"]
    steps = [(row["step"], "validation" in row) for row in run.metrics]
    assert steps == [(row["step"], "validation" in row) for row in whole.metrics]  # no line lost, none twice


@pytest.mark.slow
def test_killed_twice(whole, tmp_path):
    child("round", 30, ["train", "mlp", *ARGUMENTS], tmp_path)
    child("round", 40, ["resume", "latest"], tmp_path)
    assert child("never", 0, ["resume", "latest"], tmp_path).returncode == 0
    assert digest(only_run(tmp_path)) == digest(whole)


def test_ctrl_c_saves_and_says_how_to_resume(tmp_path, whole):
    words = [sys.executable, "-m", "didact", "train", "mlp", "--epochs", "100000", "--hidden", "16"]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("runs/mlp/*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    last = errors.strip().splitlines()[-1]
    assert process.returncode == 2 and "Traceback" not in errors
    assert last.startswith("didact: stopped at step") and "didact resume runs/mlp/" in last
    state = only_run(tmp_path).load_state()["state"]
    assert f"stopped at step {state['step']} " in last


def test_resuming_a_finished_run_is_refused(whole, capsys):
    assert main(["resume", str(whole.folder)]) == 2
    assert "is finished" in capsys.readouterr().err


def test_trees_round_trip_without_pickle(tmp_path):
    tree = {"a": [torch.arange(3), 2.5, None], 7: {"b": (True, "x")}, "c": torch.zeros(2, 0), "d": torch.tensor(1.5, dtype=torch.float64)}
    files.write_tree(tmp_path / "tree", tree)
    back = files.read_tree(tmp_path / "tree")
    assert back["a"][1:] == [2.5, None] and back[7] == {"b": (True, "x")}
    assert torch.equal(back["a"][0], tree["a"][0]) and back["c"].shape == (2, 0) and back["d"].dtype == torch.float64


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.json"
    files.write_json(path, {"good": 1})

    def fail(beside: Path) -> None:
        beside.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match="No space left"):
        files.replace_with(path, fail)
    assert files.read_json(path) == {"good": 1} and list(tmp_path.iterdir()) == [path]
