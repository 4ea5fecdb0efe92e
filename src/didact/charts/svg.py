"""Charts as SVG in the colors of the page: lines, dots and bars on axes, stacked bars, heat maps.

Drawn without a plotting library: they follow light and dark, and text stays text.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from didact.charts.html import Html, ellipsize, format_number, tag
from didact.charts.scale import Scale

WIDTH, HEIGHT = 380, 240
SMALL_SIZE = 300, 170   # three charts in a row
CHAR_WIDTH = 6.2      # pixels of a letter at 11 px, on average
MAX_LINE_POINTS = 500      # of a line
MAX_HOVER_STRIPS = 80         # of a chart that show values under the pointer
MAX_LEGEND_ENTRIES = 8          # entries of a legend
MAX_CLOUD_LEGEND_ENTRIES = 12       # of scatter plots, where only the legend names the classes
# CSS class and radius
LEGEND_MARKS = {"dots": ("bar", 5), "spots": ("bar", 5), "bars": ("bar pale", 2), "band": ("band", 2)}
PALETTE_SIZE = 8
MAX_NARROW_COLUMNS = 12        # of a heat map on a phone


@dataclass(frozen=True)
class Series:
    """Points with a name. `color` is an index of the palette, "soft", or a color; bars are `width` wide.

    "spots" are dots that stand out from a picture behind them; a "band" fills the space between the `intervals`.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    mark: Literal["line", "dots", "spots", "bars", "band"] = "line"
    color: int | str = 0
    intervals: Sequence[tuple[float, float]] = ()  # of error bars, or of the band
    dashed: bool = False
    width: float = 0.0
    pale: bool = False

    @property
    def css_class(self) -> str:
        return "line" + " dashed" * self.dashed + " pale" * self.pale

    @property
    def style(self) -> str:
        return color_style(self.color)


def color_style(color: int | str) -> str:
    if isinstance(color, int):
        return f"--c:var(--s{color % PALETTE_SIZE})"
    return f"--c:{color if '(' in color else f'var(--{color})'}"


def depth_color(k: int, n: int) -> str:
    """The k-th of n ordered hues, blue to orange, readable on white and black."""
    return f"hsl({220 + 160 * k / max(1, n - 1):.0f} 58% 54%)"


def class_color(k: int, n: int) -> int | str:
    """The k-th of n unordered colors: of the palette, or of hues around the circle, alternating dark and light."""
    return k if n <= PALETTE_SIZE else f"hsl({360 * k / n:.0f} 64% {60 if k % 2 else 42}%)"


def make_svg(title: str, width: float, height: float, *parts: object) -> Html:
    return tag(
        "svg",
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        class_="chart",
        role="img",
        aria_label=title,
    )


def draw_text(x: float, y: float, text: str, css_class: str, anchor: str | None = None, angle: float = 0) -> Html:
    return tag(
        "text", text, x=round(x, 1), y=round(y, 1), class_=css_class, text_anchor=anchor,
        transform=f"rotate({angle:g} {x:.1f} {y:.1f})" if angle else None,
    )


def draw_line(x1: float, y1: float, x2: float, y2: float, css_class: str, style: str | None = None) -> Html:
    return tag(
        "line", x1=round(x1, 1), y1=round(y1, 1), x2=round(x2, 1), y2=round(y2, 1), class_=css_class, style=style
    )


def draw_rect(
    x: float, y: float, width: float, height: float, css_class: str, hint: str = "", **attributes: object
) -> Html:
    return tag(
        "rect",
        tag("title", hint) if hint else None,
        x=round(x, 2),
        y=round(y, 2),
        width=round(max(0, width), 2),
        height=round(max(0, height), 2),
        class_=css_class,
        **attributes,
    )


def draw_chart(
    title: str,
    series: Sequence[Series],
    *,
    x: str = "",
    y: str = "",
    log_x: bool = False,
    log_y: bool = False,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    guides: Mapping[str, float] | None = None,
    tick_names: Sequence[str] = (),
    image: str = "",
    size: tuple[float, float] = (WIDTH, HEIGHT),
    show_legend: bool = False,
) -> Html:
    """Series on two axes. `guides` are named vertical lines; `tick_names` replace numbers at x = 0, 1, ….

    `image` is the address of a picture behind the series. `show_legend`: a single series has a legend, too.
    """
    width, height = size
    legend_parts, top = draw_legend(series if show_legend or len(series) > 1 else [], width, 34)
    top += 18 if y else 4
    y_scale = Scale.fit(_collect_y_values(series), height - 42, top + 10, log=log_y, limits=y_range, pad=0.04)
    left = 12 + CHAR_WIDTH * max((len(label) for _, label in y_scale.get_ticks()), default=1)
    edges = [v for s in series for e in (-s.width / 2, s.width / 2) for v in (xi + e for xi in s.x)]
    x_scale = Scale.fit(edges, left + 4, width - 12, log=log_x, limits=x_range, pad=0.06 if tick_names else 0.0)
    parts = [draw_text(0, 14, title, "title"), *legend_parts]
    if y:
        parts.append(draw_text(0, top, y, "axis"))
    parts += _draw_axes(x_scale, y_scale, left, size, x, tick_names)
    if image:
        geometry = {
            "x": x_scale.start,
            "y": y_scale.end,
            "width": x_scale.end - x_scale.start,
            "height": y_scale.start - y_scale.end,
        }
        parts.append(tag("image", href=image, preserveAspectRatio="none", **geometry))
    for name, position in (guides or {}).items():
        parts += _draw_guide(
            name,
            x_scale(position),
            y_scale,
            curve_heights=[y_scale(v) for s in series for u, v in zip(s.x, s.y, strict=True) if u == position],
        )
    for s in series:
        parts += {
            "line": _draw_series_line,
            "dots": _draw_dots,
            "spots": _draw_dots,
            "bars": _draw_bars,
            "band": _draw_band,
        }[s.mark](s, x_scale, y_scale)
    solid_lines = [s for s in series if s.mark == "line" and not s.dashed and not s.pale]
    if solid_lines:
        parts += _draw_hover_strips(solid_lines, x_scale, y_scale, x or "x", tick_names)
    if not image and not any(
        math.isfinite(x_scale(a)) and math.isfinite(y_scale(b)) for s in series for a, b in zip(s.x, s.y, strict=True)
    ):
        parts.append(draw_text(width / 2, height / 2, "nothing was recorded", "axis", "middle"))
    return make_svg(title, width, height, *parts)


def _collect_y_values(series: Sequence[Series]) -> list[float]:
    """Every value that must fit: points, ends of error bars, the base of bars."""
    values = [0.0] if any(s.mark == "bars" for s in series) else []
    for s in series:
        values += [] if s.pale else s.y
        values += [v for pair in s.intervals for v in pair]
    return values


def _draw_axes(
    x_scale: Scale, y_scale: Scale, left: float, size: tuple[float, float], x: str, tick_names: Sequence[str]
) -> list[Html]:
    parts = []
    width, height = size
    for position, label in y_scale.get_ticks(6 if height >= HEIGHT else 4):
        parts.append(draw_line(left, position, width - 10, position, "rule"))
        parts.append(draw_text(left - 6, position + 4, label, "tick", "end"))
    parts.append(draw_line(left, height - 42, width - 10, height - 42, "base"))
    marks = [
        (x_scale(k), ellipsize(tick_name, max(4, int(60 / len(tick_names))))) for k, tick_name in enumerate(tick_names)
    ] or x_scale.get_ticks(7)
    for position, label in marks:
        parts.append(
            draw_text(min(position, width - CHAR_WIDTH * len(label) / 2), height - 26, label, "tick", "middle")
        )
    return [*parts, draw_text((left + width) / 2, height - 8, x, "axis", "middle")] if x else parts


def _draw_guide(name: str, x: float, y_scale: Scale, curve_heights: Sequence[float]) -> list[Html]:
    """A dotted vertical line and its name: at the bottom if curves pass at the top, else at the top."""
    at_bottom = (
        bool(curve_heights)
        and min(curve_heights) < (y_scale.start + y_scale.end) / 2
        and max(curve_heights) < y_scale.start - 20
    )
    label_right = x < WIDTH / 2
    name_y = y_scale.start - 8 if at_bottom else y_scale.end + 10
    return [
        draw_line(x, y_scale.end, x, y_scale.start, "guide"),
        draw_text(x + (5 if label_right else -5), name_y, name, "axis", None if label_right else "end"),
    ]


def draw_legend(series: Sequence[Series], width: float, y: float) -> tuple[list[Html], float]:
    """Keys in as many rows as they need, and where the chart begins. Of many series, a few evenly spaced are named."""
    named = [s for s in series if s.name]
    max_entries = MAX_CLOUD_LEGEND_ENTRIES if all(s.mark == "dots" for s in named) else MAX_LEGEND_ENTRIES
    num_hidden = len(named) - max_entries
    if num_hidden > 0:
        named = [named[round(k * (len(named) - 1) / (max_entries - 1))] for k in range(max_entries)]
    parts: list[Html] = []
    x, row = 0.0, y
    for s in named:
        name = ellipsize(s.name, 40 if len(named) <= MAX_LEGEND_ENTRIES else 12)
        step = 20 + CHAR_WIDTH * len(name) + 14
        if x and x + step > width:
            x, row = 0.0, row + 16
        if s.mark == "line":
            parts.append(draw_line(x, row - 4, x + 14, row - 4, s.css_class, s.style))
        else:
            css_class, corner = LEGEND_MARKS[s.mark]
            parts.append(draw_rect(x + 3, row - 9, 10, 10, css_class, style=s.style, rx=corner))
        parts.append(draw_text(x + 20, row, name, "legend"))
        x += step
    if num_hidden > 0:
        text = f"and {num_hidden} more"
        if x + CHAR_WIDTH * len(text) > width:
            x, row = 0.0, row + 16
        parts.append(draw_text(x, row, text, "legend"))
    return parts, row if named else y - 18


def downsample_minmax(
    x: Sequence[float], y: Sequence[float], max_points: int = MAX_LINE_POINTS
) -> list[tuple[float, float]]:
    """At most about `max_points` points of a line: the lowest and the highest of each block, so that no peak is lost.
    """
    points = list(zip(x, y, strict=True))
    if len(points) <= max_points:
        return points
    size = math.ceil(2 * len(points) / max_points)
    selected = [points[0]]
    for k in range(0, len(points), size):
        stretch = points[k : k + size]
        finite = [p for p in stretch if math.isfinite(p[1])] or stretch[:1]
        selected += sorted({min(finite, key=lambda p: p[1]), max(finite, key=lambda p: p[1])})
    return [*selected, points[-1]]


def _draw_series_line(s: Series, x_scale: Scale, y_scale: Scale) -> list[Html]:
    """A path that breaks where a value is not finite; an isolated point becomes a dot."""
    segments: list[list[tuple[float, float]]] = [[]]
    for a, b in downsample_minmax(s.x, s.y):
        point = x_scale(a), y_scale(min(max(b, y_scale.low), y_scale.high) if s.pale else b)
        if math.isfinite(point[0]) and math.isfinite(point[1]):
            segments[-1].append(point)
        elif segments[-1]:
            segments.append([])
    path = " ".join("M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in segment) for segment in segments if len(segment) > 1)
    parts = _draw_error_bars(s, x_scale, y_scale)
    if path:
        parts.append(tag("path", tag("title", s.name), d=path, class_=s.css_class, style=s.style))
    lone_points = [segment[0] for segment in segments if len(segment) == 1]
    if s.intervals:
        lone_points = [(x_scale(a), y_scale(b)) for a, b in zip(s.x, s.y, strict=True) if math.isfinite(y_scale(b))]
    return parts + [
        tag("circle", cx=round(a, 1), cy=round(b, 1), r=3, class_="dot", style=s.style) for a, b in lone_points
    ]


def _draw_dots(s: Series, x_scale: Scale, y_scale: Scale) -> list[Html]:
    parts, css_class = _draw_error_bars(s, x_scale, y_scale), "spot" if s.mark == "spots" else "cloud"
    for a, b in zip(s.x, s.y, strict=True):
        point = x_scale(a), y_scale(b)
        if math.isfinite(point[0]) and math.isfinite(point[1]):
            hint = tag("title", f"{format_number(a)}, {format_number(b)}")
            parts.append(
                tag(
                    "circle", hint, cx=round(point[0], 1), cy=round(point[1], 1), r=2.4, class_=css_class, style=s.style
                )
            )
    return parts


def _draw_error_bars(s: Series, x_scale: Scale, y_scale: Scale) -> list[Html]:
    """Error bars, clipped to the chart."""
    bars = [
        (x_scale(a), y_scale(max(low, y_scale.low)), y_scale(min(high, y_scale.high)))
        for a, (low, high) in zip(s.x, s.intervals, strict=False)
    ]
    return [draw_line(a, low, a, high, "error", s.style) for a, low, high in bars if math.isfinite(a + low + high)]


def _draw_band(s: Series, x_scale: Scale, y_scale: Scale) -> list[Html]:
    """The area between the ends: along the upper ones, back along the lower ones."""
    intervals = [(x_scale(a), y_scale(low), y_scale(high)) for a, (low, high) in zip(s.x, s.intervals, strict=True)]
    finite = [(a, low, high) for a, low, high in intervals if math.isfinite(a + low + high)]
    edge = [(a, high) for a, _, high in finite] + [(a, low) for a, low, _ in reversed(finite)]
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in edge) + "Z"
    return [tag("path", tag("title", s.name), d=path, class_="band", style=s.style)] if finite else []


def _draw_bars(s: Series, x_scale: Scale, y_scale: Scale) -> list[Html]:
    parts = []
    for a, b in zip(s.x, s.y, strict=True):
        left, right = x_scale(a - s.width / 2), x_scale(a + s.width / 2)
        if b and math.isfinite(left + right + y_scale(b)):
            baseline = y_scale(max(y_scale.low, min(0.0, y_scale.high)))
            hint = (
                f"{s.name + ': ' if s.name else ''}{format_number(a - s.width / 2)} to "
                f"{format_number(a + s.width / 2)}: {format_number(b)}"
            )
            parts.append(
                draw_rect(
                    left + 0.75,
                    min(baseline, y_scale(b)),
                    right - left - 1.5,
                    abs(baseline - y_scale(b)),
                    "bar pale",
                    hint,
                    style=s.style,
                    rx=1,
                )
            )
    return parts


def _draw_hover_strips(
    series: Sequence[Series], x_scale: Scale, y_scale: Scale, x: str, tick_names: Sequence[str]
) -> list[Html]:
    """Invisible strips over the chart that show the values of all lines under the pointer."""
    values_by_series = [dict(zip(s.x, s.y, strict=True)) for s in series]
    xs = sorted({a for values in values_by_series for a in values if math.isfinite(x_scale(a))})
    xs = xs[:: max(1, math.ceil(len(xs) / MAX_HOVER_STRIPS))]
    parts = []
    for k, a in enumerate(xs):
        left = (x_scale(xs[k - 1]) + x_scale(a)) / 2 if k else x_scale(a) - 6
        right = (x_scale(xs[k + 1]) + x_scale(a)) / 2 if k + 1 < len(xs) else x_scale(a) + 6
        x_text = tick_names[int(a)] if tick_names else f"{x} {format_number(a)}"
        texts = [
            f"{s.name or 'value'} {format_number(values[a])}"
            for s, values in zip(series, values_by_series, strict=True)
            if a in values
        ]
        parts.append(
            draw_rect(
                left, y_scale.end, right - left, y_scale.start - y_scale.end, "hit", "\n".join([x_text, *texts[:20]])
            )
        )
    return parts


def draw_stacked_bars(title: str, labels: Sequence[str], groups: Mapping[str, Sequence[int]]) -> Html:
    """A horizontal bar for each label, with its groups and their sum."""
    legend_parts, top = draw_legend(
        [Series(name, [], [], "dots", color) for color, name in enumerate(groups)], WIDTH, 34
    )
    row_height = 20 if len(labels) > 12 else 24
    left = 10 + CHAR_WIDTH * 1.05 * max((len(ellipsize(label, 18)) for label in labels), default=0)
    totals = [sum(values) for values in zip(*groups.values(), strict=True)]
    scale = Scale(0, max([*totals, 1]), left, WIDTH - 14 - CHAR_WIDTH * len(format_number(max(totals, default=0))))
    parts = [draw_text(0, 14, title, "title"), *legend_parts]
    for k, label in enumerate(labels):
        y = top + 12 + k * row_height
        parts.append(draw_text(left - 8, y + row_height / 2, ellipsize(label, 18), "tick", "end"))
        start = scale.start
        for color, (name, values) in enumerate(groups.items()):
            end = start + scale(values[k]) - scale.start
            parts.append(
                draw_rect(
                    start,
                    y,
                    end - start - 0.8,
                    row_height - 7,
                    "bar",
                    f"{label}, {name}: {values[k]:,}",
                    style=color_style(color),
                    rx=1.5,
                )
            )
            start = end
        parts.append(draw_text(start + 6, y + row_height / 2, format_number(totals[k]), "tick"))
    return make_svg(title, WIDTH, top + 16 + row_height * len(labels), *parts)


@dataclass(frozen=True)
class Cell:
    """A cell of a heat map: intensity (0 … 1), text, tooltip."""

    strength: float
    text: str = ""
    hint: str = ""
    color: str = "heat"


def draw_heatmap(
    title: str, cells: Sequence[Sequence[Cell | None]], rows: Sequence[str], columns: Sequence[str], *, x: str, y: str
) -> Html:
    """A cell for each row and column; large ones take twice the width, and above 20 only some are labeled."""
    total_width = WIDTH * (2 if len(columns) > MAX_NARROW_COLUMNS else 1)
    row_labels, column_labels = ([ellipsize(label, 14) for label in names] for names in (rows, columns))
    left = 26 + CHAR_WIDTH * max(map(len, row_labels))
    cell_width = min(96.0, (total_width - left - 4) / len(columns))
    cell_height = min(60.0, (total_width - left - 4) / max(len(columns), 0.8 * len(rows)))
    rotate_labels = CHAR_WIDTH * max(map(len, column_labels)) > cell_width - 4
    top = 48 + (CHAR_WIDTH * max(map(len, column_labels)) if rotate_labels else 6)
    width, height = cell_width * len(columns), cell_height * len(rows)
    parts = [draw_text(0, 14, title, "title"), draw_text(left + width / 2, 34, x, "axis", "middle")]
    parts.append(draw_text(11, top + height / 2, y, "axis", "middle", angle=-90))
    for j in range(0, len(column_labels), math.ceil(len(column_labels) / 20)):
        position = left + (j + 0.5) * cell_width
        parts.append(
            draw_text(
                position + 4 * rotate_labels,
                top - 6,
                column_labels[j],
                "tick",
                None if rotate_labels else "middle",
                angle=-90 * rotate_labels,
            )
        )
    labeled_rows = range(0, len(row_labels), math.ceil(len(row_labels) / 20))
    parts += [
        draw_text(left - 6, top + (i + 0.5) * cell_height + 4, row_labels[i], "tick", "end") for i in labeled_rows
    ]
    parts.append(draw_rect(left, top, width, height, "frame"))
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if cell is not None:
                parts += _draw_cell(cell, left + j * cell_width, top + i * cell_height, cell_width, cell_height)
    return make_svg(title, total_width, top + height + 10, *parts)


def _draw_cell(cell: Cell, x: float, y: float, width: float, height: float) -> list[Html]:
    gap = 0.6 if width > 8 else 0.0
    strength = round(min(1.0, max(0.0, cell.strength)), 3)
    geometry = x + gap, y + gap, width - 2 * gap, height - 2 * gap
    parts = [draw_rect(*geometry, "cell", cell.hint, style=color_style(cell.color), fill_opacity=strength, rx=2 * gap)]
    font = min(12.0, 0.62 * height, 1.7 * (width - 3) / max(1, len(cell.text)))
    if cell.text and font >= 6:
        css_class = "count bright" if strength > 0.66 else "count"
        parts.append(
            tag(
                "text",
                cell.text,
                x=round(x + width / 2, 1),
                y=round(y + height / 2, 1),
                class_=css_class,
                font_size=round(font, 1),
            )
        )
    return parts
