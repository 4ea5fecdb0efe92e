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
from didact.analysis.signal_propagation import AFFINE_LAYERS
from didact.charts import svg
from didact.charts.format import COUNTED_ITEMS, find_metric_note, format_metric_name, wilson_interval
from didact.charts.html import Html, format_number
from didact.charts.svg import Cell, Series
from didact.data.tables.offsets import format_offset_name
from didact.errors import UsageError
from didact.report.predictions import Predictions

MAX_SCATTER_DOTS = 1200      # dots of a scatter; a browser draws them at once
MAX_CURVE_POINTS = 80       # points of a noisy training curve after averaging
MAX_CLASS_BARS = 20      # bars of a class chart
MAX_NAMED_LAYERS = 6         # layers whose names fit below an axis
MAX_NUMBERED_LAYERS = 20      # and whose numbers do


@dataclass(frozen=True)
class Figure:
    """A picture, its file name and its caption."""

    name: str
    svg: Html
    caption: str = ""
    is_wide: bool = False

    @property
    def file_name(self) -> str:
        return re.sub(r"[^\w-]+", "_", self.name) + ".svg"


def get_logged_series(
    log: Sequence[Mapping[str, Any]], axis: str, group: str, name: str
) -> tuple[list[float], list[float]]:
    """x and y of one logged value."""
    matching = [line for line in log if group in line and name in line[group]]
    return [float(line[axis]) for line in matching], [_none_to_nan(line[group][name]) for line in matching]


def _none_to_nan(value: float | None) -> float:
    """A value logged as None, since it was not finite, becomes a gap."""
    return math.nan if value is None else float(value)


def list_metric_names(log: Sequence[Mapping[str, Any]], group: str) -> list[str]:
    return list(dict.fromkeys(name for line in log for name in line.get(group, {})))


def choose_x_axis(log: Sequence[Mapping[str, Any]]) -> str:
    """Epochs, or steps where training was shorter than one epoch."""
    return "epoch" if max((line.get("epoch", 0.0) for line in log), default=0.0) >= 1 else "step"


def _block_means(x: list[float], y: list[float], max_points: int = MAX_CURVE_POINTS) -> tuple[list[float], list[float]]:
    """Means over blocks, to smooth a noisy curve."""
    size = max(1, math.ceil(len(x) / max_points))
    blocks = [slice(k, k + size) for k in range(0, len(x), size)]
    return [x[p][-1] for p in blocks], [sum(y[p]) / len(y[p]) for p in blocks]


def _make_training_series(
    log: Sequence[Mapping[str, Any]], axis: str, name: str, label: str, color: int | str
) -> list[Series]:
    x, y = get_logged_series(log, axis, "train", name)
    if len(x) <= 2 * MAX_CURVE_POINTS:
        return [Series(label, x, y, color=color)] if x else []
    return [Series("", x, y, color=color, pale=True), Series(label, *_block_means(x, y), color=color)]


def spans_decades(series: Sequence[Series], decades: float = 1.3) -> bool:
    values = [v for s in series if not s.pale for v in s.y if math.isfinite(v)]
    return bool(values) and min(values) > 0 and max(values) / min(values) > 10**decades


def make_training_figures(
    metadata: Mapping[str, Any], log: Sequence[Mapping[str, Any]]
) -> tuple[list[Figure], list[Figure]]:
    """Training curves: the large figures, and a small one for each further validation metric."""
    axis = choose_x_axis(log)
    monitor = (metadata.get("monitor") or ["loss"])[0]
    guides = _find_best_step(metadata, log, axis)
    validation_metrics = list_metric_names(log, "validation")
    main_figures = [_make_loss_figure(log, axis, guides)]
    if monitor in validation_metrics and monitor != "loss":
        main_figures.append(
            _make_metric_figure(log, axis, monitor, guides, note=find_metric_note(monitor, metadata.get("notes", ())))
        )
    loss_parts = [name for name in list_metric_names(log, "train") if name not in validation_metrics]
    if loss_parts:
        series = [
            s
            for color, name in enumerate(loss_parts)
            for s in _make_training_series(log, axis, name, name.replace("_", " "), color)
        ]
        main_figures.append(Figure("training_parts", svg.draw_chart("Parts of the training loss", series, x=axis)))
    lr_lines = [line for line in log if "lr" in line]
    if lr_lines:
        lr_series = Series(
            "", [float(line[axis]) for line in lr_lines], [float(line["lr"]) for line in lr_lines], color=4
        )
        main_figures.append(Figure("learning_rate", svg.draw_chart("Learning rate", [lr_series], x=axis)))
    layers = list_metric_names(log, "gradients")
    if layers:
        main_figures.append(_make_gradient_figure(log, axis, layers))
    return main_figures, [
        _make_metric_figure(log, axis, name, {}, svg.SMALL_SIZE)
        for name in validation_metrics
        if name not in ("loss", monitor)
    ]


def _find_best_step(metadata: Mapping[str, Any], log: Sequence[Mapping[str, Any]], axis: str) -> dict[str, float]:
    step = metadata.get("best_step")
    positions = [line[axis] for line in log if "validation" in line and line["step"] == step]
    return {f"best: {axis} {format_number(positions[0])}": float(positions[0])} if positions else {}


def _make_loss_figure(log: Sequence[Mapping[str, Any]], axis: str, guides: Mapping[str, float]) -> Figure:
    series = _make_training_series(log, axis, "loss", "training", 0)
    x, y = get_logged_series(log, axis, "validation", "loss")
    series += [Series("validation", x, y, color=1)] if x else []
    note = (
        "The training loss is a running mean with dropout, label smoothing and augmentation, if any; validation is "
        "without."
    )
    return Figure("loss", svg.draw_chart("Loss", series, x=axis, log_y=spans_decades(series), guides=guides), note)


def _make_metric_figure(
    log: Sequence[Mapping[str, Any]],
    axis: str,
    name: str,
    guides: Mapping[str, float],
    size: tuple[float, float] = (svg.WIDTH, svg.HEIGHT),
    note: str = "",
) -> Figure:
    """A metric on validation, and on training where it was logged too."""
    training = _make_training_series(log, axis, name, "training", 0)
    validation = Series("validation" if training else "", *get_logged_series(log, axis, "validation", name), color=1)
    title = (
        f"{format_metric_name(name)[0].upper()}{format_metric_name(name)[1:]}"
        if training
        else f"Validation {format_metric_name(name)}"
    )
    return Figure(
        f"validation_{name}", svg.draw_chart(title, [*training, validation], x=axis, guides=guides, size=size), note
    )


def _make_gradient_figure(log: Sequence[Mapping[str, Any]], axis: str, layers: Sequence[str]) -> Figure:
    """One line per layer, from the input (blue) to the output (orange)."""
    owners = {layer.partition(".")[0] for layer in layers}
    prefix = f"{owners.pop()}." if len(owners) == 1 else ""
    series = [
        Series(
            layer.removeprefix(prefix),
            *_block_means(*get_logged_series(log, axis, "gradients", layer)),
            color=svg.depth_color(k, len(layers)),
        )
        for k, layer in enumerate(layers)
    ]
    chart = svg.draw_chart("Gradient norm by layer", series, x=axis, log_y=True)
    return Figure("gradients", chart, "From the first layer (blue) to the last (orange).")


def make_signal_figures(metadata: Mapping[str, Any]) -> list[Figure]:
    """Variance of activations and gradients by layer at initialization; none for fewer than two layers."""
    rows, note = metadata.get("propagation") or [], ""
    # ensemble members are parallel, not deeper layers
    if metadata.get("arguments", {}).get("members", 1) > 1:
        member = ".".join(rows[0]["layer"].split(".")[:2]) + "."
        rows, note = [row for row in rows if row["layer"].startswith(member)], "The first member of the ensemble."
    is_affine = [row["kind"] in {kind.__name__ for kind in AFFINE_LAYERS} for row in rows]
    layers = [row["layer"] for row, a in zip(rows, is_affine, strict=True) if a]
    if len(layers) < 2:
        return []
    layer_names, owner_note = [layer.partition(".")[2] for layer in layers], _describe_network_ranges(layers)
    if len(layers) > MAX_NAMED_LAYERS or owner_note:
        layer_names = [str(k + 1) for k in range(len(layers))] if len(layers) <= MAX_NUMBERED_LAYERS else []
    # an activation is drawn at the layer before it
    depth = list(accumulate(is_affine, initial=-1 if layer_names else 0))[1:]
    figures = []
    for key, title in (("variance", "Variance of activations"), ("gradient_variance", "Variance of gradients")):
        series = []
        for color, name in enumerate(("before the activation", "after the activation")):
            indices = [k for k in range(len(rows)) if is_affine[k] == (color == 0)]
            series.append(
                Series(
                    name, [float(depth[k]) for k in indices], [_none_to_nan(rows[k][key]) for k in indices], color=color
                )
            )
        chart = svg.draw_chart(
            title, series, x="layer", log_y=True, y_range=padded_log_range(series), tick_names=layer_names
        )
        figures.append(Figure(f"signal_{key}", chart, note or owner_note))
    return figures


def _describe_network_ranges(layers: Sequence[str]) -> str:
    """Which layers belong to which network, where several follow each other, as in a GAN."""
    networks = [(owner, len(list(group))) for owner, group in groupby(layer.partition(".")[0] for layer in layers)]
    if not 1 < len(networks) == len({owner for owner, _ in networks}):
        return ""
    ends = list(accumulate(count for _, count in networks))
    ranges = [
        f"{end - count + 1} to {end}" if count > 1 else f"{end}" for end, (_, count) in zip(ends, networks, strict=True)
    ]
    return (
        "Layers "
        + ", ".join(f"{layer_range}: the {owner}" for layer_range, (owner, _) in zip(ranges, networks, strict=True))
        + "."
    )


def padded_log_range(series: Sequence[Series], min_ratio: float = 100.0) -> tuple[float, float] | None:
    """A logarithmic range that does not enlarge meaningless differences; None without positive values."""
    values = [v for s in series for v in s.y if math.isfinite(v) and v > 0]
    if not values:
        return None
    padding = max(1.0, math.sqrt(min_ratio * min(values) / max(values)))
    return min(values) / padding, max(values) * padding


def make_class_figure(data: Mapping[str, Any]) -> Figure | None:
    """Examples, pixels or boxes of each class in each split; with many classes, the most frequent ones."""
    class_names, counts = (
        data.get("class_names", ()),
        {split: c for split, c in data.get("class_counts", {}).items() if c},
    )
    if not class_names or not counts:
        return None
    if wrong := next((split for split, c in counts.items() if len(c) != len(class_names)), None):
        raise UsageError(
            f"run.json counts {len(counts[wrong])} classes of {wrong}, but names {len(class_names)}; the run's folder "
            "is damaged: train anew"
        )
    order = list(range(len(class_names)))
    note = ""
    if len(class_names) > MAX_CLASS_BARS:
        totals = [sum(c[k] for c in counts.values()) for k in order]
        order, note = (
            sorted(order, key=lambda k: -totals[k])[:MAX_CLASS_BARS],
            f"The {MAX_CLASS_BARS} most frequent of {len(class_names)} classes.",
        )
    groups = {split: [c[k] for k in order] for split, c in counts.items()}
    title = f"{COUNTED_ITEMS.get(data['task'], 'examples').capitalize()} per class"
    return Figure("classes", svg.draw_stacked_bars(title, [class_names[k] for k in order], groups), note)


def make_target_figure(predictions: Predictions | None, target_name: str) -> Figure | None:
    """The distribution of the targets of a regression."""
    if predictions is None or predictions.mean is None:
        return None
    return Figure(
        "target",
        svg.draw_chart(
            "The target",
            [_make_histogram_series("", predictions.y.double(), 0)],
            x=format_offset_name(target_name, predictions.target_offset),
            y="test examples",
        ),
    )


def _compute_histogram(values: Tensor, bins: int = 24) -> tuple[list[float], list[float], float]:
    """Centers, counts and width of equal bins."""
    low, high = float(values.min()), float(values.max())
    if high <= low:
        low, high = low - 0.5, high + 0.5
    counts = torch.histc(values.double(), bins, low, high)
    width = (high - low) / bins
    return [low + (k + 0.5) * width for k in range(bins)], counts.tolist(), width


def _make_histogram_series(name: str, values: Tensor, color: int | str = 0) -> Series:
    x, y, width = _compute_histogram(values[values.isfinite()]) if values.isfinite().any() else ([], [], 1.0)
    return Series(name, x, y, "bars", color, width=width)


def make_prediction_figures(predictions: Predictions) -> list[Figure]:
    if predictions.mean is not None:
        return _make_regression_figures(predictions)
    if predictions.task == "multilabel":
        return []
    figures = [_make_confusion_figure(predictions), _make_calibration_figure(predictions)]
    return (
        [*figures, make_roc_figure(predictions), _make_score_figure(predictions)]
        if len(predictions.class_names) == 2 and len(predictions.y.unique()) == 2
        else figures
    )


def count_confusions(predictions: Predictions) -> Tensor:
    assert predictions.probabilities is not None
    return metrics.confusion_matrix(
        predictions.probabilities.argmax(dim=1), predictions.y.long(), len(predictions.class_names)
    )


def _make_confusion_figure(predictions: Predictions) -> Figure:
    """Confusion matrix: blue where correct, by the fraction of the row; red where wrong, by the square root of the
    fraction of the most frequent confusion.
    """
    counts = count_confusions(predictions)
    share = counts / counts.sum(1, keepdim=True).clamp(min=1)
    max_error_share = float((share - share.diag().diag()).max()) or 1.0
    cells: list[list[Cell | None]] = [[None] * len(counts) for _ in counts]
    for i, j in counts.nonzero().tolist():
        s, n = float(share[i, j]), int(counts[i, j])
        hint = (
            f"{predictions.class_names[i]} predicted as {predictions.class_names[j]}: {n:,} ({100 * s:.1f} % of the "
            "class)"
        )
        cells[i][j] = (
            Cell(0.1 + 0.9 * s, f"{n:,}", hint)
            if i == j
            else Cell(0.08 + 0.55 * math.sqrt(s / max_error_share), f"{n:,}", hint, "wrong")
        )
    note = "Blue: correct. Red: wrong, stronger where a larger fraction of the true class went there."
    chart = svg.draw_heatmap(
        "Confusion matrix", cells, predictions.class_names, predictions.class_names, x="predicted", y="true"
    )
    return Figure("confusion", chart, note, is_wide=len(counts) > svg.MAX_NARROW_COLUMNS)


def list_confusions(predictions: Predictions, max_pairs: int = 7) -> list[tuple[str, str, int, float]]:
    """The most frequent confusions: true class, predicted class, count, fraction of the true class."""
    counts = count_confusions(predictions)
    errors = counts - counts.diag().diag()
    order = errors.flatten().argsort(descending=True)[:max_pairs].tolist()
    pairs = [divmod(k, len(counts)) for k in order if errors.flatten()[k]]
    return [
        (
            predictions.class_names[i],
            predictions.class_names[j],
            int(errors[i, j]),
            float(errors[i, j] / counts[i].sum()),
        )
        for i, j in pairs
    ]


def _make_calibration_figure(predictions: Predictions, bins: int = 15) -> Figure:
    assert predictions.probabilities is not None
    confidence, accuracy, bin_counts = (
        t.tolist() for t in metrics.calibration_curve(predictions.probabilities, predictions.y.long(), bins)
    )
    filled_bins = [k for k in range(bins) if bin_counts[k]]
    intervals = [wilson_interval(accuracy[k], bin_counts[k]) for k in filled_bins]  # few examples say little
    series = [
        Series(
            "fraction of examples",
            [(k + 0.5) / bins for k in range(bins)],
            [n / sum(bin_counts) for n in bin_counts],
            "bars",
            "s6",
            width=1 / bins,
        ),
        Series("ideal", [0.0, 1.0], [0.0, 1.0], color="soft", dashed=True),
        Series(
            "accuracy",
            [confidence[k] for k in filled_bins],
            [accuracy[k] for k in filled_bins],
            color=0,
            intervals=intervals,
        ),
    ]
    chart = svg.draw_chart("Calibration", series, x="confidence", x_range=(0, 1), y_range=(0, 1))
    return Figure(
        "calibration",
        chart,
        "Accuracy of predictions by their confidence; on the dashed line both are equal.",
    )


def make_roc_figure(predictions: Predictions) -> Figure:
    """ROC curve: true against false positive rate over thresholds; equal scores are one step."""
    assert predictions.probabilities is not None
    score, order = predictions.probabilities[:, 1].sort(descending=True)
    is_positive = predictions.y[order] == 1
    is_step_end = torch.cat([score.diff() != 0, torch.ones(1, dtype=torch.bool)])
    positive, negative = (
        torch.cat([torch.zeros(1), c.cumsum(0)[is_step_end] / c.sum()]).tolist()
        for c in (is_positive.double(), (~is_positive).double())
    )
    series = [
        Series("chance", [0.0, 1.0], [0.0, 1.0], color="soft", dashed=True),
        Series("model", negative, positive, color=0),
    ]
    title = f"ROC, “{predictions.class_names[1]}” as positive"
    return Figure(
        "roc",
        svg.draw_chart(title, series, x="false positive rate", y="true positive rate", x_range=(0, 1), y_range=(0, 1)),
    )


def _make_score_figure(predictions: Predictions, bins: int = 20) -> Figure:
    """Predicted probability of the positive class, for examples of either class."""
    assert predictions.probabilities is not None
    centers = [(k + 0.5) / bins for k in range(bins)]
    counts = [torch.histc(predictions.probabilities[predictions.y == k, 1], bins, 0, 1).tolist() for k in (0, 1)]
    series = [
        Series(f"true: {predictions.class_names[k]}", centers, counts[k], "bars", (1, 0)[k], width=1 / bins)
        for k in (0, 1)
    ]
    return Figure(
        "scores",
        svg.draw_chart(
            f"Probability of “{predictions.class_names[1]}”", series, x="probability", y="test examples", x_range=(0, 1)
        ),
    )


def _make_regression_figures(predictions: Predictions) -> list[Figure]:
    assert predictions.mean is not None
    y, mean = predictions.y.double(), predictions.mean
    indices = torch.linspace(0, len(y) - 1, min(MAX_SCATTER_DOTS, len(y))).long()
    corners = [float(y.min()), float(y.max())]
    intervals: list[tuple[float, float]] = []
    if predictions.std is not None:
        low, high = ((mean + sign * 1.959964 * predictions.std)[indices].tolist() for sign in (-1, 1))
        intervals = list(zip(low, high, strict=True))
    series = [
        Series("ideal", corners, corners, color="soft", dashed=True),
        Series(
            "test example" + (" with 95 % interval" if intervals else ""),
            y[indices].tolist(),
            mean[indices].tolist(),
            "dots",
            0,
            intervals,
        ),
    ]
    note = f"{MAX_SCATTER_DOTS:,} of {len(y):,} test examples, evenly spaced." if len(y) > MAX_SCATTER_DOTS else ""
    chart = svg.draw_chart(
        "Predicted vs. true",
        series,
        x=format_offset_name("true", predictions.target_offset),
        y=format_offset_name("predicted", predictions.target_offset),
    )
    figures = [Figure("predicted", chart, note)]
    residual = svg.draw_chart(
        "Residuals", [_make_histogram_series("", mean - y, 1)], x="predicted − true", y="test examples"
    )
    figures.append(Figure("residuals", residual, "Right of zero: predicted too high."))
    return figures
