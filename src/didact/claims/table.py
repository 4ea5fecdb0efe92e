"""A table of measured numbers, as data: configurations, cells, orderings; and the rule by which a measurement judges a stated number.

    a cell holds where |mean over seeds − stated| ≤ 2 deviations over seeds + allowance
    allowance: 0.005 for an accuracy (half a point), 0.03 for a share of time, 10 % for a ratio of times, 5 % for anything else

The allowance is for what the course leaves unstated: seeds, versions, hardware. An ordering is a test of means, at 95 % confidence.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import product
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from didact.errors import pick
from didact.options import written

LEVEL = 0.05   # how often an ordering may get a verdict where the configurations do not differ
RULE = (
    "holds: within two deviations over the seeds (over batches, where one is read), "
    "plus half a point of accuracy, three of a share of time, 10 % of a ratio of times, "
    f"5 % of anything else; orderings by Welch's t test at {1 - LEVEL:.0%} confidence for all pairs together; what is left undecided, "
    "as by one seed or by a clock whose mean alone is not near, is not measured"
)


@dataclass(frozen=True)
class Grid:
    """Configurations of one recipe: what they share, and the axes along which they differ."""

    recipe: str                # of a benchmark: what is timed
    given: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def configurations(self) -> list[dict[str, Any]]:
        return [dict(zip(self.axes, values, strict=True)) for values in product(*self.axes.values())]


@dataclass(frozen=True)
class Reading:
    """Where a number stands in a run: a metric of a split, at the end or at one epoch; of training, the epoch's mean or its last batch."""

    split: str                 # train, validation or test; of a benchmark time or memory
    metric: str
    epoch: int | None = None
    last: bool = False

    def __str__(self) -> str:
        return f"{self.split} {self.metric}" + (f", {'last batch of ' * self.last}epoch {self.epoch}" if self.epoch else "")


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
    to: float | None = None                                # the other end, where the text gives a range
    over: Mapping[str, Any] = field(default_factory=dict)  # of a ratio of times: the configuration that it is taken of

    @property
    def name(self) -> str:
        where = " ".join(f"{name}={written(value)}" for name, value in self.at.items())
        other = " ".join(f"{name}={written(value)}" for name, value in self.over.items() if self.at[name] != value)
        return ", ".join(part for part in (f"{where} over {other}" if other else where, str(self.reading)) if part)

    @property
    def shown(self) -> str:
        """What is stated, in words."""
        low, high = self.range
        return f"{low:g} … {high:g}" if low < high else f"{'below ' * self.limit}{self.stated:g}"

    @property
    def range(self) -> tuple[float, float]:
        other = self.stated if self.to is None else self.to
        return min(self.stated, other), max(self.stated, other)

    def off(self, mean: float) -> float:
        """How far a number lies from what is stated, less the allowance."""
        low, high = self.range
        near = min(max(mean, low), high)
        share = {"accuracy": 0.005, "saved": 0.03, "ratio": 0.1 * abs(near)}.get(self.reading.metric, 0.05 * abs(near))
        return abs(mean - near) - share


@dataclass(frozen=True)
class Ordering:
    """What the text draws from the table: each first cell above its second, by their places in the list.

    With `alike` it says the opposite: the two differ by no more than this share of the second.
    """

    text: str
    pairs: tuple[tuple[int, int], ...]
    claim: str = ""
    alike: float = 0.0


@dataclass(frozen=True)
class Table:
    name: str                            # the section of Gaba, as 3.11; of another course with its name before
    title: str
    grids: tuple[Grid, ...]
    cells: tuple[Cell, ...]
    orderings: tuple[Ordering, ...] = ()
    unstated: str = ""                   # what the course leaves open, and what was chosen
    absent: Mapping[str, str] = field(default_factory=dict)   # claims of the table that no cell measures, and why
    benchmark: bool = False              # times, not trainings
    gpu: bool = False                    # what is stated speaks of a GPU: a CPU can neither show nor refute it
    cases: bool = False                  # the text names no configuration: so in some cells and not in others is a condition

    @property
    def claims(self) -> list[str]:
        found = [c.claim for c in self.cells] + [o.claim for o in self.orderings] + list(self.absent)
        return [claim for claim in dict.fromkeys(found) if claim]

    @property
    def settings(self) -> str:
        """Eight letters that change with any option of any configuration: seeds of other settings are of another table."""
        grids = [(grid.recipe, sorted(grid.given.items()), sorted(grid.axes.items())) for grid in self.grids]
        return hashlib.blake2b(repr(grids).encode(), digest_size=4).hexdigest()

    @property
    def where(self) -> str:
        """Gaba 3.11, Fleuret 2.1."""
        course, _, section = self.name.rpartition("-")
        return f"{course.title() or 'Gaba'} {section}"

    @property
    def command(self) -> str:
        return f"didact reproduce {self.name}{' --device cuda' * self.gpu}"


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
    dirty: bool = False                      # didact's files differed from the commit
    beside: int = 1                          # trainings at once: their seconds are not those of one alone
    earlier: Sequence[str] = ()              # where other seeds were measured before these, in words
    settings: str = ""                       # the table's own, in short; of records kept before there was one, nothing
    noise: Mapping[str, float] = field(default_factory=dict)   # of cells read off one batch: the deviation from batch to batch

    @property
    def about(self) -> str:
        """8 seeds, 2026-11-16, cpu, commit 1234567; and before it where the first of them were measured, if elsewhere."""
        return "; ".join((f"{len(self.seeds)} seed{'s' * (len(self.seeds) > 1)}, {self.place}", *self.earlier))

    @property
    def place(self) -> str:
        source = self.commit if self.commit == "installed" else f"commit {self.commit[:7] or 'unknown'}{' with changes' * self.dirty}"
        at_once = f", {self.beside} at once" if self.beside > 1 else ""
        return f"{self.date}, {self.hardware}{at_once}, {source}"

    def joined(self, later: "Record") -> "Record":
        """The same table over the seeds of both."""
        values = {name: [*self.values[name], *found] for name, found in later.values.items()}
        earlier = (*self.earlier, f"the first {len(self.seeds)}: {self.place}")
        return replace(later, values=values, seeds=[*self.seeds, *later.seeds], seconds=self.seconds + later.seconds, earlier=earlier)


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
    reading: str = ""
    above: bool = False       # measured is more than stated

    @property
    def said(self) -> str:
        """The verdict as it is told: what was measured and decides nothing is undecided."""
        return "undecided" if self.verdict == "not measured" and self.measured else self.verdict

    @property
    def words(self) -> list[str]:
        """The name without what is read: each option, and the configuration that a ratio is taken of."""
        where, over, other = self.name.removesuffix(self.reading).removesuffix(", ").partition(" over ")
        return [*where.split(), *([f"over {other}"] if over else [])]


def judge(table: Table, record: Record) -> list[Judged]:
    """Cell by cell, then the orderings."""
    return [judge_cell(cell, record) for cell in table.cells] + [judge_ordering(o, table, record) for o in table.orderings]


def judge_cell(cell: Cell, record: Record) -> Judged:
    values = record.values.get(cell.name)
    if not values:
        said = ("", "not measured") if values is None else ("diverged", "wrong")
        why = "not among what was kept: measure again" if values is None else "no seed came to an end"
        return Judged(cell.claim, cell.name, cell.shown, *said, why=why, reading=str(cell.reading))
    mean, spread = moments(values)
    spread = max(spread, record.noise.get(cell.name, 0.0))     # two seeds may agree by chance in one batch
    near = mean + 2 * spread < cell.stated if cell.limit else cell.off(mean) <= 2 * spread
    verdict, why = "not checkable" if cell.why else "holds" if near else "wrong", cell.why
    if verdict == "holds" and 2 * spread > max(map(abs, cell.range)):   # anything would be near
        then = "measure again where little else runs" if cell.reading.split == "time" else "more seeds may tell"
        who = "single batches" if cell.name in record.noise else "the seeds"
        verdict, why = "not measured", f"undecided: {who} spread as far as the number itself; {then}"
    elif verdict == "wrong" and len(values) == 1 == len(record.seeds):
        verdict, why = "not measured", "undecided: one seed shows no spread; measure with --seeds 3"
    elif verdict == "holds" and cell.reading.split == "time" and cell.off(mean) > 0:   # only a disturbed clock makes it near
        verdict, why = "not measured", "undecided: the clock spreads as far as what is missing; measure again where little else runs"
    measured, above = f"{mean:.4g} ± {spread:.2g}", mean > cell.range[1]
    return Judged(cell.claim, cell.name, cell.shown, measured, verdict, mean, spread, why, str(cell.reading), above)


def judge_ordering(ordering: Ordering, table: Table, record: Record) -> Judged:
    """Holds where every difference is shown to lie as stated, is wrong where one is shown not to, else not measured well enough.

    Where nothing differs, either verdict comes up in at most LEVEL / 2: all differences must be shown for the first, so that each may be
    tested at that level; one is enough for the second, so that they share it (Bonferroni).
    """
    values = [record.values.get(cell.name, ()) for cell in table.cells]
    sides = [side for i, j in ordering.pairs for side in differences(ordering, values[i], values[j])]
    shown = [surprise(a, b, least) < LEVEL / 2 for a, b, least in sides]
    refuted = [surprise(b, a, -least) < LEVEL / 2 / len(sides) for a, b, least in sides]
    if all(shown):
        verdict, why = "holds", ""
    elif any(refuted):
        pairs = [pair for pair in ordering.pairs for _ in differences(ordering, values[pair[0]], values[pair[1]])]
        wrong = dict.fromkeys(pair for pair, no in zip(pairs, refuted, strict=True) if no)
        verdict, why = "wrong", "; ".join(refutation(table.cells[i], table.cells[j], ordering.alike > 0) for i, j in wrong)
    else:
        seen = "the seeds differ as much as the configurations" if len(record.seeds) > 1 else "one seed shows no spread"
        more = "" if table.benchmark else " --more"
        verdict, why = "not measured", f"undecided: {seen}; {table.command} --seeds {max(5, 2 * len(record.seeds))}{more} may tell"
    found = f"{sum(shown)} of {len(sides)} shown, {sum(refuted)} refuted"
    return Judged(ordering.claim, ordering.text, "ordering", found, verdict, why=why)


def refutation(first: Cell, second: Cell, alike: bool) -> str:
    """hidden=256 is below hidden=128: the two by the options in which they differ."""
    own, other = ({f"{name}={written(value)}" for name, value in cell.at.items()} for cell in (first, second))
    (a, b) = (" ".join(sorted(words)) or str(cell.reading) for words, cell in ((own - other, first), (other - own, second)))
    return f"{a} and {b} differ" if alike else f"{a} is below {b}"


Side = tuple[Sequence[float], Sequence[float], float]   # a, b and d: that mean a − mean b > d


def differences(ordering: Ordering, first: Sequence[float], second: Sequence[float]) -> list[Side]:
    """What a pair must show: that the first is above, or that neither is by more than the share."""
    if not ordering.alike:
        return [(first, second, 0.0)]
    room = -ordering.alike * abs(fmean(second)) if second else 0.0
    return [(first, second, room), (second, first, room)]


def surprise(a: Sequence[float], b: Sequence[float], least: float) -> float:
    """P(T > t) under mean a − mean b = d, t = (ā − b̄ − d) / √(s²/n + r²/m), by Welch's (1947) degrees of freedom.

    1 where there are less than two of either: one seed has no spread, and what diverged has no place in an order.
    """
    if min(len(a), len(b)) < 2:
        return 1.0
    (mean, s), (other, r) = moments(a), moments(b)
    v, w = s**2 / len(a), r**2 / len(b)
    if not v + w:
        return float(mean - other <= least)
    from scipy.special import stdtr  # type: ignore[import-untyped]

    freedom = (v + w) ** 2 / (v**2 / (len(a) - 1) + w**2 / (len(b) - 1))
    return float(stdtr(freedom, -(mean - other - least) / sqrt(v + w)))


def moments(values: Sequence[float]) -> tuple[float, float]:
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def verdict_of(claim: str, judged: Sequence[Judged], *, cases: bool = False) -> tuple[str, str, str]:
    """Of a claim with several cells: the verdict, what was measured, and why where something must be said.

    With `cases` the cells are one statement under several conditions: where all that is read (time, memory) is so under some of them,
    they are its condition.
    """
    own = [j for j in judged if j.claim == claim]
    measured = own[0].measured if len(own) == 1 else ", ".join(j.measured if j.mean is None else f"{j.mean:.4g}" for j in own)
    so, not_so = ([j for j in own if j.verdict == verdict] for verdict in ("holds", "wrong"))
    if cases and not_so and {j.reading for j in so} == {j.reading for j in own}:
        lists = {"so for": so, "more for": [j for j in not_so if j.above], "less for": [j for j in not_so if not j.above],
                 "undecided for": [j for j in own if j not in so + not_so]}
        return "conditional", measured, "; ".join(f"{word} {in_short(some, own)}" for word, some in lists.items() if some)
    order = ("wrong", "not checkable", "not measured", "holds")
    verdict = min((j.verdict for j in own), key=order.index)
    failed = in_short(not_so, own, stated=True) if len(own) > 1 else ""
    why = next((j.why for j in own if j.verdict == verdict and j.why), "")
    return verdict, measured, why or (f"not so: {failed}" if failed else "")


def in_short(some: Sequence[Judged], own: Sequence[Judged], *, stated: bool = False) -> str:
    """Some of a claim's cells by what tells them apart, and what is read of them once: `time ratio: length=1, length=2`."""
    parts = []
    for reading in dict.fromkeys(j.reading for j in some):
        words = {j.name: j.words for j in own if j.reading == reading}
        shared = set.intersection(*map(set, words.values())) if len(words) > 1 and reading else set()
        names = [([word for word in words[j.name] if word not in shared], f" (stated {j.stated})" * stated)
                 for j in some if j.reading == reading]
        listed = "all" if len(names) == len(words) > 1 and not stated else folded(names)
        colon = ": " if reading and listed[:1].strip() else ""     # a cell may have no name beside what is read
        parts.append(f"{reading}{colon}{listed}")
    return "; ".join(parts)


def folded(names: Sequence[tuple[Sequence[str], str]]) -> str:
    """`a=1 b=2, 3, a=2 b=2`: where only the value of the last word changes it stands alone."""
    parts, before = list[str](), ([""], "")
    for (*first, last), behind in (([*words] or [""], behind) for words, behind in names):
        name, equals, value = last.partition("=")
        parts.append((value if equals and before == (first, name) else " ".join([*first, last])) + behind)
        before = first, name
    return ", ".join(parts)


@cache
def kept() -> dict[str, Record]:
    """Records that come with the package."""
    folder = files("didact.claims") / "measured"
    found = [json.loads(f.read_text(encoding="utf-8")) for f in folder.iterdir() if f.name.endswith(".json")] if folder.is_dir() else []
    return {row["table"]: Record(**row) for row in found}


def named(name: str) -> Table:
    from didact.claims.tables import TABLES

    return pick("table", name.lower().replace(" ", "-").removeprefix("gaba").strip("-"), TABLES)
