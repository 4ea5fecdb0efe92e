"""One process or two: the same weights, and only the first one writes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from making import classify

from didact.errors import UsageError
from didact.run import Run
from didact.train.distributed import Group, buckets
from didact.train.loop import Plan, cut

pytestmark = pytest.mark.xdist_group("distributed")  # one worker: what two tests look at is trained once


def begin(folder, processes: int, *words: str) -> subprocess.Popen:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "didact"] if processes == 1 else [
        sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", f"--master-port={port}", "-m", "didact",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *words, "--json"], cwd=folder, stdout=pipe, stderr=pipe, text=True, env=environment)


def launch(folder, processes: int, *words: str) -> dict:
    started = begin(folder, processes, *words)
    out, said = started.communicate(timeout=240)
    assert started.returncode == 0, said[-3000:]
    return json.loads(out)


WORDS = ("train", "mlp", "--data", "wine", "--epochs", "3", "--hidden", "16", "--dropout", "0", "--batch", "33")


@pytest.fixture(scope="module")
def one_and_two(tmp_path_factory):
    return tuple(launch(tmp_path_factory.mktemp(f"of{n}"), n, *WORDS, "--runs", str(tmp_path_factory.mktemp(f"runs{n}"))) for n in (1, 2))


def test_two_processes_end_where_one_does(one_and_two):
    """124 rows in batches of 33: parts of 17 and 16, and a last batch of 25."""
    one, two = (Run.open(run["run"]) for run in one_and_two)
    ours, theirs = one.load("model"), two.load("model")
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(theirs[name], ours[name], atol=1e-5, rtol=1e-5)
    for split in ("validation", "test"):
        for metric, value in one_and_two[0][split].items():
            assert one_and_two[1][split][metric] == pytest.approx(value, abs=1e-5), (split, metric)
    assert two.facts["processes"] == 2
    assert two.facts["fingerprint"] == pytest.approx(one.facts["fingerprint"], rel=1e-5)


def test_batch_norm_takes_the_whole_batch(tmp_path):
    """124 rows in batches of 31: parts of 16 and 15 rows, whose own means would differ."""
    words = ("train", "mlp", "--data", "wine", "--epochs", "2", "--hidden", "8", "--dropout", "0", "--batch", "31", "--norm", "batch",
        "--optimizer", "sgd")  # Adam would blow up the rounding of the bias before a norm, whose gradient is zero
    one, two = (launch(tmp_path, n, *words) for n in (1, 2))
    ours, theirs = (Run.open(tmp_path / found["run"]).load("model") for found in (one, two))
    assert any("running_var" in name for name in ours)
    for name in ours:
        torch.testing.assert_close(theirs[name], ours[name], atol=2e-5, rtol=2e-5)
    assert two["validation"] == pytest.approx(one["validation"], abs=1e-4)
    again = launch(tmp_path, 1, "evaluate", two["run"])
    assert again["validation"] == pytest.approx(two["validation"], abs=1e-6), "what was recorded is what the weights give"


@pytest.mark.slow
def test_two_processes_go_on_where_they_were_stopped(tmp_path):
    """With dropout each process draws from a stream of its own; Ctrl-C saves both."""
    words = ["train", "mlp", "--data", "wine", "--epochs", "40", "--hidden", "16", "--dropout", "0.5", "--batch", "31"]
    whole = launch(tmp_path, 2, *words)
    started = begin(tmp_path, 2, *words)
    log = wait_for_steps(tmp_path / "runs", whole["run"])
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=120)
    assert started.returncode != 0 and said.count("go on with: didact resume") == 1, said[-2000:]
    run = Run(log.parent)
    assert run.facts["status"] == "stopped" and 0 < run.load_state()["state"]["step"] < 160
    resumed = launch(tmp_path, 2, "resume", str(run.folder))
    ours, theirs = Run.open(tmp_path / whole["run"]).load("model"), run.load("model")
    assert resumed["validation"] == whole["validation"]
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def wait_for_steps(runs, other: str):
    """The log of a run that has begun beside another."""
    for _ in range(600):
        logs = [p for p in runs.glob("mlp/*/metrics.jsonl") if p.parent.name != Path(other).name]
        if logs and logs[0].stat().st_size:
            return logs[0]
        time.sleep(0.1)
    raise AssertionError("the second run does not begin")


def test_a_mistake_is_told_once(tmp_path):
    started = begin(tmp_path, 2, "train", "mlp", "--lrr", "1")
    _, said = started.communicate(timeout=120)
    assert started.returncode != 0 and said.count("no option '--lrr'") + said.count("No such option") == 1, said


def test_batches_smaller_than_the_processes_are_refused():
    with pytest.raises(UsageError, match="3 processes share batches of 2 rows; raise --batch"):
        Plan.of(classify(batch=2), processes=3)
    assert [len(c) for c in cut(torch.arange(10), 4, least=3)] == [4, 6]


class Alone(Group):
    """A group of two whose other member never has a gradient."""

    def __init__(self):
        super().__init__(0, 2)


def test_what_nobody_used_keeps_no_gradient(monkeypatch):
    monkeypatch.setattr("torch.distributed.all_reduce", lambda flat: flat)
    used, unused = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    used.grad = torch.ones(3)
    Alone().sum_gradients([used, unused])
    assert unused.grad is None and used.grad.tolist() == [1, 1, 1]


def test_rank_0_alone_writes(one_and_two):
    runs = Path(one_and_two[1]["run"]).parent
    assert len(list(runs.iterdir())) == 1
    steps = [row["step"] for row in Run.open(one_and_two[1]["run"]).metrics if "train" in row]
    assert steps == sorted(set(steps))


def test_parts_cover_a_batch_once():
    rows = torch.arange(17)
    parts = [Group(rank, 3).part(rows) for rank in range(3)]
    assert sorted(torch.cat(parts).tolist()) == rows.tolist()
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_buckets_keep_order_and_types():
    gradients = [torch.zeros(3), torch.zeros(4), torch.zeros(2, dtype=torch.float64), torch.zeros(5)]
    assert [g.numel() for b in buckets(gradients) for g in b] == [3, 4, 2, 5]
    assert all(len({g.dtype for g in b}) == 1 for b in buckets(gradients))
