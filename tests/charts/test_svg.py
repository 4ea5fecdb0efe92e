import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from didact.charts import svg
from didact.charts.html import Html, format_number, tag
from didact.charts.scale import Scale, format_tick, make_log_ticks, make_ticks
from didact.charts.svg import Cell, Series

finite = st.floats(-1e12, 1e12, allow_nan=False)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.955, 0.973, [0.955, 0.96, 0.965, 0.97]),
        (-3, 3, [-2, 0, 2]),
        (0, 2110, [0, 500, 1000, 1500, 2000]),
    ],
)
def test_ticks_are_round_numbers(low, high, expected):
    assert make_ticks(low, high) == pytest.approx(expected)


@given(finite, st.floats(1e-6, 1e12))
def test_ticks_lie_inside_the_range_and_are_few(low, width):
    tick_values = make_ticks(low, low + width) if low + width > low + 1e-6 * abs(low) else [low, low + width]
    slack = 1e-6 * (abs(low) + width)
    assert 2 <= len(tick_values) <= 6
    assert all(low - slack <= t <= low + width + slack for t in tick_values)


def test_log_ticks_are_round_and_few():
    assert make_log_ticks(1e-3, 1e2) == pytest.approx([1e-3, 1e-2, 1e-1, 1, 10, 100])
    assert make_log_ticks(0.15, 1.2) == pytest.approx([0.2, 0.5, 1])
    assert len(make_log_ticks(1e-12, 1e12)) <= 6
    assert len(make_log_ticks(3.1, 3.9)) > 1, "less than an octave still gets two ticks"


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        (0.001, 0.0002, "0.0010"), (0.0, 0.2, "0"), (-1.0, 0.5, "−1.0"), (2e-5, 1e-5, "2·10⁻⁵"), (1e-5, 1e-5, "10⁻⁵"),
        (0.99915, 0.00005, "0.99915"), (20000, 5000, "20k"), (1500, 500, "1,500"), (0.975, 0.025, "0.975"),
    ],
)
def test_tick_label_text(value, step, text):
    assert format_tick(value, step) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345, "12,345"),
        (0.97414, "0.9741"),
        (3.1e-5, "3.10 × 10⁻⁵"),
        (-2.5, "−2.500"),
        (math.nan, "–"),
        (None, "–"),
        (0.0, "0"),
    ],
)
def test_number_text(value, text):
    assert format_number(value) == text


def test_log_scale_hides_values_below_zero():
    scale = Scale(1, 100, 0, 200, log=True)
    assert scale(10) == pytest.approx(100)
    assert math.isnan(scale(0)) and math.isnan(scale(-1)) and math.isnan(scale(math.inf))


def test_log_scale_spans_all_that_a_float_holds():
    scale = Scale.fit([1e-300, 1.0, 1e300, 0.0], 0, 600, log=True, pad=0.04)
    assert scale(1.0) == pytest.approx(300, abs=0.5) and 0 < scale(1e-300) < scale(1e-200) < scale(1e300) < 600


def find_paths(picture, kind="line"):
    return [
        e.get("d") for e in ElementTree.fromstring(picture).iter() if e.tag.endswith("path") and kind in e.get("class")
    ]


def count_elements(picture, name, kind):
    return sum(
        e.tag.endswith(name) and kind in e.get("class", "").split() for e in ElementTree.fromstring(picture).iter()
    )


def test_chart_breaks_a_line_at_missing_values():
    picture = svg.draw_chart("t", [Series("a", [0, 1, 2, 3, 4], [1, 2, math.nan, 3, 4])])
    (path,) = find_paths(picture)
    assert path.count("M") == 2 and path.count("L") == 2
    assert "nan" not in picture.lower()


def test_chart_draws_a_single_point_as_a_dot_and_notes_missing_data():
    assert count_elements(svg.draw_chart("t", [Series("a", [3], [5])]), "circle", "dot") == 1
    assert "nothing was recorded" not in svg.draw_chart("t", [Series("a", [3], [5])])
    for empty in ([], [Series("a", [], [])], [Series("a", [1.0, 2.0], [math.nan, math.inf])]):
        picture = svg.draw_chart("t", empty)
        assert "nothing was recorded" in picture and not find_paths(picture)


def test_chart_draws_the_highest_value_highest():
    (path,) = find_paths(svg.draw_chart("t", [Series("a", [0, 1], [0, 1])]))
    (x0, y0), (x1, y1) = (map(float, p.split()) for p in path[1:].split("L"))
    assert x1 > x0 and y1 < y0


def test_thin_keeps_the_peak_of_a_line():
    y = [0.0] * 10_000
    y[5_432] = 9.0
    points = svg.downsample_minmax(range(10_000), y)
    assert len(points) <= svg.MAX_LINE_POINTS + 2
    assert (5_432, 9.0) in points and points[0][0] == 0 and points[-1][0] == 9_999


def test_error_bars_span_their_ends():
    picture = svg.draw_chart("t", [Series("a", [0, 1], [1, 1], intervals=[(0, 2), (0.5, 1.5)])])
    spans = [
        abs(float(e.get("y2")) - float(e.get("y1")))
        for e in ElementTree.fromstring(picture).iter()
        if e.get("class") == "error"
    ]
    assert spans[0] == pytest.approx(2 * spans[1], abs=0.3)


def test_bars_stand_on_zero_and_carry_their_counts():
    picture = svg.draw_chart("t", [Series("", [0.5, 1.5], [10, 5], "bars", width=1)])
    tall, short = (
        float(e.get("height")) for e in ElementTree.fromstring(picture).iter() if "bar" in e.get("class", "").split()
    )
    assert tall == pytest.approx(2 * short, rel=0.01)
    assert "0 to 1: 10" in picture


@pytest.mark.parametrize("k", [2, 3, 10, 20, 100])
def test_heat_map_stays_inside_its_frame(k):
    names = [f"class number {i}" for i in range(k)]
    cells = [[Cell(i / k, f"{i * j:,}", "hint") for j in range(k)] for i in range(k)]
    picture = svg.draw_heatmap("t", cells, names, names, x="predicted", y="true")
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', picture)[1])
    fields = [e for e in ElementTree.fromstring(picture).iter() if e.get("class") == "cell"]
    assert len(fields) == k * k
    assert max(float(e.get("x")) + float(e.get("width")) for e in fields) <= width
    assert picture.count('class="tick"') <= 2 * 20 if k > 20 else picture.count('class="tick"') == 2 * k


def test_svg_escapes_text_from_data():
    unsafe_text = '<script>alert("1")</script>\x00'
    picture = svg.draw_stacked_bars(unsafe_text, [unsafe_text], {unsafe_text: [3]}) + svg.draw_chart(
        unsafe_text, [Series(unsafe_text, [0, 1], [0, 1])], x=unsafe_text, guides={unsafe_text: 0.5}
    )
    assert "<script" not in picture and "&lt;script" in picture and "\x00" not in picture
    ElementTree.fromstring(f"<g>{picture}</g>")
    assert tag("p", '<"&', Html("<b>x</b>"), title='"<') == '<p title="&quot;&lt;">&lt;&quot;&amp;<b>x</b></p>'


def test_legend_stays_within_the_chart():
    for length in range(1, 40):
        keys, top = svg.draw_legend([Series("m" * length, [0], [0]) for _ in range(23)], svg.WIDTH, 34)
        last = ElementTree.fromstring(keys[-1])
        assert last.text == "and 15 more" and top == float(last.get("y"))
        assert float(last.get("x")) + svg.CHAR_WIDTH * len(last.text) <= svg.WIDTH, f"names of {length} letters"
