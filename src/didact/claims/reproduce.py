"""Measure a table: its configurations are trained as sweeps, seed by seed.

Trained runs stay in the sweeps' folders, so an interrupted measurement resumes and more seeds can be added.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import ceil
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from didact import __version__, files
from didact.claims.measured_table import Cell, Grid, MeasuredTable, MeasurementRecord, MetricReading, load_records
from didact.claims.timing import MIN_ROUND_S, NUM_ROUNDS, WARMUP_S, time_table
from didact.data.core import Data, Split, TensorSplit
from didact.data.datasets.download import DatasetEntry, find_missing_files, search_folders
from didact.data.load import list_datasets
from didact.errors import UsageError
from didact.objectives.abilities import CanSample
from didact.registry import RECIPES
from didact.run import Run, environment, git_state
from didact.training.device import describe_device, resolve_device
from didact.training.experiment import EventCallback, Experiment, ignore_events
from didact.training.loop import Trainer
from didact.training.plan import TrainingPlan
from didact.training.prepare import known_options, prepare
from didact.training.sweeps.parallel_sweep import to_jsonable
from didact.training.sweeps.sweep import load_or_create, run_sweeps

_PACKAGE_FOLDER = Path(__file__).parents[1]          # didact's own files, whatever the working directory
MEASURED_FOLDER = _PACKAGE_FOLDER / "claims" / "measured"
_TIMING_STEPS = 40                         # training steps to estimate the time from
_TIMING_EXAMPLES = 2_000                     # examples to estimate the time of an evaluation from
_COURSE_SETTINGS = {"precision": "fp32"}   # as the courses train; didact's default on a GPU may differ


def why_not_measurable(table: MeasuredTable) -> str:
    """Why a table cannot be measured yet, or an empty text."""
    return "" if table.is_benchmark else next((reason for grid in table.grids for reason in _list_obstacles(grid)), "")


def resolve_table_device(table: MeasuredTable, name: str = "auto") -> torch.device:
    """The device of this name, if the table can be measured on it."""
    device = resolve_device(name)
    if table.needs_gpu and device.type == "cpu":
        raise UsageError(
            f"table {table.name} needs a GPU, got {describe_device(device)}; run {table.command} where there is one"
        )
    return device


def _list_obstacles(grid: Grid) -> Iterator[str]:
    if grid.recipe not in RECIPES:
        yield f"there is no recipe {grid.recipe!r} yet"
        return
    options = known_options(RECIPES[grid.recipe])
    yield from (
        f"recipe {grid.recipe!r} has no option {name!r} yet"
        for name in (*grid.fixed, *grid.axes)
        if name not in options
    )
    name = grid.fixed["data"]
    files_name = name.removesuffix("_whole")     # the same files, split as in the course
    if name not in list_datasets():
        yield f"there is no dataset {name!r} yet"
    elif find_missing_files(list_datasets()[files_name]):
        yield _describe_missing_files(list_datasets()[files_name])


def _describe_missing_files(source: DatasetEntry) -> str:
    """Which files are missing, and where to put them."""
    file_names, search_paths = (
        dict.fromkeys(file.download_name for file in find_missing_files(source)),
        search_folders(source.name),
    )
    alternative = "" if os.environ.get("DIDACT_DATA") else f", or set DIDACT_DATA to a folder that holds {source.name}/"
    return (
        f"{source.name} needs {', '.join(file_names)}, not in {' or '.join(map(str, search_paths))}; put what is "
        f"missing into {search_paths[0]}{alternative}"
    )


def measure_table(
    table: MeasuredTable,
    *,
    seeds: Sequence[int],
    num_workers: int = 1,
    on_event: EventCallback = ignore_events,
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
    **settings: Any,
) -> MeasurementRecord:
    """Every configuration with every seed, `num_workers` trainings at once.

    Called again, it resumes where it was interrupted.
    """
    device = resolve_table_device(table, settings.get("device", "auto"))
    start, training_seconds, batch_noises = time.perf_counter(), 0.0, dict[str, float]()
    if table.is_benchmark:
        values = _measure_times(table, device, seeds, on_event)
    else:
        values, training_seconds, batch_noises = _measure_trainings(
            table, seeds, num_workers, on_event, on_row, _COURSE_SETTINGS | settings
        )
    source = git_state(_PACKAGE_FOLDER, excluded="claims/measured") or {"commit": "installed", "dirty": False}
    versions = {k: v for k, v in environment()["versions"].items() if k in ("python", "torch")}
    return MeasurementRecord(
        table.name,
        values,
        list(seeds),
        time.strftime("%Y-%m-%d"),
        source["commit"],
        describe_device(device),
        {"didact": __version__} | versions,
        training_seconds or time.perf_counter() - start,
        source["dirty"],
        num_workers,
        settings_hash=table.settings_hash,
        batch_noise=batch_noises,
    )


def list_missing_seeds(table: MeasuredTable, seeds: int) -> list[int]:
    """The seeds below `seeds` that the saved record of the table lacks; refused where they cannot be combined."""
    record = load_records().get(table.name)
    if table.is_benchmark:
        raise UsageError(f"table {table.name} is of times, which are measured in one session; leave out --add-seeds")
    if record is None:
        raise UsageError(
            f"--add-seeds adds to a saved measurement, but table {table.name} is not yet measured; leave out "
            "--add-seeds"
        )
    if {cell.name for cell in table.cells} != set(record.values) or record.settings_hash not in (
        "",
        table.settings_hash,
    ):
        raise UsageError(
            f"the saved measurement of table {table.name} has other settings than the table now; measure again without "
            "--add-seeds"
        )
    missing_seeds = [seed for seed in range(seeds) if seed not in record.seeds]
    if not missing_seeds:
        raise UsageError(f"--add-seeds expects --seeds above the {len(record.seeds)} that are saved, got {seeds}")
    return missing_seeds


def _measure_times(
    table: MeasuredTable, device: torch.device, seeds: Sequence[int], on_event: EventCallback
) -> dict[str, list[float]]:
    """The timed number of each cell, once per seed."""
    values = {cell.name: list[float]() for cell in table.cells}
    for seed in seeds:
        for name, ratio in time_table(table, device, seed=seed, seeds=seeds, on_event=on_event).items():
            values[name].append(ratio)
    return values


def _measure_trainings(
    table: MeasuredTable,
    seeds: Sequence[int],
    num_workers: int,
    on_event: EventCallback,
    on_row: Callable[[dict[str, Any]], None],
    settings: Mapping[str, Any],
) -> tuple[dict[str, list[float]], float, dict[str, float]]:
    """For each cell one number per seed; the seconds of training; the batch noise where a single batch is read."""
    seed_grids = [(seed, number) for seed in seeds for number in range(len(table.grids))]
    sweeps = {
        (seed, number): load_or_create(RECIPES[grid.recipe], dict(grid.axes), seed=seed, **grid.fixed, **settings)
        for seed, number in seed_grids for grid in [table.grids[number]]
    }
    run_sweeps(list(sweeps.values()), num_workers=num_workers, on_event=on_event, on_row=on_row)
    values_by_cell = {
        cell.name: [_read_cell(cell, sweeps[seed, cell.grid].rows) for seed in seeds] for cell in table.cells
    }
    seconds = sum(row.get("seconds", 0.0) for sweep in sweeps.values() for row in sweep.rows)
    batch_noises = {cell.name: fmean(measure_batch_noise(cell, sweeps[seed, cell.grid].rows) for seed in seeds)
             for cell in table.cells if cell.reading.last_batch}
    return (
        {name: [value for value in values if value is not None] for name, values in values_by_cell.items()},
        seconds,
        batch_noises,
    )


def measure_batch_noise(cell: Cell, rows: Sequence[Mapping[str, Any]]) -> float:
    """Standard deviation of the last hundred batches up to the one that is read; 0 where the run diverged."""
    row = next(row for row in rows if row["cell"] == to_jsonable(cell.configuration))
    if "diverged" in row or cell.reading.epoch is None:
        return 0.0
    logged = [line["train"][cell.reading.metric] for line in Run(Path(row["run"])).metrics
              if "train" in line and cell.reading.epoch - 1 < line["epoch"] <= cell.reading.epoch]
    return stdev(logged[-100:]) if len(logged) > 1 else 0.0


def _read_cell(cell: Cell, rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The cell's number in the row of its configuration; None where it diverged."""
    row = next(row for row in rows if row["cell"] == to_jsonable(cell.configuration))
    if "diverged" in row:
        return None
    if cell.reading.epoch is None:
        return float(row[cell.reading.split][cell.reading.metric])
    return read_at_epoch(Run(Path(row["run"])), cell.reading)


def read_at_epoch(run: Run, reading: MetricReading) -> float:
    """A metric at the end of an epoch; for training, the mean over its examples.

    That mean weights each line of the log by its steps. With `last_batch` it is the last batch alone, which needs a log
    line for every step.
    """
    lines = [row for row in run.metrics if reading.split in row]
    if not lines:
        raise UsageError(
            f"{run.folder} has no {reading.split} metrics, though a sweep lists it; delete the sweep's folder to train "
            "again"
        )
    assert reading.epoch is not None
    if reading.split != "train":
        line = min(lines, key=lambda row: abs(row["epoch"] - reading.epoch))
        if abs(line["epoch"] - reading.epoch) > 0.5:
            raise UsageError(
                f"{run.folder} was not evaluated at epoch {reading.epoch}, nearest at {line['epoch']:g}; delete it to "
                "train again"
            )
        return float(line[reading.split][reading.metric])
    starts = [0, *(row["step"] for row in lines[:-1])]
    epoch_lines = [(row["train"][reading.metric], row["step"] - start) for row, start in zip(lines, starts, strict=True)
              if reading.epoch - 1 < row["epoch"] <= reading.epoch]
    if not epoch_lines:
        raise UsageError(f"{run.folder} logged no {reading.metric} in epoch {reading.epoch}; delete it to train again")
    if reading.last_batch:
        (_, batches), epoch_lines = epoch_lines[-1], epoch_lines[-1:]
        if batches > 1:
            raise UsageError(
                f"{run.folder} has means of {batches} batches, not the last of epoch {reading.epoch}; delete it to "
                "train again"
            )
    return float(sum(loss * steps for loss, steps in epoch_lines) / sum(steps for _, steps in epoch_lines))


def estimate_seconds(
    table: MeasuredTable, seeds: int, *, on_event: EventCallback = ignore_events, **settings: Any
) -> float:
    """Expected seconds of a measurement.

    From a saved measurement on the same hardware, otherwise from a few steps of each grid's first and last
    configuration.
    """
    record = load_records().get(table.name)
    if record is not None and record.hardware == describe_device(
        resolve_table_device(table, settings.get("device", "auto"))
    ):
        return seeds * record.seconds / len(record.seeds)
    if table.is_benchmark:
        return seeds * (WARMUP_S + NUM_ROUNDS * MIN_ROUND_S) * sum(len(grid.configurations) for grid in table.grids)
    settings, total, data = _COURSE_SETTINGS | settings, 0.0, dict[str, Data]()
    for grid in table.grids:
        cells = grid.configurations
        ends = [cells[0], cells[-1]] if len(cells) > 1 else cells
        on_event("timing", {"recipe": grid.recipe, "cells": len(cells)})
        total += len(cells) * fmean(estimate_training_seconds(grid, cell, settings, data) for cell in ends)
    return seeds * total


def estimate_training_seconds(
    grid: Grid, cell: Mapping[str, Any], settings: Mapping[str, Any], data: dict[str, Data]
) -> float:
    """Expected seconds of one training, from a few of its steps and one evaluation."""
    name = grid.fixed["data"]
    prepared = prepare(grid.recipe, {**grid.fixed, **cell, **settings}, data=data.get(name))
    data[name] = prepared.data
    plan, timing_split = TrainingPlan.from_experiment(prepared.experiment), take_timing_split(prepared.experiment)
    experiment = replace(prepared.experiment, data=replace(prepared.experiment.data, validation=timing_split))
    short_experiment = replace(
        experiment, epochs=None, steps=min(_TIMING_STEPS, plan.total_rounds), evaluate_every=_TIMING_STEPS
    )
    trainer = Trainer(short_experiment, prepared.settings, device=resolve_device(prepared.settings.device))
    start = time.perf_counter()
    state = trainer.train()
    evaluation_seconds = (
        (time.perf_counter() - start - state.seconds) * len(prepared.experiment.data.validation) / len(timing_split)
    )
    warmup_steps, warmup_seconds = trainer.speed_reference
    step_seconds = (state.seconds - warmup_seconds) / max(1, state.step - warmup_steps)
    return plan.total_rounds * step_seconds + ceil(plan.total_rounds / plan.evaluate_every) * evaluation_seconds


def take_timing_split(experiment: Experiment) -> Split:
    """The examples to time an evaluation with: some of many, all where images are sampled."""
    split, is_sampling = experiment.data.validation, isinstance(experiment.objective, CanSample)
    if not isinstance(split, TensorSplit) or is_sampling or len(split) <= _TIMING_EXAMPLES:
        return split
    return split.subset(torch.arange(_TIMING_EXAMPLES, device=split.device))


def save_record(record: MeasurementRecord) -> Path:
    """Save a measurement next to the claims, so that an installed didact can show it."""
    path = MEASURED_FOLDER / f"{record.table}.json"
    files.write_json(path, asdict(record))
    load_records.cache_clear()
    return path
