"""What is where: boxes matched to anchors or cells, how far off they are, and of repeated answers the best alone.

Shapes are fixed and nothing goes image by image: matching is a comparison of all anchors with all boxes of the batch.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact import metrics
from didact.data.core import Batch
from didact.layers.anchors import corners, decode, encode, generalised_iou, match, shape_iou
from didact.metrics.detection import staying
from didact.objectives.core import Objective

KEPT = 100         # detections of an image, as COCO counts
CONSIDERED = 400   # the best of all anchors and classes, among which repeats are looked for
FAINTEST = 0.01    # score below which nothing is told


def best_of_repeats(boxes: Tensor, scores: Tensor, *, overlap: float = 0.5) -> Tensor:
    """The detections of each image, best first: (B, A, 4), (B, A, K) -> (B, 100, 6) of box, score, class; class −1 fills up.

    An anchor may answer for several classes; of one class, each box that overlaps a better one by more than `overlap` goes.
    """
    K = scores.shape[2]
    score, index = scores.flatten(1).topk(min(CONSIDERED, scores[0].numel()))                  # (B, P)
    box = boxes.gather(1, (index // K)[..., None].expand(-1, -1, 4)).clamp(0, 1)
    label = index % K
    stays = (staying(box, label, threshold=overlap) & (score >= FAINTEST))[..., None]
    found = torch.cat([box * stays, score[..., None] * stays, torch.where(stays, label[..., None], -1)], dim=2)
    order = (~stays).byte().argsort(dim=1, stable=True)[:, :KEPT]                              # those that stay come first, as they were
    found = found.gather(1, order.expand(-1, -1, 6))
    return F.pad(found, (0, 0, 0, KEPT - found.shape[1]), value=-1.0)                          # a toy has fewer anchors than that


class Detect(Objective):
    """min of what is wrong with the classes and places of boxes; judged by mean average precision.  Fleuret 6.3, Gaba 12.1.1."""

    watch, better = "map50", "higher"

    def __init__(self, network: nn.Module, labels: tuple[str, ...], *, overlap: float = 0.5):
        super().__init__()
        self.network, self.labels, self.overlap = network, labels, overlap

    @property
    def anchors(self) -> Tensor:
        anchors: Tensor = self.network.anchors  # type: ignore[assignment]
        return anchors

    def parts(self, out: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The named parts of the loss of each example, already weighed: (B,) each."""
        raise NotImplementedError

    def answers(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes (B, A, 4) and the score of each class (B, A, K)."""
        raise NotImplementedError

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        parts = {name: part.mean() for name, part in self.parts(self.network(batch["x"]).float(), batch).items()}
        return {"loss": torch.stack(list(parts.values())).sum(), **parts}

    def judge(self, batch: Batch) -> Batch:
        out = self.network(batch["x"]).float()
        truth = torch.cat([batch["box"], batch["y"][..., None]], dim=2)
        return {"loss": torch.stack(list(self.parts(out, batch).values())).sum(0), "detected": self.told(out), "truth": truth}

    def score(self, rows: Batch) -> dict[str, float]:
        ap = metrics.average_precision(rows["detected"], rows["truth"], len(self.labels))
        each = {f"ap50_{label}": float(value) for label, value in zip(self.labels, ap[0], strict=True)}
        return super().score(rows) | {"map50": float(ap[0].nanmean()), "map": float(ap.nanmean())} | each

    def told(self, out: Tensor) -> Tensor:
        return best_of_repeats(*self.answers(out), overlap=self.overlap)

    def detect(self, batch: Batch) -> Tensor:
        return self.told(self.network(batch["x"]).float())


def of_owner(values: Tensor, owner: Tensor) -> Tensor:
    """What each anchor's own box has: (B, M, n), (B, A) -> (B, A, n)."""
    return values.gather(1, owner[..., None].expand(-1, -1, values.shape[2]))


def hardest(loss: Tensor, taken: Tensor, count: Tensor) -> Tensor:
    """The `count` largest losses of each row among those not taken, ties included: (B, A), (B, A), (B,) -> (B, A)."""
    free = loss.masked_fill(taken, -1.0)
    least = free.sort(dim=1, descending=True).values.gather(1, (count[:, None] - 1).clamp(max=loss.shape[1] - 1))
    return (free >= least) & ~taken


class SSDDetect(Detect):
    """L = (Σ_pos smooth_L1(t − t*) + Σ_pos CE + Σ_hard CE) / N, over N anchors with a thing and the 3 N hardest without.  Liu 2016, eq. 1.

    N is counted image by image, and never as 0: an image with nothing on it teaches what nothing looks like.
    """

    def __init__(self, network: nn.Module, labels: tuple[str, ...], *, overlap: float = 0.5, negatives: int = 3):
        super().__init__(network, labels, overlap=overlap)
        self.negatives = negatives

    def parts(self, out: Tensor, batch: Batch) -> dict[str, Tensor]:
        offsets, scores = out[..., :4], out[..., 4:]
        y, box = batch["y"], batch["box"]
        owner, pos = match(self.anchors, box, y >= 0)                                          # (B, A)
        target = torch.where(pos, y.gather(1, owner), len(self.labels))
        ce = F.cross_entropy(scores.transpose(1, 2), target, reduction="none")
        N = pos.sum(1).clamp(min=1)
        mined = hardest(ce.detach(), pos, self.negatives * N)
        off = F.smooth_l1_loss(offsets, encode(of_owner(box, owner), self.anchors), reduction="none").sum(2)
        return {"place": (off * pos).sum(1) / N, "class": (ce * (pos | mined)).sum(1) / N}

    def answers(self, out: Tensor) -> tuple[Tensor, Tensor]:
        return decode(out[..., :4], self.anchors), out[..., 4:].softmax(2)[..., :-1]


class YOLODetect(Detect):
    """L = (λ_box Σ_pos (1 − GIoU) + Σ BCE(p_obj, IoU) + Σ_pos CE) / N, over N anchors of the cells that hold a thing's centre.

    Redmon et al. 2016, eq. 3, with its squared errors replaced as in later versions; λ_noobj = ½ weighs cells that hold nothing.
    Of a cell's anchors those shaped like the thing answer for it (IoU of the sizes at least ½, or the best).  Gaba 12.1.1.
    """

    def __init__(self, network: nn.Module, labels: tuple[str, ...], *, overlap: float = 0.5, place: float = 2.0, nothing: float = 0.5):
        super().__init__(network, labels, overlap=overlap)
        self.place, self.nothing = place, nothing

    def boxes(self, out: Tensor) -> Tensor:
        """b_xy = c_xy + σ(t_xy) cell, b_wh = p_wh exp(t_wh).  Redmon & Farhadi 2017, sec. 2."""
        cell: Tensor = self.network.cell  # type: ignore[assignment]
        centre = self.anchors[:, :2] + (out[..., :2].sigmoid() - 0.5) * cell
        return corners(torch.cat([centre, self.anchors[:, 2:] * out[..., 2:4].clamp(max=4.0).exp()], dim=-1))

    def responsible(self, box: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Which box each anchor answers for, and whether for any: (B, M, 4), (B, M) -> (B, A) twice."""
        cell: Tensor = self.network.cell  # type: ignore[assignment]
        centre, size = (box[..., :2] + box[..., 2:]) / 2, box[..., 2:] - box[..., :2]
        mine = (self.anchors[:, :2] / cell).floor()                                            # (A, 2): column and row
        theirs = (centre.clamp(max=1 - 1e-6) / cell).floor()                                   # (B, M, 2)
        inside = (mine[:, None] == theirs[:, None]).all(-1) & there[:, None]                   # (B, A, M)
        alike = shape_iou(self.anchors[:, 2:], size).masked_fill(~inside, -1.0)
        chosen = inside & ((alike >= 0.5) | (alike == alike.amax(1, keepdim=True)))
        most, owner = alike.masked_fill(~chosen, -1.0).max(2)
        return owner, most >= 0

    def parts(self, out: Tensor, batch: Batch) -> dict[str, Tensor]:
        y, box = batch["y"], batch["box"]
        owner, pos = self.responsible(box, y >= 0)
        N = pos.sum(1).clamp(min=1)
        boxes, own = self.boxes(out), of_owner(box, owner)
        giou = torch.where(pos, generalised_iou(boxes, own), 1.0)
        iou = torch.where(pos, paired_iou(boxes.detach(), own), 0.0)
        objectness = F.binary_cross_entropy_with_logits(out[..., 4], iou, reduction="none")
        ce = F.cross_entropy(out[..., 5:].transpose(1, 2), y.gather(1, owner).clamp(min=0), reduction="none")
        return {
            "place": self.place * (1 - giou).sum(1) / N,
            "objectness": (objectness * torch.where(pos, 1.0, self.nothing)).sum(1) / N,
            "class": (ce * pos).sum(1) / N,
        }

    def answers(self, out: Tensor) -> tuple[Tensor, Tensor]:
        return self.boxes(out), out[..., 4:5].sigmoid() * out[..., 5:].softmax(2)


def paired_iou(a: Tensor, b: Tensor) -> Tensor:
    """IoU of each pair of rows."""
    return metrics.box_iou(a[..., None, :], b[..., None, :])[..., 0, 0]
