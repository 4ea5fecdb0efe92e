"""Several trainings at once: the same answers as one after another, and nothing is lost when it is stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import pytest

from didact.errors import UsageError
from didact.recipes import mlp
from didact.registry import RECIPES
from didact.train import beside as module
from didact.train.beside import settle
from didact.train.sweep import sweep

FEW = {"data": "wine", "epochs": 2, "hidden": (4,)}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_beside_is_as_one_after_another(here):
    """Also where one diverges, and in the order of the plan whichever ends first."""
    begun: list[int] = []
    axes = {"lr": (1e-2, 1e18, 1e-3), "optimizer": ("sgd",)}
    (_, once), (folder, twice) = (
        sweep(mlp, axes, beside=n, runs=f"runs{n}", tell=lambda event, facts: begun.append(facts["number"]), **FEW | {"activation": "relu"})
        if n > 1 else sweep(mlp, axes, runs="runs1", **FEW | {"activation": "relu"})
        for n in (1, 2)
    )
    assert begun == [1, 2, 3]
    assert [row["cell"]["lr"] for row in twice] == [row["cell"]["lr"] for row in once] == [1e-2, 1e18, 1e-3]
    assert [row["validation"] for row in twice] == [row["validation"] for row in once]
    assert ["diverged" in row for row in twice] == [False, True, False]
    kept = [json.loads(line) for line in (folder / "sweep.jsonl").read_text().splitlines()]
    assert [row["run"] for row in kept] == [row["run"] for row in twice]


def test_a_recipe_of_this_process_alone_is_refused(here, monkeypatch):
    from dataclasses import replace

    own = replace(mlp, name="only_here")
    monkeypatch.setitem(RECIPES, "only_here", own)
    with pytest.raises(UsageError, match=r"'only_here' is known to the process that asked alone.*without --beside"):
        sweep(own, {"lr": (1e-3, 1e-2)}, beside=2, **FEW)


def test_gpus_are_taken_in_turn(monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(module.torch, "set_num_threads", lambda n: None)
    taken, seen = get_context("spawn").Value("i", 0), []
    for _ in range(3):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
        settle(1, 2, taken)
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert seen == ["4", "7", "4"]


@pytest.mark.slow
def test_stopped_it_keeps_what_is_trained_and_goes_on(here):
    words = [sys.executable, "-m", "didact", "sweep", "mlp", "lr=1e-3,1e-2,3e-3,3e-2", "--data", "digits", "--epochs=60", "--beside=2"]
    first = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (lines := list(Path("runs/sweeps").glob("*/sweep.jsonl"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    told = first.communicate(timeout=60)[1]
    assert first.returncode == 2 and "stopped; what was trained is kept" in told
    before = lines[0].read_text().splitlines()
    assert 1 <= len(before) < 4
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    after = lines[0].read_text().splitlines()
    assert len(after) == 4 and set(before) <= set(after)
