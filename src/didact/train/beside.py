"""Many trainings: one after another in this process, or several at once, each in a process of its own."""

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import active_children, get_context
from typing import Any, NamedTuple

import torch

from didact.data.core import Data
from didact.errors import UsageError
from didact.registry import RECIPES, Recipe
from didact.run import Run
from didact.train.distributed import join
from didact.train.interrupt import DivergedError, Interrupted, Patience
from didact.train.loop import Tell, silent
from didact.train.session import Prepared, prepare, train_prepared

CHOOSE_DATA = ("data", "target", "text", "tokens", "size", "split_seed")
STOPPED = "stopped"      # in a row: the training was asked to end
Row = dict[str, Any]


class Job(NamedTuple):
    """One training of a sweep."""

    recipe: Recipe
    cell: Mapping[str, Any]
    seed: int
    given: Mapping[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        return {**self.given, **self.cell, "seed": self.seed}


class Shelf:
    """The data that were loaded last: most trainings of a sweep read the same."""

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.data: Data | None = None

    def prepare(self, recipe: Recipe, given: Mapping[str, Any]) -> Prepared:
        key = recipe.data, recipe.accepts, *(given.get(name) for name in CHOOSE_DATA)
        prepared = prepare(recipe, given, data=self.data if key == self.key else None)
        self.key, self.data = key, prepared.data
        return prepared


SHELF = Shelf()     # of a process that trains beside others


def train_one(job: Job, shelf: Shelf, tell: Tell = silent) -> Row:
    """What a training gave; that it diverged is an answer as well: this setting cannot be trained."""
    row: Row = {"cell": jsonable(job.cell), "seed": job.seed}
    try:
        run = train_prepared(shelf.prepare(job.recipe, job.arguments), join(), tell)
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
    """The same, `beside` of them at once, as they end. A processor's cores are shared out, and GPUs are taken in turn."""
    context = get_context("spawn")      # a process that was forked could not use a GPU
    cores, gpus = max(1, torch.get_num_threads() // beside), torch.cuda.device_count()
    waiting, running = list(enumerate(jobs)), dict[Future[Row], int]()
    share = cores, gpus, context.Value("i", 0)
    with ProcessPoolExecutor(beside, context, initializer=settle, initargs=share) as pool, Patience() as patience:
        while running or (waiting and not patience.asked):
            while waiting and len(running) < beside and not patience.asked:
                number, job = waiting.pop(0)
                begins(number)
                home = job.recipe.function.__module__
                running[pool.submit(train_named, home, job.recipe.name, *job[1:])] = number
            for ended in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                number, row = running.pop(ended), answered(ended, beside)
                patience.asked |= STOPPED in row
                if STOPPED not in row:
                    yield number, row
            if patience.asked:
                for child in active_children():     # again and again: who is still loading does not listen yet
                    os.kill(child.pid or 0, signal.SIGTERM)
    if patience.asked:
        raise Interrupted(None, len(jobs) - len(waiting), len(jobs))


def answered(ended: Future[Row], beside: int) -> Row:
    try:
        return ended.result()
    except BrokenProcessPool:
        raise UsageError(f"one of {beside} trainings was killed, perhaps for want of memory; train fewer at once (--beside)") from None


def settle(cores: int, gpus: int, taken: Any) -> None:
    """A process that trains beside others: its share of the machine, and ears for its parent only."""
    with taken.get_lock():
        mine, taken.value = taken.value, taken.value + 1
    if gpus > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[mine % gpus]
    torch.set_num_threads(cores)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def train_named(home: str, name: str, cell: Mapping[str, Any], seed: int, given: Mapping[str, Any]) -> Row:
    """In its own process, where the recipe is known once the module that holds it is there."""
    if home != "__main__":     # which is there already
        import_module(home)
    if name not in RECIPES:
        raise UsageError(f"recipe {name!r} is known to the process that asked alone; train one after another, without --beside")
    try:
        return train_one(Job(RECIPES[name], cell, seed, given), SHELF)
    except Interrupted:
        return {STOPPED: True}


def results(run: Run) -> Row:
    return {"run": str(run.folder)} | {key: run.facts[key] for key in ("validation", "test", "seconds", "watch")}


def jsonable(value: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(value))
