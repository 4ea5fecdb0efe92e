import pytest
import torch
import torch.nn.functional as F
from torch import nn

from didact import metrics
from didact.data.core import VOID
from didact.objectives.abilities import abilities
from didact.objectives.segmentation import Segment, dice_loss

LABELS = ("a", "b", "c", "d")


def batch(n=5, seed=0):
    torch.manual_seed(seed)
    y = torch.randint(0, 3, (n, 6, 10), dtype=torch.uint8)       # the fourth class is never there
    return {"x": torch.randn(n, 3, 6, 10), "y": y, "row": torch.arange(n)}


def objective(dice=1.0):
    torch.manual_seed(1)
    return Segment(nn.Conv2d(3, 4, 3, padding=1), LABELS, dice=dice)


def test_certain_predictions_give_one_minus_the_dice_score():
    y, predicted = (torch.randint(0, 3, (5, 6, 10)) for _ in range(2))
    certain = 100.0 * F.one_hot(predicted, 4).movedim(-1, 1)
    scores = metrics.dice(metrics.confusions(predicted, y, 4))
    there = torch.stack([(y == k).flatten(1).any(1) for k in range(4)], 1)
    expected = torch.stack([1 - score[k].mean() for score, k in zip(scores, there, strict=True)])
    torch.testing.assert_close(dice_loss(certain, y), expected.float())
    assert dice_loss(100.0 * F.one_hot(y, 4).movedim(-1, 1), y).abs().max() < 1e-6


def test_dice_loss_has_the_gradient_of_its_value():
    torch.manual_seed(0)
    logits, y = torch.randn(2, 3, 3, 4, dtype=torch.float64), torch.randint(0, 3, (2, 3, 4))
    step, v = 1e-2, torch.randn(2, 3, 3, 4, dtype=torch.float64)
    logits.requires_grad_()
    slope = (torch.autograd.grad(dice_loss(logits, y).sum(), logits)[0] * v).sum()
    numeric = (dice_loss(logits + step * v, y) - dice_loss(logits - step * v, y)).sum() / (2 * step)
    torch.testing.assert_close(slope.float(), numeric.float(), rtol=1e-2, atol=1e-3)


def test_the_loss_and_its_parts():
    model, b = objective(dice=0.5), batch()
    parts = model.loss(b)
    torch.testing.assert_close(parts["cross_entropy"], F.cross_entropy(model.network(b["x"]), b["y"].long()))
    torch.testing.assert_close(parts["loss"], parts["cross_entropy"] + 0.5 * parts["dice_loss"])
    torch.testing.assert_close(model.judge(b)["loss"].mean(), parts["loss"])
    torch.testing.assert_close(objective(dice=0.0).loss(b)["loss"], parts["cross_entropy"])


def test_pixels_of_no_class_count_nowhere():
    """Neither in the loss, nor in its gradient, nor in IoU: as if the pixels were not there."""
    model, b = objective(), batch(3)
    b["y"][:, :, 7:] = VOID
    logits = model.network(b["x"]).detach().requires_grad_()
    ce, dice = model.parts(logits, b["y"].long())
    seen, y = logits[:, :, :, :7], b["y"][:, :, :7].long()
    torch.testing.assert_close(ce, torch.stack([F.cross_entropy(s[None], t[None]) for s, t in zip(seen, y, strict=True)]))
    torch.testing.assert_close(dice, dice_loss(seen, y))
    slope = torch.autograd.grad((ce + dice).sum(), logits)[0]
    assert (slope[:, :, :, 7:] == 0).all() and (slope[:, :, :, :7] != 0).any()
    with torch.no_grad():
        rows = model.judge(b)
    counts = rows["confusion"]
    assert torch.equal(counts, metrics.confusions(logits.argmax(1)[:, :, :7], y, 4)) and counts.sum() == 3 * 6 * 7
    known = y == 1
    both, either = (known & (seen.argmax(1) == 1)).sum(), (known | (seen.argmax(1) == 1)).sum()
    assert model.score(rows)["iou_b"] == pytest.approx((both / either).item())


def test_an_image_of_no_class_teaches_nothing():
    model, b = objective(), batch(2)
    b["y"][:] = VOID
    loss = model.loss(b)["loss"]
    loss.backward()
    assert loss == 0 and all((p.grad == 0).all() for p in model.parameters())


@torch.no_grad()
def test_neither_batches_nor_their_order_change_a_metric():
    model, b = objective(), batch(7)
    whole = model.score(model.judge(b))
    cut = [model.judge({k: v[i : i + 2] for k, v in b.items()}) for i in range(0, 7, 2)]
    again = model.score({k: torch.cat([rows[k] for rows in reversed(cut)]) for k in cut[0]})
    assert again == pytest.approx(whole, nan_ok=True)


@torch.no_grad()
def test_scores():
    model, b = objective(), batch()
    scores = model.score(model.judge(b))
    y, predicted = b["y"].long(), model.network(b["x"]).argmax(1)
    assert scores["pixel_accuracy"] == pytest.approx((y == predicted).float().mean().item())
    for k, label in enumerate(LABELS[:3]):
        both, either = ((y == k) & (predicted == k)).sum(), ((y == k) | (predicted == k)).sum()
        assert scores[f"iou_{label}"] == pytest.approx((both / either).item())
    assert model.watch in scores and 0 < scores["mean_iou"] < scores["dice"] < 1


def test_it_segments():
    model, b = objective(), batch()
    p = model.segment(b)
    assert abilities(model) == ("segment",)
    torch.testing.assert_close(p.sum(1), torch.ones(5, 6, 10))
    assert torch.equal(p.argmax(1), model.network(b["x"]).argmax(1))


@torch.no_grad()
def test_what_is_shown_is_what_was_judged():
    model, b = objective(), batch()
    shown = model.exhibit(b)
    assert torch.equal(shown["true_mask"], b["y"]) and shown["mask"].dtype == torch.uint8
    counts = metrics.confusions(shown["mask"].long(), shown["true_mask"].long(), 4)
    assert torch.equal(counts, model.judge(b)["confusion"])
