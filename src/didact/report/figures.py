"""The figures of a run, chosen by what its files hold."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import torch
from torch import Tensor

from didact import metrics
from didact.data.centring import less
from didact.layers.propagation import AFFINE
from didact.report import svg
from didact.report.answers import Answers
from didact.report.markup import Html, number
from didact.report.svg import Cell, Series
from didact.report.words import COUNTS, about, interval, metric_name

CLOUD = 1200      # dots of a scatter; a browser draws them at once
SMOOTH = 80       # points of a noisy training curve after averaging
CLASSES = 20      # bars of a class chart
NAMED = 6         # layers whose names fit below an axis
COUNTED = 20      # and whose numbers do


@dataclass(frozen=True)
class Figure:
    """A picture, the file it is also kept in, and what it says."""

    name: str
    svg: Html
    caption: str = ""
    wide: bool = False

    @property
    def file(self) -> str:
        return re.sub(r"[^\w-]+", "_", self.name) + ".svg"


def column(lines: Sequence[Mapping[str, Any]], axis: str, group: str, name: str) -> tuple[list[float], list[float]]:
    """x and y of one recorded value."""
    found = [line for line in lines if group in line and name in line[group]]
    return [float(line[axis]) for line in found], [gapped(line[group][name]) for line in found]


def gapped(value: float | None) -> float:
    """What was recorded as none, because it was no finite number, is a gap."""
    return math.nan if value is None else float(value)


def names(lines: Sequence[Mapping[str, Any]], group: str) -> list[str]:
    return list(dict.fromkeys(name for line in lines for name in line.get(group, {})))


def axis_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """Epochs, or steps where not even one epoch was made."""
    return "epoch" if max((line.get("epoch", 0.0) for line in lines), default=0.0) >= 1 else "step"


def averaged(x: list[float], y: list[float], most: int = SMOOTH) -> tuple[list[float], list[float]]:
    """Means of stretches: what a curve that jumps at every step tends to."""
    size = max(1, math.ceil(len(x) / most))
    parts = [slice(k, k + size) for k in range(0, len(x), size)]
    return [x[p][-1] for p in parts], [sum(y[p]) / len(y[p]) for p in parts]


def training_series(lines: Sequence[Mapping[str, Any]], axis: str, name: str, label: str, tone: int | str) -> list[Series]:
    x, y = column(lines, axis, "train", name)
    if len(x) <= 2 * SMOOTH:
        return [Series(label, x, y, tone=tone)] if x else []
    return [Series("", x, y, tone=tone, pale=True), Series(label, *averaged(x, y), tone=tone)]


def spans_decades(series: Sequence[Series], decades: float = 1.3) -> bool:
    known = [v for s in series if not s.pale for v in s.y if math.isfinite(v)]
    return bool(known) and min(known) > 0 and max(known) / min(known) > 10**decades


def curves(facts: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> tuple[list[Figure], list[Figure]]:
    """How training went: the large figures, and a small one for each further validation metric."""
    axis = axis_of(lines)
    watch = (facts.get("watch") or ["loss"])[0]
    guides = best_guide(facts, lines, axis)
    judged = names(lines, "validation")
    large = [loss_figure(lines, axis, guides)]
    if watch in judged and watch != "loss":
        large.append(metric_figure(lines, axis, watch, guides, note=about(watch, facts.get("notes", ()))))
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
    return large, [metric_figure(lines, axis, name, {}, svg.SMALL) for name in judged if name not in ("loss", watch)]


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


def metric_figure(
    lines: Sequence[Mapping[str, Any]],
    axis: str,
    name: str,
    guides: Mapping[str, float],
    size: tuple[float, float] = (svg.WIDTH, svg.HEIGHT),
    note: str = "",
) -> Figure:
    """Over validation; beside it over training, where that was logged too."""
    training = training_series(lines, axis, name, "training", 0)
    validation = Series("validation" if training else "", *column(lines, axis, "validation", name), tone=1)
    title = f"{metric_name(name)[0].upper()}{metric_name(name)[1:]}" if training else f"Validation {metric_name(name)}"
    return Figure(f"validation_{name}", svg.chart(title, [*training, validation], x=axis, guides=guides, size=size), note)


def gradient_figure(lines: Sequence[Mapping[str, Any]], axis: str, layers: Sequence[str]) -> Figure:
    """One line a layer, from the input (blue) to the output (orange)."""
    owners = {layer.partition(".")[0] for layer in layers}
    prefix = f"{owners.pop()}." if len(owners) == 1 else ""
    series = [
        Series(layer.removeprefix(prefix), *averaged(*column(lines, axis, "gradients", layer)), tone=svg.depth_colour(k, len(layers)))
        for k, layer in enumerate(layers)
    ]
    picture = svg.chart("Gradient norm by layer", series, x=axis, log_y=True)
    return Figure("gradients", picture, "From the first layer (blue) to the last (orange).")


def signal_figures(facts: Mapping[str, Any]) -> list[Figure]:
    """Variance of what each layer gives and of the gradient that reaches it, at initialisation; none for fewer than two layers."""
    rows, note = facts.get("propagation") or [], ""
    if facts.get("arguments", {}).get("members", 1) > 1:  # networks side by side: one after the other they are no depth
        member = ".".join(rows[0]["layer"].split(".")[:2]) + "."
        rows, note = [row for row in rows if row["layer"].startswith(member)], "Of the first member."
    affine = [row["kind"] in {kind.__name__ for kind in AFFINE} for row in rows]
    layers = [row["layer"] for row, a in zip(rows, affine, strict=True) if a]
    if len(layers) < 2:
        return []
    names, sides = [layer.partition(".")[2] for layer in layers], told_apart(layers)
    if len(layers) > NAMED or sides:
        names = [str(k + 1) for k in range(len(layers))] if len(layers) <= COUNTED else []
    depth = list(accumulate(affine, initial=-1 if names else 0))[1:]  # an activation stands where the layer before it stands
    found = []
    for key, title in (("variance", "Variance of activations"), ("gradient_variance", "Variance of gradients")):
        series = []
        for tone, name in enumerate(("before the activation", "after it")):
            chosen = [k for k in range(len(rows)) if affine[k] == (tone == 0)]
            series.append(Series(name, [float(depth[k]) for k in chosen], [gapped(rows[k][key]) for k in chosen], tone=tone))
        picture = svg.chart(title, series, x="layer", log_y=True, y_range=roomy(series), names=names)
        found.append(Figure(f"signal_{key}", picture, note or sides))
    return found


def told_apart(layers: Sequence[str]) -> str:
    """Which layers are whose, where several networks come one after the other: both sides of a game have a first layer."""
    stretches = [(owner, len(list(some))) for owner, some in groupby(layer.partition(".")[0] for layer in layers)]
    if not 1 < len(stretches) == len({owner for owner, _ in stretches}):
        return ""
    ends = list(accumulate(count for _, count in stretches))
    spans = [f"{end - count + 1} to {end}" if count > 1 else f"{end}" for end, (_, count) in zip(ends, stretches, strict=True)]
    return "Layers " + ", ".join(f"{span}: the {owner}" for span, (owner, _) in zip(spans, stretches, strict=True)) + "."


def roomy(series: Sequence[Series], least: float = 100.0) -> tuple[float, float] | None:
    """A logarithmic range that does not blow up differences which mean nothing; None where there is no positive value."""
    known = [v for s in series for v in s.y if math.isfinite(v) and v > 0]
    if not known:
        return None
    spare = max(1.0, math.sqrt(least * min(known) / max(known)))
    return min(known) / spare, max(known) * spare


def class_figure(data: Mapping[str, Any]) -> Figure | None:
    """Examples, or pixels or boxes, of each class in each split; of many classes the most frequent."""
    labels, counts = data.get("labels", ()), {part: c for part, c in data.get("counts", {}).items() if c}
    if not labels or not counts:
        return None
    order = list(range(len(labels)))
    note = ""
    if len(labels) > CLASSES:
        totals = [sum(c[k] for c in counts.values()) for k in order]
        order, note = sorted(order, key=lambda k: -totals[k])[:CLASSES], f"The {CLASSES} most frequent of {len(labels)} classes."
    groups = {part: [c[k] for k in order] for part, c in counts.items()}
    title = f"{COUNTS.get(data['task'], 'examples').capitalize()} of each class"
    return Figure("classes", svg.stacked(title, [labels[k] for k in order], groups), note)


def target_figure(said: Answers | None, name: str) -> Figure | None:
    """Where the targets lie, for what has no classes to count."""
    if said is None or said.mean is None:
        return None
    return Figure("target", svg.chart("The target", [bars("", said.y.double(), 0)], x=less(name, said.shift), y="test examples"))


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
    return [*found, roc_figure(said), score_figure(said)] if len(said.labels) == 2 and len(said.y.unique()) == 2 else found


def counts_of(said: Answers) -> Tensor:
    assert said.probabilities is not None
    return metrics.confusion(said.probabilities.argmax(dim=1), said.y.long(), len(said.labels))


def confusion_figure(said: Answers) -> Figure:
    """Blue where right, by the share of the row; red where wrong, by the root of the share of the most frequent mistake."""
    counts = counts_of(said)
    share = counts / counts.sum(1, keepdim=True).clamp(min=1)
    worst = float((share - share.diag().diag()).max()) or 1.0
    cells: list[list[Cell | None]] = [[None] * len(counts) for _ in counts]
    for i, j in counts.nonzero().tolist():
        s, n = float(share[i, j]), int(counts[i, j])
        hint = f"{said.labels[i]} called {said.labels[j]}: {n:,} ({100 * s:.1f} % of the class)"
        cells[i][j] = Cell(0.1 + 0.9 * s, f"{n:,}", hint) if i == j else Cell(0.08 + 0.55 * math.sqrt(s / worst), f"{n:,}", hint, "wrong")
    note = "Blue: right. Red: wrong, stronger where a larger share of the true class went there."
    picture = svg.heat("Confusion matrix", cells, said.labels, said.labels, x="predicted", y="true")
    return Figure("confusion", picture, note, wide=len(counts) > svg.CROWD)


def mistakes(said: Answers, most: int = 7) -> list[tuple[str, str, int, float]]:
    """The most frequent confusions: true class, answer, how many, which share of the class."""
    counts = counts_of(said)
    wrong = counts - counts.diag().diag()
    order = wrong.flatten().argsort(descending=True)[:most].tolist()
    pairs = [divmod(k, len(counts)) for k in order if wrong.flatten()[k]]
    return [(said.labels[i], said.labels[j], int(wrong[i, j]), float(wrong[i, j] / counts[i].sum())) for i, j in pairs]


def calibration_figure(said: Answers, bins: int = 15) -> Figure:
    assert said.probabilities is not None
    confidence, right, rows = (t.tolist() for t in metrics.calibration_curve(said.probabilities, said.y.long(), bins))
    used = [k for k in range(bins) if rows[k]]
    ends = [interval(right[k], rows[k]) for k in used]  # a handful of examples says little
    series = [
        Series("share of examples", [(k + 0.5) / bins for k in range(bins)], [n / sum(rows) for n in rows], "bars", "s6", width=1 / bins),
        Series("ideal", [0.0, 1.0], [0.0, 1.0], tone="soft", dashed=True),
        Series("accuracy", [confidence[k] for k in used], [right[k] for k in used], tone=0, ends=ends),
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


def score_figure(said: Answers, bins: int = 20) -> Figure:
    """How the probability of the second class is spread over the examples of either class."""
    assert said.probabilities is not None
    centres = [(k + 0.5) / bins for k in range(bins)]
    counts = [torch.histc(said.probabilities[said.y == k, 1], bins, 0, 1).tolist() for k in (0, 1)]
    series = [Series(f"true: {said.labels[k]}", centres, counts[k], "bars", (1, 0)[k], width=1 / bins) for k in (0, 1)]
    return Figure("scores", svg.chart(f"Probability of “{said.labels[1]}”", series, x="probability", y="test examples", x_range=(0, 1)))


def regression_figures(said: Answers) -> list[Figure]:
    assert said.mean is not None
    y, mean = said.y.double(), said.mean
    chosen = torch.linspace(0, len(y) - 1, min(CLOUD, len(y))).long()
    corners = [float(y.min()), float(y.max())]
    ends: list[tuple[float, float]] = []
    if said.std is not None:
        low, high = ((mean + sign * 1.959964 * said.std)[chosen].tolist() for sign in (-1, 1))
        ends = list(zip(low, high, strict=True))
    series = [
        Series("ideal", corners, corners, tone="soft", dashed=True),
        Series("test example" + (" with 95 % interval" if ends else ""), y[chosen].tolist(), mean[chosen].tolist(), "dots", 0, ends),
    ]
    note = f"{CLOUD:,} of {len(y):,} test examples, evenly chosen." if len(y) > CLOUD else ""
    chart = svg.chart("Predicted against true", series, x=less("true", said.shift), y=less("predicted", said.shift))
    found = [Figure("predicted", chart, note)]
    residual = svg.chart("Residuals", [bars("", mean - y, 1)], x="predicted − true", y="test examples")
    found.append(Figure("residuals", residual, "Right of zero: predicted too high."))
    return found
