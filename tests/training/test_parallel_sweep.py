"""Several trainings at once: the same answers as one after another, and nothing is lost when it is stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import pytest

from didact.cli.sweep_progress import SweepProgress
from didact.errors import UsageError
from didact.recipes import mlp
from didact.registry import RECIPES
from didact.training.interrupts import Interrupted
from didact.training.sweeps import parallel_sweep as module
from didact.training.sweeps.parallel_sweep import STOPPED, TrainingJob, run_parallel, take_gpu
from didact.training.sweeps.sweep import sweep

SWEEP_OPTIONS = {"data": "wine", "epochs": 2, "hidden": (4,)}


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_parallel_sweep_equals_serial_sweep(workdir):
    """Also where one diverges, and in the order of the plan whichever ends first."""
    start_numbers: list[int] = []
    axes = {"lr": (1e-2, 1e18, 1e-3), "optimizer": ("sgd",)}
    (_, serial_rows), (folder, parallel_rows) = (
        sweep(
            mlp,
            axes,
            num_workers=n,
            runs=f"runs{n}",
            on_event=lambda event, facts: start_numbers.append(facts["number"]),
            **SWEEP_OPTIONS | {"activation": "relu"},
        )
        if n > 1
        else sweep(mlp, axes, runs="runs1", **SWEEP_OPTIONS | {"activation": "relu"})
        for n in (1, 2)
    )
    assert start_numbers == [1, 2, 3]
    assert (
        [row["cell"]["lr"] for row in parallel_rows] == [row["cell"]["lr"] for row in serial_rows] == [1e-2, 1e18, 1e-3]
    )
    assert [row["validation"] for row in parallel_rows] == [row["validation"] for row in serial_rows]
    assert ["diverged" in row for row in parallel_rows] == [False, True, False]
    saved_rows = [json.loads(line) for line in (folder / "sweep.jsonl").read_text().splitlines()]
    assert [row["run"] for row in saved_rows] == [row["run"] for row in parallel_rows]


def test_parallel_sweep_refuses_a_recipe_of_this_process_alone(workdir, monkeypatch):
    from dataclasses import replace

    local_recipe = replace(mlp, name="only_here")
    monkeypatch.setitem(RECIPES, "only_here", local_recipe)
    with pytest.raises(UsageError, match=r"'only_here' is registered in this process only; sweep without --jobs"):
        sweep(local_recipe, {"lr": (1e-3, 1e-2)}, num_workers=2, **SWEEP_OPTIONS)


@pytest.fixture
def process_pool(monkeypatch):
    """In place of processes: what each seed answers, in the order in which they end, and what the pool was made
    with."""

    class FakePool:
        results: ClassVar[dict[int, Any]] = {}
        end_order: ClassVar[list[int]] = []
        made: ClassVar[dict[str, Any]] = {}
        submitted_seeds: ClassVar[list[int]] = []
        masks: ClassVar[list[set[int]]] = []
        broken_at: int | None = None

        def __init__(self, workers: int, context: Any, *, initializer: Any, initargs: Any) -> None:
            cores, gpus, _ = initargs
            self.made |= {"workers": workers, "cores": cores, "gpus": gpus}
            self.futures: dict[int, Future[Any]] = {}

        def submit(
            self, function: Any, home: str, name: str, cell: Any, seed: int, base_options: Any, labeled: bool
        ) -> Future[Any]:
            if seed == self.broken_at:
                raise BrokenProcessPool
            self.submitted_seeds.append(seed)
            self.masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
            return self.futures.setdefault(seed, Future())

        def wait(self, running: Any, timeout: float, return_when: str) -> Any:
            seed = next(seed for seed in self.end_order if seed in self.futures)
            future, answer = self.futures.pop(seed), self.results.get(seed, {"seed": seed})
            future.set_exception(answer) if isinstance(answer, BaseException) else future.set_result(answer)
            return type("Ended", (), {"done": {future}})

        def __enter__(self) -> Any:
            monkeypatch.setattr(module, "wait", self.wait)
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(module, "ProcessPoolExecutor", FakePool)
    return FakePool


def make_jobs(n: int, **options: Any) -> list[TrainingJob]:
    return [TrainingJob(mlp, {}, seed, options) for seed in range(n)]


def run_until_error(jobs: list[TrainingJob], num_workers: int) -> tuple[list[int], Exception]:
    finished = []
    with pytest.raises((UsageError, MemoryError, Interrupted)) as error_info:
        for number, _ in run_parallel(jobs, num_workers, lambda number: None):
            finished.append(number)
    return finished, error_info.value


def test_parallel_sweep_keeps_results_beside_a_failure(process_pool):
    """Of three at once the first fails: the others are handed out, the fourth never begins, the first error is the
    one raised."""
    process_pool.results, process_pool.end_order, process_pool.submitted_seeds = (
        {0: MemoryError("first"), 2: UsageError("second")},
        [0, 1, 2],
        [],
    )
    finished, error = run_until_error(make_jobs(4), 3)
    assert finished == [1] and str(error) == "first" and process_pool.submitted_seeds == [0, 1, 2]


def test_broken_pool_is_an_error_unless_stopped(process_pool):
    process_pool.results, process_pool.end_order = {0: BrokenProcessPool(), 1: BrokenProcessPool()}, [0, 1]
    _, error = run_until_error(make_jobs(3), 2)
    assert "one of 2 trainings was killed, perhaps out of memory" in str(
        error
    ) and 'if __name__ == "__main__":' in str(error)
    process_pool.results[0] = {STOPPED: True}
    assert isinstance(run_until_error(make_jobs(3), 2)[1], Interrupted)


def test_pool_that_breaks_at_submit_is_an_error(process_pool):
    process_pool.results, process_pool.end_order, process_pool.broken_at = {}, [0, 1], 2
    finished, error = run_until_error(make_jobs(3), 2)
    assert finished == [0, 1] and "one of 2 trainings was killed" in str(error)


def test_signals_are_blocked_while_a_process_starts(process_pool):
    process_pool.results, process_pool.end_order, process_pool.masks = {}, [0], []
    assert [number for number, _ in run_parallel(make_jobs(1), 2, lambda number: None)] == [0]
    assert (
        process_pool.masks[0] >= {signal.SIGINT, signal.SIGTERM}
        and not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & process_pool.masks[0]
    )


@pytest.mark.parametrize(
    ("jobs", "num_workers", "workers", "cores"), [(2, 8, 2, 6), (5, 3, 3, 4), (0, 4, 1, 12), (20, 16, 16, 1)]
)
def test_cores_are_shared_among_workers(jobs, num_workers, workers, cores, process_pool, monkeypatch):
    monkeypatch.setattr(module.torch, "get_num_threads", lambda: 12)
    process_pool.results, process_pool.end_order = {}, list(range(jobs))
    assert len(list(run_parallel(make_jobs(jobs), num_workers, lambda number: None))) == jobs
    assert (process_pool.made["workers"], process_pool.made["cores"]) == (workers, cores)


@pytest.mark.parametrize(
    ("options", "gpus"), [({}, 4), ({"device": "auto"}, 4), ({"device": "cuda"}, 4), ({"device": "cuda:1"}, 0)]
)
def test_named_gpu_is_not_shared(options, gpus, process_pool, monkeypatch):
    monkeypatch.setattr(module.torch.cuda, "device_count", lambda: 4)
    process_pool.results, process_pool.end_order = {}, [0, 1]
    list(run_parallel(make_jobs(2, **options), 2, lambda number: None))
    assert process_pool.made["gpus"] == gpus


def test_parallel_result_is_printed_with_its_number(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    progress = SweepProgress()
    for n in (1, 2):
        progress("cell", {"number": n, "of": 4, "cell": {"lr": n / 10}, "seed": 0})
    for n in (1, 2):
        progress.report_row(
            {
                "cell": {"lr": n / 10},
                "seed": 0,
                "validation": {"accuracy": 0.5},
                "monitor": ("accuracy",),
                "seconds": 3.0,
            }
        )
    lines = capsys.readouterr().err.splitlines()
    assert [line.split() for line in lines[2:]] == [
        ["1/4", "lr=0.1", "seed", "0:", "validation", "accuracy", "0.5000", "(3.0", "s)"],
        ["validation", "accuracy", "0.5000", "(3.0", "s)"],
    ]  # fmt: skip


def test_take_gpu_assigns_gpus_in_turn(monkeypatch):
    counter, devices = get_context("spawn").Value("i", 0), []
    for _ in range(3):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
        take_gpu(2, counter)
        devices.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert devices == ["4", "7", "4"]


@pytest.mark.slow
def test_stopped_parallel_sweep_keeps_results_and_resumes(workdir):
    words = [
        sys.executable,
        "-m",
        "didact",
        "sweep",
        "mlp",
        "lr=1e-3,1e-2,3e-3,3e-2",
        "--data",
        "digits",
        "--epochs=60",
        "--jobs=2",
    ]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (lines := list(Path("runs/sweeps").glob("*/sweep.jsonl"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 2 and "stopped; finished trainings are saved, unfinished ones start again" in stderr
    before = lines[0].read_text().splitlines()
    assert 1 <= len(before) < 4
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    after = lines[0].read_text().splitlines()
    assert len(after) == 4 and set(before) <= set(after)


def start_sweep(words: list[str]) -> subprocess.Popen[str]:
    """A sweep of long trainings, two at once, whose processes have just been started."""
    words = [
        sys.executable,
        "-m",
        "didact",
        "sweep",
        "mlp",
        "lr=1e-3,1e-2,3e-3",
        "--data",
        "digits",
        "--epochs=2000",
        "--jobs=2",
        *words,
    ]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    while not process.stderr.readline().startswith("2/3"):
        assert process.poll() is None
    return process


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 2.0])
def test_parallel_sweep_stopped_early_prints_one_line(workdir, seconds):
    """From a terminal the children get Ctrl-C too, in the midst of their imports."""
    process = start_sweep([])
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    stderr = process.communicate(timeout=90)[1]
    assert process.returncode == 2 and stderr.count("\n") == 1 and "stopped" in stderr, stderr


@pytest.mark.slow
def test_workers_exit_with_a_killed_parent(workdir):
    """All of them hold stderr, which ends when the last of them has."""
    process = start_sweep([])
    while not list(Path("runs").glob("mlp/*/metrics.jsonl")):
        time.sleep(0.2)
    process.kill()
    process.communicate(timeout=20)
