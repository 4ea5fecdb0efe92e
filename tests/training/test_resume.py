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
import didact.recipes, didact.training.loop as loop, didact.files as files
from didact.cli.main import main
loop.MIN_SAVE_INTERVAL_S = 0.0
where, when = sys.argv[1], int(sys.argv[2])

def die():
    os.kill(os.getpid(), signal.SIGKILL)

if where == "round":
    train_round, count = loop.Trainer.train_round, [0]
    def train_and_count(self, *args):
        train_round(self, *args)
        count[0] += 1
        if count[0] == when: die()
    loop.Trainer.train_round = train_and_count
if where == "writing":
    write, count = files.write_tensors, [0]
    def write_half_and_die(path, tensors, **header):
        count[0] += 1
        if count[0] == when:
            temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            write(path.with_name("whole"), tensors, **header)
            data = path.with_name("whole").read_bytes()
            path.with_name("whole").unlink()
            temporary.write_bytes(data[: len(data) // 2])
            die()
        write(path, tensors, **header)
    files.write_tensors = write_half_and_die
sys.exit(main(sys.argv[3:]))
"""

ARGUMENTS = [
    *("--epochs", "4", "--hidden", "16", "--dropout", "0.3", "--ema", "0.9", "--augment", "noise", "--clip-norm", "1"),
    *("--save-every", "0.01", "--seed", "5", "--optimizer", "adamw", "--json"),
]


def run_child(where: str, when: int, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", CHILD, where, str(when), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )


def hash_weights(run: Run) -> dict[str, str]:
    return {
        name: hashlib.sha256((run.folder / f"{name}.safetensors").read_bytes()).hexdigest()
        for name in ("model", "test")
    }


def get_only_run(folder: Path) -> Run:
    (metadata_file,) = folder.glob("runs/mlp/*/run.json")
    return Run(metadata_file.parent)


@pytest.fixture(scope="module")
def uninterrupted_run(tmp_path_factory):
    """The same training, never killed."""
    folder = tmp_path_factory.mktemp("whole")
    process = run_child("never", 0, ["train", "mlp", *ARGUMENTS], folder)
    assert process.returncode == 0, process.stderr
    return get_only_run(folder)


def choose_kill_points() -> list[Any]:
    generator = random.Random(2)
    kill_points = [("round", generator.randrange(1, 160)) for _ in range(2)] + [
        ("writing", 2),
        ("writing", generator.randrange(4, 40)),
    ]
    return [
        kill_points[0],
        kill_points[2],
        *(pytest.param(*moment, marks=pytest.mark.slow) for moment in (kill_points[1], kill_points[3])),
    ]


@pytest.mark.parametrize(("where", "when"), choose_kill_points())
def test_killed_and_resumed_run_is_byte_identical(where, when, uninterrupted_run, tmp_path):
    killed_process = run_child(where, when, ["train", "mlp", *ARGUMENTS], tmp_path)
    assert killed_process.returncode == -signal.SIGKILL, killed_process.stderr
    resumed_process = run_child("never", 0, ["resume", "latest", "--json"], tmp_path)
    assert resumed_process.returncode == 0, resumed_process.stderr
    run = get_only_run(tmp_path)
    assert hash_weights(run) == hash_weights(uninterrupted_run)
    assert json.loads(resumed_process.stdout)["test"] == uninterrupted_run.metadata["test"]
    assert run.metadata["fingerprint"] == uninterrupted_run.metadata["fingerprint"]
    steps = [(row["step"], "validation" in row) for row in run.metrics]
    # no line lost, none twice
    assert steps == [(row["step"], "validation" in row) for row in uninterrupted_run.metrics]


@pytest.mark.slow
def test_run_killed_twice_is_byte_identical(uninterrupted_run, tmp_path):
    run_child("round", 30, ["train", "mlp", *ARGUMENTS], tmp_path)
    run_child("round", 40, ["resume", "latest"], tmp_path)
    assert run_child("never", 0, ["resume", "latest"], tmp_path).returncode == 0
    assert hash_weights(get_only_run(tmp_path)) == hash_weights(uninterrupted_run)


def test_ctrl_c_saves_and_says_how_to_resume(tmp_path, uninterrupted_run):
    words = [sys.executable, "-m", "didact", "train", "mlp", "--epochs", "100000", "--hidden", "16"]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("runs/mlp/*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    last_line = errors.strip().splitlines()[-1]
    assert process.returncode == 2 and "Traceback" not in errors
    assert last_line.startswith("didact: stopped at step") and "didact resume runs/mlp/" in last_line
    state = get_only_run(tmp_path).load_state()["state"]
    assert f"stopped at step {state['step']} " in last_line


def test_resume_refuses_a_finished_run(uninterrupted_run, capsys):
    assert main(["resume", str(uninterrupted_run.folder)]) == 2
    assert "is finished" in capsys.readouterr().err


def test_write_tree_round_trips_without_pickle(tmp_path):
    tree = {
        "a": [torch.arange(3), 2.5, None],
        7: {"b": (True, "x")},
        "c": torch.zeros(2, 0),
        "d": torch.tensor(1.5, dtype=torch.float64),
    }
    files.write_tree(tmp_path / "tree", tree)
    loaded_tree = files.read_tree(tmp_path / "tree")
    assert loaded_tree["a"][1:] == [2.5, None] and loaded_tree[7] == {"b": (True, "x")}
    assert (
        torch.equal(loaded_tree["a"][0], tree["a"][0])
        and loaded_tree["c"].shape == (2, 0)
        and loaded_tree["d"].dtype == torch.float64
    )


def test_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "x.json"
    files.write_json(path, {"good": 1})

    def write_half_and_fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match="No space left"):
        files.atomic_write(path, write_half_and_fail)
    assert files.read_json(path) == {"good": 1} and list(tmp_path.iterdir()) == [path]
