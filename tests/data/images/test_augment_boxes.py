"""Augmentation of images with boxes, on images that are white inside their box."""

import pytest
import torch
from torch.testing import assert_close

from didact.data.images.augment_boxes import BoxFlip, BoxZoom, clip_boxes, make_box_augmentations
from didact.errors import UsageError

HEIGHT, WIDTH = 48, 80


def make_batch(n=64, seed=0):
    """One white box on black, and a second row of padding."""
    g = torch.Generator().manual_seed(seed)
    low = torch.rand(n, 2, generator=g) * 0.6
    high = low + 0.15 + 0.2 * torch.rand(n, 2, generator=g)
    box = (torch.cat([low, high], 1) * torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT])).round()
    x = torch.zeros(n, 3, HEIGHT, WIDTH)
    for i, (x1, y1, x2, y2) in enumerate(box.int().tolist()):
        x[i, :, y1:y2, x1:x2] = 1
    box = box / torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT])
    return {
        "x": x,
        "box": torch.stack([box, torch.zeros_like(box)], 1),
        "y": torch.tensor([[2, -1]]).repeat(n, 1),
        "row": torch.arange(n),
    }


def find_white_box(x):
    rows, columns = (x[0] > 0.75).nonzero().float().unbind(1)  # of white on gray, half covered is 0.75
    return torch.stack(
        [columns.min() / WIDTH, rows.min() / HEIGHT, (columns.max() + 1) / WIDTH, (rows.max() + 1) / HEIGHT]
    )


@pytest.mark.parametrize(
    "transform", [BoxFlip(), BoxFlip(vertical=0.5), BoxFlip(0.0, 1.0), BoxZoom(), BoxZoom(0.5, 3.0, 0.4)]
)
def test_box_augmentations_keep_boxes_around_their_objects(transform):
    inputs = make_batch()
    outputs = transform(inputs, torch.Generator().manual_seed(0))
    assert (
        outputs["x"].shape == inputs["x"].shape
        and (outputs["y"][:, 1] == -1).all()
        and (outputs["box"][:, 1] == 0).all()
    )
    is_visible = outputs["y"][:, 0] >= 0
    assert is_visible.sum() > 20
    for x, box in zip(outputs["x"][is_visible], outputs["box"][is_visible, 0], strict=True):
        assert_close(find_white_box(x), box, atol=1.01 / HEIGHT, rtol=0)
    assert not torch.equal(outputs["box"], inputs["box"]) and outputs["row"] is inputs["row"]


def test_box_flip_by_hand_and_twice():
    inputs = make_batch(3)
    mirrored_once = BoxFlip(horizontal=1.0)(inputs, torch.Generator())
    assert_close(mirrored_once["box"][:, 0, 0], 1 - inputs["box"][:, 0, 2])
    mirrored_twice = BoxFlip(horizontal=1.0)(mirrored_once, torch.Generator())
    assert_close(mirrored_twice["box"], inputs["box"])
    assert torch.equal(mirrored_twice["x"], inputs["x"])


def test_clip_boxes_drops_boxes_below_min_visible():
    box = torch.tensor([[[-0.5, 0.2, 0.5, 0.4], [-0.7, 0.2, 0.3, 0.4], [1.2, 0.1, 1.4, 0.3], [0.1, 0.1, 0.2, 0.2]]])
    clipped_boxes, y = clip_boxes(box, torch.tensor([[0, 1, 2, -1]]), min_visible=0.4)
    assert y.tolist() == [[0, -1, -1, -1]]                              # half is visible enough, three tenths are not
    assert_close(clipped_boxes[0, 0], torch.tensor([0.0, 0.2, 0.5, 0.4]))
    assert (clipped_boxes[0, 1:] == 0).all()


def test_box_zoom_by_hand():
    """Twice as large about the center: x = 2 (q - 1/2) + 1/2; half as large leaves a gray border."""
    inputs = {
        "x": torch.ones(1, 1, 8, 8),
        "box": torch.tensor([[[0.375, 0.25, 0.625, 0.5]]]),
        "y": torch.zeros(1, 1, dtype=torch.long),
    }
    enlarged_batch = BoxZoom(2.0, 2.0, 0.0)(inputs, torch.Generator())
    assert_close(enlarged_batch["box"], torch.tensor([[[0.25, 0.0, 0.75, 0.5]]]))
    shrunk_batch = BoxZoom(0.5, 0.5, 0.0)(inputs, torch.Generator())
    assert_close(shrunk_batch["box"], torch.tensor([[[0.4375, 0.375, 0.5625, 0.5]]]))
    assert_close(shrunk_batch["x"][0, 0, 0], torch.full((8,), 0.5)) and (shrunk_batch["x"][0, 0, 3:5, 3:5] == 1).all()


def test_make_box_augmentations_by_name():
    augment = make_box_augmentations(("flips", "zoom", "jitter", "noise"))
    assert (
        augment(make_batch(4), torch.Generator())["x"].shape == (4, 3, HEIGHT, WIDTH)
        and make_box_augmentations(()) is None
    )
    with pytest.raises(UsageError, match="no augmentation of images with boxes named 'flipp'; did you mean 'flip'"):
        make_box_augmentations(("flipp",))
