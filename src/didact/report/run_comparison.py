"""Several runs on one page: differences, test metrics, curves; and the page of a sweep."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from didact import files
from didact.charts import svg
from didact.charts.format import (
    LOWER_IS_BETTER,
    find_best,
    format_argument,
    format_duration,
    format_metric_name,
    format_metric_value,
    select_metric_notes,
)
from didact.charts.html import Html, tag
from didact.charts.svg import Cell, Series
from didact.errors import UsageError
from didact.report.figures import Figure, choose_x_axis, get_logged_series, list_metric_names, spans_decades
from didact.report.page import make_document, make_figure, make_figure_grid, make_note_list, make_section, make_table
from didact.run import Run

CellKey = tuple[str, ...]          # a setting: its arguments on the axes
MeanStd = tuple[float, float]     # mean and standard deviation
NEUTRAL_SETTINGS = ("runs", "save_every", "log_every")  # settings that cannot change a result


def _link_run(folder: Path | str, page: Path) -> Html | str:
    """A run's name, linked to its report if it has one."""
    target = Path(folder) / "report.html"
    name = target.parent.name
    return tag("a", name, href=Path(os.path.relpath(target, page.parent)).as_posix()) if target.is_file() else name


def compare_runs(runs: Sequence[Run], path: Path) -> Path:
    """Write a page that compares runs; returns its path."""
    if not runs:
        raise UsageError("a comparison needs at least one run, got none")
    metadata = [run.metadata | {"status": run.status} for run in runs]
    differences = find_differences(metadata)
    # and the same split
    same_data = len({(f["data"].get("fingerprint"), f["data"].get("source", {}).get("seed")) for f in metadata}) == 1
    mark_note = "The best on validation is marked." if same_data else "The data differ, so no run is marked as best."
    metrics_lead = f"Test metrics of each run's best validation state. {mark_note}"
    labels = [
        ", ".join(f"{k} {v[i]}" for k, v in differences.items() if v[i] != "–")[:60] or run.folder.name
        for i, run in enumerate(runs)
    ]
    if len(set(labels)) < len(labels):
        labels = [f"{run.folder.name[-4:]} {label}".strip() for run, label in zip(runs, labels, strict=True)]
    page = make_document(
        f"{len(runs)} runs compared",
        tag(
            "header",
            tag("p", "didact · comparison", class_="overline"),
            tag("h1", f"{len(runs)} runs", tag("span", " side by side")),
            tag(
                "p",
                ", ".join(dict.fromkeys(f"{f['recipe']} on {f['data']['name']}" for f in metadata)),
                class_="summary",
            ),
        ),
        make_section(
            "What differs",
            _make_differences_table(runs, differences, path),
            lead="" if differences else "All arguments are the same.",
        ),
        make_section(
            "Test metrics",
            _make_metric_table(runs, metadata, labels, path, mark_best=same_data and len(runs) > 1),
            _make_metric_notes(metadata),
            lead=metrics_lead,
        ),
        make_section("Validation", make_figure_grid(_make_metric_charts(runs, metadata, labels))),
    )
    files.write_text(path, page)
    return path


def find_differences(metadata: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Arguments and settings that differ between the runs."""
    flat_settings = []
    for f in metadata:
        settings = {k: v for k, v in f.get("settings", {}).items() if k not in NEUTRAL_SETTINGS}
        flat_settings.append({"recipe": f["recipe"], **settings, "data": f["data"]["name"], **f.get("arguments", {})})
    names = list(dict.fromkeys(name for f in flat_settings for name in f))
    texts = {name: [format_argument(f.get(name)) for f in flat_settings] for name in names}
    return {name: values for name, values in texts.items() if len(set(values)) > 1}


def _make_differences_table(runs: Sequence[Run], differences: Mapping[str, list[str]], path: Path) -> Html | None:
    rows = [
        [_link_run(run.folder, path), *(values[i] for values in differences.values())] for i, run in enumerate(runs)
    ]
    return (
        make_table(["run", *(name.replace("_", " ") for name in differences)], rows, numeric=99)
        if differences
        else None
    )


def _make_metric_table(
    runs: Sequence[Run], metadata: Sequence[Mapping[str, Any]], labels: Sequence[str], path: Path, mark_best: bool
) -> Html:
    names = list(dict.fromkeys(name for f in metadata for name in f.get("test") or {}))
    validation_scores = {
        name: {i: f["validation"][name] for i, f in enumerate(metadata) if name in (f.get("validation") or {})}
        for name in names
    }
    best_runs = {name: find_best(name, values) for name, values in validation_scores.items()}
    rows = []
    for i, f in enumerate(metadata):
        values = [(name, format_metric_value(name, (f.get("test") or {}).get(name))) for name in names]
        cells = [tag("mark", v) if mark_best and i in best_runs[name] else v for name, v in values]
        time_text = format_duration(f["seconds"]) if "seconds" in f else f.get("status", "–")
        rows.append(
            [
                _link_run(runs[i].folder, path),
                labels[i],
                *cells,
                f"{f['layers']['total']:,}" if f.get("layers") else "–",
                time_text,
            ]
        )
    return make_table(["run", "", *map(format_metric_name, names), "parameters", "time"], rows, numeric=2)


def _make_metric_notes(metadata: Sequence[Mapping[str, Any]], metrics: Iterable[str] = ()) -> Html:
    """Notes of the runs about these metrics, or about all of theirs."""
    metrics = list(metrics) or [name for f in metadata for name in f.get("test") or {}]
    return make_note_list(select_metric_notes(metrics, [note for f in metadata for note in f.get("notes", ())]))


def _make_metric_charts(
    runs: Sequence[Run], metadata: Sequence[Mapping[str, Any]], labels: Sequence[str]
) -> list[Figure]:
    """A chart for each validation metric, a line for each run; the monitored metric first."""
    logs = [run.metrics for run in runs]
    axis = "epoch" if all(choose_x_axis(log) == "epoch" for log in logs) else "step"
    monitors = [(f.get("monitor") or ["loss"])[0] for f in metadata]
    names = list(
        dict.fromkeys([*monitors, "loss", *(name for log in logs for name in list_metric_names(log, "validation"))])
    )
    figures = []
    for name in names:
        colors = [svg.depth_color(i, len(runs)) if len(runs) > svg.PALETTE_SIZE else i for i in range(len(runs))]
        series = [
            Series(labels[i], *get_logged_series(log, axis, "validation", name), color=colors[i])
            for i, log in enumerate(logs)
        ]
        series = [s for s in series if s.x]
        if series:
            log_y = name in LOWER_IS_BETTER and spans_decades(series)
            chart = svg.draw_chart(
                f"Validation {format_metric_name(name)}", series, x=axis, log_y=log_y, show_legend=len(runs) > 1
            )
            figures.append(Figure(name, chart))
    return figures


def write_sweep_page(
    title: str,
    axes: Mapping[str, Sequence[Any]],
    rows: Sequence[Mapping[str, Any]],
    metric: str,
    path: Path,
    extra_metrics: Sequence[str] = (),
) -> Path:
    """Write the page of a sweep. Seeds are averaged; settings are ranked on validation, with test and other metrics
    beside.
    """
    groups: dict[CellKey, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(format_argument(row["cell"].get(name)) for name in axes), []).append(row)
    means, test_means = (
        {key: mean_std([r[split].get(metric, math.nan) for r in members]) for key, members in groups.items()}
        for split in ("validation", "test")
    )
    direction = "lower" if metric in LOWER_IS_BETTER else "higher"
    num_diverged = sum("diverged" in row for row in rows)
    lead = (
        f"{len(rows)} runs of {len(groups)} settings, ranked on validation by {format_metric_name(metric)}: "
        f"{direction} is better."
    )
    lead += f" {num_diverged} diverged." if num_diverged else ""
    extra_means = {
        name: {key: mean_std([r["validation"].get(name) for r in members])[0] for key, members in groups.items()}
        for name in extra_metrics
    }
    overview, ranking = (
        _make_sweep_figure(axes, means, metric),
        _make_setting_table(axes, groups, means, test_means, metric, extra_means),
    )
    table_lead = (
        "Best on validation first; mean ± standard deviation over seeds. The test metric belongs to the setting; it is "
        "not a "
        "reason to choose it."
    )
    # runs may have been deleted
    folders = [folder for row in rows for folder in [Path(row["run"])] if (folder / "run.json").exists()]
    metric_notes = _make_metric_notes([Run(folder).metadata for folder in folders], [metric, *extra_metrics])
    page = make_document(
        title,
        tag(
            "header", tag("p", "didact · sweep", class_="overline"), tag("h1", title), tag("p", lead, class_="summary")
        ),
        make_section(
            "All settings",
            tag("div", overview, ranking, class_="pair" if overview else None),
            metric_notes,
            lead=table_lead,
        ),
        make_section("All runs", _make_run_table(axes, rows, path)),
    )
    files.write_text(path, page)
    return path


def mean_std(values: Sequence[float | None]) -> MeanStd:
    """Mean and standard deviation of the finite values; None is an undefined metric."""
    finite = [v for v in values if v is not None and math.isfinite(v)]
    return (fmean(finite) if finite else math.nan), (stdev(finite) if len(finite) > 1 else 0.0)


def _make_sweep_figure(axes: Mapping[str, Sequence[Any]], means: Mapping[CellKey, MeanStd], metric: str) -> Html | None:
    """A curve over one axis, a heat map over two; nothing for more."""
    if len(axes) not in (1, 2):
        return None
    if len(axes) == 1:
        (name, values), = axes.items()
        return make_figure(
            Figure(
                name,
                _draw_sweep_curve(name, values, means, metric),
                "Bars: one standard deviation over seeds.",
            )
        )
    (row_axis, rows), (column_axis, columns) = axes.items()
    finite = [m for m, _ in means.values() if math.isfinite(m)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)

    def make_cell(row: str, column: str) -> Cell | None:
        mean, spread = means.get((row, column), (math.nan, 0.0))
        if not math.isfinite(mean):
            return None
        strength = (mean - low) / (high - low) if high > low else 1.0
        strength = 1 - strength if metric in LOWER_IS_BETTER else strength
        hint = (
            f"{row_axis} {row}, {column_axis} {column}: "
            f"{format_metric_value(metric, mean)}{f' ± {format_metric_value(metric, spread)}' if spread else ''}"
        )
        return Cell(0.08 + 0.92 * strength, format_metric_value(metric, mean), hint)

    labels = [format_argument(v) for v in rows], [format_argument(v) for v in columns]
    cells = [[make_cell(row, column) for column in labels[1]] for row in labels[0]]
    axis_titles = row_axis.replace("_", " "), column_axis.replace("_", " ")
    heatmap = svg.draw_heatmap(
        f"Validation {format_metric_name(metric)}", cells, *labels, x=axis_titles[1], y=axis_titles[0]
    )
    return make_figure(Figure(metric, heatmap, "Stronger is better."))


def _draw_sweep_curve(name: str, values: Sequence[Any], means: Mapping[CellKey, MeanStd], metric: str) -> Html:
    """One axis: numbers, logarithmic where they span decades, or words side by side."""
    stats = [means.get((format_argument(v),), (math.nan, 0.0)) for v in values]
    is_numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    x = [float(v) for v in values] if is_numeric else [float(k) for k in range(len(values))]
    log_x = is_numeric and min(x) > 0 and max(x) / min(x) >= 30
    intervals = [(m - e, m + e) for m, e in stats] if any(e for _, e in stats) else []
    series = [Series(format_metric_name(metric), x, [m for m, _ in stats], color=0, intervals=intervals)]
    labels = () if is_numeric else [format_argument(v) for v in values]
    return svg.draw_chart(
        f"Validation {format_metric_name(metric)}", series, x=name.replace("_", " "), log_x=log_x, tick_names=labels
    )


def _make_setting_table(
    axes: Mapping[str, Sequence[Any]],
    groups: Mapping[CellKey, Sequence[Any]],
    means: Mapping[CellKey, MeanStd],
    test_means: Mapping[CellKey, MeanStd],
    metric: str,
    extra_means: Mapping[str, Mapping[CellKey, float]],
) -> Html:
    sign = 1 if metric in LOWER_IS_BETTER else -1
    ranked_keys = sorted(groups, key=lambda key: sign * means[key][0] if math.isfinite(means[key][0]) else math.inf)
    rows = []
    for rank, key in enumerate(ranked_keys):
        value, test = (
            format_metric_value(metric, m) + (f" ± {format_metric_value(metric, s)}" if s else "")
            for m, s in (means[key], test_means[key])
        )
        extra_cells = [format_metric_value(name, extra[key]) for name, extra in extra_means.items()]
        rows.append([*key, tag("mark", value) if rank == 0 else value, test, *extra_cells, len(groups[key])])
    headers = [
        f"validation {format_metric_name(metric)}",
        f"test {format_metric_name(metric)}",
        *(f"validation {format_metric_name(name)}" for name in extra_means),
    ]
    return make_table([*(name.replace("_", " ") for name in axes), *headers, "runs"], rows, css_class="tall")


def _make_run_table(axes: Mapping[str, Sequence[Any]], rows: Sequence[Mapping[str, Any]], path: Path) -> Html:
    names = list(dict.fromkeys(name for row in rows for name in row["test"]))
    table_rows = [
        [_link_run(row["run"], path), *(format_argument(row["cell"].get(name)) for name in axes), row["seed"]]
        + (["diverged"] if "diverged" in row else [format_metric_value(name, row["test"].get(name)) for name in names])
        for row in rows
    ]
    headers = [
        "run",
        *(name.replace("_", " ") for name in axes),
        "seed",
        *(f"test {format_metric_name(name)}" for name in names),
    ]
    return make_table(headers, table_rows, css_class="tall")
