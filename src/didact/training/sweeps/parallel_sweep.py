"""The trainings of a sweep: one after another in this process, or several at once in processes of their own."""

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait as wait_for
from threading import Thread
from typing import Any, NamedTuple

import torch

from didact.data.core import Data
from didact.errors import UsageError
from didact.registry import RECIPES, Recipe
from didact.run import Run
from didact.training.distributed.process_group import join_group
from didact.training.experiment import EventCallback, ignore_events
from didact.training.interrupts import DivergedError, Interrupted, InterruptHandler
from didact.training.prepare import PreparedExperiment, prepare
from didact.training.run_training import train_prepared
from didact.training.source_runs import DATA_OPTIONS, label_options, source_run_options

STOPPED = "stopped"      # as a result: the training was stopped
STOP_SIGNALS = signal.SIGINT, signal.SIGTERM
Row = dict[str, Any]


class TrainingJob(NamedTuple):
    """One training of a sweep. `labeled`: another cell is class-conditional, so all use the labeled examples."""

    recipe: Recipe
    cell: Mapping[str, Any]
    seed: int
    base_options: Mapping[str, Any]
    labeled: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        return {**self.base_options, **self.cell, "seed": self.seed}


class DataCache:
    """The data loaded last: most trainings of a sweep use the same."""

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.data: Data | None = None

    def prepare(self, recipe: Recipe, user_options: Mapping[str, Any], *, labeled: bool = False) -> PreparedExperiment:
        needs_labels = labeled or any(
            user_options.get(name, recipe.options[name].default) for name in label_options(recipe)
        )
        key = (
            recipe.data,
            recipe.accepts,
            needs_labels,
            *(user_options.get(name) for name in (*DATA_OPTIONS, *source_run_options(recipe))),
        )
        prepared = prepare(recipe, user_options, data=self.data if key == self.key else None, labeled=labeled)
        self.key, self.data = key, prepared.data
        return prepared


DATA_CACHE = DataCache()     # of this worker process


def _train_job(job: TrainingJob, cache: DataCache, on_event: EventCallback = ignore_events) -> Row:
    """The result of a training. Divergence is a result too: this setting cannot be trained."""
    row: Row = {"cell": to_jsonable(job.cell), "seed": job.seed}
    try:
        run = train_prepared(cache.prepare(job.recipe, job.arguments, labeled=job.labeled), join_group(), on_event)
    except DivergedError as error:
        assert error.run is not None
        return row | {"run": str(error.run.folder), "diverged": str(error), "validation": {}, "test": {}}
    return row | _run_results(run)


def run_serial(
    jobs: Sequence[TrainingJob], on_start: Callable[[int], None], on_event: EventCallback = ignore_events
) -> Iterator[tuple[int, Row]]:
    """The number and the result of each job, in order."""
    cache = DataCache()
    for number, job in enumerate(jobs):
        on_start(number)
        yield number, _train_job(job, cache, on_event)


def run_parallel(
    jobs: Sequence[TrainingJob], num_workers: int, on_start: Callable[[int], None]
) -> Iterator[tuple[int, Row]]:
    """The same with `num_workers` at once, as they finish. Cores are shared out, and GPUs are taken in turn.

    If one fails, or the user stops, no more are started; results of the running ones are still yielded, then the error
    is raised.
    """
    context = get_context("spawn")      # a forked process could not use a GPU
    num_workers = max(1, min(num_workers, len(jobs)))
    worker_args = max(1, torch.get_num_threads() // num_workers), _available_gpus(jobs), context.Value("i", 0)
    waiting, running, failures = list(enumerate(jobs)), dict[Future[Row], int](), list[BaseException]()
    with (
        ProcessPoolExecutor(num_workers, context, initializer=_init_worker, initargs=worker_args) as pool,
        InterruptHandler() as interrupt,
    ):
        while running or (waiting and not interrupt.stop_requested and not failures):
            while waiting and len(running) < num_workers and not interrupt.stop_requested and not failures:
                number, job = waiting.pop(0)
                on_start(number)
                module_name = job.recipe.function.__module__
                try:
                    with _block_signals():
                        running[pool.submit(_train_by_name, module_name, job.recipe.name, *job[1:])] = number
                except BrokenProcessPool as error:      # another worker died while this one started
                    failures.append(error)
            for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                number, exception = running.pop(future), future.exception()
                if exception is not None:
                    failures.append(exception)
                elif STOPPED in future.result():
                    interrupt.stop_requested = True
                else:
                    yield number, future.result()
            if interrupt.stop_requested:
                for child in active_children():     # repeatedly: a worker that is still loading misses signals
                    child.terminate()
    if interrupt.stop_requested:      # stopping may break the pool
        failures = [error for error in failures if not isinstance(error, BrokenProcessPool)]
    if failures:
        raise _worker_killed_error(num_workers) if isinstance(failures[0], BrokenProcessPool) else failures[0]
    if interrupt.stop_requested:
        raise Interrupted(None, len(jobs) - len(waiting), len(jobs))


def _available_gpus(jobs: Sequence[TrainingJob]) -> int:
    """None where a GPU is named: among those that a worker sees, it would be another one."""
    devices = {job.arguments.get("device", "auto") for job in jobs}
    return torch.cuda.device_count() if devices <= {"auto", "cuda"} else 0


def _worker_killed_error(num_workers: int) -> UsageError:
    return UsageError(
        f"one of {num_workers} trainings was killed, perhaps out of memory: use fewer --jobs; "
        'or, called by a script, for want of `if __name__ == "__main__":` before the call'
    )


@contextmanager
def _block_signals() -> Iterator[None]:
    """Inside, started processes ignore signals until they are set up: while loading, a signal would kill them."""
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _init_worker(cores: int, gpus: int, gpu_counter: Any) -> None:
    """Set up a worker: its cores and GPU, signals from its parent only, and an exit with its parent."""
    take_gpu(gpus, gpu_counter)
    torch.set_num_threads(cores)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    Thread(target=_exit_with_parent, daemon=True).start()


def take_gpu(gpus: int, gpu_counter: Any) -> None:
    with gpu_counter.get_lock():
        gpu_index, gpu_counter.value = gpu_counter.value, gpu_counter.value + 1
    if gpus > 1:
        visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
        os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices.split(",")[gpu_index % gpus]


def _exit_with_parent() -> None:
    """A killed parent cannot send a message; a worker waiting for its next job would wait forever."""
    parent = parent_process()
    assert parent is not None
    wait_for([parent.sentinel])
    os._exit(1)


def _train_by_name(
    module_name: str, name: str, cell: Mapping[str, Any], seed: int, base_options: Mapping[str, Any], labeled: bool
) -> Row:
    """In a worker, where a recipe is known once its module is imported."""
    if module_name != "__main__":     # which is imported already
        import_module(module_name)
    if name not in RECIPES:
        raise UsageError(
            f"recipe {name!r} is registered in this process only; sweep without --jobs"
        )
    try:
        return _train_job(TrainingJob(RECIPES[name], cell, seed, base_options, labeled), DATA_CACHE)
    except Interrupted:
        return {STOPPED: True}


def _run_results(run: Run) -> Row:
    return {"run": str(run.folder)} | {key: run.metadata[key] for key in ("validation", "test", "seconds", "monitor")}


def to_jsonable(value: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(value))
