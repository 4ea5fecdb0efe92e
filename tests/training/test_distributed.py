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

from didact.errors import UsageError
from didact.run import Run
from didact.training.distributed.process_group import Group, make_buckets
from didact.training.plan import TrainingPlan, split_batches
from helpers.small_experiments import make_classifier

pytestmark = pytest.mark.xdist_group("distributed")  # one worker: what two tests look at is trained once


def start_processes(folder, processes: int, *words: str) -> subprocess.Popen:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = (
        [sys.executable, "-m", "didact"]
        if processes == 1
        else [
            sys.executable,
            "-m",
            "torch.distributed.run",
            f"--nproc-per-node={processes}",
            f"--master-port={port}",
            "-m",
            "didact",
        ]
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*command, *words, "--json"], cwd=folder, stdout=pipe, stderr=pipe, text=True, env=environment
    )


def run_processes(folder, processes: int, *words: str) -> dict:
    process = start_processes(folder, processes, *words)
    out, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr[-3000:]
    return json.loads(out)


TRAIN_COMMAND = (
    "train",
    "mlp",
    "--data",
    "wine",
    "--epochs",
    "3",
    "--hidden",
    "16",
    "--dropout",
    "0",
    "--batch-size",
    "33",
)


@pytest.fixture(scope="module")
def results_of_one_and_two(tmp_path_factory):
    return tuple(
        run_processes(
            tmp_path_factory.mktemp(f"of{n}"), n, *TRAIN_COMMAND, "--runs", str(tmp_path_factory.mktemp(f"runs{n}"))
        )
        for n in (1, 2)
    )


def test_two_processes_end_with_the_weights_of_one(results_of_one_and_two):
    """124 rows in batches of 33: parts of 17 and 16, and a last batch of 25."""
    single_run, double_run = (Run.open(run["run"]) for run in results_of_one_and_two)
    single_weights, double_weights = single_run.load("model"), double_run.load("model")
    assert single_weights.keys() == double_weights.keys()
    for name in single_weights:
        torch.testing.assert_close(double_weights[name], single_weights[name], atol=1e-5, rtol=1e-5)
    for split in ("validation", "test"):
        for metric, value in results_of_one_and_two[0][split].items():
            assert results_of_one_and_two[1][split][metric] == pytest.approx(value, abs=1e-5), (split, metric)
    assert double_run.metadata["processes"] == 2
    assert double_run.metadata["fingerprint"] == pytest.approx(single_run.metadata["fingerprint"], rel=1e-5)


def test_sync_batch_norm_uses_the_whole_batch(tmp_path):
    """124 rows in batches of 31: parts of 16 and 15 rows, whose own means would differ."""
    words = (
        "train",
        "mlp",
        "--data",
        "wine",
        "--epochs",
        "2",
        "--hidden",
        "8",
        "--dropout",
        "0",
        "--batch-size",
        "31",
        "--norm",
        "batch",
        "--optimizer",
        "sgd",
    )  # Adam would blow up the rounding of the bias before a norm, whose gradient is zero
    single_result, double_result = (run_processes(tmp_path, n, *words) for n in (1, 2))
    single_weights, double_weights = (
        Run.open(tmp_path / result["run"]).load("model") for result in (single_result, double_result)
    )
    assert any("running_var" in name for name in single_weights)
    for name in single_weights:
        torch.testing.assert_close(double_weights[name], single_weights[name], atol=2e-5, rtol=2e-5)
    assert double_result["validation"] == pytest.approx(single_result["validation"], abs=1e-4)
    evaluation = run_processes(tmp_path, 1, "evaluate", double_result["run"])
    assert evaluation["validation"] == pytest.approx(double_result["validation"], abs=1e-6), (
        "what was recorded is what the weights give"
    )


@pytest.mark.slow
def test_two_processes_resume_where_they_stopped(tmp_path):
    """With dropout each process draws from a stream of its own; Ctrl-C saves both."""
    words = [
        "train",
        "mlp",
        "--data",
        "wine",
        "--epochs",
        "40",
        "--hidden",
        "16",
        "--dropout",
        "0.5",
        "--batch-size",
        "31",
    ]
    full_result = run_processes(tmp_path, 2, *words)
    process = start_processes(tmp_path, 2, *words)
    log = wait_for_steps(tmp_path / "runs", full_result["run"])
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode != 0 and stderr.count("continue with: didact resume") == 1, stderr[-2000:]
    run = Run(log.parent)
    assert run.metadata["status"] == "stopped" and 0 < run.load_state()["state"]["step"] < 160
    resumed_result = run_processes(tmp_path, 2, "resume", str(run.folder))
    expected_weights, resumed_weights = Run.open(tmp_path / full_result["run"]).load("model"), run.load("model")
    assert resumed_result["validation"] == full_result["validation"]
    assert all(torch.equal(expected_weights[name], resumed_weights[name]) for name in expected_weights)


def wait_for_steps(runs, other: str):
    """The log of a run that has begun beside another."""
    for _ in range(600):
        logs = [p for p in runs.glob("mlp/*/metrics.jsonl") if p.parent.name != Path(other).name]
        if logs and logs[0].stat().st_size:
            return logs[0]
        time.sleep(0.1)
    raise AssertionError("the second run does not begin")


def test_bad_option_is_reported_once(tmp_path):
    process = start_processes(tmp_path, 2, "train", "mlp", "--lrr", "1")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode != 0 and stderr.count("no option '--lrr'") + stderr.count("No such option") == 1, stderr


def test_batch_smaller_than_the_processes_is_refused():
    with pytest.raises(UsageError, match="3 processes share batches of 2 examples; raise --batch"):
        TrainingPlan.from_experiment(make_classifier(batch_size=2), processes=3)
    assert [len(c) for c in split_batches(torch.arange(10), 4, min_batch_size=3)] == [4, 6]


class GroupWithIdlePeer(Group):
    """A group of two whose other member never has a gradient."""

    def __init__(self):
        super().__init__(0, 2)


def test_unused_parameters_keep_no_gradient(monkeypatch):
    monkeypatch.setattr("torch.distributed.all_reduce", lambda flat: flat)
    used, unused = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    used.grad = torch.ones(3)
    GroupWithIdlePeer().sum_gradients([used, unused])
    assert unused.grad is None and used.grad.tolist() == [1, 1, 1]


def test_only_rank_0_writes(results_of_one_and_two):
    runs = Path(results_of_one_and_two[1]["run"]).parent
    assert len(list(runs.iterdir())) == 1
    steps = [row["step"] for row in Run.open(results_of_one_and_two[1]["run"]).metrics if "train" in row]
    assert steps == sorted(set(steps))


def test_group_parts_cover_a_batch_once():
    rows = torch.arange(17)
    parts = [Group(rank, 3).shard(rows) for rank in range(3)]
    assert sorted(torch.cat(parts).tolist()) == rows.tolist()
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_buckets_keep_order_and_dtypes():
    gradients = [torch.zeros(3), torch.zeros(4), torch.zeros(2, dtype=torch.float64), torch.zeros(5)]
    assert [g.numel() for b in make_buckets(gradients) for g in b] == [3, 4, 2, 5]
    assert all(len({g.dtype for g in b}) == 1 for b in make_buckets(gradients))
