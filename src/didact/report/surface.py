"""What the model learned, where all of it can be drawn: a curve over one feature, a map over two."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from didact.data.centring import less
from didact.report import svg
from didact.report.examples import inline
from didact.report.figures import Figure
from didact.report.markup import number
from didact.report.svg import Series

# Halfway between the tones of the light and of the dark page: an image cannot follow the theme, so one suits both.
MIDTONES = ("#5586d0", "#da6c44", "#349f8e", "#9a70cf", "#b58d2f", "#cf5e9c", "#798d9d", "#76a346")
RAMP = "#25407f", "#2f7f9e", "#6fb591", "#c9cf86", "#f7ebb5"  # of a predicted number
SIZE = svg.WIDTH, 330      # of a map
FAINT, STRONG = 0.1, 0.62  # opacity of an even chance and of certainty
STEPS = 9                  # colours of the training targets on a map
ROWS = 0.1                 # height of the strip of training examples below probability 0


def learned_figure(data: Mapping[str, Any], seen: Mapping[str, Tensor], *, noise: bool) -> Figure | None:
    """`seen` is the run's surface; `noise` says whether its deviations hold that of the examples."""
    if "mean" not in seen or (data["task"] == "multilabel" and seen["x"].shape[1] == 2):  # no class wins there
        return None
    features = [*data.get("names", ())] or ["first feature", "second feature"]
    count = f"{len(seen['seen_y']):,} training examples"
    target = less(data.get("target") or "", data.get("target_shift", 0.0))
    if seen["x"].shape[1] == 1:
        if seen["mean"].ndim == 1:
            return fitted_curve(seen, features[0], target, noise)
        return probability_curves(seen, features[0], data["labels"], count)
    if seen["mean"].ndim == 1:
        return fitted_map(seen, features, target, count)
    return decision_regions(seen, features, data["labels"], count)


def fitted_curve(seen: Mapping[str, Tensor], x: str, y: str, noise: bool) -> Figure:
    at, mean = seen["x"][:, 0].tolist(), seen["mean"].double()
    series = [Series("training example", seen["seen_x"][:, 0].tolist(), seen["seen_y"].tolist(), "dots", "soft")]
    caption = f"The line is the model's answer to every {x}; the dots are what it was fitted to."
    if "std" in seen and seen["std"].isfinite().all():
        low, high = ((mean + sign * 1.959964 * seen["std"].double()).tolist() for sign in (-1, 1))
        series.insert(0, Series("± 1.96 deviations", at, mean.tolist(), "band", 0, list(zip(low, high, strict=True))))
        caption += "\n\nThe band is ± 1.96 of the deviations that the model states. " + (
            "They hold the noise of the examples: about 95\u00a0% of new ones should lie inside."
            if noise
            else "They are the doubt about the curve alone, not the noise of the examples: new ones scatter more widely."
        )
    series.append(Series("model", at, mean.tolist(), tone=0))
    return Figure("learned", svg.chart("The fitted curve", series, x=x, y=y), caption)


def probability_curves(seen: Mapping[str, Tensor], x: str, labels: Sequence[str], count: str) -> Figure:
    at = seen["x"][:, 0].tolist()
    series = [Series(label, at, seen["mean"][:, k].tolist(), tone=k) for k, label in enumerate(labels)]
    told = seen["seen_y"] if seen["seen_y"].ndim == 2 else torch.nn.functional.one_hot(seen["seen_y"].long(), len(labels))
    for k in range(len(labels)):
        there = seen["seen_x"][told[:, k] > 0, 0].tolist()
        series.append(Series("", there, [-ROWS * (k + 1) / (len(labels) + 1)] * len(there), "dots", k))
    picture = svg.chart("The probability of each class", series, x=x, y="probability", y_range=(-ROWS, 1))
    return Figure("learned", picture, f"Where curves cross, the answer changes.\n\nThe dots below are {count}, a row for each class.")


def decision_regions(seen: Mapping[str, Tensor], features: Sequence[str], labels: Sequence[str], count: str) -> Figure:
    """The class that wins, by colour; the stronger, the further its probability lies above 1/K."""
    p, winner = seen["mean"].max(dim=1)
    even = 1 / len(labels)
    colour = torch.tensor([rgb(MIDTONES[k % len(MIDTONES)]) for k in range(len(labels))])[winner]  # (G, 3)
    opacity = FAINT + (STRONG - FAINT) * ((p - even) / (1 - even)).clamp(0, 1)
    at, y = seen["seen_x"], seen["seen_y"].long()
    dots = [spots(label, at[y == k], k) for k, label in enumerate(labels)]
    caption = f"The colour is the class that wins: strong where the model is sure, faint where it wavers.\n\nThe dots are {count}."
    return on_map("Decision regions", torch.cat([colour, opacity[:, None]], dim=1), seen["x"], dots, features, caption)


def fitted_map(seen: Mapping[str, Tensor], features: Sequence[str], target: str, count: str) -> Figure:
    """Predicted values by colour and, on the same scale, the targets of the training examples."""
    low, high = (float(f(torch.cat([seen["mean"], seen["seen_y"]]))) for f in (torch.min, torch.max))
    span = high - low or 1.0
    ramp = torch.tensor([[*tone(k / 255), 1.0] for k in range(256)])
    colours = ramp[(255 * (seen["mean"] - low) / span).round().long()]           # (G, 4)
    step = ((STEPS - 1) * (seen["seen_y"] - low) / span).round().long()
    dots = []
    for k in range(STEPS):
        name = number(low + k / (STEPS - 1) * span, 3) if k % 2 == 0 else ""
        colour = f"rgb({' '.join(str(round(255 * c)) for c in tone(k / (STEPS - 1)))})"
        dots.append(spots(name, seen["seen_x"][step == k], colour))
    caption = f"The ground shows the predicted {target}; the dots, {count}, the true one: a dot that stands out is a miss."
    return on_map(f"Predicted {target}", colours, seen["x"], dots, features, caption)


def on_map(title: str, colours: Tensor, x: Tensor, dots: Sequence[Series], features: Sequence[str], caption: str) -> Figure:
    """(G, 4) colours of a square grid, whose first feature changes slowest, as one image with dots over it."""
    n = math.isqrt(len(x))
    image = colours.T.reshape(4, n, n).mT.flip(1)   # rows: the second feature, downwards from its highest
    ranges = []
    for low, high in zip(x.min(0).values.tolist(), x.max(0).values.tolist(), strict=True):
        half = (high - low) / (n - 1) / 2           # a grid point is the middle of its pixel
        ranges.append((low - half, high + half))
    picture = svg.chart(
        title, dots, x=features[0], y=features[1], x_range=ranges[0], y_range=ranges[1], image=inline(image), size=SIZE
    )
    return Figure("learned", picture, caption)


def spots(name: str, at: Tensor, colour: int | str) -> Series:
    x, y = at.T.tolist()
    return Series(name, x, y, "spots", colour)


def rgb(colour: str) -> list[float]:
    return [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]


def tone(share: float) -> list[float]:
    """From low to high along the ramp; it grows lighter all the way, so that a grey print keeps the order."""
    k = min(int(share * (len(RAMP) - 1)), len(RAMP) - 2)
    rest = share * (len(RAMP) - 1) - k
    return [a + rest * (b - a) for a, b in zip(rgb(RAMP[k]), rgb(RAMP[k + 1]), strict=True)]
