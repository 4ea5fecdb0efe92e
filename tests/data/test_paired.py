import pytest
import torch

from didact.data.augment import Flip, ShiftCrop
from didact.data.core import VOID
from didact.data.paired import Paired, Zoom, augmentations
from didact.errors import UsageError


def marked():
    """Each pixel's colour says which class it has, so that a mask that went elsewhere is seen."""
    torch.manual_seed(0)
    y = torch.randint(0, 200, (16, 6, 10), dtype=torch.uint8)
    return {"x": (y[:, None] / 255).expand(-1, 3, -1, -1).contiguous(), "y": y, "row": torch.arange(16)}


@pytest.mark.parametrize("move", [Flip(0.5, 0.5), ShiftCrop(padding=2)])
def test_image_and_mask_move_alike(move):
    batch = marked()
    moved = Paired(move)(batch, torch.Generator().manual_seed(1))
    assert not torch.equal(moved["y"], batch["y"]) and moved["y"].dtype == torch.uint8
    torch.testing.assert_close(moved["x"][:, 1] * 255, torch.where(moved["y"] == VOID, 0, moved["y"]).float())
    assert (moved["y"] == VOID).any() == isinstance(move, ShiftCrop)        # black, and of no class: not class 0
    assert torch.equal(moved["row"], batch["row"])
    alone = move({"x": batch["x"]}, torch.Generator().manual_seed(1))
    assert torch.equal(alone["x"], moved["x"])


def test_zooming_reads_image_and_mask_at_the_same_place():
    """Pixel p of the outcome is q = (p - c - t) / s + c of the image, here looked up by hand."""
    blocks = torch.randint(0, 9, (16, 4, 6), generator=torch.Generator().manual_seed(0))
    y = blocks.repeat_interleave(4, 1).repeat_interleave(4, 2).byte()                        # (16, 16, 24)
    batch = {"x": y[:, None].expand(-1, 3, -1, -1) / 255, "y": y}
    moved = Zoom(0.7, 2.0)(batch, torch.Generator().manual_seed(1))
    draws = torch.Generator().manual_seed(1)
    s, right, down = (torch.rand(16, 1, 1, 1, generator=draws)[:, 0, 0, 0].double() for _ in range(3))
    s = 0.7 + 1.3 * s
    expected = torch.full_like(y, VOID)                                                     # outside there is no class
    for i in range(16):
        for row in range(16):
            for column in range(24):
                v = (row - 7.5 - (s[i] - 1) * (16 * down[i] - 8)) / s[i] + 7.5
                u = (column - 11.5 - (s[i] - 1) * (24 * right[i] - 12)) / s[i] + 11.5
                if -0.5 <= v < 15.5 and -0.5 <= u < 23.5:
                    expected[i, row, column] = y[i, int(v + 0.5), int(u + 0.5)]
    assert (moved["y"] == expected).float().mean() > 0.995                                  # a tie may round either way
    inside = moved["y"] != VOID
    assert ((moved["x"][:, 0] * 255).round() == moved["y"])[inside].float().mean() > 0.7    # all but the edges of blocks
    assert moved["y"].dtype == torch.uint8
    assert (Zoom(1.0, 3.0)({"x": batch["x"], "y": y * 0 + 7}, draws)["y"] == 7).all()         # enlarged: nothing comes from outside
    torch.testing.assert_close(Zoom(1.0, 1.0)(batch, draws), batch)


def test_colours_change_the_image_alone():
    batch = marked()
    changed = augmentations(("jitter", "noise"))(batch, torch.Generator().manual_seed(1))
    assert torch.equal(changed["y"], batch["y"]) and not torch.allclose(changed["x"], batch["x"])


def test_by_name():
    assert augmentations(()) is None
    with pytest.raises(UsageError, match="no augmentation of images with masks named 'flop'; did you mean 'flip'"):
        augmentations(("flop",))
    with pytest.raises(UsageError, match="named 'rotate'"):             # it would mix classes
        augmentations(("rotate",))
