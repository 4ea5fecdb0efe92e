"""Generated rows of a table beside real ones: some rows, the distribution of each column, two columns as a plane."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil
from typing import Any

import torch
from torch import Tensor

from didact.charts import svg
from didact.charts.html import Html, ellipsize, tag
from didact.charts.svg import Series
from didact.data.serialize import data_from_json
from didact.data.tables.columns import CategoricalColumn, NumericColumn
from didact.data.tables.row_decoder import UNLIMITED_DECIMALS, Column, decode_rows, get_row_columns
from didact.report.decision_surfaces import MAP_SIZE
from didact.run import Run

ROWS_LEAD = (
    "Test rows and rows generated from fixed noise. Below, their distributions: bars are real, dots are generated."
)
NUM_ROWS_SHOWN = 6     # of each kind
MAX_COLUMN_CHARTS = 6   # charts
NUM_BINS = 10
MAX_CATEGORY_NAMES = 8     # of a category's values that fit below a chart
PLANE_CAPTION = "Each row as a point."
CHOSEN_PAIR_CAPTION = (
    "Each row as a point: of {} numeric columns the two with the highest correlation in the real rows."
)


def make_row_section(run: Run, metadata: Mapping[str, Any]) -> Html:
    """A table of real and generated rows, and a chart for each of the first columns."""
    gallery = run.load("gallery") if run.has("gallery.safetensors") else {}
    if "sampled rows" not in gallery:
        return Html("")
    real, generated, columns = gallery["real rows"], gallery["sampled rows"], get_generated_columns(gallery, metadata)
    column_figures = [tag("figure", chart) for chart in draw_marginals(columns, real, generated)]
    plane_figures = [
        tag("figure", chart) for chart in draw_scatter(columns, real, generated, metadata["data"].get("target", ""))
    ]
    num_numeric = sum(isinstance(column, NumericColumn) for column in columns)
    caption = (
        tag("p", PLANE_CAPTION if num_numeric == 2 else CHOSEN_PAIR_CAPTION.format(num_numeric), class_="lead")
        if plane_figures
        else None
    )
    return tag(
        "div",
        _make_row_table(columns, real, generated),
        caption,
        tag("div", plane_figures, class_="pair") if plane_figures else None,
        tag("div", column_figures, class_="trio"),
        class_="stack",
    )


def get_generated_columns(gallery: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> tuple[Column, ...]:
    """Columns of the table, with the target if it was generated too; none if no rows were."""
    if "sampled rows" not in gallery:
        return ()
    data = data_from_json(metadata["data"])
    return get_row_columns(data, joint=gallery["sampled rows"].shape[1] != len(data.feature_names))


def _make_row_table(columns: Sequence[Column], real: Tensor, generated: Tensor) -> Html:
    decimals = [UNLIMITED_DECIMALS] * real.shape[1]
    labeled_rows = [
        (name, row)
        for name, rows in (("real", real), ("drawn", generated))
        for row in decode_rows(columns, rows[:NUM_ROWS_SHOWN], decimals)
    ]
    body = [
        tag("tr", tag("th", name, scope="row"), [tag("td", ellipsize(value, 20)) for value in row])
        for name, row in labeled_rows
    ]
    head = tag(
        "tr", tag("th", "", scope="col"), [tag("th", ellipsize(column.name, 20), scope="col") for column in columns]
    )
    return tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="scroll", tabindex=0)


def draw_marginals(columns: Sequence[Column], real: Tensor, generated: Tensor) -> list[Html]:
    """Fractions of each category, or of ten equal bins of a number's range."""
    charts, start = [], 0
    for column in columns[:MAX_COLUMN_CHARTS]:
        num_features, names = len(column.feature_names), list[str]()
        if isinstance(column, NumericColumn):
            values = torch.cat([real[:, start], generated[:, start]])
            low, high = float(values.min()), float(values.max())
            width = (high - low) / NUM_BINS or 1.0
            x = [low + (k + 0.5) * width for k in range(NUM_BINS)]
            shares = [
                100 * torch.histc(rows[:, start], NUM_BINS, low, low + NUM_BINS * width) / len(rows)
                for rows in (real, generated)
            ]
        else:
            x, width = [float(k) for k in range(num_features)], 1.0
            shares = [100 * rows[:, start : start + num_features].mean(0) for rows in (real, generated)]
            names = [
                name.removeprefix(f"{column.name}=") if k % ceil(num_features / MAX_CATEGORY_NAMES) == 0 else ""
                for k, name in enumerate(column.feature_names)
            ]
        series = [
            Series("real", x, shares[0].tolist(), "bars", 0, width=0.8 * width),
            Series("drawn", x, shares[1].tolist(), "dots", 1),
        ]
        axis_title = (
            column.feature_names[0]
            if isinstance(column, NumericColumn)
            else f"{column.name}: {ellipsize(', '.join(column.values), 40)}"
        )
        charts.append(svg.draw_chart(ellipsize(column.name, 28), series, x=axis_title, y="% of rows", tick_names=names))
        start += num_features
    return charts


def draw_scatter(columns: Sequence[Column], real: Tensor, generated: Tensor, target: str) -> list[Html]:
    """Real and generated rows on the same axes, by class if there is one; nothing for fewer than two varying numbers.
    """
    starts = list(accumulate((len(column.feature_names) for column in columns), initial=0))
    numeric_columns = {
        index: column for index, column in zip(starts, columns, strict=False) if isinstance(column, NumericColumn)
    }
    pair = _most_correlated_pair(real, list(numeric_columns))
    if pair is None:
        return []
    last_column, (x, y) = columns[-1], (numeric_columns[index] for index in pair)
    class_names = (
        last_column.values if isinstance(last_column, CategoricalColumn) and last_column.name == target else ()
    )
    ranges = [_padded_range(torch.cat([real, generated])[:, index]) for index in pair]
    charts = []
    for color, (title, rows) in enumerate((("Real rows", real), ("Drawn rows", generated))):
        rows = rows[_has_value(rows, pair[0], x) & _has_value(rows, pair[1], y)]
        points, labels = (
            rows[:, list(pair)],
            rows[:, starts[-2] : starts[-1]].argmax(1) if class_names else torch.zeros(len(rows)),
        )
        series = [
            _make_scatter_series(name, points[labels == n], svg.class_color(n, len(class_names)))
            for n, name in enumerate(class_names)
        ]
        series = series or [_make_scatter_series("", points, color)]
        charts.append(
            svg.draw_chart(
                title,
                series,
                x=x.feature_names[0],
                y=y.feature_names[0],
                x_range=ranges[0],
                y_range=ranges[1],
                size=MAP_SIZE,
            )
        )
    return charts


def _make_scatter_series(name: str, points: Tensor, color: int | str) -> Series:
    xs, ys = points.T.tolist()
    return Series(name, xs, ys, "dots", color)


def _most_correlated_pair(rows: Tensor, indices: Sequence[int]) -> tuple[int, int] | None:
    """The two numeric columns with the highest correlation; None for fewer than two."""
    varying = [index for index in indices if float(rows[:, index].std(correction=0)) > 0]
    if len(varying) < 2:
        return None
    strength = rows[:, varying].double().T.corrcoef().abs().triu(1)
    a, b = divmod(int(strength.argmax()), len(varying))
    return (varying[a], varying[b]) if a < b else (varying[0], varying[1])          # all of them uncorrelated


def _has_value(rows: Tensor, index: int, column: NumericColumn) -> Tensor:
    """Which rows have a value in this column."""
    return rows[:, index + 1] < 0.5 if column.has_missing else torch.ones(len(rows), dtype=torch.bool)


def _padded_range(values: Tensor) -> tuple[float, float]:
    """The range of the values and a margin, so that no dot lies on an axis."""
    low, high = float(values.min()), float(values.max())
    margin = 0.04 * (high - low)
    return low - margin, high + margin
