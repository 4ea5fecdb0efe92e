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

from didact.cli.lines import Lines
from didact.errors import UsageError
from didact.recipes import mlp
from didact.registry import RECIPES
from didact.train import beside as module
from didact.train.beside import STOPPED, Job, take_gpu, trained_beside
from didact.train.interrupt import Interrupted
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


@pytest.fixture
def pool(monkeypatch):
    """In place of processes: what each seed answers, in the order in which they end, and what the pool was made with."""

    class Pool:
        answers: ClassVar[dict[int, Any]] = {}
        ends: ClassVar[list[int]] = []
        made: ClassVar[dict[str, Any]] = {}
        asked: ClassVar[list[int]] = []
        masks: ClassVar[list[set[int]]] = []
        broken_at: int | None = None

        def __init__(self, workers: int, context: Any, *, initializer: Any, initargs: Any) -> None:
            cores, gpus, _ = initargs
            self.made |= {"workers": workers, "cores": cores, "gpus": gpus}
            self.futures: dict[int, Future[Any]] = {}

        def submit(self, function: Any, home: str, name: str, cell: Any, seed: int, given: Any, labelled: bool) -> Future[Any]:
            if seed == self.broken_at:
                raise BrokenProcessPool
            self.asked.append(seed)
            self.masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
            return self.futures.setdefault(seed, Future())

        def wait(self, running: Any, timeout: float, return_when: str) -> Any:
            seed = next(seed for seed in self.ends if seed in self.futures)
            future, answer = self.futures.pop(seed), self.answers.get(seed, {"seed": seed})
            future.set_exception(answer) if isinstance(answer, BaseException) else future.set_result(answer)
            return type("Ended", (), {"done": {future}})

        def __enter__(self) -> Any:
            monkeypatch.setattr(module, "wait", self.wait)
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(module, "ProcessPoolExecutor", Pool)
    return Pool


def trainings(n: int, **given: Any) -> list[Job]:
    return [Job(mlp, {}, seed, given) for seed in range(n)]


def all_until_raised(jobs: list[Job], beside: int) -> tuple[list[int], Exception]:
    found = []
    with pytest.raises((UsageError, MemoryError, Interrupted)) as caught:
        for number, _ in trained_beside(jobs, beside, lambda number: None):
            found.append(number)
    return found, caught.value


def test_what_ends_beside_a_failure_is_kept(pool):
    """Of three at once the first fails: the others are handed out, the fourth never begins, the first error is the one raised."""
    pool.answers, pool.ends, pool.asked = {0: MemoryError("first"), 2: UsageError("second")}, [0, 1, 2], []
    found, error = all_until_raised(trainings(4), 3)
    assert found == [1] and str(error) == "first" and pool.asked == [0, 1, 2]


def test_a_pool_that_breaks_is_an_error_unless_it_was_stopped(pool):
    pool.answers, pool.ends = {0: BrokenProcessPool(), 1: BrokenProcessPool()}, [0, 1]
    _, error = all_until_raised(trainings(3), 2)
    assert "one of 2 trainings was killed, perhaps for want of memory" in str(error) and 'if __name__ == "__main__":' in str(error)
    pool.answers[0] = {STOPPED: True}
    assert isinstance(all_until_raised(trainings(3), 2)[1], Interrupted)


def test_a_pool_that_broke_before_the_next_begins(pool):
    pool.answers, pool.ends, pool.broken_at = {}, [0, 1], 2
    found, error = all_until_raised(trainings(3), 2)
    assert found == [0, 1] and "one of 2 trainings was killed" in str(error)


def test_signals_wait_while_a_process_is_started(pool):
    pool.answers, pool.ends, pool.masks = {}, [0], []
    assert [number for number, _ in trained_beside(trainings(1), 2, lambda number: None)] == [0]
    assert pool.masks[0] >= {signal.SIGINT, signal.SIGTERM} and not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & pool.masks[0]


@pytest.mark.parametrize(("jobs", "beside", "workers", "cores"), [(2, 8, 2, 6), (5, 3, 3, 4), (0, 4, 1, 12), (20, 16, 16, 1)])
def test_cores_are_shared_by_those_that_train(jobs, beside, workers, cores, pool, monkeypatch):
    monkeypatch.setattr(module.torch, "get_num_threads", lambda: 12)
    pool.answers, pool.ends = {}, list(range(jobs))
    assert len(list(trained_beside(trainings(jobs), beside, lambda number: None))) == jobs
    assert (pool.made["workers"], pool.made["cores"]) == (workers, cores)


@pytest.mark.parametrize(("given", "gpus"), [({}, 4), ({"device": "auto"}, 4), ({"device": "cuda"}, 4), ({"device": "cuda:1"}, 0)])
def test_a_gpu_that_is_named_stays(given, gpus, pool, monkeypatch):
    monkeypatch.setattr(module.torch.cuda, "device_count", lambda: 4)
    pool.answers, pool.ends = {}, [0, 1]
    list(trained_beside(trainings(2, **given), 2, lambda number: None))
    assert pool.made["gpus"] == gpus


def test_who_ends_after_others_began_is_named_by_its_number(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    screen = Lines()
    for n in (1, 2):
        screen("cell", {"number": n, "of": 4, "cell": {"lr": n / 10}, "seed": 0})
    for n in (1, 2):
        screen.row({"cell": {"lr": n / 10}, "seed": 0, "validation": {"accuracy": 0.5}, "watch": ("accuracy",), "seconds": 3.0})
    told = capsys.readouterr().err.splitlines()
    assert [line.split() for line in told[2:]] == [
        ["1/4", "lr=0.1", "seed", "0:", "validation", "accuracy", "0.5000", "(3.0", "s)"],
        ["validation", "accuracy", "0.5000", "(3.0", "s)"],
    ]  # fmt: skip


def test_gpus_are_taken_in_turn(monkeypatch):
    taken, seen = get_context("spawn").Value("i", 0), []
    for _ in range(3):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
        take_gpu(2, taken)
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
    assert first.returncode == 2 and "stopped; what was trained is kept, what was under way is begun anew" in told
    before = lines[0].read_text().splitlines()
    assert 1 <= len(before) < 4
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    after = lines[0].read_text().splitlines()
    assert len(after) == 4 and set(before) <= set(after)


def begun(words: list[str]) -> subprocess.Popen[str]:
    """A sweep of long trainings, two at once, whose processes have just been started."""
    words = [sys.executable, "-m", "didact", "sweep", "mlp", "lr=1e-3,1e-2,3e-3", "--data", "digits", "--epochs=2000", "--beside=2", *words]
    first = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert first.stderr is not None
    while not first.stderr.readline().startswith("2/3"):
        assert first.poll() is None
    return first


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 2.0])
def test_stopped_in_the_first_seconds_it_says_no_more_than_that(here, seconds):
    """From a terminal the children get Ctrl-C too, in the midst of their imports."""
    first = begun([])
    time.sleep(seconds)
    os.killpg(first.pid, signal.SIGINT)
    told = first.communicate(timeout=90)[1]
    assert first.returncode == 2 and told.count("\n") == 1 and "stopped" in told, told


@pytest.mark.slow
def test_no_process_outlives_a_parent_that_was_killed(here):
    """All of them hold stderr, which ends when the last of them has."""
    first = begun([])
    while not list(Path("runs").glob("mlp/*/metrics.jsonl")):
        time.sleep(0.2)
    first.kill()
    first.communicate(timeout=20)
