"""Names and values of metrics, durations, arguments and sources, as a person reads them."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from didact.options import written
from didact.report.markup import number

NAMES = {
    "auroc": "AUROC", "f1": "F1", "r2": "R²", "rmse": "RMSE", "mae": "MAE", "nll": "NLL", "top5": "top-5 accuracy",
    "coverage_95": "coverage of 95 % intervals", "lr": "learning rate",
    "psnr": "PSNR, dB", "psnr_damaged": "PSNR of the damaged", "psnr_gain": "PSNR gained, dB", "ssim": "SSIM",
    "ssim_damaged": "SSIM of the damaged", "mean_iou": "mean IoU",
    "map50": "mAP@0.5", "map": "mAP@[.5:.95]", "bleu": "BLEU", "elbo": "ELBO",
    "rarest": "rarest class drawn", "commonest": "commonest class drawn",
    "evenness": "evenness of classes", "kl": "KL",
    "ahead": "true words ahead of noise",
    "naive_mae": "MAE of the naive forecast", "naive_rmse": "RMSE of the naive forecast",
}
SHARES = {  # fractions that people say in percent
    "accuracy", "ahead", "top5", "precision", "recall", "f1", "precision_macro", "recall_macro", "f1_macro", "coverage_95",
    "pixel_accuracy", "rarest", "commonest",
}
OF_ONE_CLASS = ("precision", "recall", "f1")   # of two classes; the means over all classes are precision_macro, …
LOWER = {  # better when lower
    "loss", "rmse", "mae", "nll", "calibration_error", "perplexity", "bits_per_character", "bits_per_dim", "bits_per_code", "frechet",
    "reconstruction",
}

COUNTS = {"segmentation": "pixels", "detection": "boxes", "tagging": "tags"}   # what has a class, where it is not the whole example

FORMULAS = {"bits_per_dim": "−log p(x) / (D log 2)", "bits_per_code": "−log p(k) / (D log 2)"}   # of the nats log p of a whole example

COURSES = {
    "Gaba": "Gaba, Deep Learning (lecture notes 2025–2026)",
    "Groudiev": "Groudiev, class notes of the ENS course Deep Learning (2024)",
    "Van Schependom": "Van Schependom, course summary of DTU 02456 Deep Learning (2025)",
    "Fleuret": "Fleuret, The Little Book of Deep Learning (2023)",
    "Lhotte": "Lhotte, Deep Learning and NLP for Diagnosis (lecture notes 2025–2026)",
}


def some_stay(layers: Mapping[str, Any]) -> bool:
    """Whether a network keeps some of its numbers as they are, and its table says which; older runs tell the sum alone."""
    return layers.get("trainable", 0) < layers.get("total", 0) and all("trainable" in row for row in layers["rows"])


def epochs(passes: float) -> str:
    """How many, or which: 0.5, 11.6, 2,000."""
    return f"{passes:.3g}" if passes < 100 else f"{passes:,.0f}"


def positive_class(facts: Mapping[str, Any]) -> str:
    """The second of a run's two classes, which precision, recall and F1 are of; empty where there are not two."""
    data = facts.get("data", {})
    labels: list[str] = data.get("labels") or []
    return str(labels[1]) if data.get("task") == "binary" and len(labels) == 2 else ""


def metric_name(metric: str, positive: str = "") -> str:
    if metric.startswith("iou_"):
        return f"IoU of {metric[4:]}"
    if metric.endswith("_macro"):
        return f"{metric_name(metric.removesuffix('_macro'))} (macro)"
    if positive and metric in OF_ONE_CLASS:
        return f"{metric_name(metric)} (positive class: {positive})"
    return NAMES.get(metric, metric.replace("_", " "))


def metric_value(metric: str, value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    if metric in SHARES:
        return f"{100 * value:.{2 if 0.99 < value < 0.99995 else 1}f} %"
    return f"{value:.4f}".replace("-", "−") if 1e-3 <= abs(value) < 10 else number(value)


def formula(metric: str, scores: Mapping[str, float | None]) -> str:
    """How a metric follows from the log-likelihood beside it, with the numbers; nothing where it is not so made."""
    nats, bits = scores.get("log_likelihood"), scores.get(metric)
    if metric not in FORMULAS or not nats or not bits:
        return ""
    return f"{FORMULAS[metric]} = {-nats:.2f} / ({-nats / (bits * math.log(2)):.0f} · 0.6931)"


def about(metric: str, notes: Iterable[str]) -> str:
    """What a run's notes say of a metric, "this_one, that_one: …"; nothing where none begins with its name."""
    split = (note.partition(": ") for note in notes)
    return next((words for names, _, words in split if metric in names.split(", ")), "")


def said_of(metrics: Iterable[str], notes: Iterable[str]) -> list[str]:
    """The notes that speak of one of these metrics, each once: a name may stand for numbers that cannot be compared."""
    metrics = set(metrics)
    return [note for note in dict.fromkeys(notes) if metrics & set(note.partition(": ")[0].split(", "))]


def best(metric: str, values: Mapping[Any, float | None]) -> set[Any]:
    """Who has the best finite value, shared or alone; None is a metric that was not defined."""
    known = {key: value for key, value in values.items() if value is not None and math.isfinite(value)}
    top = (min if metric in LOWER else max)(known.values(), default=None)
    return {key for key, value in known.items() if value == top}


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def argument(value: Any) -> str:
    """An argument as one would type it; a dash where nothing is set."""
    return "–" if value is None or value == [] or value == () else written(value)


def interval(share: float, n: int) -> tuple[float, float]:
    """95 % interval of a share among n.  Wilson 1927: it stays within 0 … 1, and is no point where all n are right."""
    z = 1.959964
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return centre - half, centre + half


def citation(source: str) -> str:
    """`Gaba 2.8` -> Gaba, Deep Learning (lecture notes 2025–2026), section 2.8; what no course is called stays as it is."""
    found = re.fullmatch(r"(\D+?) (Ex )?([\d.]+)", source)
    if not found or found[1] not in COURSES:
        return source
    part = "exercise" if found[2] else "section" if "." in found[3] else "chapter"
    return f"{COURSES[found[1]]}, {part} {found[3]}"
