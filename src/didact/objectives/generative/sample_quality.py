"""Sample quality during training: Fréchet distance of thumbnails, and a referee classifier where there are labels."""

import torch.nn.functional as F
from torch import Tensor, nn

from didact.data.core import Batch, Data
from didact.metrics.generative import class_metrics, gaussian_frechet_distance, inception_score

_THUMBNAIL_SIZE_PX = 8     # side of the thumbnails
_REFEREE_METRICS = (
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
    height, width = (min(_THUMBNAIL_SIZE_PX, side) for side in x.shape[2:])
    return F.adaptive_avg_pool2d(x, (height, width)).flatten(1)


def classifier_loss(referee: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """The referee's own loss: real images and labels, nothing of the generative model."""
    return {"loss": F.cross_entropy(referee(batch["x"]), batch["y"])}


def compare_with_real(referee: nn.Module | None, batch: Batch, samples: Tensor) -> Batch:
    """Thumbnails of real images and of samples, and what the referee says of both."""
    x = batch["x"]
    outputs = {"real": make_thumbnails(x), "sampled": make_thumbnails(samples)}
    if referee is None:
        return outputs
    probabilities = referee(samples).float().softmax(1)
    referee_correct = referee(x).argmax(1) == batch["y"]
    return outputs | {"y": batch["y"], "referee_correct": referee_correct, "probabilities": probabilities}


def sample_quality_metrics(outputs: Batch, *, conditional: bool) -> dict[str, float]:
    """The Fréchet distance of thumbnails; with a referee, the classes it sees, its confidence and its own accuracy."""
    scores = {"frechet": float(gaussian_frechet_distance(outputs["real"], outputs["sampled"]))}
    if "probabilities" not in outputs:
        return scores
    y, probabilities = outputs["y"], outputs["probabilities"]
    predicted, num_classes = probabilities.argmax(1), probabilities.shape[1]
    if conditional:
        scores["class_accuracy"] = float((predicted == y).double().mean())
    return scores | class_metrics(predicted, y, num_classes) | {
        "inception_score": float(inception_score(probabilities)),
        "confidence": float(probabilities.double().max(1).values.mean()),
        "referee_accuracy": float(outputs["referee_correct"].double().mean()),
    }


def metric_notes(
    data: Data, *, referee: bool, conditional: bool, num_noises: int, only_first: bool = False
) -> tuple[str, ...]:
    """What the metrics of samples mean: of what, how many, of which split. Printed before the first step.

    Each real image or row is compared with a sample, from `num_noises` noise vectors in turn; or only the first ones
    are (`only_first`), each with a noise of its own. A note begins with the names of its metrics, so that the report
    can put it below them.
    """
    num_test, num_validation = (
        min(num_noises, len(split)) if only_first else len(split) for split in (data.test, data.validation)
    )
    counts = f"{num_test:,} samples against as many real examples of the test split (validation: {num_validation:,})"
    if max(num_test, num_validation) > num_noises:
        counts += f", from {num_noises:,} noise vectors in turn"
    if data.kind == "table":
        return (
            f"frechet: of standardized rows, {counts}; it compares means and covariances only",
        )
    width, height = (min(_THUMBNAIL_SIZE_PX, n) for n in (data.shape[2], data.shape[1]))
    frechet_note = (
        f"frechet: of {width}×{height} thumbnails, {counts}; didact sample RUN --classifier RUN computes it in "
        "a classifier's features (FID)"
    )
    if not referee:
        return (frechet_note,)
    names = ", ".join([*_REFEREE_METRICS, "class_accuracy"] if conditional else _REFEREE_METRICS)
    return (
        frechet_note,
        f"{names}: by a referee, a small classifier trained alongside; its accuracy on real images is referee_accuracy",
    )
