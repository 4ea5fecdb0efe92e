"""Losses of detectors against loops over images, anchors and boxes; suppression against the greedy rule; learning against a floor."""

import math

import pytest
import torch
from torch.testing import assert_close

from didact.layers.anchors import corners, encode, match
from didact.models.ssd import SSD
from didact.models.yolo import YOLO
from didact.objectives.abilities import abilities
from didact.objectives.detection import KEPT, SSDDetect, YOLODetect, best_of_repeats, hardest
from overlapping import overlap

LABELS = ("cat", "dog", "owl")


def batch(n=4, m=5, seed=0, size=(24, 40)):
    """Images of noise with boxes, some rows filled up; nothing is on the first."""
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(n, m, 2, generator=g) * 0.6
    box = torch.cat([corner, corner + 0.1 + torch.rand(n, m, 2, generator=g) * 0.3], dim=2)
    y = torch.randint(-1, 3, (n, m), generator=g)
    y[0] = -1
    return {"x": torch.rand(n, 3, *size, generator=g), "y": y, "box": torch.where(y[..., None] >= 0, box, 0.0)}


def ssd(**keywords):
    torch.manual_seed(0)
    sizes = torch.tensor([[[0.2, 0.2], [0.2, 0.3]], [[0.4, 0.3], [0.5, 0.5]]])
    return SSDDetect(SSD(widths=(4, 6, 8, 8), levels=2, neck=8, size=(24, 40), sizes=sizes), LABELS, **keywords)


def yolo(**keywords):
    torch.manual_seed(0)
    sizes = torch.tensor([[[0.15, 0.15], [0.2, 0.3], [0.4, 0.3]]])
    return YOLODetect(YOLO(widths=(4, 6, 8), stride=4, neck=8, size=(24, 40), sizes=sizes), LABELS, **keywords)


def loose(objective, n=4, seed=1):
    """What a network might say: of each anchor random numbers, so that no two losses are alike."""
    return torch.randn(n, len(objective.anchors), 8, generator=torch.Generator().manual_seed(seed))


def ce(scores, k):
    return math.log(sum(math.exp(s) for s in scores)) - scores[k]


def test_the_loss_of_an_ssd_by_loops():
    objective, given = ssd(), batch()
    out = loose(objective)
    parts = objective.parts(out, given)
    owner, found = match(objective.anchors, given["box"], given["y"] >= 0)     # compared with loops in test_anchors
    for b in range(4):
        place, right, wrong = 0.0, 0.0, []
        for a in range(len(objective.anchors)):
            scores = out[b, a, 4:].tolist()
            if not found[b, a]:
                wrong.append(ce(scores, 3))
                continue
            m = owner[b, a]
            right += ce(scores, int(given["y"][b, m]))
            for t, u in zip(out[b, a, :4].tolist(), encode(given["box"][b, m], objective.anchors[a]).tolist(), strict=True):
                place += 0.5 * (t - u) ** 2 if abs(t - u) < 1 else abs(t - u) - 0.5
        N = max(1, int(found[b].sum()))
        assert parts["place"][b].item() == pytest.approx(place / N, rel=1e-4)
        assert parts["class"][b].item() == pytest.approx((right + sum(sorted(wrong)[-3 * N :])) / N, rel=1e-4)
    assert not found[0].any() and parts["class"][0] > 0                       # nothing there: three hardest negatives still teach


def test_the_loss_of_a_yolo_by_loops():
    objective, given = yolo(), batch()
    out = loose(objective)
    parts = objective.parts(out, given)
    anchors, sigmoid = objective.anchors.tolist(), lambda t: 1 / (1 + math.exp(-t))
    for b in range(4):
        owners = {}
        for m in range(5):
            x1, y1, x2, y2 = given["box"][b, m].tolist()
            if given["y"][b, m] < 0:
                continue
            column, row = int((x1 + x2) / 2 * 10), int((y1 + y2) / 2 * 6)
            alike = {}
            for k in range(3):
                w, h = anchors[k][2:]
                both = min(w, x2 - x1) * min(h, y2 - y1)
                alike[(row * 10 + column) * 3 + k] = both / (w * h + (x2 - x1) * (y2 - y1) - both)
            for a, value in alike.items():
                if value >= 0.5 or value == max(alike.values()):
                    owners[a] = max(owners.get(a, (-1, 0)), (value, m))
        place = objectness = kind = 0.0
        for a, (cx, cy, w, h) in enumerate(anchors):
            tx, ty, tw, th, to, *scores = out[b, a].tolist()
            x, y, w, h = cx + (sigmoid(tx) - 0.5) / 10, cy + (sigmoid(ty) - 0.5) / 6, w * math.exp(tw), h * math.exp(th)
            p, q = (x - w / 2, y - h / 2, x + w / 2, y + h / 2), None
            target, weight = 0.0, 0.5
            if a in owners:
                q = given["box"][b, owners[a][1]].tolist()
                target, weight = overlap(p, q), 1.0
                around = (max(p[2], q[2]) - min(p[0], q[0])) * (max(p[3], q[3]) - min(p[1], q[1]))
                union = (w * h + (q[2] - q[0]) * (q[3] - q[1])) / (1 + target)
                place += 1 - (target - (around - union) / around)
                kind += ce(scores, int(given["y"][b, owners[a][1]]))
            objectness += weight * -(target * math.log(sigmoid(to)) + (1 - target) * math.log(1 - sigmoid(to)))
        N = max(1, len(owners))
        assert parts["place"][b].item() == pytest.approx(2 * place / N, rel=1e-3)
        assert parts["objectness"][b].item() == pytest.approx(objectness / N, rel=1e-3)
        assert parts["class"][b].item() == pytest.approx(kind / N, rel=1e-3)


@pytest.mark.parametrize("make", [ssd, yolo])
def test_rows_that_fill_up_change_nothing(make):
    objective, given = make(), batch()
    out = loose(objective)
    wider = {
        **given, "y": torch.nn.functional.pad(given["y"], (2, 3), value=-1), "box": torch.nn.functional.pad(given["box"], (0, 0, 2, 3)),
    }
    for name, part in objective.parts(out, given).items():
        assert_close(objective.parts(out, wider)[name], part)
        assert_close(objective.parts(out[2:3], {k: v[2:3] for k, v in given.items()})[name], part[2:3])


@pytest.mark.parametrize("make", [ssd, yolo])
def test_the_contract(make):
    objective, given = make(), batch()
    parts = objective.loss(given)
    assert parts["loss"].item() == pytest.approx(sum(p.item() for name, p in parts.items() if name != "loss"), rel=1e-5)
    parts["loss"].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in objective.parameters())
    with torch.no_grad():
        rows = objective.eval().judge(given)
        assert_close(rows["detected"], objective.detect(given))
    assert {name: tuple(v.shape) for name, v in rows.items()} == {"loss": (4,), "detected": (4, KEPT, 6), "truth": (4, 5, 5)}
    assert abilities(objective) == ("detect",)
    scores = objective.score(rows)
    assert {"loss", "map50", "map", "ap50_cat", "ap50_dog", "ap50_owl"} == set(scores) and 0 <= scores["map"] <= scores["map50"] <= 1


def test_hard_negatives():
    loss = torch.tensor([[5.0, 4, 3, 2, 1], [1, 2, 3, 4, 5]])
    taken = torch.tensor([[True, False, False, False, False], [False, False, False, True, True]])
    mined = hardest(loss, taken, torch.tensor([2, 99]))
    assert mined.tolist() == [[False, True, True, False, False], [True, True, True, False, False]]


def greedy(boxes, scores, threshold):
    """Of each class apart, the best first; then all together."""
    found = []
    for k in range(scores.shape[1]):
        kept = []
        for s, box in sorted(zip(scores[:, k].tolist(), boxes.tolist(), strict=True), key=lambda pair: -pair[0]):
            if s >= 0.01 and all(overlap(box, other) <= threshold for other, _ in kept):
                kept.append((box, s))
        found += [(*box, s, k) for box, s in kept]
    return sorted(found, key=lambda row: -row[4])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threshold", [0.2, 0.5])
def test_of_repeats_the_best_stays(seed, threshold):
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(3, 60, 2, generator=g) * 0.6
    boxes, scores = torch.cat([corner, corner + 0.3], dim=2), torch.rand(3, 60, 2, generator=g) * (torch.rand(3, 60, 2, generator=g) < 0.7)
    found = best_of_repeats(boxes, scores, overlap=threshold)
    assert found.shape == (3, KEPT, 6)
    for b in range(3):
        there = found[b][found[b, :, 5] >= 0]
        assert_close(there, torch.tensor(greedy(boxes[b], scores[b], threshold)[:KEPT]), atol=1e-6, rtol=0)
        assert (found[b, len(there):, 5] == -1).all()


def test_saying_the_truth_scores_one():
    """Offsets and scores that are right, by construction, of every matched anchor: average precision 1, and 0 of an empty answer."""
    objective, given = ssd(), batch(n=6)
    given["y"][1:, 2:] = -1                                                   # two boxes, which may not hide each other
    given["box"][1:, 0], given["box"][1:, 1] = torch.tensor([0.1, 0.1, 0.3, 0.4]), torch.tensor([0.5, 0.4, 0.9, 0.8])
    given["y"][1:, :2] = torch.tensor([[0, 1], [2, 0], [1, 1], [2, 2], [0, 2]])
    owner, found = match(objective.anchors, given["box"], given["y"] >= 0)
    box = given["box"].gather(1, owner[..., None].expand(-1, -1, 4))
    label = torch.where(found, given["y"].gather(1, owner), 3)
    out = torch.cat([encode(box, objective.anchors), 20.0 * torch.nn.functional.one_hot(label, 4)], dim=2)
    parts = objective.parts(out, given)
    assert parts["place"].max() < 1e-5 and parts["class"].max() < 1e-5
    rows = {"loss": torch.zeros(6), "detected": objective.told(out), "truth": torch.cat([given["box"], given["y"][..., None]], 2)}
    assert objective.score(rows)["map"] == 1
    assert objective.score({**rows, "detected": torch.full((6, KEPT, 6), -1.0)})["map50"] == 0


def test_a_cell_answers_for_what_is_inside_it():
    objective = yolo()
    out = torch.zeros(1, len(objective.anchors), 8)
    assert_close(objective.boxes(out)[0], corners(objective.anchors))         # nothing said: the anchors themselves
    far = torch.full_like(out, 50.0)
    centres = objective.boxes(far)[0].view(-1, 2, 2).mean(1)
    assert_close(centres, objective.anchors[:, :2] + objective.network.cell / 2)   # no further than the cell's corner
    _, found = objective.responsible(torch.tensor([[[0.9, 0.9, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]]), torch.tensor([[True, True]]))
    assert found[0].nonzero()[:, 0].min() >= (5 * 10 + 9) * 3                 # the last cell, its border included


@torch.no_grad()
def judged(objective, given):
    return objective.score(objective.eval().judge(given))["map50"]


@pytest.mark.parametrize("make", [ssd, yolo])
def test_it_learns_one_batch_by_heart(make):
    """Four images, drawn so that each class has a colour: eighty steps find every box. Guessing finds none."""
    objective, given = make(), batch(n=4, m=3, seed=5)
    given["y"] = torch.tensor([[0, 1, 2], [1, -1, -1], [2, 0, -1], [-1, -1, -1]])
    given["box"] = torch.tensor([[0.05, 0.1, 0.3, 0.5], [0.4, 0.5, 0.7, 0.9], [0.65, 0.05, 0.95, 0.4]]).expand(4, 3, 4).clone()
    given["x"] *= 0.3
    for b in range(4):
        for m in range(3):
            if given["y"][b, m] >= 0:
                x1, y1, x2, y2 = (given["box"][b, m] * torch.tensor([40.0, 24, 40, 24])).round().long().tolist()
                given["x"][b, given["y"][b, m], y1:y2, x1:x2] += 0.7
    before = judged(objective, given)
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-2)
    objective.train()
    for _ in range(80):
        optimizer.zero_grad()
        objective.loss(given)["loss"].backward()
        optimizer.step()
    assert before < 0.3 and judged(objective, given) > 0.95
