"""What moves the pixels moves the boxes: seen on images that are white where their box is."""

import pytest
import torch
from torch.testing import assert_close

from didact.data.boxed import BoxFlip, BoxZoom, augmentations, seen
from didact.errors import UsageError

H, W = 48, 80


def batch(n=64, seed=0):
    """One white box on black, and a second row that fills up."""
    g = torch.Generator().manual_seed(seed)
    low = torch.rand(n, 2, generator=g) * 0.6
    high = low + 0.15 + 0.2 * torch.rand(n, 2, generator=g)
    box = (torch.cat([low, high], 1) * torch.tensor([W, H, W, H])).round()
    x = torch.zeros(n, 3, H, W)
    for i, (x1, y1, x2, y2) in enumerate(box.int().tolist()):
        x[i, :, y1:y2, x1:x2] = 1
    box = box / torch.tensor([W, H, W, H])
    return {"x": x, "box": torch.stack([box, torch.zeros_like(box)], 1), "y": torch.tensor([[2, -1]]).repeat(n, 1), "row": torch.arange(n)}


def white(x):
    rows, columns = (x[0] > 0.75).nonzero().float().unbind(1)          # of white on grey, half covered is 0.75
    return torch.stack([columns.min() / W, rows.min() / H, (columns.max() + 1) / W, (rows.max() + 1) / H])


@pytest.mark.parametrize("move", [BoxFlip(), BoxFlip(vertical=0.5), BoxFlip(0.0, 1.0), BoxZoom(), BoxZoom(0.5, 3.0, 0.4)])
def test_boxes_stay_around_what_they_were_around(move):
    given = batch()
    moved = move(given, torch.Generator().manual_seed(0))
    assert moved["x"].shape == given["x"].shape and (moved["y"][:, 1] == -1).all() and (moved["box"][:, 1] == 0).all()
    there = moved["y"][:, 0] >= 0
    assert there.sum() > 20
    for x, box in zip(moved["x"][there], moved["box"][there, 0], strict=True):
        assert_close(white(x), box, atol=1.01 / H, rtol=0)
    assert not torch.equal(moved["box"], given["box"]) and moved["row"] is given["row"]


def test_a_mirror_by_hand_and_twice():
    given = batch(3)
    once = BoxFlip(horizontal=1.0)(given, torch.Generator())
    assert_close(once["box"][:, 0, 0], 1 - given["box"][:, 0, 2])
    twice = BoxFlip(horizontal=1.0)(once, torch.Generator())
    assert_close(twice["box"], given["box"])
    assert torch.equal(twice["x"], given["x"])


def test_what_is_hardly_seen_is_no_longer_there():
    box = torch.tensor([[[-0.5, 0.2, 0.5, 0.4], [-0.7, 0.2, 0.3, 0.4], [1.2, 0.1, 1.4, 0.3], [0.1, 0.1, 0.2, 0.2]]])
    kept, y = seen(box, torch.tensor([[0, 1, 2, -1]]), least=0.4)
    assert y.tolist() == [[0, -1, -1, -1]]                              # half is enough, three tenths are not
    assert_close(kept[0, 0], torch.tensor([0.0, 0.2, 0.5, 0.4]))
    assert (kept[0, 1:] == 0).all()


def test_zoom_by_hand():
    """Twice as large about the centre: x = 2 (q - 1/2) + 1/2; half as large leaves a border of grey."""
    given = {"x": torch.ones(1, 1, 8, 8), "box": torch.tensor([[[0.375, 0.25, 0.625, 0.5]]]), "y": torch.zeros(1, 1, dtype=torch.long)}
    large = BoxZoom(2.0, 2.0, 0.0)(given, torch.Generator())
    assert_close(large["box"], torch.tensor([[[0.25, 0.0, 0.75, 0.5]]]))
    small = BoxZoom(0.5, 0.5, 0.0)(given, torch.Generator())
    assert_close(small["box"], torch.tensor([[[0.4375, 0.375, 0.5625, 0.5]]]))
    assert_close(small["x"][0, 0, 0], torch.full((8,), 0.5)) and (small["x"][0, 0, 3:5, 3:5] == 1).all()


def test_by_name():
    link = augmentations(("flips", "zoom", "jitter", "noise"))
    assert link(batch(4), torch.Generator())["x"].shape == (4, 3, H, W) and augmentations(()) is None
    with pytest.raises(UsageError, match="no augmentation of images with boxes named 'flipp'; did you mean 'flip'"):
        augmentations(("flipp",))
