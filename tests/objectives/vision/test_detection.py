"""Detection losses against loops over images, anchors and boxes; training against a floor."""

import math

import pytest
import torch
from torch.testing import assert_close

from didact.layers.conv.anchors import encode_boxes, match_anchors, to_corners
from didact.metrics.detection import MAX_DETECTIONS
from didact.models.vision.ssd import SSD
from didact.models.vision.yolo import YOLO
from didact.objectives.abilities import abilities
from didact.objectives.vision.detection import SSDObjective, YOLOObjective, hard_negative_mask
from helpers.box_iou import box_iou

LABELS = ("cat", "dog", "owl")


def make_batch(n=4, m=5, seed=0, size=(24, 40)):
    """Images of noise with boxes, some rows padded; the first image has none."""
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(n, m, 2, generator=g) * 0.6
    box = torch.cat([corner, corner + 0.1 + torch.rand(n, m, 2, generator=g) * 0.3], dim=2)
    y = torch.randint(-1, 3, (n, m), generator=g)
    y[0] = -1
    return {"x": torch.rand(n, 3, *size, generator=g), "y": y, "box": torch.where(y[..., None] >= 0, box, 0.0)}


def make_ssd(**keywords):
    torch.manual_seed(0)
    sizes = torch.tensor([[[0.2, 0.2], [0.2, 0.3]], [[0.4, 0.3], [0.5, 0.5]]])
    return SSDObjective(SSD(widths=(4, 6, 8, 8), levels=2, neck=8, size=(24, 40), sizes=sizes), LABELS, **keywords)


def make_yolo(**keywords):
    torch.manual_seed(0)
    sizes = torch.tensor([[[0.15, 0.15], [0.2, 0.3], [0.4, 0.3]]])
    return YOLOObjective(YOLO(widths=(4, 6, 8), stride=4, neck=8, size=(24, 40), sizes=sizes), LABELS, **keywords)


def make_random_outputs(objective, n=4, seed=1):
    """Random outputs for each anchor, so that no two losses are equal."""
    return torch.randn(n, len(objective.anchors), 8, generator=torch.Generator().manual_seed(seed))


def cross_entropy(scores, k):
    return math.log(sum(math.exp(s) for s in scores)) - scores[k]


def test_ssd_loss_matches_plain_loops():
    objective, examples = make_ssd(), make_batch()
    out = make_random_outputs(objective)
    parts = objective.loss_parts(out, examples)
    # compared with loops in test_anchors
    box_index, is_matched = match_anchors(objective.anchors, examples["box"], examples["y"] >= 0)
    for b in range(4):
        box_loss, matched_loss, unmatched_losses = 0.0, 0.0, []
        for a in range(len(objective.anchors)):
            scores = out[b, a, 4:].tolist()
            if not is_matched[b, a]:
                unmatched_losses.append(cross_entropy(scores, 3))
                continue
            m = box_index[b, a]
            matched_loss += cross_entropy(scores, int(examples["y"][b, m]))
            for t, u in zip(
                out[b, a, :4].tolist(), encode_boxes(examples["box"][b, m], objective.anchors[a]).tolist(), strict=True
            ):
                box_loss += 0.5 * (t - u) ** 2 if abs(t - u) < 1 else abs(t - u) - 0.5
        N = max(1, int(is_matched[b].sum()))
        assert parts["box"][b].item() == pytest.approx(box_loss / N, rel=1e-4)
        assert parts["class"][b].item() == pytest.approx(
            (matched_loss + sum(sorted(unmatched_losses)[-3 * N :])) / N, rel=1e-4
        )
    # no object: the three hardest negatives still count
    assert not is_matched[0].any() and parts["class"][0] > 0


def test_yolo_loss_matches_plain_loops():
    objective, examples = make_yolo(), make_batch()
    out = make_random_outputs(objective)
    parts = objective.loss_parts(out, examples)
    anchors, sigmoid = objective.anchors.tolist(), lambda t: 1 / (1 + math.exp(-t))
    for b in range(4):
        box_of_anchor = {}
        for m in range(5):
            x1, y1, x2, y2 = examples["box"][b, m].tolist()
            if examples["y"][b, m] < 0:
                continue
            column, row = int((x1 + x2) / 2 * 10), int((y1 + y2) / 2 * 6)
            ious = {}
            for k in range(3):
                w, h = anchors[k][2:]
                intersection = min(w, x2 - x1) * min(h, y2 - y1)
                ious[(row * 10 + column) * 3 + k] = intersection / (w * h + (x2 - x1) * (y2 - y1) - intersection)
            for a, value in ious.items():
                if value >= 0.5 or value == max(ious.values()):
                    box_of_anchor[a] = max(box_of_anchor.get(a, (-1, 0)), (value, m))
        box_loss = objectness_loss = class_loss = 0.0
        for a, (cx, cy, w, h) in enumerate(anchors):
            tx, ty, tw, th, to, *scores = out[b, a].tolist()
            x, y, w, h = cx + (sigmoid(tx) - 0.5) / 10, cy + (sigmoid(ty) - 0.5) / 6, w * math.exp(tw), h * math.exp(th)
            p, q = (x - w / 2, y - h / 2, x + w / 2, y + h / 2), None
            target, weight = 0.0, 0.5
            if a in box_of_anchor:
                q = examples["box"][b, box_of_anchor[a][1]].tolist()
                target, weight = box_iou(p, q), 1.0
                enclosing_area = (max(p[2], q[2]) - min(p[0], q[0])) * (max(p[3], q[3]) - min(p[1], q[1]))
                union = (w * h + (q[2] - q[0]) * (q[3] - q[1])) / (1 + target)
                box_loss += 1 - (target - (enclosing_area - union) / enclosing_area)
                class_loss += cross_entropy(scores, int(examples["y"][b, box_of_anchor[a][1]]))
            objectness_loss += weight * -(target * math.log(sigmoid(to)) + (1 - target) * math.log(1 - sigmoid(to)))
        N = max(1, len(box_of_anchor))
        assert parts["box"][b].item() == pytest.approx(2 * box_loss / N, rel=1e-3)
        assert parts["objectness"][b].item() == pytest.approx(objectness_loss / N, rel=1e-3)
        assert parts["class"][b].item() == pytest.approx(class_loss / N, rel=1e-3)


@pytest.mark.parametrize("make", [make_ssd, make_yolo])
def test_detection_loss_ignores_padding_rows(make):
    objective, examples = make(), make_batch()
    out = make_random_outputs(objective)
    padded = {
        **examples,
        "y": torch.nn.functional.pad(examples["y"], (2, 3), value=-1),
        "box": torch.nn.functional.pad(examples["box"], (0, 0, 2, 3)),
    }
    for name, part in objective.loss_parts(out, examples).items():
        assert_close(objective.loss_parts(out, padded)[name], part)
        assert_close(objective.loss_parts(out[2:3], {k: v[2:3] for k, v in examples.items()})[name], part[2:3])


@pytest.mark.parametrize("make", [make_ssd, make_yolo])
def test_detection_objective_contract(make):
    objective, examples = make(), make_batch()
    parts = objective.loss(examples)
    assert parts["loss"].item() == pytest.approx(sum(p.item() for name, p in parts.items() if name != "loss"), rel=1e-5)
    parts["loss"].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in objective.parameters())
    with torch.no_grad():
        outputs = objective.eval().evaluate_batch(examples)
        assert_close(outputs["detected"], objective.detect(examples))
    assert {name: tuple(v.shape) for name, v in outputs.items()} == {
        "loss": (4,),
        "detected": (4, MAX_DETECTIONS, 6),
        "truth": (4, 5, 5),
    }
    assert abilities(objective) == ("detect",)
    scores = objective.compute_metrics(outputs)
    assert {"loss", "map50", "map", "ap50_cat", "ap50_dog", "ap50_owl"} == set(scores) and 0 <= scores["map"] <= scores[
        "map50"
    ] <= 1


def test_hard_negative_mask_takes_the_highest_losses():
    loss = torch.tensor([[5.0, 4, 3, 2, 1], [1, 2, 3, 4, 5]])
    is_positive = torch.tensor([[True, False, False, False, False], [False, False, False, True, True]])
    hard_mask = hard_negative_mask(loss, is_positive, torch.tensor([2, 99]))
    assert hard_mask.tolist() == [[False, True, True, False, False], [True, True, True, False, False]]


def test_perfect_detections_have_map_one():
    """Offsets and scores that are right by construction: average precision 1, and 0 without detections."""
    objective, examples = make_ssd(), make_batch(n=6)
    # two boxes, neither of which may suppress the other
    examples["y"][1:, 2:] = -1
    examples["box"][1:, 0], examples["box"][1:, 1] = (
        torch.tensor([0.1, 0.1, 0.3, 0.4]),
        torch.tensor([0.5, 0.4, 0.9, 0.8]),
    )
    examples["y"][1:, :2] = torch.tensor([[0, 1], [2, 0], [1, 1], [2, 2], [0, 2]])
    box_index, is_matched = match_anchors(objective.anchors, examples["box"], examples["y"] >= 0)
    box = examples["box"].gather(1, box_index[..., None].expand(-1, -1, 4))
    label = torch.where(is_matched, examples["y"].gather(1, box_index), 3)
    out = torch.cat([encode_boxes(box, objective.anchors), 20.0 * torch.nn.functional.one_hot(label, 4)], dim=2)
    parts = objective.loss_parts(out, examples)
    assert parts["box"].max() < 1e-5 and parts["class"].max() < 1e-5
    outputs = {
        "loss": torch.zeros(6),
        "detected": objective.select_detections(out),
        "truth": torch.cat([examples["box"], examples["y"][..., None]], 2),
    }
    assert objective.compute_metrics(outputs)["map"] == 1
    assert objective.compute_metrics({**outputs, "detected": torch.full((6, MAX_DETECTIONS, 6), -1.0)})["map50"] == 0


def test_yolo_cell_predicts_boxes_centered_inside_it():
    objective = make_yolo()
    out = torch.zeros(1, len(objective.anchors), 8)
    # zero outputs: the anchors themselves
    assert_close(objective.decode_boxes(out)[0], to_corners(objective.anchors))
    extreme_outputs = torch.full_like(out, 50.0)
    centers = objective.decode_boxes(extreme_outputs)[0].view(-1, 2, 2).mean(1)
    assert_close(centers, objective.anchors[:, :2] + objective.network.cell / 2)  # no further than the cell's corner
    _, is_assigned = objective.assign_anchors(
        torch.tensor([[[0.9, 0.9, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]]), torch.tensor([[True, True]])
    )
    assert is_assigned[0].nonzero()[:, 0].min() >= (5 * 10 + 9) * 3                 # the last cell, its border included


@torch.no_grad()
def compute_map50(objective, examples):
    return objective.compute_metrics(objective.eval().evaluate_batch(examples))["map50"]


@pytest.mark.parametrize("make", [make_ssd, make_yolo])
def test_detectors_overfit_one_batch(make):
    """Four images in which each class has a color: eighty steps find every box. Random weights find none."""
    objective, examples = make(), make_batch(n=4, m=3, seed=5)
    examples["y"] = torch.tensor([[0, 1, 2], [1, -1, -1], [2, 0, -1], [-1, -1, -1]])
    examples["box"] = (
        torch.tensor([[0.05, 0.1, 0.3, 0.5], [0.4, 0.5, 0.7, 0.9], [0.65, 0.05, 0.95, 0.4]]).expand(4, 3, 4).clone()
    )
    examples["x"] *= 0.3
    for b in range(4):
        for m in range(3):
            if examples["y"][b, m] >= 0:
                x1, y1, x2, y2 = (examples["box"][b, m] * torch.tensor([40.0, 24, 40, 24])).round().long().tolist()
                examples["x"][b, examples["y"][b, m], y1:y2, x1:x2] += 0.7
    map_before = compute_map50(objective, examples)
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-2)
    objective.train()
    for _ in range(80):
        optimizer.zero_grad()
        objective.loss(examples)["loss"].backward()
        optimizer.step()
    assert map_before < 0.3 and compute_map50(objective, examples) > 0.95
