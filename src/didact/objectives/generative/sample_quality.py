"""How drawn images are judged while a model learns to draw: beside real ones, small; and by a referee, where there
are labels."""

import torch.nn.functional as F
from torch import Tensor, nn

from didact.data.core import Batch, Data
from didact.metrics.generative import class_metrics, gaussian_frechet_distance, inception_score

THUMBNAIL_SIZE_PX = 8     # pixels of the thumbnails whose Fréchet distance is watched
# by a referee
REFEREE_METRICS = (
    "class_coverage",
    "class_entropy",
    "rarest",
    "commonest",
    "evenness",
    "inception_score",
    "confidence",
)


def make_thumbnails(x: Tensor) -> Tensor:
    """Images as means over at most 8×8 tiles: (B, C, H, W) -> (B, C · 64)."""
    return F.adaptive_avg_pool2d(x, (min(THUMBNAIL_SIZE_PX, x.shape[2]), min(THUMBNAIL_SIZE_PX, x.shape[3]))).flatten(1)


def classifier_loss(referee: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """The referee's own loss: real images, real labels, nothing of the model that draws."""
    return {"loss": F.cross_entropy(referee(batch["x"]), batch["y"])}


def compare_with_real(referee: nn.Module | None, batch: Batch, samples: Tensor) -> Batch:
    """Rows of real images and of those drawn beside them, with what the referee says of both."""
    x = batch["x"]
    outputs = {"real": make_thumbnails(x), "drawn": make_thumbnails(samples)}
    if referee is None:
        return outputs
    probabilities = referee(samples).float().softmax(1)
    return outputs | {"y": batch["y"], "right": referee(x).argmax(1) == batch["y"], "probabilities": probabilities}


def sample_quality_metrics(outputs: Batch, *, conditional: bool) -> dict[str, float]:
    """The Fréchet distance of thumbnails; where a referee looked, which classes it saw, how surely, and how good it
    is itself."""
    scores = {"frechet": float(gaussian_frechet_distance(outputs["real"], outputs["drawn"]))}
    if "probabilities" not in outputs:
        return scores
    y, probabilities = outputs["y"], outputs["probabilities"]
    predicted, num_classes = probabilities.argmax(1), probabilities.shape[1]
    if conditional:
        scores["as_asked"] = float((predicted == y).double().mean())
    return scores | class_metrics(predicted, y, num_classes) | {
        "inception_score": float(inception_score(probabilities)),
        "confidence": float(probabilities.double().max(1).values.mean()),
        "referee_accuracy": float(outputs["right"].double().mean()),
    }


def metric_notes(
    data: Data, *, referee: bool, conditional: bool, num_noises: int, only_first: bool = False
) -> tuple[str, ...]:
    """What the scores of a model that draws are, told before the first step: of what, how many, of which split, by
    whom.

    An image, or a row, is drawn beside each real one, from so many `noises` in turn; or beside the `first` ones
    alone, one for each.
    A note begins with the names of its metrics, so that the report can set it below them.
    """
    num_test, num_validation = (
        min(num_noises, len(split)) if only_first else len(split) for split in (data.test, data.validation)
    )
    counts = f"{num_test:,} drawn beside as many real ones of the test split (validation: {num_validation:,})"
    if max(num_test, num_validation) > num_noises:
        counts += f", from {num_noises:,} noises in turn"
    if data.kind == "table":
        return (
            f"frechet: of rows, their numbers brought to mean 0 and deviation 1, {counts}; it compares means and "
            "covariances alone",
        )
    width, height = (min(THUMBNAIL_SIZE_PX, n) for n in (data.shape[2], data.shape[1]))
    frechet_note = (
        f"frechet: of {width}×{height} thumbnails, {counts}; didact sample RUN --classifier RUN has that of a "
        "classifier's features"
    )
    if not referee:
        return (frechet_note,)
    names = ", ".join([*REFEREE_METRICS, "as_asked"] if conditional else REFEREE_METRICS)
    return (
        frechet_note,
        f"{names}: by a referee, a small classifier that learns along; of the real ones it gets referee_accuracy right",
    )
