"""The figures of a run, chosen by what its files hold."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from didact import metrics
from didact.report import svg
from didact.report.answers import Answers
from didact.report.markup import Html, number
from didact.report.svg import Cell, Series
from didact.report.words import metric_name

CLOUD = 1200      # dots of a scatter; a browser draws them at once
SMOOTH = 80       # points of a noisy training curve after averaging
CLASSES = 20      # bars of a class chart


@dataclass(frozen=True)
class Figure:
    """A picture, the file it is also kept in, and what it says."""

    name: str
    svg: Html
    caption: str = ""

    @property
    def file(self) -> str:
        return re.sub(r"[^\w-]+", "_", self.name) + ".svg"


def column(lines: Sequence[Mapping[str, Any]], axis: str, group: str, name: str) -> tuple[list[float], list[float]]:
    """x and y of one recorded value; what was recorded as none is a gap."""
    found = [line for line in lines if group in line and name in line[group]]
    return [float(line[axis]) for line in found], [math.nan if line[group][name] is None else float(line[group][name]) for line in found]


def names(lines: Sequence[Mapping[str, Any]], group: str) -> list[str]:
    return list(dict.fromkeys(name for line in lines for name in line.get(group, {})))


def axis_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """Epochs, or steps where not even one epoch was made."""
    return "epoch" if max((line.get("epoch", 0.0) for line in lines), default=0.0) >= 1 else "step"


def averaged(x: list[float], y: list[float], most: int = SMOOTH) -> tuple[list[float], list[float]]:
    """Means of stretches: what a curve that jumps at every step tends to."""
    size = math.ceil(len(x) / most)
    parts = [slice(k, k + size) for k in range(0, len(x), size)]
    return [x[p][-1] for p in parts], [sum(y[p]) / len(y[p]) for p in parts]


def training_series(lines: Sequence[Mapping[str, Any]], axis: str, name: str, label: str, tone: int | str) -> list[Series]:
    x, y = column(lines, axis, "train", name)
    if len(x) <= 2 * SMOOTH:
        return [Series(label, x, y, tone=tone)] if x else []
    return [Series("", x, y, tone=tone, pale=True), Series(label, *averaged(x, y), tone=tone)]


def spans_decades(series: Sequence[Series], decades: float = 1.3) -> bool:
    known = [v for s in series for v in s.y if math.isfinite(v)]
    return bool(known) and min(known) > 0 and max(known) / min(known) > 10**decades


def curves(facts: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> tuple[list[Figure], list[Figure]]:
    """How training went: the large figures, and a small one for each further validation metric."""
    axis = axis_of(lines)
    watch = (facts.get("watch") or ["loss"])[0]
    guides = best_guide(facts, lines, axis)
    judged = names(lines, "validation")
    large = [loss_figure(lines, axis, guides)]
    if watch in judged and watch != "loss":
        large.append(metric_figure(lines, axis, watch, guides))
    parts = [name for name in names(lines, "train") if name not in judged]
    if parts:
        series = [s for tone, name in enumerate(parts) for s in training_series(lines, axis, name, name.replace("_", " "), tone)]
        large.append(Figure("training_parts", svg.chart("Parts of the training loss", series, x=axis)))
    rated = [line for line in lines if "lr" in line]
    if rated:
        rates = Series("", [float(line[axis]) for line in rated], [float(line["lr"]) for line in rated], tone=4)
        large.append(Figure("learning_rate", svg.chart("Learning rate", [rates], x=axis)))
    layers = names(lines, "gradients")
    if layers:
        large.append(gradient_figure(lines, axis, layers))
    return large, [metric_figure(lines, axis, name, {}, height=190) for name in judged if name not in ("loss", watch)]


def best_guide(facts: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], axis: str) -> dict[str, float]:
    step = facts.get("best_step")
    at = [line[axis] for line in lines if "validation" in line and line["step"] == step]
    return {f"best: {axis} {number(at[0])}": float(at[0])} if at else {}


def loss_figure(lines: Sequence[Mapping[str, Any]], axis: str, guides: Mapping[str, float]) -> Figure:
    series = training_series(lines, axis, "loss", "training", 0)
    x, y = column(lines, axis, "validation", "loss")
    series += [Series("validation", x, y, tone=1)] if x else []
    note = "Training is measured on the way, with dropout, smoothing and augmentation where there are any; validation without."
    return Figure("loss", svg.chart("Loss", series, x=axis, log_y=spans_decades(series), guides=guides), note)


def metric_figure(lines: Sequence[Mapping[str, Any]], axis: str, name: str, guides: Mapping[str, float], height: float = svg.HEIGHT) -> Figure:
    x, y = column(lines, axis, "validation", name)
    title = metric_name(name)
    picture = svg.chart(f"Validation {title}", [Series("", x, y, tone=1)], x=axis, guides=guides, height=height)
    return Figure(f"validation_{name}", picture)


def gradient_figure(lines: Sequence[Mapping[str, Any]], axis: str, layers: Sequence[str]) -> Figure:
    """One line a layer, from the input (blue) to the output (orange)."""
    common = layers[0].split(".")[:-1] if len({layer.split(".")[0] for layer in layers}) == 1 and "." in layers[0] else []
    prefix = f"{common[0]}." if common else ""
    series = [
        Series(layer.removeprefix(prefix), *averaged(*column(lines, axis, "gradients", layer)), tone=svg.depth_colour(k, len(layers)))
        for k, layer in enumerate(layers)
    ]
    return Figure("gradients", svg.chart("Gradient norm by layer", series, x=axis, log_y=True), "From the first layer (blue) to the last (orange).")


def class_figure(health: Mapping[str, Any]) -> Figure | None:
    """Examples of each class in each split."""
    classes = health.get("classes") or []
    if not classes:
        return None
    shown = sorted(classes, key=lambda c: -c["train"])[:CLASSES] if len(classes) > CLASSES else classes
    note = f"The {CLASSES} most frequent of {len(classes)} classes." if len(classes) > CLASSES else ""
    groups = {part: [c[part] for c in shown] for part in health["splits"]}
    return Figure("classes", svg.stacked("Examples of each class", [c["label"] for c in shown], groups), note)


def histogram(values: Tensor, bins: int = 24) -> tuple[list[float], list[float], float]:
    """Centres, counts and width of equal bins."""
    low, high = float(values.min()), float(values.max())
    if high <= low:
        low, high = low - 0.5, high + 0.5
    counts = torch.histc(values.double(), bins, low, high)
    width = (high - low) / bins
    return [low + (k + 0.5) * width for k in range(bins)], counts.tolist(), width


def bars(name: str, values: Tensor, tone: int | str = 0) -> Series:
    x, y, width = histogram(values[values.isfinite()]) if values.isfinite().any() else ([], [], 1.0)
    return Series(name, x, y, "bars", tone, width=width)


def prediction_figures(said: Answers) -> list[Figure]:
    if said.mean is not None:
        return regression_figures(said)
    if said.task == "multilabel":
        return []
    found = [confusion_figure(said), calibration_figure(said)]
    return [*found, roc_figure(said)] if len(said.labels) == 2 and len(said.y.unique()) == 2 else found


def counts_of(said: Answers) -> Tensor:
    assert said.probabilities is not None
    return metrics.confusion(said.probabilities.argmax(dim=1), said.y.long(), len(said.labels))


def confusion_figure(said: Answers) -> Figure:
    """Blue where right, red where wrong; a field is as strong as its share of the row, roots for the errors to be seen."""
    counts = counts_of(said)
    cells: list[list[Cell | None]] = []
    for i, row in enumerate(counts.tolist()):
        total = sum(row)
        cells.append([confused(said.labels, i, j, count, total) if count else None for j, count in enumerate(row)])
    note = "Blue: right. Red: wrong, stronger where a larger share of the class went there."
    return Figure("confusion", svg.heat("Confusion matrix", cells, said.labels, said.labels, x="predicted", y="true"), note)


def confused(labels: Sequence[str], i: int, j: int, count: int, total: int) -> Cell:
    share = count / total
    hint = f"{labels[i]} called {labels[j]}: {count:,} of {total:,} ({100 * share:.1f} %)"
    strength = share if i == j else 0.1 + 0.9 * math.sqrt(share)
    return Cell(max(0.08, strength), f"{count:,}", hint, "heat" if i == j else "wrong")


def calibration_figure(said: Answers, bins: int = 15) -> Figure:
    assert said.probabilities is not None
    confidence, right, rows = (t.tolist() for t in metrics.calibration_curve(said.probabilities, said.y.long(), bins))
    used = [k for k in range(bins) if rows[k]]
    # an interval for each bin: a handful of examples says little
    error = [1.96 * math.sqrt(right[k] * (1 - right[k]) / rows[k]) for k in used]
    series = [
        Series("share of examples", [(k + 0.5) / bins for k in range(bins)], [n / sum(rows) for n in rows], "bars", "s6", width=1 / bins),
        Series("ideal", [0.0, 1.0], [0.0, 1.0], tone="soft", dashed=True),
        Series("accuracy", [confidence[k] for k in used], [right[k] for k in used], tone=0, error=error),
    ]
    picture = svg.chart("Calibration", series, x="confidence of the answer", x_range=(0, 1), y_range=(0, 1))
    return Figure("calibration", picture, "How often answers of a given confidence are right; on the dashed line, as often as they claim.")


def roc_figure(said: Answers) -> Figure:
    """True against false positives as the threshold falls; equal scores are one step."""
    assert said.probabilities is not None
    score, order = said.probabilities[:, 1].sort(descending=True)
    hit = said.y[order] == 1
    last = torch.cat([score.diff() != 0, torch.ones(1, dtype=torch.bool)])
    positive, negative = (torch.cat([torch.zeros(1), c.cumsum(0)[last] / c.sum()]).tolist() for c in (hit.double(), (~hit).double()))
    series = [Series("chance", [0.0, 1.0], [0.0, 1.0], tone="soft", dashed=True), Series("model", negative, positive, tone=0)]
    title = f"ROC, “{said.labels[1]}” as positive"
    return Figure("roc", svg.chart(title, series, x="false positive rate", y="true positive rate", x_range=(0, 1), y_range=(0, 1)))


def regression_figures(said: Answers) -> list[Figure]:
    assert said.mean is not None
    y, mean = said.y.double(), said.mean
    chosen = torch.linspace(0, len(y) - 1, min(CLOUD, len(y))).long()
    error = (1.96 * said.std[chosen]).tolist() if said.std is not None else []
    ends = [float(y.min()), float(y.max())]
    series = [
        Series("ideal", ends, ends, tone="soft", dashed=True),
        Series("test example" + (" with 95 % interval" if error else ""), y[chosen].tolist(), mean[chosen].tolist(), "dots", 0, error),
    ]
    note = f"{CLOUD:,} of {len(y):,} test examples, evenly chosen." if len(y) > CLOUD else ""
    found = [Figure("predicted", svg.chart("Predicted against true", series, x="true", y="predicted"), note)]
    residual = svg.chart("Residuals", [bars("", mean - y, 1)], x="predicted − true", y="test examples")
    found.append(Figure("residuals", residual, "Right of zero: predicted too high."))
    return found
