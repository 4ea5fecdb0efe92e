"""Metrics, durations, arguments and sources as text."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from didact.charts.html import format_number
from didact.options import format_value

METRIC_NAMES = {
    "auroc": "AUROC", "f1": "F1", "r2": "R²", "rmse": "RMSE", "mae": "MAE", "nll": "NLL", "top5": "top-5 accuracy",
    "coverage_95": "coverage of 95 % intervals", "lr": "learning rate",
    "psnr": "PSNR, dB", "psnr_damaged": "PSNR of the damaged", "psnr_gain": "PSNR gained, dB", "ssim": "SSIM",
    "ssim_damaged": "SSIM of the damaged", "mean_iou": "mean IoU",
    "map50": "mAP@0.5", "map": "mAP@[.5:.95]", "bleu": "BLEU", "elbo": "ELBO",
    "rarest": "rarest class drawn", "commonest": "commonest class drawn",
    "evenness": "evenness of classes", "kl": "KL",
    "naive_mae": "MAE of the naive forecast", "naive_rmse": "RMSE of the naive forecast",
}
PERCENT_METRICS = {  # fractions that people say in percent
    "accuracy",
    "top5",
    "precision",
    "recall",
    "f1",
    "precision_macro",
    "recall_macro",
    "f1_macro",
    "coverage_95",
    "pixel_accuracy",
    "rarest",
    "commonest",
}
# of two classes; the means over all classes are precision_macro, …
SINGLE_CLASS_METRICS = ("precision", "recall", "f1")
# by which models are compared on the same rows
MAIN_METRICS = ("accuracy", "auroc", "rmse", "r2", "mae")
LOWER_IS_BETTER = {  # better when lower
    "loss",
    "rmse",
    "mae",
    "nll",
    "calibration_error",
    "perplexity",
    "bits_per_character",
    "bits_per_dim",
    "bits_per_code",
    "frechet",
    "reconstruction",
}

# what has a class, where it is not the whole example
COUNTED_ITEMS = {"segmentation": "pixels", "detection": "boxes", "tagging": "tags"}

# of the nats log p of a whole example
METRIC_FORMULAS = {"bits_per_dim": "−log p(x) / (D log 2)", "bits_per_code": "−log p(k) / (D log 2)"}

COURSE_TITLES = {
    "Gaba": "Gaba, Deep Learning (lecture notes 2025–2026)",
    "Groudiev": "Groudiev, class notes of the ENS course Deep Learning (2024)",
    "Van Schependom": "Van Schependom, course summary of DTU 02456 Deep Learning (2025)",
    "Fleuret": "Fleuret, The Little Book of Deep Learning (2023)",
    "Lhotte": "Lhotte, Deep Learning and NLP for Diagnosis (lecture notes 2025–2026)",
}


def has_frozen_layers(layers: Mapping[str, Any]) -> bool:
    """Whether some parameters are frozen and the table says which; older runs have the total only."""
    return layers.get("trainable", 0) < layers.get("total", 0) and all("trainable" in row for row in layers["rows"])


def format_epochs(num_epochs: float) -> str:
    """A number of epochs: 0.5, 11.6, 2,000."""
    return f"{num_epochs:.3g}" if num_epochs < 100 else f"{num_epochs:,.0f}"


def get_positive_class(metadata: Mapping[str, Any]) -> str:
    """The second of a run's two classes, which precision, recall and F1 refer to; empty unless there are two."""
    data = metadata.get("data", {})
    class_names: list[str] = data.get("class_names") or []
    return str(class_names[1]) if data.get("task") == "binary" and len(class_names) == 2 else ""


def format_metric_name(metric: str, positive_class: str = "") -> str:
    if metric.startswith("iou_"):
        return f"IoU of {metric[4:]}"
    if metric.endswith("_macro"):
        return f"{format_metric_name(metric.removesuffix('_macro'))} (macro)"
    if positive_class and metric in SINGLE_CLASS_METRICS:
        return f"{format_metric_name(metric)} (positive class: {positive_class})"
    return METRIC_NAMES.get(metric, metric.replace("_", " "))


def format_metric_value(metric: str, value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    if metric in PERCENT_METRICS:
        return f"{100 * value:.{2 if 0.99 < value < 0.99995 else 1}f} %"
    return f"{value:.4f}".replace("-", "−") if 1e-3 <= abs(value) < 10 else format_number(value)


def format_metric_formula(metric: str, scores: Mapping[str, float | None]) -> str:
    """How a metric follows from the log-likelihood beside it, with numbers; empty for other metrics."""
    nats, bits = scores.get("log_likelihood"), scores.get(metric)
    if metric not in METRIC_FORMULAS or not nats or not bits:
        return ""
    return f"{METRIC_FORMULAS[metric]} = {-nats:.2f} / ({-nats / (bits * math.log(2)):.0f} · 0.6931)"


def find_metric_note(metric: str, notes: Iterable[str]) -> str:
    """The note about a metric among a run's notes ("this_one, that_one: …"); empty if there is none."""
    parts = (note.partition(": ") for note in notes)
    return next((text for names, _, text in parts if metric in names.split(", ")), "")


def select_metric_notes(metrics: Iterable[str], notes: Iterable[str]) -> list[str]:
    """Notes about any of these metrics, each once."""
    metrics = set(metrics)
    return [note for note in dict.fromkeys(notes) if metrics & set(note.partition(": ")[0].split(", "))]


def find_best(metric: str, values: Mapping[Any, float | None]) -> set[Any]:
    """Which have the best finite value; None is an undefined metric."""
    finite = {key: value for key, value in values.items() if value is not None and math.isfinite(value)}
    best_value = (min if metric in LOWER_IS_BETTER else max)(finite.values(), default=None)
    return {key for key, value in finite.items() if value == best_value}


def format_duration(seconds: float) -> str:
    """0.4 s, 12 s, 2 min 05 s, 1 h 02 min."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {remainder:02d} s"


def format_argument(value: Any) -> str:
    """An argument as one would type it; a dash for none."""
    return "–" if value is None or value == [] or value == () else format_value(value)


def wilson_interval(fraction: float, n: int) -> tuple[float, float]:
    """95 % interval of a fraction of n.  Wilson 1927: it stays within 0 … 1, and has a width where all n are correct.
    """
    z = 1.959964
    center = (fraction + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(fraction * (1 - fraction) / n + z * z / (4 * n * n))
    return center - half, center + half


def format_citation(source: str) -> str:
    """`Gaba 2.8` -> Gaba, Deep Learning (lecture notes 2025–2026), section 2.8; other sources stay as they are."""
    match = re.fullmatch(r"(\D+?) (Ex )?([\d.]+)", source)
    if not match or match[1] not in COURSE_TITLES:
        return source
    unit = "exercise" if match[2] else "section" if "." in match[3] else "chapter"
    return f"{COURSE_TITLES[match[1]]}, {unit} {match[3]}"
