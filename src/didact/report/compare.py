"""Several runs on one page: what differs between them, how they ended, how they got there; and a sweep's table and map."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from didact import files
from didact.errors import UsageError
from didact.report import svg
from didact.report.figures import Figure, axis_of, column, names, spans_decades
from didact.report.markup import Html, tag
from didact.report.page import document, figure, grid, notes, section, table
from didact.report.svg import Cell, Series
from didact.report.words import LOWER, argument, best, duration, metric_name, metric_value, said_of
from didact.run import Run

Key = tuple[str, ...]          # a setting: its arguments on the axes, as written
Mean = tuple[float, float]     # with its deviation
QUIET = ("runs", "save_every", "log_every")  # settings that cannot change a result


def link(folder: Path | str, page: Path) -> Html | str:
    """A run's name, leading to its report from where the page lies if it has one."""
    target = Path(folder) / "report.html"
    name = target.parent.name
    return tag("a", name, href=Path(os.path.relpath(target, page.parent)).as_posix()) if target.is_file() else name


def compare(runs: Sequence[Run], path: Path) -> Path:
    """Runs side by side; writes one page and returns its path."""
    if not runs:
        raise UsageError("a comparison needs at least one run, got none")
    facts = [run.facts | {"status": run.status} for run in runs]
    differing = differences(facts)
    comparable = len({(f["data"].get("fingerprint"), f["data"].get("source", {}).get("seed")) for f in facts}) == 1  # and one split
    marked = "The best on validation is marked." if comparable else "The data differ: none is marked as best."
    judged = f"Of each run's best validation state, on the test split. {marked}"
    labels = [", ".join(f"{k} {v[i]}" for k, v in differing.items() if v[i] != "–")[:60] or run.folder.name for i, run in enumerate(runs)]
    if len(set(labels)) < len(labels):
        labels = [f"{run.folder.name[-4:]} {label}".strip() for run, label in zip(runs, labels, strict=True)]
    page = document(
        f"{len(runs)} runs compared",
        tag(
            "header", tag("p", "didact · comparison", class_="overline"), tag("h1", f"{len(runs)} runs", tag("span", " side by side")),
            tag("p", ", ".join(dict.fromkeys(f"{f['recipe']} on {f['data']['name']}" for f in facts)), class_="summary"),
        ),
        section("What differs", differing_table(runs, differing, path), lead="" if differing else "Nothing: all arguments are the same."),
        section(
            "Test metrics", metric_table(runs, facts, labels, path, mark=comparable and len(runs) > 1), metric_notes(facts), lead=judged
        ),
        section("Validation", grid(overlaid(runs, facts, labels))),
    )
    files.write_text(path, page)
    return path


def differences(facts: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Arguments and settings that are not the same in all runs, as written."""
    flat = []
    for f in facts:
        settings = {k: v for k, v in f.get("settings", {}).items() if k not in QUIET}
        flat.append({"recipe": f["recipe"], **settings, "data": f["data"]["name"], **f.get("arguments", {})})
    known = list(dict.fromkeys(name for f in flat for name in f))
    shown = {name: [argument(f.get(name)) for f in flat] for name in known}
    return {name: values for name, values in shown.items() if len(set(values)) > 1}


def differing_table(runs: Sequence[Run], differing: Mapping[str, list[str]], path: Path) -> Html | None:
    rows = [[link(run.folder, path), *(values[i] for values in differing.values())] for i, run in enumerate(runs)]
    return table(["run", *(name.replace("_", " ") for name in differing)], rows, numeric=99) if differing else None


def metric_table(runs: Sequence[Run], facts: Sequence[Mapping[str, Any]], labels: Sequence[str], path: Path, mark: bool) -> Html:
    known = list(dict.fromkeys(name for f in facts for name in f.get("test") or {}))
    chosen = {name: {i: f["validation"][name] for i, f in enumerate(facts) if name in (f.get("validation") or {})} for name in known}
    winners = {name: best(name, values) for name, values in chosen.items()}
    rows = []
    for i, f in enumerate(facts):
        values = [(name, metric_value(name, (f.get("test") or {}).get(name))) for name in known]
        marked = [tag("mark", v) if mark and i in winners[name] else v for name, v in values]
        took = duration(f["seconds"]) if "seconds" in f else f.get("status", "–")
        rows.append([link(runs[i].folder, path), labels[i], *marked, f"{f['layers']['total']:,}" if f.get("layers") else "–", took])
    return table(["run", "", *map(metric_name, known), "parameters", "time"], rows, numeric=2)


def metric_notes(facts: Sequence[Mapping[str, Any]], metrics: Iterable[str] = ()) -> Html:
    """What the runs' notes say of these metrics, or of all that they have."""
    metrics = list(metrics) or [name for f in facts for name in f.get("test") or {}]
    return notes(said_of(metrics, [note for f in facts for note in f.get("notes", ())]))


def overlaid(runs: Sequence[Run], facts: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[Figure]:
    """A chart for each validation metric, a line for each run; what they were chosen by comes first."""
    logs = [run.metrics for run in runs]
    axis = "epoch" if all(axis_of(log) == "epoch" for log in logs) else "step"
    watched = [(f.get("watch") or ["loss"])[0] for f in facts]
    known = list(dict.fromkeys([*watched, "loss", *(name for log in logs for name in names(log, "validation"))]))
    found = []
    for name in known:
        tones = [svg.depth_colour(i, len(runs)) if len(runs) > svg.TONES else i for i in range(len(runs))]
        series = [Series(labels[i], *column(log, axis, "validation", name), tone=tones[i]) for i, log in enumerate(logs)]
        series = [s for s in series if s.x]
        if series:
            log_y = name in LOWER and spans_decades(series)
            picture = svg.chart(f"Validation {metric_name(name)}", series, x=axis, log_y=log_y, keyed=len(runs) > 1)
            found.append(Figure(name, picture))
    return found


def sweep_page(
    title: str, axes: Mapping[str, Sequence[Any]], rows: Sequence[Mapping[str, Any]], metric: str, path: Path, beside: Sequence[str] = ()
) -> Path:
    """A sweep's page from what train.sweep keeps. Seeds are averaged; settings are ranked by validation, test and others stand beside."""
    groups: dict[Key, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(argument(row["cell"].get(name)) for name in axes), []).append(row)
    means, tested = (
        {key: average([r[split].get(metric, math.nan) for r in members]) for key, members in groups.items()}
        for split in ("validation", "test")
    )
    better = "lower" if metric in LOWER else "higher"
    failed = sum("diverged" in row for row in rows)
    lead = f"{len(rows)} runs of {len(groups)} settings, judged on validation by {metric_name(metric)}: {better} is better."
    lead += f" {failed} diverged." if failed else ""
    others = {
        name: {key: average([r["validation"].get(name) for r in members])[0] for key, members in groups.items()} for name in beside
    }
    picture, ranked = sweep_figure(axes, means, metric), setting_table(axes, groups, means, tested, metric, others)
    spoken = (
        "Best on validation first; mean ± deviation where a setting was run more than once."
        " The test value is that of the setting, not a reason to choose it."
    )
    there = [folder for row in rows for folder in [Path(row["run"])] if (folder / "run.json").exists()]    # some may be deleted
    told = metric_notes([Run(folder).facts for folder in there], [metric, *beside])
    page = document(
        title,
        tag("header", tag("p", "didact · sweep", class_="overline"), tag("h1", title), tag("p", lead, class_="summary")),
        section("All settings", tag("div", picture, ranked, class_="pair" if picture else None), told, lead=spoken),
        section("All runs", run_table(axes, rows, path)),
    )
    files.write_text(path, page)
    return path


def average(values: Sequence[float | None]) -> Mean:
    """Mean and deviation of the finite values; None is a metric that was not defined."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    return (fmean(known) if known else math.nan), (stdev(known) if len(known) > 1 else 0.0)


def sweep_figure(axes: Mapping[str, Sequence[Any]], means: Mapping[Key, Mean], metric: str) -> Html | None:
    """A curve over one axis, a map over two; more cannot be drawn."""
    if len(axes) not in (1, 2):
        return None
    if len(axes) == 1:
        (name, values), = axes.items()
        return figure(Figure(name, sweep_curve(name, values, means, metric), "Bars: one deviation over seeds, where there are several."))
    (down, rows), (across, columns) = axes.items()
    known = [m for m, _ in means.values() if math.isfinite(m)]
    low, high = min(known, default=0.0), max(known, default=1.0)

    def cell(row: str, column: str) -> Cell | None:
        mean, spread = means.get((row, column), (math.nan, 0.0))
        if not math.isfinite(mean):
            return None
        share = (mean - low) / (high - low) if high > low else 1.0
        share = 1 - share if metric in LOWER else share
        hint = f"{down} {row}, {across} {column}: {metric_value(metric, mean)}{f' ± {metric_value(metric, spread)}' if spread else ''}"
        return Cell(0.08 + 0.92 * share, metric_value(metric, mean), hint)

    labels = [argument(v) for v in rows], [argument(v) for v in columns]
    cells = [[cell(row, column) for column in labels[1]] for row in labels[0]]
    words = down.replace("_", " "), across.replace("_", " ")
    picture = svg.heat(f"Validation {metric_name(metric)}", cells, *labels, x=words[1], y=words[0])
    return figure(Figure(metric, picture, "Stronger is better."))


def sweep_curve(name: str, values: Sequence[Any], means: Mapping[Key, Mean], metric: str) -> Html:
    """One axis: against its numbers, logarithmically where they span decades; words stand side by side."""
    known = [means.get((argument(v),), (math.nan, 0.0)) for v in values]
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    x = [float(v) for v in values] if numeric else [float(k) for k in range(len(values))]
    log_x = numeric and min(x) > 0 and max(x) / min(x) >= 30
    ends = [(m - e, m + e) for m, e in known] if any(e for _, e in known) else []
    series = [Series(metric_name(metric), x, [m for m, _ in known], tone=0, ends=ends)]
    labels = () if numeric else [argument(v) for v in values]
    return svg.chart(f"Validation {metric_name(metric)}", series, x=name.replace("_", " "), log_x=log_x, names=labels)


def setting_table(
    axes: Mapping[str, Sequence[Any]], groups: Mapping[Key, Sequence[Any]],
    means: Mapping[Key, Mean], tested: Mapping[Key, Mean], metric: str, others: Mapping[str, Mapping[Key, float]],
) -> Html:
    sign = 1 if metric in LOWER else -1
    ordered = sorted(groups, key=lambda key: sign * means[key][0] if math.isfinite(means[key][0]) else math.inf)
    rows = []
    for rank, key in enumerate(ordered):
        value, test = (metric_value(metric, m) + (f" ± {metric_value(metric, s)}" if s else "") for m, s in (means[key], tested[key]))
        rest = [metric_value(name, found[key]) for name, found in others.items()]
        rows.append([*key, tag("mark", value) if rank == 0 else value, test, *rest, len(groups[key])])
    heads = [f"validation {metric_name(metric)}", f"test {metric_name(metric)}", *(f"validation {metric_name(name)}" for name in others)]
    return table([*(name.replace("_", " ") for name in axes), *heads, "runs"], rows, kind="tall")


def run_table(axes: Mapping[str, Sequence[Any]], rows: Sequence[Mapping[str, Any]], path: Path) -> Html:
    known = list(dict.fromkeys(name for row in rows for name in row["test"]))
    shown = [
        [link(row["run"], path), *(argument(row["cell"].get(name)) for name in axes), row["seed"]]
        + (["diverged"] if "diverged" in row else [metric_value(name, row["test"].get(name)) for name in known])
        for row in rows
    ]
    heads = ["run", *(name.replace("_", " ") for name in axes), "seed", *(f"test {metric_name(name)}" for name in known)]
    return table(heads, shown, kind="tall")
