"""Measure a table: its configurations trained through `sweep`, seed by seed, so that what is trained is kept and more seeds can follow."""

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
from didact.claims.table import Cell, Grid, Reading, Record, Table, kept
from didact.claims.timing import LEAST, ROUNDS, SETTLING, timed
from didact.data.core import Data, Resident, Split
from didact.data.fetch import Source, folders, missing
from didact.data.load import sources
from didact.errors import UsageError
from didact.objectives.abilities import Samples
from didact.registry import RECIPES
from didact.run import Run, git_state, surroundings
from didact.train.beside import jsonable
from didact.train.experiment import Experiment
from didact.train.loop import Plan, Tell, Training, silent
from didact.train.machine import describe, pick_device
from didact.train.session import known_options, prepare
from didact.train.sweep import begin, carry_out

SOURCE = Path(__file__).parents[1]          # didact's own files, wherever one works
FOLDER = SOURCE / "claims" / "measured"
TIMED = 40                         # steps that the expected time is taken from
JUDGED = 2_000                     # rows that the time of an evaluation is taken from
FAITHFUL = {"precision": "fp32"}   # as the courses train; didact's own choice on a GPU may be another


def lacking(table: Table) -> str:
    """Why a table cannot be measured yet, or nothing."""
    return "" if table.benchmark else next((why for grid in table.grids for why in obstacles(grid)), "")


def place(table: Table, name: str = "auto") -> torch.device:
    """The device that a word means, if the table can be measured there."""
    device = pick_device(name)
    if table.gpu and device.type == "cpu":
        raise UsageError(f"table {table.name} speaks of a GPU, got {describe(device)}; run {table.command} where there is one")
    return device


def obstacles(grid: Grid) -> Iterator[str]:
    if grid.recipe not in RECIPES:
        yield f"there is no recipe {grid.recipe!r} yet"
        return
    known = known_options(RECIPES[grid.recipe])
    yield from (f"recipe {grid.recipe!r} has no option {name!r} yet" for name in (*grid.given, *grid.axes) if name not in known)
    name = grid.given["data"]
    files_of = name.removesuffix("_whole")     # the same files, split as the course does
    if name not in sources():
        yield f"there is no data set {name!r} yet"
    elif missing(sources()[files_of]):
        yield where_to_put(sources()[files_of])


def where_to_put(source: Source) -> str:
    """Which files go where."""
    wanted, places = dict.fromkeys(file.offered for file in missing(source)), folders(source.name)
    or_else = "" if os.environ.get("DIDACT_DATA") else f", or set DIDACT_DATA to a folder that holds {source.name}/"
    return f"{source.name} needs {', '.join(wanted)}, not in {' or '.join(map(str, places))}; put what is missing into {places[0]}{or_else}"


def measure(
    table: Table, *, seeds: Sequence[int], beside: int = 1, tell: Tell = silent, done: Callable[[dict[str, Any]], None] = lambda row: None,
    **settings: Any,
) -> Record:
    """Every configuration under every seed, `beside` at once. Asked again, it goes on where it was stopped."""
    device = place(table, settings.get("device", "auto"))
    started, spent, noise = time.perf_counter(), 0.0, dict[str, float]()
    if table.benchmark:
        values = clocked(table, device, seeds, tell)
    else:
        values, spent, noise = trained(table, seeds, beside, tell, done, FAITHFUL | settings)
    source = git_state(SOURCE, apart="claims/measured") or {"commit": "installed", "dirty": False}
    versions = {k: v for k, v in surroundings()["versions"].items() if k in ("python", "torch")}
    return Record(
        table.name, values, list(seeds), time.strftime("%Y-%m-%d"), source["commit"], describe(device),
        {"didact": __version__} | versions, spent or time.perf_counter() - started, source["dirty"], beside,
        settings=table.settings, noise=noise,
    )


def to_follow(table: Table, seeds: int) -> list[int]:
    """Which of so many seeds the kept record of the table lacks; refused where they cannot be put together."""
    record = kept().get(table.name)
    if table.benchmark:
        raise UsageError(f"table {table.name} is of times, which are taken together; leave out --more")
    if record is None:
        raise UsageError(f"--more adds seeds to what was kept, but table {table.name} is not yet measured; leave out --more")
    if {cell.name for cell in table.cells} != set(record.values) or record.settings not in ("", table.settings):
        raise UsageError(f"what was kept of table {table.name} is of other settings than it has now; measure it anew, without --more")
    lacking = [seed for seed in range(seeds) if seed not in record.seeds]
    if not lacking:
        raise UsageError(f"--more expects --seeds above the {len(record.seeds)} that were kept, got {seeds}")
    return lacking


def clocked(table: Table, device: torch.device, seeds: Sequence[int], tell: Tell) -> dict[str, list[float]]:
    """What the clock says of each cell, once a seed."""
    values = {cell.name: list[float]() for cell in table.cells}
    for seed in seeds:
        for name, ratio in timed(table, device, seed=seed, seeds=seeds, tell=tell).items():
            values[name].append(ratio)
    return values


def trained(
    table: Table, seeds: Sequence[int], beside: int, tell: Tell, done: Callable[[dict[str, Any]], None], settings: Mapping[str, Any]
) -> tuple[dict[str, list[float]], float, dict[str, float]]:
    """What the trainings gave for each cell, a number a seed; the seconds that they took; how batches differ where one is read."""
    places = [(seed, number) for seed in seeds for number in range(len(table.grids))]
    sweeps = {
        (seed, number): begin(RECIPES[grid.recipe], dict(grid.axes), seed=seed, **grid.given, **settings)
        for seed, number in places for grid in [table.grids[number]]
    }
    carry_out(list(sweeps.values()), beside=beside, tell=tell, done=done)
    found = {cell.name: [read(cell, sweeps[seed, cell.grid].rows) for seed in seeds] for cell in table.cells}
    seconds = sum(row.get("seconds", 0.0) for one in sweeps.values() for row in one.rows)
    noise = {cell.name: fmean(batch_noise(cell, sweeps[seed, cell.grid].rows) for seed in seeds)
             for cell in table.cells if cell.reading.last}
    return {name: [value for value in values if value is not None] for name, values in found.items()}, seconds, noise


def batch_noise(cell: Cell, rows: Sequence[Mapping[str, Any]]) -> float:
    """The deviation of the last hundred batches up to the one that is read; 0 where the run diverged."""
    row = next(row for row in rows if row["cell"] == jsonable(cell.at))
    if "diverged" in row or cell.reading.epoch is None:
        return 0.0
    logged = [line["train"][cell.reading.metric] for line in Run(Path(row["run"])).metrics
              if "train" in line and cell.reading.epoch - 1 < line["epoch"] <= cell.reading.epoch]
    return stdev(logged[-100:]) if len(logged) > 1 else 0.0


def read(cell: Cell, rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The cell's number in the row of its configuration; none where it diverged."""
    row = next(row for row in rows if row["cell"] == jsonable(cell.at))
    if "diverged" in row:
        return None
    if cell.reading.epoch is None:
        return float(row[cell.reading.split][cell.reading.metric])
    return at_epoch(Run(Path(row["run"])), cell.reading)


def at_epoch(run: Run, reading: Reading) -> float:
    """A metric at the end of an epoch; of training, the mean over its examples, weighed by the steps between two lines of the log.

    Or its last batch alone, where a line is of one.
    """
    lines = [row for row in run.metrics if reading.split in row]
    if not lines:
        raise UsageError(f"{run.folder} has no {reading.split} metrics, though a sweep names it; delete the sweep's folder to train anew")
    assert reading.epoch is not None
    if reading.split != "train":
        line = min(lines, key=lambda row: abs(row["epoch"] - reading.epoch))
        if abs(line["epoch"] - reading.epoch) > 0.5:
            raise UsageError(f"{run.folder} was not judged at epoch {reading.epoch}, nearest at {line['epoch']:g}; delete it to train anew")
        return float(line[reading.split][reading.metric])
    starts = [0, *(row["step"] for row in lines[:-1])]
    inside = [(row["train"][reading.metric], row["step"] - start) for row, start in zip(lines, starts, strict=True)
              if reading.epoch - 1 < row["epoch"] <= reading.epoch]
    if not inside:
        raise UsageError(f"{run.folder} logged no {reading.metric} in epoch {reading.epoch}; delete it to train anew")
    if reading.last:
        (_, batches), inside = inside[-1], inside[-1:]
        if batches > 1:
            raise UsageError(f"{run.folder} has means of {batches} batches, not the last of epoch {reading.epoch}; delete it to train anew")
    return float(sum(loss * steps for loss, steps in inside) / sum(steps for _, steps in inside))


def expected_seconds(table: Table, seeds: int, *, tell: Tell = silent, **settings: Any) -> float:
    """From what was measured on the same hardware, else from a few steps of each grid's first and last configuration."""
    record = kept().get(table.name)
    if record is not None and record.hardware == describe(place(table, settings.get("device", "auto"))):
        return seeds * record.seconds / len(record.seeds)
    if table.benchmark:
        return seeds * (SETTLING + ROUNDS * LEAST) * sum(len(grid.configurations) for grid in table.grids)
    settings, total, data = FAITHFUL | settings, 0.0, dict[str, Data]()
    for grid in table.grids:
        cells = grid.configurations
        ends = [cells[0], cells[-1]] if len(cells) > 1 else cells
        tell("timing", {"recipe": grid.recipe, "cells": len(cells)})
        total += len(cells) * fmean(seconds_of(grid, cell, settings, data) for cell in ends)
    return seeds * total


def seconds_of(grid: Grid, cell: Mapping[str, Any], settings: Mapping[str, Any], data: dict[str, Data]) -> float:
    """One training, from a few of its steps and one evaluation."""
    name = grid.given["data"]
    prepared = prepare(grid.recipe, {**grid.given, **cell, **settings}, data=data.get(name))
    data[name] = prepared.data
    plan, judged = Plan.of(prepared.experiment), part_of(prepared.experiment)
    experiment = replace(prepared.experiment, data=replace(prepared.experiment.data, validation=judged))
    short = replace(experiment, epochs=None, steps=min(TIMED, plan.total), evaluate_every=TIMED)
    training = Training(short, prepared.settings, device=pick_device(prepared.settings.device))
    start = time.perf_counter()
    state = training.train()
    evaluation = (time.perf_counter() - start - state.seconds) * len(prepared.experiment.data.validation) / len(judged)
    steps, before = training.warm
    each = (state.seconds - before) / max(1, state.step - steps)
    return plan.total * each + ceil(plan.total / plan.evaluate_every) * evaluation


def part_of(experiment: Experiment) -> Split:
    """What the time of an evaluation is taken from: a part of many rows, but where images are drawn, which takes as long for few."""
    rows = experiment.data.validation
    if not isinstance(rows, Resident) or isinstance(experiment.objective, Samples) or len(rows) <= JUDGED:
        return rows
    return rows.pick(torch.arange(JUDGED, device=rows.device))


def keep(record: Record) -> Path:
    """Beside the claims, so that an installed didact can show it."""
    path = FOLDER / f"{record.table}.json"
    files.write_json(path, asdict(record))
    kept.cache_clear()
    return path
