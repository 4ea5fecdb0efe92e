"""A grid of arguments: every combination trained, results kept as they come, so that a sweep cut short goes on."""

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from didact import files
from didact.errors import UsageError, nearest, pick
from didact.options import plain, written
from didact.registry import Recipe
from didact.train.beside import Job, Shelf, jsonable, trained_beside, trained_in_turn
from didact.train.distributed import join
from didact.train.loop import Tell, silent
from didact.train.named import tells_class
from didact.train.session import example, known_options

Axes = dict[str, tuple[Any, ...]]
Done = Callable[[dict[str, Any]], None]
KEPT = "sweep.jsonl"

FIXED = {"seed": "--seeds N trains every cell under N seeds", "runs": "all runs of a sweep lie in one folder"}


def read_axes(recipe: Recipe, words: Sequence[str]) -> Axes:
    """`lr=1e-4,1e-3 dropout=0,0.3` -> the values of each axis; without words, the grid that the recipe brings."""
    if not words and not recipe.grid:
        raise UsageError(f"recipe {recipe.name!r} brings no grid of its own; name one, as in lr=1e-4,1e-3")
    known = known_options(recipe)
    axes: Axes = {} if words else dict(recipe.grid)
    for word in words:
        name, equals, values = word.partition("=")
        name = name.lstrip("-").replace("-", "_")
        if name not in known:
            raise UsageError(f"recipe {recipe.name!r} has no option {name!r}; {nearest(name, known)}")
        if name in FIXED:
            raise UsageError(f"{name} cannot be an axis; {FIXED[name]}")
        if name in axes:
            raise UsageError(f"the axis {name} is given twice; write all its values as {name}=value,value…")
        if not equals or not values:
            raise UsageError(f"an axis is written {name}=value,value…, got {word!r}")
        axes[name] = tuple(known[name].parse(value) for value in values.split(","))
        if twice := [value for k, value in enumerate(axes[name]) if value in axes[name][:k]]:
            raise UsageError(f"{name}={written(twice[0])} stands twice in {word!r}; more seeds are asked for with --seeds")
    return axes


@dataclass
class Sweep:
    """One grid: what is trained already, what is to be, and the file that keeps it. Made by `begin`."""

    recipe: Recipe
    given: Mapping[str, Any]
    folder: Path
    about: Mapping[str, Any]                   # what was asked, for who finds the folder
    plan: list[tuple[dict[str, Any], int]]     # cells and seeds, in their order
    rows: list[dict[str, Any]]

    @property
    def jobs(self) -> list[Job]:
        """What is left to train."""
        trained = [(row["cell"], row["seed"]) for row in self.rows]
        told = any(cell.get(name) for cell, _ in self.plan for name in tells_class(self.recipe))
        return [Job(self.recipe, cell, seed, self.given, told) for cell, seed in self.plan if (jsonable(cell), seed) not in trained]

    def add(self, row: dict[str, Any]) -> None:
        """Keep one more, in the order of the plan, whichever ended first."""
        order = [(jsonable(cell), seed) for cell, seed in self.plan]
        self.rows = sorted([*self.rows, row], key=lambda r: order.index((r["cell"], r["seed"])))
        files.write_text(self.folder / KEPT, "".join(json.dumps(plain(r), allow_nan=False) + "\n" for r in self.rows))


def sweep(
    recipe: Recipe, axes: Axes, *,
    seeds: int = 1, metric: str | None = None, beside: int = 1, tell: Tell = silent, done: Done = lambda row: None, **given: Any,
) -> tuple[Path, list[dict[str, Any]]]:
    """Train every combination under every seed; rows of arguments, metrics and run, and the folder they are kept in.

    The folder's name follows from what is asked, so asking again goes on where it stopped. `beside` are trained at once.
    """
    one = begin(recipe, axes, seeds=seeds, **given)
    carry_out([one], metric=metric, beside=beside, tell=tell, done=done)
    return one.folder, one.rows


def begin(recipe: Recipe, axes: Axes, *, seeds: int = 1, **given: Any) -> Sweep:
    """The sweep as it stands: its plan, and what an earlier call has trained of it."""
    first_seed = int(given.pop("seed", 0))
    folder = Path(given.get("runs", "runs")) / "sweeps" / name_of(recipe, axes, seeds, first_seed, given)
    cells = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    plan = [(cell, seed) for cell in cells for seed in range(first_seed, first_seed + seeds)]
    rows = kept(folder / KEPT)
    about = {"recipe": recipe.name, "axes": jsonable(axes), "seeds": seeds, "given": jsonable(given)}
    return Sweep(recipe, given, folder, about, plan, rows)


def carry_out(
    sweeps: Sequence[Sweep], *, metric: str | None = None, beside: int = 1, tell: Tell = silent, done: Done = lambda row: None
) -> None:
    """Train what is left of one or several sweeps; each row is kept as soon as it is there."""
    todo = [(one, job) for one in sweeps for job in one.jobs]
    rehearse([job for _, job in todo], metric)
    count, before = sum(len(one.plan) for one in sweeps), sum(len(one.rows) for one in sweeps)
    group = join()
    if beside > 1 and group.size > 1:
        raise UsageError(f"--beside {beside} starts processes of its own; call it without torchrun")

    for one in sweeps if group.leads else ():
        files.write_json(one.folder / "sweep.json", one.about)

    def begins(number: int) -> None:
        job = todo[number][1]
        tell("cell", {"number": before + number + 1, "of": count, "cell": job.cell, "seed": job.seed})

    jobs = [job for _, job in todo]
    rows = trained_beside(jobs, beside, begins) if beside > 1 else trained_in_turn(jobs, begins, tell)
    for number, row in rows:
        if group.leads:
            todo[number][0].add(row)
            done(row)
        else:
            todo[number][0].rows.append(row)


def rehearse(jobs: Sequence[Job], metric: str | None) -> None:
    """Build every cell without training it, so that a mistake in the last shows before the first step."""
    shelf, seen = Shelf(), set[str]()
    for job in jobs:
        twice = sorted(job.cell.keys() & job.given.keys())
        if twice:
            raise UsageError(f"{twice[0]} is an axis and an option (--{twice[0]} {written(job.given[twice[0]])}); give it once")
        if (what := repr((job.recipe.name, job.cell, job.given))) in seen:      # under another seed
            continue
        seen.add(what)
        prepared = shelf.prepare(job.recipe, {**job.given, **job.cell}, labelled=job.labelled)
        if metric is not None:
            objective, few = prepared.experiment.objective.eval(), example(prepared.data.validation, rows=64)
            with torch.no_grad():
                pick("metric", metric, objective.score(objective.judge(few)))


def kept(path: Path) -> list[dict[str, Any]]:
    """What a sweep that was cut short has trained already."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}); delete it to sweep anew") from error


def name_of(recipe: Recipe, axes: Axes, seeds: int, first_seed: int, given: Mapping[str, Any]) -> str:
    names = axes.get("data", [given.get("data", "")])
    stamp = [file for name in names for file in stamped(Path(str(name)).expanduser())]      # data that have changed are another sweep
    asked = json.dumps([recipe.name, axes, seeds, first_seed, dict(given), stamp], sort_keys=True, default=str)
    return f"{recipe.name}-{'-'.join(axes)}-{hashlib.blake2b(asked.encode(), digest_size=3).hexdigest()}"


def stamped(path: Path) -> list[Any]:
    """What tells a file from what it was before; of a folder, all that lie in it."""
    within = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in within if file.is_file()]


def choose_metric(rows: Sequence[Mapping[str, Any]], asked: str | None, compare: Sequence[str] = ()) -> str:
    """A metric that every cell has: the one asked for, what the recipe is compared by, or what it watches."""
    rows = [row for row in rows if "diverged" not in row]
    if not rows:
        return asked or "loss"
    common = [name for name in rows[0]["validation"] if all(name in row["validation"] for row in rows)]
    if asked is not None:
        if asked not in common:
            raise UsageError(f"no metric named {asked!r}; {nearest(asked, common)}")
        return asked
    wanted = [*compare[:1], *(row["watch"][0] for row in reversed(rows))]
    return next((name for name in wanted if name in common), "loss")


def cells(rows: Sequence[Mapping[str, Any]], metric: str, beside: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One row a cell: its arguments, mean and deviation of a metric over the seeds, and the validation means of those beside it.

    Cells are compared on validation. The test value stands beside it for the cell that validation chooses: to choose by
    it would make it a second validation split (Gaba 3.11 does).
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(json.dumps(row["cell"]), []).append(row)
    table = []
    for group in found.values():
        done = [row for row in group if "diverged" not in row]
        summary: dict[str, Any] = {}
        for split in ("validation", "test"):
            values = [row[split][metric] for row in done if row[split][metric] is not None]  # None: not defined on this split
            summary |= {split: fmean(values) if values else None, f"{split}_spread": stdev(values) if len(values) > 1 else None}
        for name in beside:
            known = [row["validation"][name] for row in done if row["validation"].get(name) is not None]
            summary[name] = fmean(known) if known else None
        seconds = fmean(row["seconds"] for row in done) if done else None
        table.append({**group[0]["cell"], **summary, "seeds": len(group), "diverged": len(group) - len(done), "seconds": seconds})
    return table

