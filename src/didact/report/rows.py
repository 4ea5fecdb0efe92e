"""Rows of a table that a model drew, beside real ones: a few as they are, and how often each value is there."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import torch
from torch import Tensor

from didact.data.rows import FREE, Column, columns_of, written
from didact.data.spec import from_spec
from didact.data.table import Number
from didact.report import svg
from didact.report.markup import Html, shorten, tag
from didact.report.svg import Series
from didact.run import Run

ROWS = "Test rows and rows that the model drew, from fixed noise. Below, how both are spread: bars are real, dots are drawn."
SHOWN = 6     # rows of each kind
COLUMNS = 6   # charts
BINS = 10
NAMES = 8     # of a category's values that fit below a chart


def row_tables(run: Run, facts: Mapping[str, Any]) -> Html:
    """A table of real and drawn rows, and a chart for each of the first columns."""
    kept = run.load("gallery") if run.has("gallery.safetensors") else {}
    if "drawn rows" not in kept:
        return Html("")
    real, drawn, data = kept["real rows"], kept["drawn rows"], from_spec(facts["data"])
    columns = columns_of(data, joint=drawn.shape[1] != len(data.names))
    charts = [tag("figure", chart) for chart in marginals(columns, real, drawn)]
    return tag("div", table(columns, real, drawn), tag("div", charts, class_="trio"), class_="stack")


def table(columns: Sequence[Column], real: Tensor, drawn: Tensor) -> Html:
    free = [FREE] * real.shape[1]
    told = [(name, row) for name, rows in (("real", real), ("drawn", drawn)) for row in written(columns, rows[:SHOWN], free)]
    body = [tag("tr", tag("th", name, scope="row"), [tag("td", shorten(value, 20)) for value in row]) for name, row in told]
    head = tag("tr", tag("th", "", scope="col"), [tag("th", shorten(column.name, 20), scope="col") for column in columns])
    return tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="scroll", tabindex=0)


def marginals(columns: Sequence[Column], real: Tensor, drawn: Tensor) -> list[Html]:
    """Shares of each category, or of ten equal parts of a number's range."""
    found, at = [], 0
    for column in columns[:COLUMNS]:
        n, names = len(column.features), list[str]()
        if isinstance(column, Number):
            ends = torch.cat([real[:, at], drawn[:, at]])
            low, high = float(ends.min()), float(ends.max())
            width = (high - low) / BINS or 1.0
            x = [low + (k + 0.5) * width for k in range(BINS)]
            shares = [100 * torch.histc(rows[:, at], BINS, low, low + BINS * width) / len(rows) for rows in (real, drawn)]
        else:
            x, width = [float(k) for k in range(n)], 1.0
            shares = [100 * rows[:, at : at + n].mean(0) for rows in (real, drawn)]
            names = [name.removeprefix(f"{column.name}=") if k % ceil(n / NAMES) == 0 else "" for k, name in enumerate(column.features)]
        series = [Series("real", x, shares[0].tolist(), "bars", 0, width=0.8 * width), Series("drawn", x, shares[1].tolist(), "dots", 1)]
        said = column.name if isinstance(column, Number) else f"{column.name}: {shorten(', '.join(column.values), 40)}"
        found.append(svg.chart(shorten(column.name, 28), series, x=said, y="% of rows", names=names))
        at += n
    return found
