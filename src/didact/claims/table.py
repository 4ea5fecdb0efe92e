"""A table of measured numbers, as data: configurations, cells, orderings; and the rule by which a measurement judges a stated number.

    a cell holds where |mean over seeds − stated| ≤ 2 deviations over seeds + allowance
    allowance: 0.005 for an accuracy (half a point), 10 % for a ratio of times, 5 % for anything else

The allowance is for what the course leaves unstated: seeds, versions, hardware.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import product
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from didact.errors import pick
from didact.options import written

RULE = "holds: within two deviations over the seeds, plus half a point of accuracy, 10 % of a ratio of times, 5 % of anything else"


@dataclass(frozen=True)
class Grid:
    """Configurations of one recipe: what they share, and the axes along which they differ."""

    recipe: str
    given: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def configurations(self) -> list[dict[str, Any]]:
        return [dict(zip(self.axes, values, strict=True)) for values in product(*self.axes.values())]


@dataclass(frozen=True)
class Reading:
    """Where a number stands in a run: a metric of a split, at the end or at one epoch."""

    split: str                 # train, validation or test
    metric: str
    epoch: int | None = None

    def __str__(self) -> str:
        return f"{self.split} {self.metric}" + (f", epoch {self.epoch}" if self.epoch else "")


@dataclass(frozen=True)
class Cell:
    """One number of the table."""

    claim: str
    stated: float
    reading: Reading
    grid: int = 0
    at: Mapping[str, Any] = field(default_factory=dict)    # which configuration of the grid
    why: str = ""                                          # why the number cannot be compared, where it cannot
    limit: bool = False                                    # the text says no more than that it lies below

    @property
    def name(self) -> str:
        where = " ".join(f"{name}={written(value)}" for name, value in self.at.items())
        return f"{where}, {self.reading}" if where else str(self.reading)

    @property
    def allowance(self) -> float:
        return {"accuracy": 0.005, "ratio": 0.1 * abs(self.stated)}.get(self.reading.metric, 0.05 * abs(self.stated))


@dataclass(frozen=True)
class Ordering:
    """What the text draws from the table: each first cell above its second, by their places in the list."""

    text: str
    pairs: tuple[tuple[int, int], ...]
    claim: str = ""


@dataclass(frozen=True)
class Table:
    name: str                            # the section of Gaba, as 3.11
    title: str
    grids: tuple[Grid, ...]
    cells: tuple[Cell, ...]
    orderings: tuple[Ordering, ...] = ()
    unstated: str = ""                   # what the course leaves open, and what was chosen
    absent: Mapping[str, str] = field(default_factory=dict)   # claims of the table that no cell measures, and why
    benchmark: bool = False              # times, not trainings

    @property
    def claims(self) -> list[str]:
        found = [c.claim for c in self.cells] + [o.claim for o in self.orderings] + list(self.absent)
        return [claim for claim in dict.fromkeys(found) if claim]

    @property
    def command(self) -> str:
        return f"didact reproduce {self.name}"


@dataclass(frozen=True)
class Record:
    """What was measured, when and where; verdicts are not kept but follow."""

    table: str
    values: Mapping[str, Sequence[float]]    # of each cell, by its name: a number a seed
    seeds: Sequence[int]
    date: str
    commit: str
    hardware: str
    versions: Mapping[str, str]
    seconds: float

    @property
    def about(self) -> str:
        return f"{len(self.seeds)} seed{'s' * (len(self.seeds) > 1)}, {self.date}, {self.hardware}, commit {self.commit[:7] or 'unknown'}"


@dataclass(frozen=True)
class Judged:
    """A cell or an ordering, measured and compared."""

    claim: str
    name: str
    stated: str
    measured: str
    verdict: str
    mean: float | None = None
    spread: float | None = None
    why: str = ""


def judge(table: Table, record: Record) -> list[Judged]:
    """Cell by cell, then the orderings."""
    return [judge_cell(cell, record) for cell in table.cells] + [judge_ordering(o, table, record) for o in table.orderings]


def judge_cell(cell: Cell, record: Record) -> Judged:
    values = record.values.get(cell.name, ())
    if not values:
        return Judged(cell.claim, cell.name, f"{cell.stated:g}", "diverged", "wrong", why="no seed came to an end")
    mean, spread = moments(values)
    near = mean + 2 * spread < cell.stated if cell.limit else abs(mean - cell.stated) <= 2 * spread + cell.allowance
    verdict = "not checkable" if cell.why else "holds" if near else "wrong"
    stated = f"{'below ' * cell.limit}{cell.stated:g}"
    return Judged(cell.claim, cell.name, stated, f"{mean:.4g} ± {spread:.2g}", verdict, mean, spread, cell.why)


def judge_ordering(ordering: Ordering, table: Table, record: Record) -> Judged:
    """Holds where every pair differs in that direction by two standard errors, is wrong where one does in the other, else undecided."""
    gaps = [gap(*(record.values.get(table.cells[i].name, ()) for i in pair)) for pair in ordering.pairs]
    if all(g > 2 for g in gaps):
        verdict, why = "holds", ""
    elif any(g < -2 for g in gaps):
        verdict, why = "wrong", "the other way round"
    else:
        verdict, why = "conditional", "the seeds differ as much as the configurations"
    shown = f"{sum(g > 0 for g in gaps)} of {len(gaps)} as stated, {sum(g > 2 for g in gaps)} beyond the seeds"
    return Judged(ordering.claim, ordering.text, "ordering", shown, verdict, why=why)


def gap(higher: Sequence[float], lower: Sequence[float]) -> float:
    """The difference of two means in standard errors; what diverged is below everything."""
    if not higher or not lower:
        return float("inf") if higher else float("-inf")
    (a, s), (b, t) = moments(higher), moments(lower)
    error = sqrt(s**2 / len(higher) + t**2 / len(lower))
    return (a - b) / error if error else float("inf") if a > b else float("-inf") if a < b else 0.0


def moments(values: Sequence[float]) -> tuple[float, float]:
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def verdict_of(claim: str, judged: Sequence[Judged]) -> tuple[str, str, str]:
    """Of a claim with several cells: the verdict, what was measured, and why where something must be said."""
    own = [j for j in judged if j.claim == claim]
    order = ("wrong", "not checkable", "conditional", "holds")
    verdict = min((j.verdict for j in own), key=order.index)
    failed = [f"{j.name}: {j.measured}" for j in own if j.verdict == "wrong" and len(own) > 1]
    why = next((j.why for j in own if j.verdict == verdict and j.why), "")
    return verdict, ", ".join(j.measured for j in own), why or (f"not so: {'; '.join(failed)}" if failed else "")


@cache
def kept() -> dict[str, Record]:
    """Records that come with the package."""
    folder = files("didact.claims") / "measured"
    found = [json.loads(f.read_text(encoding="utf-8")) for f in folder.iterdir() if f.name.endswith(".json")] if folder.is_dir() else []
    return {row["table"]: Record(**row) for row in found}


def named(name: str) -> Table:
    from didact.claims.tables import TABLES

    return pick("table", name.lower().removeprefix("gaba").strip(" -"), TABLES)
