"""One process or two: the same weights, and only the first one writes."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch

from didact.run import Run
from didact.train.distributed import Group, buckets


def launch(folder, processes: int, *words: str) -> dict:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "didact"] if processes == 1 else [
        sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", f"--master-port={port}", "-m", "didact",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *words, "--json"], cwd=folder, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


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


def test_rank_0_alone_writes(one_and_two):
    from pathlib import Path

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
