import pytest
import torch
import torch.nn.functional as F
from torch import nn

from didact import metrics
from didact.data.core import IGNORE_LABEL
from didact.objectives.abilities import abilities
from didact.objectives.vision.segmentation import SegmentationObjective, dice_loss

LABELS = ("a", "b", "c", "d")


def make_batch(n=5, seed=0):
    torch.manual_seed(seed)
    y = torch.randint(0, 3, (n, 6, 10), dtype=torch.uint8)       # the fourth class never occurs
    return {"x": torch.randn(n, 3, 6, 10), "y": y, "row": torch.arange(n)}


def make_objective(dice=1.0):
    torch.manual_seed(1)
    return SegmentationObjective(nn.Conv2d(3, 4, 3, padding=1), LABELS, dice_weight=dice)


def test_dice_loss_of_certain_predictions_is_one_minus_dice():
    y, predicted = (torch.randint(0, 3, (5, 6, 10)) for _ in range(2))
    certain_logits = 100.0 * F.one_hot(predicted, 4).movedim(-1, 1)
    scores = metrics.dice(metrics.confusion_matrices(predicted, y, 4))
    is_present = torch.stack([(y == k).flatten(1).any(1) for k in range(4)], 1)
    expected = torch.stack([1 - score[k].mean() for score, k in zip(scores, is_present, strict=True)])
    torch.testing.assert_close(dice_loss(certain_logits, y), expected.float())
    assert dice_loss(100.0 * F.one_hot(y, 4).movedim(-1, 1), y).abs().max() < 1e-6


def test_dice_loss_has_the_gradient_of_its_value():
    torch.manual_seed(0)
    logits, y = torch.randn(2, 3, 3, 4, dtype=torch.float64), torch.randint(0, 3, (2, 3, 4))
    step, v = 1e-2, torch.randn(2, 3, 3, 4, dtype=torch.float64)
    logits.requires_grad_()
    slope = (torch.autograd.grad(dice_loss(logits, y).sum(), logits)[0] * v).sum()
    numeric = (dice_loss(logits + step * v, y) - dice_loss(logits - step * v, y)).sum() / (2 * step)
    torch.testing.assert_close(slope.float(), numeric.float(), rtol=1e-2, atol=1e-3)


def test_segmentation_loss_is_the_sum_of_its_parts():
    model, b = make_objective(dice=0.5), make_batch()
    parts = model.loss(b)
    torch.testing.assert_close(parts["cross_entropy"], F.cross_entropy(model.network(b["x"]), b["y"].long()))
    torch.testing.assert_close(parts["loss"], parts["cross_entropy"] + 0.5 * parts["dice_loss"])
    torch.testing.assert_close(model.evaluate_batch(b)["loss"].mean(), parts["loss"])
    torch.testing.assert_close(make_objective(dice=0.0).loss(b)["loss"], parts["cross_entropy"])


def test_ignored_pixels_do_not_count_in_loss_gradient_or_metrics():
    """Neither in the loss, nor in its gradient, nor in IoU: as if the pixels were not there."""
    model, b = make_objective(), make_batch(3)
    b["y"][:, :, 7:] = IGNORE_LABEL
    logits = model.network(b["x"]).detach().requires_grad_()
    ce, dice = model.loss_parts(logits, b["y"].long())
    labeled_logits, y = logits[:, :, :, :7], b["y"][:, :, :7].long()
    torch.testing.assert_close(
        ce, torch.stack([F.cross_entropy(s[None], t[None]) for s, t in zip(labeled_logits, y, strict=True)])
    )
    torch.testing.assert_close(dice, dice_loss(labeled_logits, y))
    slope = torch.autograd.grad((ce + dice).sum(), logits)[0]
    assert (slope[:, :, :, 7:] == 0).all() and (slope[:, :, :, :7] != 0).any()
    with torch.no_grad():
        outputs = model.evaluate_batch(b)
    counts = outputs["confusion"]
    assert (
        torch.equal(counts, metrics.confusion_matrices(logits.argmax(1)[:, :, :7], y, 4)) and counts.sum() == 3 * 6 * 7
    )
    is_class_b = y == 1
    intersection, union = (
        (is_class_b & (labeled_logits.argmax(1) == 1)).sum(),
        (is_class_b | (labeled_logits.argmax(1) == 1)).sum(),
    )
    assert model.compute_metrics(outputs)["iou_b"] == pytest.approx((intersection / union).item())


def test_fully_ignored_image_gives_zero_gradients():
    model, b = make_objective(), make_batch(2)
    b["y"][:] = IGNORE_LABEL
    loss = model.loss(b)["loss"]
    loss.backward()
    assert loss == 0 and all((p.grad == 0).all() for p in model.parameters())


@torch.no_grad()
def test_segmentation_metrics_are_independent_of_batching():
    model, b = make_objective(), make_batch(7)
    full_metrics = model.compute_metrics(model.evaluate_batch(b))
    outputs_by_batch = [model.evaluate_batch({k: v[i : i + 2] for k, v in b.items()}) for i in range(0, 7, 2)]
    batched_metrics = model.compute_metrics(
        {k: torch.cat([outputs[k] for outputs in reversed(outputs_by_batch)]) for k in outputs_by_batch[0]}
    )
    assert batched_metrics == pytest.approx(full_metrics, nan_ok=True)


@torch.no_grad()
def test_segmentation_metrics_match_their_definitions():
    model, b = make_objective(), make_batch()
    scores = model.compute_metrics(model.evaluate_batch(b))
    y, predicted = b["y"].long(), model.network(b["x"]).argmax(1)
    assert scores["pixel_accuracy"] == pytest.approx((y == predicted).float().mean().item())
    for k, label in enumerate(LABELS[:3]):
        intersection, union = ((y == k) & (predicted == k)).sum(), ((y == k) | (predicted == k)).sum()
        assert scores[f"iou_{label}"] == pytest.approx((intersection / union).item())
    assert model.monitor in scores and 0 < scores["mean_iou"] < scores["dice"] < 1


def test_segment_returns_class_probabilities():
    model, b = make_objective(), make_batch()
    p = model.segment(b)
    assert abilities(model) == ("segment",)
    torch.testing.assert_close(p.sum(1), torch.ones(5, 6, 10))
    assert torch.equal(p.argmax(1), model.network(b["x"]).argmax(1))


@torch.no_grad()
def test_segmentation_examples_match_the_evaluation():
    model, b = make_objective(), make_batch()
    examples = model.report_examples(b)
    assert torch.equal(examples["true_mask"], b["y"]) and examples["mask"].dtype == torch.uint8
    counts = metrics.confusion_matrices(examples["mask"].long(), examples["true_mask"].long(), 4)
    assert torch.equal(counts, model.evaluate_batch(b)["confusion"])
