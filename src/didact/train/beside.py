"""Many trainings: one after another in this process, or several at once, each in a process of its own."""

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
from didact.train.distributed import join
from didact.train.interrupt import DivergedError, Interrupted, Patience
from didact.train.loop import Tell, silent
from didact.train.named import CHOOSE_DATA, begins_with, tells_class
from didact.train.session import Prepared, prepare, train_prepared

STOPPED = "stopped"      # in a row: the training was asked to end
STOPPING = signal.SIGINT, signal.SIGTERM
Row = dict[str, Any]


class Job(NamedTuple):
    """One training of a sweep. `labelled`: another of its cells is told classes, and all are to learn from the same examples."""

    recipe: Recipe
    cell: Mapping[str, Any]
    seed: int
    given: Mapping[str, Any]
    labelled: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        return {**self.given, **self.cell, "seed": self.seed}


class Shelf:
    """The data that were loaded last: most trainings of a sweep read the same."""

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.data: Data | None = None

    def prepare(self, recipe: Recipe, given: Mapping[str, Any], *, labelled: bool = False) -> Prepared:
        told = labelled or any(given.get(name, recipe.options[name].default) for name in tells_class(recipe))
        key = recipe.data, recipe.accepts, told, *(given.get(name) for name in (*CHOOSE_DATA, *begins_with(recipe)))
        prepared = prepare(recipe, given, data=self.data if key == self.key else None, labelled=labelled)
        self.key, self.data = key, prepared.data
        return prepared


SHELF = Shelf()     # of a process that trains beside others


def train_one(job: Job, shelf: Shelf, tell: Tell = silent) -> Row:
    """What a training gave; that it diverged is an answer as well: this setting cannot be trained."""
    row: Row = {"cell": jsonable(job.cell), "seed": job.seed}
    try:
        run = train_prepared(shelf.prepare(job.recipe, job.arguments, labelled=job.labelled), join(), tell)
    except DivergedError as error:
        assert error.run is not None
        return row | {"run": str(error.run.folder), "diverged": str(error), "validation": {}, "test": {}}
    return row | results(run)


def trained_in_turn(jobs: Sequence[Job], begins: Callable[[int], None], tell: Tell = silent) -> Iterator[tuple[int, Row]]:
    """Each job's number and its row."""
    shelf = Shelf()
    for number, job in enumerate(jobs):
        begins(number)
        yield number, train_one(job, shelf, tell)


def trained_beside(jobs: Sequence[Job], beside: int, begins: Callable[[int], None]) -> Iterator[tuple[int, Row]]:
    """The same, `beside` of them at once, as they end. A processor's cores are shared out, and GPUs are taken in turn.

    When one fails, or someone asks to stop, nothing more begins; what others finish is still handed out, then the error is raised.
    """
    context = get_context("spawn")      # a process that was forked could not use a GPU
    beside = max(1, min(beside, len(jobs)))
    share = max(1, torch.get_num_threads() // beside), gpus_to_share(jobs), context.Value("i", 0)
    waiting, running, failed = list(enumerate(jobs)), dict[Future[Row], int](), list[BaseException]()
    with ProcessPoolExecutor(beside, context, initializer=settle, initargs=share) as pool, Patience() as patience:
        while running or (waiting and not patience.asked and not failed):
            while waiting and len(running) < beside and not patience.asked and not failed:
                number, job = waiting.pop(0)
                begins(number)
                home = job.recipe.function.__module__
                try:
                    with unheard():
                        running[pool.submit(train_named, home, job.recipe.name, *job[1:])] = number
                except BrokenProcessPool as error:      # another died while this one was about to begin
                    failed.append(error)
            for ended in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                number, reason = running.pop(ended), ended.exception()
                if reason is not None:
                    failed.append(reason)
                elif STOPPED in ended.result():
                    patience.asked = True
                else:
                    yield number, ended.result()
            if patience.asked:
                for child in active_children():     # again and again: who is still loading does not listen yet
                    child.terminate()
    if patience.asked:      # who stops may break the pool
        failed = [error for error in failed if not isinstance(error, BrokenProcessPool)]
    if failed:
        raise killed(beside) if isinstance(failed[0], BrokenProcessPool) else failed[0]
    if patience.asked:
        raise Interrupted(None, len(jobs) - len(waiting), len(jobs))


def gpus_to_share(jobs: Sequence[Job]) -> int:
    """None where a GPU is named: among those that a process sees, it would be another."""
    named = {job.arguments.get("device", "auto") for job in jobs}
    return torch.cuda.device_count() if named <= {"auto", "cuda"} else 0


def killed(beside: int) -> UsageError:
    return UsageError(
        f"one of {beside} trainings was killed, perhaps for want of memory: train fewer at once (--beside); "
        'or, called by a script, for want of `if __name__ == "__main__":` before the call'
    )


@contextmanager
def unheard() -> Iterator[None]:
    """A process that is started inside hears no signal until it has settled: while it loads, one would end it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def settle(cores: int, gpus: int, taken: Any) -> None:
    """A process that trains beside others: its share of the machine, ears for its parent only, and no life without it."""
    take_gpu(gpus, taken)
    torch.set_num_threads(cores)
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    Thread(target=end_with_parent, daemon=True).start()


def take_gpu(gpus: int, taken: Any) -> None:
    with taken.get_lock():
        mine, taken.value = taken.value, taken.value + 1
    if gpus > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[mine % gpus]


def end_with_parent() -> None:
    """A parent that is killed cannot say so; who waits for its next order would wait for ever."""
    parent = parent_process()
    assert parent is not None
    wait_for([parent.sentinel])
    os._exit(1)


def train_named(home: str, name: str, cell: Mapping[str, Any], seed: int, given: Mapping[str, Any], labelled: bool) -> Row:
    """In its own process, where the recipe is known once the module that holds it is there."""
    if home != "__main__":     # which is there already
        import_module(home)
    if name not in RECIPES:
        raise UsageError(f"recipe {name!r} is known to the process that asked alone; train one after another, without --beside")
    try:
        return train_one(Job(RECIPES[name], cell, seed, given, labelled), SHELF)
    except Interrupted:
        return {STOPPED: True}


def results(run: Run) -> Row:
    return {"run": str(run.folder)} | {key: run.facts[key] for key in ("validation", "test", "seconds", "watch")}


def jsonable(value: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(value))
