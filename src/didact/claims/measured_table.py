"""A table of measured numbers, as data: configurations, cells, orderings; and the rule that judges a stated number.

    a cell holds where |mean over seeds − stated| ≤ 2 standard deviations over seeds + allowance
    allowance: 0.005 for an accuracy (half a point), 0.03 for a fraction of time, 10 % for a ratio of times, 5 % for
    anything else

The allowance is for what the course leaves unstated: seeds, versions, hardware. An ordering is a test of means, at 95 %
confidence.
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

from didact.errors import look_up
from didact.options import format_value

SIGNIFICANCE_LEVEL = 0.05   # probability of a verdict on an ordering whose configurations do not differ
VERDICT_RULE = (
    "holds: within two standard deviations over the seeds (over batches, where a single batch is read), "
    "plus half a point of accuracy, three of a fraction of time, 10 % of a ratio of times, "
    f"5 % of anything else; orderings by Welch's t test at {1 - SIGNIFICANCE_LEVEL:.0%} confidence for all pairs "
    "together; what stays undecided, as with one seed or with times too noisy to tell, is not measured"
)


@dataclass(frozen=True)
class Grid:
    """Configurations of one recipe: the options that they share, and the axes along which they differ."""

    recipe: str                # for a benchmark: the call that is timed
    fixed: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def configurations(self) -> list[dict[str, Any]]:
        return [dict(zip(self.axes, values, strict=True)) for values in product(*self.axes.values())]


@dataclass(frozen=True)
class MetricReading:
    """Where a number is read in a run: a metric of a split, at the end or at one epoch.

    For training it is the mean over the epoch, or its last batch.
    """

    split: str                 # train, validation or test; for a benchmark time or memory
    metric: str
    epoch: int | None = None
    last_batch: bool = False

    def __str__(self) -> str:
        return f"{self.split} {self.metric}" + (
            f", {'last batch of ' * self.last_batch}epoch {self.epoch}" if self.epoch else ""
        )


@dataclass(frozen=True)
class Cell:
    """One number of the table."""

    claim: str
    stated: float
    reading: MetricReading
    grid: int = 0
    configuration: Mapping[str, Any] = field(default_factory=dict)    # the configuration within the grid
    reason: str = ""                                          # why the number cannot be compared, if it cannot
    is_upper_bound: bool = False                                    # the text only says that the number is below
    range_end: float | None = None                                # the other end, where the text gives a range
    # for a ratio of times: the configuration in the denominator
    baseline: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        own_options = " ".join(f"{name}={format_value(value)}" for name, value in self.configuration.items())
        baseline_options = " ".join(
            f"{name}={format_value(value)}"
            for name, value in self.baseline.items()
            if self.configuration[name] != value
        )
        return ", ".join(
            part
            for part in (
                f"{own_options} over {baseline_options}" if baseline_options else own_options,
                str(self.reading),
            )
            if part
        )

    @property
    def stated_text(self) -> str:
        """The stated number as text."""
        low, high = self.stated_range
        return f"{low:g} … {high:g}" if low < high else f"{'below ' * self.is_upper_bound}{self.stated:g}"

    @property
    def stated_range(self) -> tuple[float, float]:
        end = self.stated if self.range_end is None else self.range_end
        return min(self.stated, end), max(self.stated, end)

    def distance_beyond_allowance(self, mean: float) -> float:
        """Distance of a number from the stated one, minus the allowance."""
        low, high = self.stated_range
        nearest = min(max(mean, low), high)
        allowance = {"accuracy": 0.005, "saved": 0.03, "ratio": 0.1 * abs(nearest)}.get(
            self.reading.metric, 0.05 * abs(nearest)
        )
        return abs(mean - nearest) - allowance


@dataclass(frozen=True)
class Ordering:
    """A conclusion of the text: the first cell of each pair is above the second; pairs are indices of cells.

    With `equal_within` instead: the two differ by at most this fraction of the second.
    """

    text: str
    pairs: tuple[tuple[int, int], ...]
    claim: str = ""
    equal_within: float = 0.0


@dataclass(frozen=True)
class MeasuredTable:
    """A table of a course: its configurations, stated numbers, conclusions and open choices."""
    name: str                            # the section of Gaba, as 3.11; for another course with its name first
    title: str
    grids: tuple[Grid, ...]
    cells: tuple[Cell, ...]
    orderings: tuple[Ordering, ...] = ()
    unstated_choices: str = ""                   # what the course leaves open, and the choice made here
    # claims of the table that no cell measures, and why
    uncovered_claims: Mapping[str, str] = field(default_factory=dict)
    is_benchmark: bool = False              # times calls instead of training
    needs_gpu: bool = False                    # the statement is about a GPU: a CPU can neither confirm nor refute it
    # the text names no configuration: holding in some cells and not in others makes it conditional
    cells_are_conditions: bool = False

    @property
    def claims(self) -> list[str]:
        claims = [c.claim for c in self.cells] + [o.claim for o in self.orderings] + list(self.uncovered_claims)
        return [claim for claim in dict.fromkeys(claims) if claim]

    @property
    def settings_hash(self) -> str:
        """Eight letters that change with any option of any configuration.

        Seeds measured with other settings belong to another table.
        """
        grids = [(grid.recipe, sorted(grid.fixed.items()), sorted(grid.axes.items())) for grid in self.grids]
        return hashlib.blake2b(repr(grids).encode(), digest_size=4).hexdigest()

    @property
    def citation(self) -> str:
        """Gaba 3.11, Fleuret 2.1."""
        course, _, section = self.name.rpartition("-")
        return f"{course.title() or 'Gaba'} {section}"

    @property
    def command(self) -> str:
        return f"didact reproduce {self.name}{' --device cuda' * self.needs_gpu}"


@dataclass(frozen=True)
class MeasurementRecord:
    """A saved measurement: numbers, date, commit, hardware. Verdicts are not stored; they follow from it."""

    table: str
    values: Mapping[str, Sequence[float]]    # for each cell, by its name: one number per seed
    seeds: Sequence[int]
    date: str
    commit: str
    hardware: str
    versions: Mapping[str, str]
    seconds: float
    dirty: bool = False                      # didact's files differed from the commit
    num_workers: int = 1                          # trainings at once: seconds are then not those of one alone
    earlier_sessions: Sequence[str] = ()              # where earlier seeds were measured, as text
    # hash of the table's settings; empty in records saved before there was one
    settings_hash: str = ""
    # for cells read from one batch: the standard deviation from batch to batch
    batch_noise: Mapping[str, float] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """8 seeds, 2026-11-16, cpu, commit 1234567; and where earlier seeds were measured, if elsewhere."""
        return "; ".join(
            (f"{len(self.seeds)} seed{'s' * (len(self.seeds) > 1)}, {self.provenance}", *self.earlier_sessions)
        )

    @property
    def provenance(self) -> str:
        source = (
            self.commit
            if self.commit == "installed"
            else f"commit {self.commit[:7] or 'unknown'}{' with changes' * self.dirty}"
        )
        workers = f", {self.num_workers} at once" if self.num_workers > 1 else ""
        return f"{self.date}, {self.hardware}{workers}, {source}"

    def merge(self, later: "MeasurementRecord") -> "MeasurementRecord":
        """The same table over the seeds of both records."""
        values = {name: [*self.values[name], *later_values] for name, later_values in later.values.items()}
        sessions = (*self.earlier_sessions, f"the first {len(self.seeds)}: {self.provenance}")
        return replace(
            later,
            values=values,
            seeds=[*self.seeds, *later.seeds],
            seconds=self.seconds + later.seconds,
            earlier_sessions=sessions,
        )


@dataclass(frozen=True)
class CellVerdict:
    """A cell or an ordering, measured and compared."""

    claim: str
    name: str
    stated: str
    measured: str
    verdict: str
    mean: float | None = None
    std: float | None = None
    reason: str = ""
    reading: str = ""
    is_above: bool = False       # measured is more than stated

    @property
    def displayed_verdict(self) -> str:
        """The verdict to display: a measurement that decides nothing is undecided."""
        return "undecided" if self.verdict == "not measured" and self.measured else self.verdict

    @property
    def name_parts(self) -> list[str]:
        """The name without its reading: each option, and the configuration in the denominator of a ratio."""
        own_options, separator, baseline_options = (
            self.name.removesuffix(self.reading).removesuffix(", ").partition(" over ")
        )
        return [*own_options.split(), *([f"over {baseline_options}"] if separator else [])]


def judge_table(table: MeasuredTable, record: MeasurementRecord) -> list[CellVerdict]:
    """Verdicts of all cells, then of the orderings."""
    return [judge_cell(cell, record) for cell in table.cells] + [
        _judge_ordering(o, table, record) for o in table.orderings
    ]


def judge_cell(cell: Cell, record: MeasurementRecord) -> CellVerdict:
    """Compare the mean over seeds with the stated number."""
    values = record.values.get(cell.name)
    if not values:
        measured_and_verdict = ("", "not measured") if values is None else ("diverged", "wrong")
        reason = "not in the saved measurement: measure again" if values is None else "no seed finished"
        return CellVerdict(
            cell.claim, cell.name, cell.stated_text, *measured_and_verdict, reason=reason, reading=str(cell.reading)
        )
    mean, std = _mean_std(values)
    std = max(std, record.batch_noise.get(cell.name, 0.0))     # two seeds may agree by chance in one batch
    is_near = mean + 2 * std < cell.stated if cell.is_upper_bound else cell.distance_beyond_allowance(mean) <= 2 * std
    verdict, reason = "not checkable" if cell.reason else "holds" if is_near else "wrong", cell.reason
    if verdict == "holds" and 2 * std > max(map(abs, cell.stated_range)):   # anything would be near
        advice = "measure again on an idle machine" if cell.reading.split == "time" else "more seeds may decide"
        spread_of = "single batches" if cell.name in record.batch_noise else "the seeds"
        verdict, reason = "not measured", f"undecided: {spread_of} vary as much as the number itself; {advice}"
    elif verdict == "wrong" and len(values) == 1 == len(record.seeds):
        verdict, reason = "not measured", "undecided: one seed shows no spread; measure with --seeds 3"
    # near only because the times are noisy
    elif verdict == "holds" and cell.reading.split == "time" and cell.distance_beyond_allowance(mean) > 0:
        verdict, reason = (
            "not measured",
            "undecided: the times vary as much as the difference; measure again on an idle machine",
        )
    measured, is_above = f"{mean:.4g} ± {std:.2g}", mean > cell.stated_range[1]
    return CellVerdict(
        cell.claim, cell.name, cell.stated_text, measured, verdict, mean, std, reason, str(cell.reading), is_above
    )


def _judge_ordering(ordering: Ordering, table: MeasuredTable, record: MeasurementRecord) -> CellVerdict:
    """Holds where every difference is confirmed, is wrong where one is refuted, else not measured well enough.

    Where nothing differs, either verdict has a probability of at most LEVEL / 2. For the first all differences must be
    confirmed, so each is tested at that level; for the second one is enough, so they share it (Bonferroni).
    """
    values = [record.values.get(cell.name, ()) for cell in table.cells]
    differences = [side for i, j in ordering.pairs for side in _list_differences(ordering, values[i], values[j])]
    is_confirmed = [welch_p_value(a, b, margin) < SIGNIFICANCE_LEVEL / 2 for a, b, margin in differences]
    is_refuted = [
        welch_p_value(b, a, -margin) < SIGNIFICANCE_LEVEL / 2 / len(differences) for a, b, margin in differences
    ]
    if all(is_confirmed):
        verdict, reason = "holds", ""
    elif any(is_refuted):
        pairs = [pair for pair in ordering.pairs for _ in _list_differences(ordering, values[pair[0]], values[pair[1]])]
        refuted_pairs = dict.fromkeys(pair for pair, refuted in zip(pairs, is_refuted, strict=True) if refuted)
        verdict, reason = (
            "wrong",
            "; ".join(
                _describe_refutation(table.cells[i], table.cells[j], ordering.equal_within > 0)
                for i, j in refuted_pairs
            ),
        )
    else:
        evidence = (
            "the seeds differ as much as the configurations" if len(record.seeds) > 1 else "one seed shows no spread"
        )
        more_option = "" if table.is_benchmark else " --add-seeds"
        verdict, reason = (
            "not measured",
            f"undecided: {evidence}; {table.command} --seeds {max(5, 2 * len(record.seeds))}{more_option} may decide",
        )
    counts = f"{sum(is_confirmed)} of {len(differences)} confirmed, {sum(is_refuted)} refuted"
    return CellVerdict(ordering.claim, ordering.text, "ordering", counts, verdict, reason=reason)


def _describe_refutation(first: Cell, second: Cell, expected_equal: bool) -> str:
    """hidden=256 is below hidden=128: the two cells by the options in which they differ."""
    first_options, second_options = (
        {f"{name}={format_value(value)}" for name, value in cell.configuration.items()} for cell in (first, second)
    )
    (a, b) = (
        " ".join(sorted(options)) or str(cell.reading)
        for options, cell in ((first_options - second_options, first), (second_options - first_options, second))
    )
    return f"{a} and {b} differ" if expected_equal else f"{a} is below {b}"


_Difference = tuple[Sequence[float], Sequence[float], float]   # a, b and d in mean a − mean b > d


def _list_differences(ordering: Ordering, first: Sequence[float], second: Sequence[float]) -> list[_Difference]:
    """What a pair must satisfy: the first is above, or neither is by more than the fraction."""
    if not ordering.equal_within:
        return [(first, second, 0.0)]
    margin = -ordering.equal_within * abs(fmean(second)) if second else 0.0
    return [(first, second, margin), (second, first, margin)]


def welch_p_value(a: Sequence[float], b: Sequence[float], margin: float) -> float:
    """P(T > t) under mean a − mean b = d, t = (ā − b̄ − d) / √(s²/n + r²/m), by Welch's (1947) degrees of freedom.

    1 where there are fewer than two of either: one seed has no spread, and diverged runs cannot be ordered.
    """
    if min(len(a), len(b)) < 2:
        return 1.0
    (mean, s), (other_mean, r) = _mean_std(a), _mean_std(b)
    v, w = s**2 / len(a), r**2 / len(b)
    if not v + w:
        return float(mean - other_mean <= margin)
    from scipy.special import stdtr  # type: ignore[import-untyped]

    degrees_of_freedom = (v + w) ** 2 / (v**2 / (len(a) - 1) + w**2 / (len(b) - 1))
    return float(stdtr(degrees_of_freedom, -(mean - other_mean - margin) / sqrt(v + w)))


def _mean_std(values: Sequence[float]) -> tuple[float, float]:
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def judge_claim(
    claim: str, verdicts: Sequence[CellVerdict], *, cells_are_conditions: bool = False
) -> tuple[str, str, str]:
    """Of a claim with several cells: the verdict, the measured numbers, and a reason if there is one.

    With `cells_are_conditions` the cells are one statement under several conditions: where every reading (time, memory)
    holds under some of them, these are its condition.
    """
    own_verdicts = [j for j in verdicts if j.claim == claim]
    measured = (
        own_verdicts[0].measured
        if len(own_verdicts) == 1
        else ", ".join(j.measured if j.mean is None else f"{j.mean:.4g}" for j in own_verdicts)
    )
    holding, failing = ([j for j in own_verdicts if j.verdict == verdict] for verdict in ("holds", "wrong"))
    if cells_are_conditions and failing and {j.reading for j in holding} == {j.reading for j in own_verdicts}:
        cells_by_text = {
            "so for": holding,
            "more for": [j for j in failing if j.is_above],
            "less for": [j for j in failing if not j.is_above],
            "undecided for": [j for j in own_verdicts if j not in holding + failing],
        }
        return (
            "conditional",
            measured,
            "; ".join(
                f"{text} {_summarize_cells(cells, own_verdicts)}" for text, cells in cells_by_text.items() if cells
            ),
        )
    worst_first = ("wrong", "not checkable", "not measured", "holds")
    verdict = min((j.verdict for j in own_verdicts), key=worst_first.index)
    failing_text = _summarize_cells(failing, own_verdicts, stated=True) if len(own_verdicts) > 1 else ""
    reason = next((j.reason for j in own_verdicts if j.verdict == verdict and j.reason), "")
    return verdict, measured, reason or (f"not so: {failing_text}" if failing_text else "")


def _summarize_cells(cells: Sequence[CellVerdict], own_verdicts: Sequence[CellVerdict], *, stated: bool = False) -> str:
    """Cells of a claim by the options in which they differ, with their reading once.

    `time ratio: length=1, length=2`.
    """
    texts = []
    for reading in dict.fromkeys(j.reading for j in cells):
        parts_by_name = {j.name: j.name_parts for j in own_verdicts if j.reading == reading}
        shared_parts = (
            set.intersection(*map(set, parts_by_name.values())) if len(parts_by_name) > 1 and reading else set()
        )
        names = [
            ([part for part in parts_by_name[j.name] if part not in shared_parts], f" (stated {j.stated})" * stated)
            for j in cells
            if j.reading == reading
        ]
        names_text = "all" if len(names) == len(parts_by_name) > 1 and not stated else fold_names(names)
        colon = ": " if reading and names_text[:1].strip() else ""     # a cell may have no name besides its reading
        texts.append(f"{reading}{colon}{names_text}")
    return "; ".join(texts)


def fold_names(names: Sequence[tuple[Sequence[str], str]]) -> str:
    """`a=1 b=2, 3, a=2 b=2`: where only the value of the last option changes, it stands alone."""
    texts, previous = list[str](), ([""], "")
    for (*first, last), suffix in (([*parts] or [""], suffix) for parts, suffix in names):
        name, equals, value = last.partition("=")
        texts.append((value if equals and previous == (first, name) else " ".join([*first, last])) + suffix)
        previous = first, name
    return ", ".join(texts)


@cache
def load_records() -> dict[str, MeasurementRecord]:
    """Saved measurements that come with the package."""
    folder = files("didact.claims") / "measured"
    rows = (
        [json.loads(f.read_text(encoding="utf-8")) for f in folder.iterdir() if f.name.endswith(".json")]
        if folder.is_dir()
        else []
    )
    return {row["table"]: MeasurementRecord(**row) for row in rows}


def get_table(name: str) -> MeasuredTable:
    """A table by its name; an unknown name is refused with the nearest one."""
    from didact.claims.measured_tables import TABLES

    return look_up("table", name.lower().replace(" ", "-").removeprefix("gaba").strip("-"), TABLES)
