"""How drawn images are judged while a model learns to draw: beside real ones, small; and by a referee, where there are labels."""

import torch.nn.functional as F
from torch import Tensor, nn

from didact.data.core import Batch
from didact.metrics.generative import frechet, inception_score, which_classes

SMALL = 8     # pixels of the thumbnails whose Fréchet distance is watched


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
