"""The learned function where all of it can be drawn: a curve over one feature, a map over two."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from didact.charts import svg
from didact.charts.html import format_number
from didact.charts.svg import Series
from didact.data.tables.offsets import format_offset_name
from didact.report.examples import image_to_data_uri
from didact.report.figures import Figure

# Between the tones of the light and the dark page: an image cannot follow the theme.
MIDTONES = ("#5586d0", "#da6c44", "#349f8e", "#9a70cf", "#b58d2f", "#cf5e9c", "#798d9d", "#76a346")
VALUE_RAMP = "#25407f", "#2f7f9e", "#6fb591", "#c9cf86", "#f7ebb5"  # of a predicted number
MAP_SIZE = svg.WIDTH, 330      # of a map
MIN_OPACITY, MAX_OPACITY = 0.1, 0.62  # opacity of an even chance and of certainty
NUM_DOT_COLORS = 9                  # colors of the training targets on a map
STRIP_HEIGHT = 0.1                 # height of the strip of training examples below probability 0


def make_surface_figure(
    data: Mapping[str, Any], surface: Mapping[str, Tensor], *, includes_noise: bool
) -> Figure | None:
    """`surface` is that of the run; `includes_noise` says whether its standard deviations include the noise of
    examples.
    """
    # several labels may hold at once
    if "mean" not in surface or (data["task"] == "multilabel" and surface["x"].shape[1] == 2):
        return None
    features = [*data.get("feature_names", ())] or ["first feature", "second feature"]
    count_text = f"{len(surface['seen_y']):,} training examples"
    target = format_offset_name(data.get("target") or "", data.get("target_offset", 0.0))
    if surface["x"].shape[1] == 1:
        if surface["mean"].ndim == 1:
            return _make_fitted_curve(surface, features[0], target, includes_noise)
        return _make_probability_curves(surface, features[0], data["class_names"], count_text)
    if surface["mean"].ndim == 1:
        return _make_fitted_map(surface, features, target, count_text)
    return _make_decision_regions(surface, features, data["class_names"], count_text)


def _make_fitted_curve(surface: Mapping[str, Tensor], x: str, y: str, includes_noise: bool) -> Figure:
    xs, mean = surface["x"][:, 0].tolist(), surface["mean"].double()
    series = [Series("training example", surface["seen_x"][:, 0].tolist(), surface["seen_y"].tolist(), "dots", "soft")]
    caption = f"The line is the prediction for every {x}; the dots are training examples."
    if "std" in surface and surface["std"].isfinite().all():
        low, high = ((mean + sign * 1.959964 * surface["std"].double()).tolist() for sign in (-1, 1))
        series.insert(0, Series("± 1.96 std", xs, mean.tolist(), "band", 0, list(zip(low, high, strict=True))))
        caption += "\n\nThe band is ± 1.96 predicted standard deviations. " + (
            "They include the noise of the examples: about 95\u00a0% of new ones should lie inside."
            if includes_noise
            else "They are the uncertainty of the curve only, not the noise of the examples: new ones scatter more "
                 "widely."
        )
    series.append(Series("model", xs, mean.tolist(), color=0))
    return Figure("learned", svg.draw_chart("Fitted curve", series, x=x, y=y), caption)


def _make_probability_curves(
    surface: Mapping[str, Tensor], x: str, class_names: Sequence[str], count_text: str
) -> Figure:
    xs = surface["x"][:, 0].tolist()
    series = [Series(label, xs, surface["mean"][:, k].tolist(), color=k) for k, label in enumerate(class_names)]
    membership = (
        surface["seen_y"]
        if surface["seen_y"].ndim == 2
        else torch.nn.functional.one_hot(surface["seen_y"].long(), len(class_names))
    )
    for k in range(len(class_names)):
        class_xs = surface["seen_x"][membership[:, k] > 0, 0].tolist()
        series.append(
            Series("", class_xs, [-STRIP_HEIGHT * (k + 1) / (len(class_names) + 1)] * len(class_xs), "dots", k)
        )
    picture = svg.draw_chart("Class probabilities", series, x=x, y="probability", y_range=(-STRIP_HEIGHT, 1))
    return Figure(
        "learned",
        picture,
        f"Where curves cross, the predicted class changes.\n\nThe dots below are {count_text}, a row per class.",
    )


def _make_decision_regions(
    surface: Mapping[str, Tensor], features: Sequence[str], class_names: Sequence[str], count_text: str
) -> Figure:
    """The predicted class by color; the stronger, the further its probability is above 1/K."""
    p, winner = surface["mean"].max(dim=1)
    chance = 1 / len(class_names)
    color = torch.tensor([hex_to_rgb(MIDTONES[k % len(MIDTONES)]) for k in range(len(class_names))])[winner]  # (G, 3)
    opacity = MIN_OPACITY + (MAX_OPACITY - MIN_OPACITY) * ((p - chance) / (1 - chance)).clamp(0, 1)
    points, y = surface["seen_x"], surface["seen_y"].long()
    dots = [_make_dot_series(label, points[y == k], k) for k, label in enumerate(class_names)]
    caption = (
        "Color: the predicted class, strong where its probability is high.\n\nThe dots are "
        f"{count_text}."
    )
    return _draw_map(
        "Decision regions", torch.cat([color, opacity[:, None]], dim=1), surface["x"], dots, features, caption
    )


def _make_fitted_map(surface: Mapping[str, Tensor], features: Sequence[str], target: str, count_text: str) -> Figure:
    """Predicted values by color, and the targets of training examples on the same scale."""
    low, high = (float(f(torch.cat([surface["mean"], surface["seen_y"]]))) for f in (torch.min, torch.max))
    value_range = high - low or 1.0
    ramp = torch.tensor([[*ramp_color(k / 255), 1.0] for k in range(256)])
    colors = ramp[(255 * (surface["mean"] - low) / value_range).round().long()]           # (G, 4)
    step = ((NUM_DOT_COLORS - 1) * (surface["seen_y"] - low) / value_range).round().long()
    dots = []
    for k in range(NUM_DOT_COLORS):
        name = format_number(low + k / (NUM_DOT_COLORS - 1) * value_range, 3) if k % 2 == 0 else ""
        color = f"rgb({' '.join(str(round(255 * c)) for c in ramp_color(k / (NUM_DOT_COLORS - 1)))})"
        dots.append(_make_dot_series(name, surface["seen_x"][step == k], color))
    caption = (
        f"The background shows the predicted {target}, the dots ({count_text}) the true one: a dot that stands out is "
        "a "
        "miss."
    )
    return _draw_map(f"Predicted {target}", colors, surface["x"], dots, features, caption)


def _draw_map(
    title: str, colors: Tensor, x: Tensor, dots: Sequence[Series], features: Sequence[str], caption: str
) -> Figure:
    """(G, 4) colors of a square grid, whose first feature changes slowest, as one image with dots over it."""
    n = math.isqrt(len(x))
    image = colors.T.reshape(4, n, n).mT.flip(1)   # rows: the second feature, downwards from its highest
    ranges = []
    for low, high in zip(x.min(0).values.tolist(), x.max(0).values.tolist(), strict=True):
        half_pixel = (high - low) / (n - 1) / 2           # a grid point is the middle of its pixel
        ranges.append((low - half_pixel, high + half_pixel))
    chart = svg.draw_chart(
        title,
        dots,
        x=features[0],
        y=features[1],
        x_range=ranges[0],
        y_range=ranges[1],
        image=image_to_data_uri(image),
        size=MAP_SIZE,
    )
    return Figure("learned", chart, caption)


def _make_dot_series(name: str, points: Tensor, color: int | str) -> Series:
    x, y = points.T.tolist()
    return Series(name, x, y, "spots", color)


def hex_to_rgb(hex_color: str) -> list[float]:
    return [int(hex_color[k : k + 2], 16) / 255 for k in (1, 3, 5)]


def ramp_color(fraction: float) -> list[float]:
    """From low to high along the ramp, which grows lighter all the way, so that a grayscale print keeps the order."""
    k = min(int(fraction * (len(VALUE_RAMP) - 1)), len(VALUE_RAMP) - 2)
    weight = fraction * (len(VALUE_RAMP) - 1) - k
    return [a + weight * (b - a) for a, b in zip(hex_to_rgb(VALUE_RAMP[k]), hex_to_rgb(VALUE_RAMP[k + 1]), strict=True)]
