"""Rows of a table that a model drew, beside real ones: a few as they are, how often each value is there, and two numbers as a plane."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil
from typing import Any

import torch
from torch import Tensor

from didact.data.columns import Category, Number
from didact.data.rows import FREE, Column, columns_of, written
from didact.data.spec import from_spec
from didact.report import svg
from didact.report.markup import Html, shorten, tag
from didact.report.surface import SIZE
from didact.report.svg import Series
from didact.run import Run

ROWS = "Test rows and rows that the model drew, from fixed noise. Below them, how both are spread: bars are real, dots are drawn."
SHOWN = 6     # rows of each kind
COLUMNS = 6   # charts
BINS = 10
NAMES = 8     # of a category's values that fit below a chart
PLANE = "Each row as a point."
CHOSEN = "Each row as a point: of its {} numbers the two that are most correlated in the real rows."


def row_tables(run: Run, facts: Mapping[str, Any]) -> Html:
    """A table of real and drawn rows, and a chart for each of the first columns."""
    kept = run.load("gallery") if run.has("gallery.safetensors") else {}
    if "drawn rows" not in kept:
        return Html("")
    real, drawn, columns = kept["real rows"], kept["drawn rows"], columns_drawn(kept, facts)
    charts = [tag("figure", chart) for chart in marginals(columns, real, drawn)]
    plane = [tag("figure", chart) for chart in scatter(columns, real, drawn, facts["data"].get("target", ""))]
    numbers = sum(isinstance(column, Number) for column in columns)
    told = tag("p", PLANE if numbers == 2 else CHOSEN.format(numbers), class_="lead") if plane else None
    return tag(
        "div", table(columns, real, drawn), told, tag("div", plane, class_="pair") if plane else None, tag("div", charts, class_="trio"),
        class_="stack",
    )


def columns_drawn(kept: Mapping[str, Tensor], facts: Mapping[str, Any]) -> tuple[Column, ...]:
    """Of the table, with the target where it was drawn too; none where no rows were."""
    if "drawn rows" not in kept:
        return ()
    data = from_spec(facts["data"])
    return columns_of(data, joint=kept["drawn rows"].shape[1] != len(data.names))


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
        said = column.features[0] if isinstance(column, Number) else f"{column.name}: {shorten(', '.join(column.values), 40)}"
        found.append(svg.chart(shorten(column.name, 28), series, x=said, y="% of rows", names=names))
        at += n
    return found


def scatter(columns: Sequence[Column], real: Tensor, drawn: Tensor, target: str) -> list[Html]:
    """Real rows and drawn ones on the same axes, by class where the rows have one; nothing for fewer than two numbers that vary."""
    starts = list(accumulate((len(column.features) for column in columns), initial=0))
    numbers = {at: column for at, column in zip(starts, columns, strict=False) if isinstance(column, Number)}
    pair = together(real, list(numbers))
    if pair is None:
        return []
    last, (x, y) = columns[-1], (numbers[at] for at in pair)
    labels = last.values if isinstance(last, Category) and last.name == target else ()
    ranges = [with_margin(torch.cat([real, drawn])[:, at]) for at in pair]
    found = []
    for tone, (title, rows) in enumerate((("Real rows", real), ("Drawn rows", drawn))):
        rows = rows[here(rows, pair[0], x) & here(rows, pair[1], y)]
        points, k = rows[:, list(pair)], rows[:, starts[-2] : starts[-1]].argmax(1) if labels else torch.zeros(len(rows))
        series = [cloud(name, points[k == n], svg.class_colour(n, len(labels))) for n, name in enumerate(labels)]
        series = series or [cloud("", points, tone)]
        found.append(svg.chart(title, series, x=x.features[0], y=y.features[0], x_range=ranges[0], y_range=ranges[1], size=SIZE))
    return found


def cloud(name: str, points: Tensor, colour: int | str) -> Series:
    right, up = points.T.tolist()
    return Series(name, right, up, "dots", colour)


def together(rows: Tensor, places: Sequence[int]) -> tuple[int, int] | None:
    """The two numbers that are most strongly correlated, which a chart for each of them cannot show; None where there are no two."""
    vary = [at for at in places if float(rows[:, at].std(correction=0)) > 0]
    if len(vary) < 2:
        return None
    strength = rows[:, vary].double().T.corrcoef().abs().triu(1)
    a, b = divmod(int(strength.argmax()), len(vary))
    return (vary[a], vary[b]) if a < b else (vary[0], vary[1])          # all of them quite independent


def here(rows: Tensor, at: int, column: Number) -> Tensor:
    """Which rows have this number."""
    return rows[:, at + 1] < 0.5 if column.missing else torch.ones(len(rows), dtype=torch.bool)


def with_margin(values: Tensor) -> tuple[float, float]:
    """From the lowest to the highest and a little beyond, so that no dot lies on an axis."""
    low, high = float(values.min()), float(values.max())
    room = 0.04 * (high - low)
    return low - room, high + room
