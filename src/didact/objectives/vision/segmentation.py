"""Semantic segmentation: cross-entropy over pixels, and Dice loss, which weighs small and large regions alike."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact import metrics
from didact.data.core import IGNORE_LABEL, Batch
from didact.objectives.base import Objective


def dice_loss(logits: Tensor, y: Tensor) -> Tensor:
    """Dice loss 1 − mean_k 2 Σ p g / (Σ p + Σ g) over the classes k of each mask: (B, K, H, W), (B, H, W) -> (B,).

    Milletari et al. 2016, eq. 3, with p in place of p². For p in {0, 1} it is 1 − the mean Dice score. A class that is
    not in the mask is left out: its score is 0 however small p is, a step that has no gradient; what it takes from the
    other classes counts there. Pixels with IGNORE_LABEL belong to neither side.
    """
    p = logits.float().softmax(dim=1) * (y != IGNORE_LABEL)[:, None]
    g = (y[:, None] == torch.arange(logits.shape[1], device=y.device).view(-1, 1, 1)).float()   # (B, K, H, W)
    intersection, sizes, present = (p * g).sum((2, 3)), p.sum((2, 3)) + g.sum((2, 3)), g.amax((2, 3))
    loss = (1 - 2 * intersection / sizes.clamp(min=1e-12)) * present
    # 0 for a mask without any known pixel
    return loss.sum(1) / present.sum(1).clamp(min=1)


def _pixel_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """The mean of −log p(y | x) over the labeled pixels: (B, K, H, W), (B, H, W) -> (B,)."""
    ce = F.cross_entropy(logits, y, reduction="none", ignore_index=IGNORE_LABEL)
    return ce.sum((1, 2)) / (y != IGNORE_LABEL).sum((1, 2)).clamp(min=1)


class SegmentationObjective(Objective):
    """min of mean over pixels of −log p(y | x), plus w (1 − Dice).  Fleuret 6.4, Gaba 12.1.2.

    Evaluation keeps confusion matrices, K² numbers per image, instead of masks: those of a split add up.
    """

    monitor, mode = "mean_iou", "max"

    def __init__(self, network: nn.Module, class_names: tuple[str, ...], *, dice_weight: float = 1.0):
        super().__init__()
        self.network, self.class_names, self.dice_weight = network, class_names, dice_weight

    def loss_parts(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy and Dice loss of each example."""
        return _pixel_cross_entropy(logits, y), dice_loss(logits, y)

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        ce, dice_term = (part.mean() for part in self.loss_parts(self.network(batch["x"]), batch["y"].long()))
        return {"loss": ce + self.dice_weight * dice_term, "cross_entropy": ce, "dice_loss": dice_term}

    def evaluate_batch(self, batch: Batch) -> Batch:
        logits, y = self.network(batch["x"]), batch["y"].long()
        ce, dice_term = self.loss_parts(logits, y)
        return {
            "loss": ce + self.dice_weight * dice_term,
            "confusion": metrics.confusion_matrices(logits.argmax(1), y, len(self.class_names)),
        }

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        confusion = outputs["confusion"].sum(0)
        scores = {
            "mean_iou": metrics.mean_iou(confusion),
            "pixel_accuracy": metrics.pixel_accuracy(confusion),
            "dice": metrics.dice(confusion).nanmean(),
        }
        iou_per_class = {
            f"iou_{label}": iou for label, iou in zip(self.class_names, metrics.iou(confusion), strict=True)
        }
        return super().compute_metrics(outputs) | {
            name: float(value) for name, value in (scores | iou_per_class).items()
        }

    def report_examples(self, batch: Batch) -> Batch:
        return {"mask": self.network(batch["x"]).argmax(1).byte(), "true_mask": batch["y"].byte()}

    def segment(self, batch: Batch) -> Tensor:
        return torch.softmax(self.network(batch["x"]).float(), dim=1)
