"""Sweep: every combination of a grid of arguments. An interrupted sweep continues."""

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
from didact.data.tables.table_file import TableFile, keep_standard_input
from didact.errors import UsageError, look_up, suggest_nearest
from didact.options import format_value, resolve_alias, resolve_aliases, to_json_value
from didact.registry import Recipe
from didact.schema import SWEEP_ROW, find_mismatch, parse_json
from didact.training.distributed.process_group import join_group
from didact.training.experiment import EventCallback, ignore_events
from didact.training.prepare import known_options, take_examples
from didact.training.source_runs import label_options
from didact.training.sweeps.parallel_sweep import DataCache, TrainingJob, run_parallel, run_serial, to_jsonable

Axes = dict[str, tuple[Any, ...]]
RowCallback = Callable[[dict[str, Any]], None]
RESULTS_FILE = "sweep.jsonl"

FIXED_OPTIONS = {"seed": "--seeds N trains every cell under N seeds", "runs": "all runs of a sweep lie in one folder"}


def read_axes(recipe: Recipe, axis_texts: Sequence[str]) -> Axes:
    """`lr=1e-4,1e-3 dropout=0,0.3` -> the values of each axis; without any, the recipe's own grid."""
    if not axis_texts and not recipe.grid:
        raise UsageError(f"recipe {recipe.name!r} has no grid of its own; give one, as in lr=1e-4,1e-3")
    options_by_name = known_options(recipe)
    axes: Axes = {} if axis_texts else dict(recipe.grid)
    for axis_text in axis_texts:
        name, equals, values = axis_text.partition("=")
        name = name.lstrip("-").replace("-", "_")
        name = resolve_alias(name, options_by_name, owner=f"recipe {recipe.name!r}")
        if name in FIXED_OPTIONS:
            raise UsageError(f"{name} cannot be an axis; {FIXED_OPTIONS[name]}")
        if name in axes:
            raise UsageError(f"the axis {name} is given twice; write all its values as {name}=value,value…")
        if not equals or not values:
            raise UsageError(f"an axis is written {name}=value,value…, got {axis_text!r}")
        axes[name] = tuple(options_by_name[name].parse(value) for value in values.split(","))
        if duplicates := [value for k, value in enumerate(axes[name]) if value in axes[name][:k]]:
            raise UsageError(
                f"{name}={format_value(duplicates[0])} is given twice in {axis_text!r}; for more seeds use "
                "--seeds"
            )
    return axes


@dataclass
class Sweep:
    """One grid: finished and remaining trainings, and the file of results. Made by `load_or_create`."""

    recipe: Recipe
    base_options: Mapping[str, Any]
    folder: Path
    request: Mapping[str, Any]                   # the request, for readers of the folder
    plan: list[tuple[dict[str, Any], int]]     # cells and seeds, in their order
    rows: list[dict[str, Any]]

    @property
    def remaining_jobs(self) -> list[TrainingJob]:
        """The trainings that are left."""
        trained = [(row["cell"], row["seed"]) for row in self.rows]
        needs_labels = any(cell.get(name) for cell, _ in self.plan for name in label_options(self.recipe))
        return [
            TrainingJob(self.recipe, cell, seed, self.base_options, needs_labels)
            for cell, seed in self.plan
            if (to_jsonable(cell), seed) not in trained
        ]

    def add(self, row: dict[str, Any]) -> None:
        """Save one more result, in the order of the plan."""
        order = [(to_jsonable(cell), seed) for cell, seed in self.plan]
        self.rows = sorted([*self.rows, row], key=lambda r: order.index((r["cell"], r["seed"])))
        files.write_text(
            self.folder / RESULTS_FILE, "".join(json.dumps(to_json_value(r), allow_nan=False) + "\n" for r in self.rows)
        )


def sweep(
    recipe: Recipe,
    axes: Axes,
    *,
    seeds: int = 1,
    metric: str | None = None,
    num_workers: int = 1,
    on_event: EventCallback = ignore_events,
    on_row: RowCallback = lambda row: None,
    **base_options: Any,
) -> tuple[Path, list[dict[str, Any]]]:
    """Train every combination under every seed; returns rows of arguments, metrics and run, and the sweep's folder.

    The folder's name follows from the request, so the same request continues where it stopped.
    """
    grid = load_or_create(recipe, axes, seeds=seeds, **base_options)
    run_sweeps([grid], metric=metric, num_workers=num_workers, on_event=on_event, on_row=on_row)
    return grid.folder, grid.rows


def load_or_create(recipe: Recipe, axes: Axes, *, seeds: int = 1, **base_options: Any) -> Sweep:
    """The sweep with its plan and the results of earlier calls."""
    options_by_name, owner = known_options(recipe), f"recipe {recipe.name!r}"
    axes = resolve_aliases(options_by_name, axes, owner=owner)
    base_options = resolve_aliases(options_by_name, base_options, owner=owner)
    first_seed = int(base_options.pop("seed", 0))
    if "data" in base_options:                # its processes could not share standard input
        base_options["data"] = keep_standard_input(base_options["data"], base_options.get("runs", "runs"))
    folder = (
        Path(base_options.get("runs", "runs")) / "sweeps" / sweep_name(recipe, axes, seeds, first_seed, base_options)
    )
    cells = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    plan = [(cell, seed) for cell in cells for seed in range(first_seed, first_seed + seeds)]
    rows = _load_results(folder / RESULTS_FILE)
    request = {"recipe": recipe.name, "axes": to_jsonable(axes), "seeds": seeds, "given": to_jsonable(base_options)}
    return Sweep(recipe, base_options, folder, request, plan, rows)


def run_sweeps(
    sweeps: Sequence[Sweep],
    *,
    metric: str | None = None,
    num_workers: int = 1,
    on_event: EventCallback = ignore_events,
    on_row: RowCallback = lambda row: None,
) -> None:
    """Train what is left of one or several sweeps; each row is saved as soon as it is there."""
    pending = [(grid, job) for grid in sweeps for job in grid.remaining_jobs]
    _dry_run([job for _, job in pending], metric)
    num_total, num_done = sum(len(grid.plan) for grid in sweeps), sum(len(grid.rows) for grid in sweeps)
    group = join_group()
    if num_workers > 1 and group.world_size > 1:
        raise UsageError(f"--jobs {num_workers} starts its own processes; call it without torchrun")

    for grid in sweeps if group.is_main else ():
        files.write_json(grid.folder / "sweep.json", grid.request)

    def on_start(number: int) -> None:
        job = pending[number][1]
        on_event("cell", {"number": num_done + number + 1, "of": num_total, "cell": job.cell, "seed": job.seed})

    jobs = [job for _, job in pending]
    rows = run_parallel(jobs, num_workers, on_start) if num_workers > 1 else run_serial(jobs, on_start, on_event)
    for number, row in rows:
        if group.is_main:
            pending[number][0].add(row)
            on_row(row)
        else:
            pending[number][0].rows.append(row)


def _dry_run(jobs: Sequence[TrainingJob], metric: str | None) -> None:
    """Build every cell without training, so that a mistake in the last one shows before the first step."""
    cache, checked = DataCache(), set[str]()
    for job in jobs:
        duplicates = sorted(job.cell.keys() & job.base_options.keys())
        if duplicates:
            flag = f"--{duplicates[0].replace('_', '-')}"
            raise UsageError(
                f"{duplicates[0]} is an axis and an option ({flag} "
                f"{format_value(job.base_options[duplicates[0]])}); give it once"
            )
        # the same cell under another seed
        if (key := repr((job.recipe.name, job.cell, job.base_options))) in checked:
            continue
        checked.add(key)
        prepared = cache.prepare(job.recipe, {**job.base_options, **job.cell}, labeled=job.labeled)
        if metric is not None:
            objective, batch = (
                prepared.experiment.objective.eval(),
                take_examples(prepared.data.validation, num_examples=64),
            )
            with torch.no_grad():
                look_up("metric", metric, objective.compute_metrics(objective.evaluate_batch(batch)))


def _load_results(path: Path) -> list[dict[str, Any]]:
    """Results of an interrupted sweep."""
    try:
        rows = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}); delete it to sweep anew") from error
    if mismatch := next(filter(None, (find_mismatch(row, SWEEP_ROW) for row in rows)), ""):
        raise UsageError(f"{path} is damaged: {mismatch}; delete it to sweep anew")
    return rows


def sweep_name(recipe: Recipe, axes: Axes, seeds: int, first_seed: int, base_options: Mapping[str, Any]) -> str:
    options = ("data", "validation", "test")
    names = [name for option in options for name in axes.get(option, [base_options.get(option)]) if name]
    # changed data are another sweep
    fingerprint = [file for name in names for file in _file_fingerprint(TableFile.parse(str(name)).path.expanduser())]
    request = json.dumps(
        [recipe.name, axes, seeds, first_seed, dict(base_options), fingerprint], sort_keys=True, default=str
    )
    return f"{recipe.name}-{'-'.join(axes)}-{hashlib.blake2b(request.encode(), digest_size=3).hexdigest()}"


def _file_fingerprint(path: Path) -> list[Any]:
    """Name, size and time of a file; of a folder, of all files in it."""
    paths = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in paths if file.is_file()]


def choose_metric(rows: Sequence[Mapping[str, Any]], requested: str | None, compare: Sequence[str] = ()) -> str:
    """A metric that every cell has: the requested one, the one that the recipe compares by, or the monitored one."""
    rows = [row for row in rows if "diverged" not in row]
    if not rows:
        return requested or "loss"
    common = [name for name in rows[0]["validation"] if all(name in row["validation"] for row in rows)]
    if requested is not None:
        if requested not in common:
            raise UsageError(f"no metric named {requested!r}; {suggest_nearest(requested, common)}")
        return requested
    candidates = [*compare[:1], *(row["monitor"][0] for row in reversed(rows))]
    return next((name for name in candidates if name in common), "loss")


def summarize_cells(
    rows: Sequence[Mapping[str, Any]], metric: str, extra_metrics: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """One row per cell: arguments, mean and standard deviation of the metric over seeds, and validation means of
    others.

    Cells are ranked on validation. The test metric stands beside it for the cell that validation chooses: choosing by
    the test metric would make it a second validation split (Gaba 3.11 does).
    """
    rows_by_cell: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        rows_by_cell.setdefault(json.dumps(row["cell"]), []).append(row)
    table = []
    for cell_rows in rows_by_cell.values():
        finished = [row for row in cell_rows if "diverged" not in row]
        summary: dict[str, Any] = {}
        for split in ("validation", "test"):
            # None: undefined on this split
            values = [row[split][metric] for row in finished if row[split][metric] is not None]
            summary |= {
                split: fmean(values) if values else None,
                f"{split}_spread": stdev(values) if len(values) > 1 else None,
            }
        for name in extra_metrics:
            extra_values = [row["validation"][name] for row in finished if row["validation"].get(name) is not None]
            summary[name] = fmean(extra_values) if extra_values else None
        seconds = fmean(row["seconds"] for row in finished) if finished else None
        table.append(
            {
                **cell_rows[0]["cell"],
                **summary,
                "seeds": len(cell_rows),
                "diverged": len(cell_rows) - len(finished),
                "seconds": seconds,
            }
        )
    return table

