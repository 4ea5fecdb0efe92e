"""The page of a comparison: the leaderboard of models over folds."""

from pathlib import Path

from didact import files
from didact.charts.format import LOWER_IS_BETTER, format_metric_name, format_metric_value
from didact.charts.html import Html, tag
from didact.charts.scale import Scale
from didact.charts.svg import color_style, draw_line, draw_text, make_svg
from didact.errors import format_count
from didact.report.page import make_document, make_section, make_table
from didact.training.sweeps.cross_validation import Comparison, Standing

_LEAD = (
    "Means over the folds with 95 % intervals, corrected for the examples that folds share (Nadeau and Bengio 2003). "
    "“Behind the best” is the mean of the differences fold by fold; models whose interval reaches zero are level."
)
_ROW_HEIGHT, _WIDTH, _LABEL_WIDTH = 26, 640, 170


def write_leaderboard(comparison: Comparison) -> Path:
    """Write report.html into the folder of the comparison; returns its path."""
    name = format_metric_name(comparison.metric)
    page = make_document(
        f"models on {comparison.data}",
        tag(
            "header",
            tag("p", "didact · comparison", class_="overline"),
            tag("h1", f"{len(comparison.standings)} models", tag("span", f" on {comparison.data}")),
            tag("p", f"{name} over {format_count(comparison.folds, 'fold')}", class_="summary"),
        ),
        make_section("Leaderboard", _make_table(comparison), lead=_LEAD),
        make_section("Folds", tag("figure", _draw_scores(comparison), tag("figcaption", _describe_dots(comparison)))),
    )
    path = comparison.folder / "report.html"
    files.write_text(path, page)
    return path


def _make_table(comparison: Comparison) -> Html:
    metric, best = comparison.metric, comparison.standings[0]
    descriptions = {row["model"]: row.get("description") for row in comparison.rows}

    def format_behind(s: Standing) -> str:
        if s is best:
            return "–"
        text = f"{format_metric_value(metric, s.behind)} ± {format_metric_value(metric, s.behind_interval)}"
        return f"{text} (level)" if s.is_level else text

    rows = [
        [
            tag("span", s.model, title=descriptions.get(s.model)),
            s.kind,
            tag("strong" if s is best else "span", format_metric_value(metric, s.mean)),
            f"± {format_metric_value(metric, s.interval)}",
            format_behind(s),
            f"{s.seconds:.1f} s",
        ]
        for s in comparison.standings
    ]
    headings = ["model", "kind", format_metric_name(metric), "95 % interval", "behind the best", "a training"]
    return make_table(headings, rows, numeric=2)


def _describe_dots(comparison: Comparison) -> str:
    direction = "smaller is better" if comparison.metric in LOWER_IS_BETTER else "larger is better"
    return f"{format_metric_name(comparison.metric)} on each fold (dots) and the mean (line); {direction}."


def _draw_scores(comparison: Comparison) -> Html:
    """A row for each model: a dot for each fold, a line at the mean."""
    scores = [score for s in comparison.standings for score in s.scores]
    height = _ROW_HEIGHT * (len(comparison.standings) + 1.5)
    scale = Scale.fit(scores, _LABEL_WIDTH, _WIDTH - 20)
    parts = [
        part
        for position, label in scale.get_ticks()
        for part in (
            draw_line(position, 8, position, height - 26, "rule"),
            draw_text(position, height - 8, label, "tick", anchor="middle"),
        )
    ]
    for k, s in enumerate(comparison.standings):
        y = _ROW_HEIGHT * (k + 0.8)
        parts += [draw_text(_LABEL_WIDTH - 12, y + 4, s.model, "tick", anchor="end")]
        style = color_style(0 if s.kind == "recipe" else 1)
        parts += [
            tag("circle", cx=round(scale(score), 1), cy=round(y, 1), r=4, class_="cloud", style=style)
            for score in s.scores
        ]
        parts += [draw_line(scale(s.mean), y - 9, scale(s.mean), y + 9, "line", style)]
    return make_svg(f"{comparison.metric} of each model on each fold", _WIDTH, height, *parts)
