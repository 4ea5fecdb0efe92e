"""Object detection: SSD and YOLO losses, anchors matched to boxes, and non-maximum suppression.

Shapes are fixed and no loop goes image by image: matching compares all anchors with all boxes of the batch.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact import metrics
from didact.data.core import Batch
from didact.layers.conv.anchors import decode_boxes, encode_boxes, generalized_iou, match_anchors, shape_iou, to_corners
from didact.layers.nms import batched_nms
from didact.objectives.base import Objective


class DetectionObjective(Objective):
    """min of classification and localization losses; evaluated by mean average precision.  Fleuret 6.3, Gaba 12.1.1."""

    monitor, mode = "map50", "max"

    def __init__(self, network: nn.Module, class_names: tuple[str, ...], *, nms_iou: float = 0.5):
        super().__init__()
        self.network, self.class_names, self.nms_iou = network, class_names, nms_iou

    @property
    def anchors(self) -> Tensor:
        anchors: Tensor = self.network.anchors  # type: ignore[assignment]
        return anchors

    def loss_parts(self, out: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The weighted parts of each example's loss, by name: (B,) each."""
        raise NotImplementedError

    def decode_predictions(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes (B, A, 4) and class scores (B, A, K)."""
        raise NotImplementedError

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        parts = {name: part.mean() for name, part in self.loss_parts(self.network(batch["x"]).float(), batch).items()}
        return {"loss": torch.stack(list(parts.values())).sum(), **parts}

    def evaluate_batch(self, batch: Batch) -> Batch:
        out = self.network(batch["x"]).float()
        truth = torch.cat([batch["box"], batch["y"][..., None]], dim=2)
        return {
            "loss": torch.stack(list(self.loss_parts(out, batch).values())).sum(0),
            "detected": self.select_detections(out),
            "truth": truth,
        }

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        ap = metrics.average_precision(outputs["detected"], outputs["truth"], len(self.class_names))
        ap_per_class = {f"ap50_{label}": float(value) for label, value in zip(self.class_names, ap[0], strict=True)}
        return (
            super().compute_metrics(outputs)
            | {"map50": float(ap[0].nanmean()), "map": float(ap.nanmean())}
            | ap_per_class
        )

    def select_detections(self, out: Tensor) -> Tensor:
        return batched_nms(*self.decode_predictions(out), nms_iou=self.nms_iou)

    def detect(self, batch: Batch) -> Tensor:
        return self.select_detections(self.network(batch["x"]).float())


def _gather_matched(values: Tensor, match_index: Tensor) -> Tensor:
    """The values of each anchor's matched box: (B, M, n), (B, A) -> (B, A, n)."""
    return values.gather(1, match_index[..., None].expand(-1, -1, values.shape[2]))


def hard_negative_mask(loss: Tensor, excluded: Tensor, count: Tensor) -> Tensor:
    """Hard negative mining: the `count` largest losses of each row that are not excluded, ties included.

    (B, A), (B, A), (B,) -> (B, A).
    """
    candidate_loss = loss.masked_fill(excluded, -1.0)
    threshold = candidate_loss.sort(dim=1, descending=True).values.gather(
        1, (count[:, None] - 1).clamp(max=loss.shape[1] - 1)
    )
    return (candidate_loss >= threshold) & ~excluded


class SSDObjective(DetectionObjective):
    """L = (Σ_pos smooth_L1(t − t*) + Σ_pos CE + Σ_hard CE) / N for N positive anchors.  Liu 2016, eq. 1.

    Hard are the 3 N negative anchors with the largest losses. N is counted per image, and is at least 1, so that an
    image without objects still gives negatives.
    """

    def __init__(
        self, network: nn.Module, class_names: tuple[str, ...], *, nms_iou: float = 0.5, negatives_per_positive: int = 3
    ):
        super().__init__(network, class_names, nms_iou=nms_iou)
        self.negatives_per_positive = negatives_per_positive

    def loss_parts(self, out: Tensor, batch: Batch) -> dict[str, Tensor]:
        offsets, scores = out[..., :4], out[..., 4:]
        y, box = batch["y"], batch["box"]
        # (B, A)
        match_index, is_positive = match_anchors(self.anchors, box, y >= 0)
        target = torch.where(is_positive, y.gather(1, match_index), len(self.class_names))
        ce = F.cross_entropy(scores.transpose(1, 2), target, reduction="none")
        num_positive = is_positive.sum(1).clamp(min=1)
        hard_negatives = hard_negative_mask(ce.detach(), is_positive, self.negatives_per_positive * num_positive)
        box_loss = F.smooth_l1_loss(
            offsets, encode_boxes(_gather_matched(box, match_index), self.anchors), reduction="none"
        ).sum(2)
        return {
            "box": (box_loss * is_positive).sum(1) / num_positive,
            "class": (ce * (is_positive | hard_negatives)).sum(1) / num_positive,
        }

    def decode_predictions(self, out: Tensor) -> tuple[Tensor, Tensor]:
        return decode_boxes(out[..., :4], self.anchors), out[..., 4:].softmax(2)[..., :-1]


class YOLOObjective(DetectionObjective):
    """L = (λ_box Σ_pos (1 − GIoU) + Σ BCE(p_obj, IoU) + Σ_pos CE) / N, N anchors of the cells with an object's center.

    Redmon et al. 2016, eq. 3, with its squared errors replaced as in later versions; λ_noobj = ½ weighs anchors without
    an object. Of a cell's anchors those shaped like the object are responsible for it (IoU of the sizes at least ½, or
    the largest).  Gaba 12.1.1.
    """

    def __init__(
        self,
        network: nn.Module,
        class_names: tuple[str, ...],
        *,
        nms_iou: float = 0.5,
        box_weight: float = 2.0,
        noobj_weight: float = 0.5,
    ):
        super().__init__(network, class_names, nms_iou=nms_iou)
        self.box_weight, self.noobj_weight = box_weight, noobj_weight

    def decode_boxes(self, out: Tensor) -> Tensor:
        """b_xy = c_xy + σ(t_xy) cell, b_wh = p_wh exp(t_wh).  Redmon & Farhadi 2017, sec. 2."""
        cell: Tensor = self.network.cell  # type: ignore[assignment]
        center = self.anchors[:, :2] + (out[..., :2].sigmoid() - 0.5) * cell
        return to_corners(torch.cat([center, self.anchors[:, 2:] * out[..., 2:4].clamp(max=4.0).exp()], dim=-1))

    def assign_anchors(self, box: Tensor, is_box: Tensor) -> tuple[Tensor, Tensor]:
        """Each anchor's box, and whether it has one: (B, M, 4), (B, M) -> (B, A) twice."""
        cell: Tensor = self.network.cell  # type: ignore[assignment]
        center, size = (box[..., :2] + box[..., 2:]) / 2, box[..., 2:] - box[..., :2]
        # (A, 2): column and row
        anchor_cell = (self.anchors[:, :2] / cell).floor()
        box_cell = (center.clamp(max=1 - 1e-6) / cell).floor()                                   # (B, M, 2)
        same_cell = (anchor_cell[:, None] == box_cell[:, None]).all(-1) & is_box[:, None]                   # (B, A, M)
        iou = shape_iou(self.anchors[:, 2:], size).masked_fill(~same_cell, -1.0)
        assigned = same_cell & ((iou >= 0.5) | (iou == iou.amax(1, keepdim=True)))
        best_iou, match_index = iou.masked_fill(~assigned, -1.0).max(2)
        return match_index, best_iou >= 0

    def loss_parts(self, out: Tensor, batch: Batch) -> dict[str, Tensor]:
        y, box = batch["y"], batch["box"]
        match_index, is_positive = self.assign_anchors(box, y >= 0)
        num_positive = is_positive.sum(1).clamp(min=1)
        boxes, matched = self.decode_boxes(out), _gather_matched(box, match_index)
        giou = torch.where(is_positive, generalized_iou(boxes, matched), 1.0)
        iou = torch.where(is_positive, _elementwise_iou(boxes.detach(), matched), 0.0)
        objectness = F.binary_cross_entropy_with_logits(out[..., 4], iou, reduction="none")
        ce = F.cross_entropy(out[..., 5:].transpose(1, 2), y.gather(1, match_index).clamp(min=0), reduction="none")
        return {
            "box": self.box_weight * (1 - giou).sum(1) / num_positive,
            "objectness": (objectness * torch.where(is_positive, 1.0, self.noobj_weight)).sum(1) / num_positive,
            "class": (ce * is_positive).sum(1) / num_positive,
        }

    def decode_predictions(self, out: Tensor) -> tuple[Tensor, Tensor]:
        return self.decode_boxes(out), out[..., 4:5].sigmoid() * out[..., 5:].softmax(2)


def _elementwise_iou(a: Tensor, b: Tensor) -> Tensor:
    """IoU of each pair of rows."""
    return metrics.box_iou(a[..., None, :], b[..., None, :])[..., 0, 0]
