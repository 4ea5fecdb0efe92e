import pytest
import torch

from didact.data.augment import Flip, ShiftCrop
from didact.data.paired import Paired, augmentations
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
    torch.testing.assert_close(moved["x"][:, 1] * 255, moved["y"].float())
    assert torch.equal(moved["row"], batch["row"])
    alone = move({"x": batch["x"]}, torch.Generator().manual_seed(1))
    assert torch.equal(alone["x"], moved["x"])


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
