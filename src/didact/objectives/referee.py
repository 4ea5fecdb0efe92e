"""How drawn images are judged while a model learns to draw: beside real ones, small; and by a referee, where there are labels."""

import torch.nn.functional as F
from torch import Tensor, nn

from didact.data.core import Batch, Data
from didact.metrics.generative import frechet, inception_score, which_classes

SMALL = 8     # pixels of the thumbnails whose Fréchet distance is watched
AS_SEEN = ("class_coverage", "class_entropy", "rarest", "commonest", "evenness", "inception_score", "confidence")  # by a referee


def thumbnails(x: Tensor) -> Tensor:
    """Images as means over at most 8×8 tiles: (B, C, H, W) -> (B, C · 64)."""
    return F.adaptive_avg_pool2d(x, (min(SMALL, x.shape[2]), min(SMALL, x.shape[3]))).flatten(1)


def study(referee: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """The referee's own loss: real images, real labels, nothing of the model that draws."""
    return {"loss": F.cross_entropy(referee(batch["x"]), batch["y"])}


def side_by_side(referee: nn.Module | None, batch: Batch, drawn: Tensor) -> Batch:
    """Rows of real images and of those drawn beside them, with what the referee says of both."""
    x = batch["x"]
    rows = {"real": thumbnails(x), "drawn": thumbnails(drawn)}
    if referee is None:
        return rows
    p = referee(drawn).float().softmax(1)
    return rows | {"y": batch["y"], "right": referee(x).argmax(1) == batch["y"], "probabilities": p}


def verdict(rows: Batch, *, conditional: bool) -> dict[str, float]:
    """The Fréchet distance of thumbnails; where a referee looked, which classes it saw, how surely, and how good it is itself."""
    found = {"frechet": float(frechet(rows["real"], rows["drawn"]))}
    if "probabilities" not in rows:
        return found
    y, p = rows["y"], rows["probabilities"]
    guess, classes = p.argmax(1), p.shape[1]
    if conditional:
        found["as_asked"] = float((guess == y).double().mean())
    return found | which_classes(guess, y, classes) | {
        "inception_score": float(inception_score(p)),
        "confidence": float(p.double().max(1).values.mean()),
        "referee_accuracy": float(rows["right"].double().mean()),
    }


def about_scores(data: Data, *, referee: bool, conditional: bool, noises: int, first: bool = False) -> tuple[str, ...]:
    """What the scores of a model that draws are, told before the first step: of what, how many, of which split, by whom.

    An image, or a row, is drawn beside each real one, from so many `noises` in turn; or beside the `first` ones alone, one for each.
    A note begins with the names of its metrics, so that the report can set it below them.
    """
    test, validation = (min(noises, len(split)) if first else len(split) for split in (data.test, data.validation))
    counts = f"{test:,} drawn beside as many real ones of the test split (validation: {validation:,})"
    if max(test, validation) > noises:
        counts += f", from {noises:,} noises in turn"
    if data.kind == "table":
        return (f"frechet: of rows, their numbers brought to mean 0 and deviation 1, {counts}; it compares means and covariances alone",)
    width, height = (min(SMALL, n) for n in (data.shape[2], data.shape[1]))
    found = f"frechet: of {width}×{height} thumbnails, {counts}; didact sample RUN --judge CLASSIFIER has that of a classifier's features"
    if not referee:
        return (found,)
    names = ", ".join([*AS_SEEN, "as_asked"] if conditional else AS_SEEN)
    return found, f"{names}: by a referee, a small classifier that learns along; of the real ones it gets referee_accuracy right"
