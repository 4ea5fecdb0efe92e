"""Charts as SVG that takes its colours from the page: lines, dots and bars on axes, stacked bars, heat maps.

Drawn by hand: it needs no plotting library, follows light and dark, and the text stays text.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from didact.report.markup import Html, number, shorten, tag
from didact.report.scale import Scale

WIDTH, HEIGHT = 380, 240
SMALL = 300, 170   # for three charts in a row
LETTER = 6.2      # pixels of a letter at 11 px, on average
POINTS = 500      # of a line; more cannot be seen
HITS = 80         # places of a chart that answer to the pointer
KEYS = 8          # entries of a legend
CLOUDS = 12       # of clouds of dots, which nothing else tells apart
KEY = {"dots": ("bar", 5), "spots": ("bar", 5), "bars": ("bar pale", 2), "band": ("band", 2)}  # class and corners of one
TONES = 8
CROWD = 12        # columns of a heat map that fit a phone


@dataclass(frozen=True)
class Series:
    """Points with a name. `tone` is a number of the palette, "soft", or a colour; bars stand on x, `width` wide.

    Spots are dots that stand out from a picture behind them; a band fills what lies between the `ends`.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    mark: Literal["line", "dots", "spots", "bars", "band"] = "line"
    tone: int | str = 0
    ends: Sequence[tuple[float, float]] = ()  # of error bars, or of the band
    dashed: bool = False
    width: float = 0.0
    pale: bool = False

    @property
    def stroke(self) -> str:
        return "line" + " dashed" * self.dashed + " pale" * self.pale

    @property
    def style(self) -> str:
        return paint(self.tone)


def paint(tone: int | str) -> str:
    if isinstance(tone, int):
        return f"--c:var(--s{tone % TONES})"
    return f"--c:{tone if '(' in tone else f'var(--{tone})'}"


def depth_colour(k: int, n: int) -> str:
    """The k-th of n ordered hues, blue to orange, readable on white and on black."""
    return f"hsl({220 + 160 * k / max(1, n - 1):.0f} 58% 54%)"


def class_colour(k: int, n: int) -> int | str:
    """The k-th of n that have no order: of the palette, or of more hues than it has, all round the circle, dark and light in turn."""
    return k if n <= TONES else f"hsl({360 * k / n:.0f} 64% {60 if k % 2 else 42}%)"


def draw(title: str, width: float, height: float, *parts: object) -> Html:
    return tag(
        "svg", *parts,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}", class_="chart", role="img", aria_label=title,
    )


def write_at(x: float, y: float, words: str, kind: str, anchor: str | None = None, turn: float = 0) -> Html:
    return tag(
        "text", words, x=round(x, 1), y=round(y, 1), class_=kind, text_anchor=anchor,
        transform=f"rotate({turn:g} {x:.1f} {y:.1f})" if turn else None,
    )


def segment(x1: float, y1: float, x2: float, y2: float, kind: str, style: str | None = None) -> Html:
    return tag("line", x1=round(x1, 1), y1=round(y1, 1), x2=round(x2, 1), y2=round(y2, 1), class_=kind, style=style)


def box(x: float, y: float, width: float, height: float, kind: str, hint: str = "", **more: object) -> Html:
    return tag(
        "rect", tag("title", hint) if hint else None,
        x=round(x, 2), y=round(y, 2), width=round(max(0, width), 2), height=round(max(0, height), 2), class_=kind, **more,
    )


def chart(
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
    names: Sequence[str] = (),
    image: str = "",
    size: tuple[float, float] = (WIDTH, HEIGHT),
    keyed: bool = False,
) -> Html:
    """Series on two axes. `guides` are vertical lines by name; `names` stand at x = 0, 1, … instead of numbers.

    `image` is the address of a picture that fills the axes, behind the series. `keyed`: one series alone has a legend, too.
    """
    width, height = size
    keys, top = legend(series if keyed or len(series) > 1 else [], width, 34)
    top += 18 if y else 4
    tall = Scale.fit(extent(series), height - 42, top + 10, log=log_y, given=y_range, pad=0.04)
    left = 12 + LETTER * max((len(words) for _, words in tall.marks()), default=1)
    edges = [v for s in series for e in (-s.width / 2, s.width / 2) for v in (xi + e for xi in s.x)]
    wide = Scale.fit(edges, left + 4, width - 12, log=log_x, given=x_range, pad=0.06 if names else 0.0)
    parts = [write_at(0, 14, title, "title"), *keys]
    if y:
        parts.append(write_at(0, top, y, "axis"))
    parts += axes(wide, tall, left, size, x, names)
    if image:
        place = {"x": wide.start, "y": tall.end, "width": wide.end - wide.start, "height": tall.start - tall.end}
        parts.append(tag("image", href=image, preserveAspectRatio="none", **place))
    for name, at in (guides or {}).items():
        parts += guide(name, wide(at), tall, crowded=[tall(v) for s in series for u, v in zip(s.x, s.y, strict=True) if u == at])
    for s in series:
        parts += {"line": line, "dots": dots, "spots": dots, "bars": columns, "band": band}[s.mark](s, wide, tall)
    told = [s for s in series if s.mark == "line" and not s.dashed and not s.pale]
    if told:
        parts += hits(told, wide, tall, x or "x", names)
    if not image and not any(math.isfinite(wide(a)) and math.isfinite(tall(b)) for s in series for a, b in zip(s.x, s.y, strict=True)):
        parts.append(write_at(width / 2, height / 2, "nothing was recorded", "axis", "middle"))
    return draw(title, width, height, *parts)


def extent(series: Sequence[Series]) -> list[float]:
    """Every value that must fit: points (pale ones may be cut off), ends of error bars, the ground of bars."""
    found = [0.0] if any(s.mark == "bars" for s in series) else []
    for s in series:
        found += [] if s.pale else s.y
        found += [v for pair in s.ends for v in pair]
    return found


def axes(wide: Scale, tall: Scale, left: float, size: tuple[float, float], x: str, names: Sequence[str]) -> list[Html]:
    parts = []
    width, height = size
    for at, words in tall.marks(6 if height >= HEIGHT else 4):
        parts.append(segment(left, at, width - 10, at, "rule"))
        parts.append(write_at(left - 6, at + 4, words, "tick", "end"))
    parts.append(segment(left, height - 42, width - 10, height - 42, "base"))
    marks = [(wide(k), shorten(name, max(4, int(60 / len(names))))) for k, name in enumerate(names)] or wide.marks(7)
    for at, words in marks:
        parts.append(write_at(min(at, width - LETTER * len(words) / 2), height - 26, words, "tick", "middle"))
    return [*parts, write_at((left + width) / 2, height - 8, x, "axis", "middle")] if x else parts


def guide(name: str, x: float, tall: Scale, crowded: Sequence[float]) -> list[Html]:
    """A dotted vertical line and its name: at the foot where the curves pass the top of it, else at the top."""
    foot = bool(crowded) and min(crowded) < (tall.start + tall.end) / 2 and max(crowded) < tall.start - 20
    right = x < WIDTH / 2
    name_y = tall.start - 8 if foot else tall.end + 10
    return [
        segment(x, tall.end, x, tall.start, "guide"),
        write_at(x + (5 if right else -5), name_y, name, "axis", None if right else "end"),
    ]


def legend(series: Sequence[Series], width: float, y: float) -> tuple[list[Html], float]:
    """Keys in as many rows as they need, and where the chart may begin. Of many series, a few evenly chosen are named."""
    shown = [s for s in series if s.name]
    most = CLOUDS if all(s.mark == "dots" for s in shown) else KEYS
    rest = len(shown) - most
    if rest > 0:
        shown = [shown[round(k * (len(shown) - 1) / (most - 1))] for k in range(most)]
    parts: list[Html] = []
    x, row = 0.0, y
    for s in shown:
        name = shorten(s.name, 40 if len(shown) <= KEYS else 12)
        step = 20 + LETTER * len(name) + 14
        if x and x + step > width:
            x, row = 0.0, row + 16
        if s.mark == "line":
            parts.append(segment(x, row - 4, x + 14, row - 4, s.stroke, s.style))
        else:
            kind, corner = KEY[s.mark]
            parts.append(box(x + 3, row - 9, 10, 10, kind, style=s.style, rx=corner))
        parts.append(write_at(x + 20, row, name, "legend"))
        x += step
    if rest > 0:
        words = f"and {rest} more"
        if x + LETTER * len(words) > width:
            x, row = 0.0, row + 16
        parts.append(write_at(x, row, words, "legend"))
    return parts, row if shown else y - 18


def thin(x: Sequence[float], y: Sequence[float], most: int = POINTS) -> list[tuple[float, float]]:
    """The points of a line, at most about `most`: of each stretch the lowest and the highest, so that no peak is lost."""
    points = list(zip(x, y, strict=True))
    if len(points) <= most:
        return points
    size = math.ceil(2 * len(points) / most)
    kept = [points[0]]
    for k in range(0, len(points), size):
        stretch = points[k : k + size]
        known = [p for p in stretch if math.isfinite(p[1])] or stretch[:1]
        kept += sorted({min(known, key=lambda p: p[1]), max(known, key=lambda p: p[1])})
    return [*kept, points[-1]]


def line(s: Series, wide: Scale, tall: Scale) -> list[Html]:
    """A path that is broken where a value is not finite; a point that stands alone becomes a dot."""
    runs: list[list[tuple[float, float]]] = [[]]
    for a, b in thin(s.x, s.y):
        at = wide(a), tall(min(max(b, tall.low), tall.high) if s.pale else b)
        if math.isfinite(at[0]) and math.isfinite(at[1]):
            runs[-1].append(at)
        elif runs[-1]:
            runs.append([])
    path = " ".join("M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in run) for run in runs if len(run) > 1)
    parts = whiskers(s, wide, tall)
    if path:
        parts.append(tag("path", tag("title", s.name), d=path, class_=s.stroke, style=s.style))
    alone = [run[0] for run in runs if len(run) == 1]
    if s.ends:
        alone = [(wide(a), tall(b)) for a, b in zip(s.x, s.y, strict=True) if math.isfinite(tall(b))]
    return parts + [tag("circle", cx=round(a, 1), cy=round(b, 1), r=3, class_="dot", style=s.style) for a, b in alone]


def dots(s: Series, wide: Scale, tall: Scale) -> list[Html]:
    parts, kind = whiskers(s, wide, tall), "spot" if s.mark == "spots" else "cloud"
    for a, b in zip(s.x, s.y, strict=True):
        at = wide(a), tall(b)
        if math.isfinite(at[0]) and math.isfinite(at[1]):
            hint = tag("title", f"{number(a)}, {number(b)}")
            parts.append(tag("circle", hint, cx=round(at[0], 1), cy=round(at[1], 1), r=2.4, class_=kind, style=s.style))
    return parts


def whiskers(s: Series, wide: Scale, tall: Scale) -> list[Html]:
    """Error bars, cut off where the chart ends."""
    ends = [(wide(a), tall(max(low, tall.low)), tall(min(high, tall.high))) for a, (low, high) in zip(s.x, s.ends, strict=False)]
    return [segment(a, low, a, high, "error", s.style) for a, low, high in ends if math.isfinite(a + low + high)]


def band(s: Series, wide: Scale, tall: Scale) -> list[Html]:
    """The area between the ends: along the upper ones, back along the lower ones."""
    ends = [(wide(a), tall(low), tall(high)) for a, (low, high) in zip(s.x, s.ends, strict=True)]
    known = [(a, low, high) for a, low, high in ends if math.isfinite(a + low + high)]
    edge = [(a, high) for a, _, high in known] + [(a, low) for a, low, _ in reversed(known)]
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in edge) + "Z"
    return [tag("path", tag("title", s.name), d=path, class_="band", style=s.style)] if known else []


def columns(s: Series, wide: Scale, tall: Scale) -> list[Html]:
    parts = []
    for a, b in zip(s.x, s.y, strict=True):
        left, right = wide(a - s.width / 2), wide(a + s.width / 2)
        if b and math.isfinite(left + right + tall(b)):
            ground = tall(max(tall.low, min(0.0, tall.high)))
            hint = f"{s.name + ': ' if s.name else ''}{number(a - s.width / 2)} to {number(a + s.width / 2)}: {number(b)}"
            parts.append(
                box(left + 0.75, min(ground, tall(b)), right - left - 1.5, abs(ground - tall(b)), "bar pale", hint, style=s.style, rx=1)
            )
    return parts


def hits(series: Sequence[Series], wide: Scale, tall: Scale, x: str, names: Sequence[str]) -> list[Html]:
    """Invisible strips over the chart that say, under the pointer, what every line is there."""
    lines = [dict(zip(s.x, s.y, strict=True)) for s in series]
    every = sorted({a for known in lines for a in known if math.isfinite(wide(a))})
    every = every[:: max(1, math.ceil(len(every) / HITS))]
    parts = []
    for k, a in enumerate(every):
        left = (wide(every[k - 1]) + wide(a)) / 2 if k else wide(a) - 6
        right = (wide(every[k + 1]) + wide(a)) / 2 if k + 1 < len(every) else wide(a) + 6
        where = names[int(a)] if names else f"{x} {number(a)}"
        said = [f"{s.name or 'value'} {number(known[a])}" for s, known in zip(series, lines, strict=True) if a in known]
        parts.append(box(left, tall.end, right - left, tall.start - tall.end, "hit", "\n".join([where, *said[:20]])))
    return parts


def stacked(title: str, labels: Sequence[str], groups: Mapping[str, Sequence[int]]) -> Html:
    """A horizontal bar for each label, its groups one after the other and the sum at its end."""
    keys, top = legend([Series(name, [], [], "dots", tone) for tone, name in enumerate(groups)], WIDTH, 34)
    row = 20 if len(labels) > 12 else 24
    left = 10 + LETTER * 1.05 * max((len(shorten(words, 18)) for words in labels), default=0)
    totals = [sum(values) for values in zip(*groups.values(), strict=True)]
    scale = Scale(0, max([*totals, 1]), left, WIDTH - 14 - LETTER * len(number(max(totals, default=0))))
    parts = [write_at(0, 14, title, "title"), *keys]
    for k, words in enumerate(labels):
        y = top + 12 + k * row
        parts.append(write_at(left - 8, y + row / 2, shorten(words, 18), "tick", "end"))
        at = scale.start
        for tone, (name, values) in enumerate(groups.items()):
            end = at + scale(values[k]) - scale.start
            parts.append(box(at, y, end - at - 0.8, row - 7, "bar", f"{words}, {name}: {values[k]:,}", style=paint(tone), rx=1.5))
            at = end
        parts.append(write_at(at + 6, y + row / 2, number(totals[k]), "tick"))
    return draw(title, WIDTH, top + 16 + row * len(labels), *parts)


@dataclass(frozen=True)
class Cell:
    """One field of a heat map: how strong (0 … 1), what stands in it, what the pointer is told."""

    strength: float
    words: str = ""
    hint: str = ""
    tone: str = "heat"


def heat(title: str, cells: Sequence[Sequence[Cell | None]], rows: Sequence[str], columns: Sequence[str], *, x: str, y: str) -> Html:
    """A field for each row and column; many of them take twice the width, and above 20 only some are labelled."""
    full = WIDTH * (2 if len(columns) > CROWD else 1)
    down, across = ([shorten(words, 14) for words in names] for names in (rows, columns))
    left = 26 + LETTER * max(map(len, down))
    wide = min(96.0, (full - left - 4) / len(columns))
    tall = min(60.0, (full - left - 4) / max(len(columns), 0.8 * len(rows)))
    turned = LETTER * max(map(len, across)) > wide - 4
    top = 48 + (LETTER * max(map(len, across)) if turned else 6)
    width, height = wide * len(columns), tall * len(rows)
    parts = [write_at(0, 14, title, "title"), write_at(left + width / 2, 34, x, "axis", "middle")]
    parts.append(write_at(11, top + height / 2, y, "axis", "middle", turn=-90))
    for j in range(0, len(across), math.ceil(len(across) / 20)):
        at = left + (j + 0.5) * wide
        parts.append(write_at(at + 4 * turned, top - 6, across[j], "tick", None if turned else "middle", turn=-90 * turned))
    beside = range(0, len(down), math.ceil(len(down) / 20))
    parts += [write_at(left - 6, top + (i + 0.5) * tall + 4, down[i], "tick", "end") for i in beside]
    parts.append(box(left, top, width, height, "frame"))
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if cell is not None:
                parts += field(cell, left + j * wide, top + i * tall, wide, tall)
    return draw(title, full, top + height + 10, *parts)


def field(cell: Cell, x: float, y: float, width: float, height: float) -> list[Html]:
    gap = 0.6 if width > 8 else 0.0
    strength = round(min(1.0, max(0.0, cell.strength)), 3)
    place = x + gap, y + gap, width - 2 * gap, height - 2 * gap
    parts = [box(*place, "cell", cell.hint, style=paint(cell.tone), fill_opacity=strength, rx=2 * gap)]
    font = min(12.0, 0.62 * height, 1.7 * (width - 3) / max(1, len(cell.words)))
    if cell.words and font >= 6:
        kind = "count bright" if strength > 0.66 else "count"
        parts.append(tag("text", cell.words, x=round(x + width / 2, 1), y=round(y + height / 2, 1), class_=kind, font_size=round(font, 1)))
    return parts
