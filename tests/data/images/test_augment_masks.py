import pytest
import torch

from didact.data.core import IGNORE_LABEL
from didact.data.images.augment import Flip, RandomCrop
from didact.data.images.augment_masks import MaskTransform, MaskZoom, make_mask_augmentations
from didact.errors import UsageError


def make_batch():
    """Each pixel's color is its class, so that a misaligned mask is noticed."""
    torch.manual_seed(0)
    y = torch.randint(0, 200, (16, 6, 10), dtype=torch.uint8)
    return {"x": (y[:, None] / 255).expand(-1, 3, -1, -1).contiguous(), "y": y, "row": torch.arange(16)}


@pytest.mark.parametrize("transform", [Flip(0.5, 0.5), RandomCrop(padding=2)])
def test_mask_transform_moves_image_and_mask_alike(transform):
    batch = make_batch()
    output = MaskTransform(transform)(batch, torch.Generator().manual_seed(1))
    assert not torch.equal(output["y"], batch["y"]) and output["y"].dtype == torch.uint8
    torch.testing.assert_close(
        output["x"][:, 1] * 255, torch.where(output["y"] == IGNORE_LABEL, 0, output["y"]).float()
    )
    # black, and of no class: not class 0
    assert (output["y"] == IGNORE_LABEL).any() == isinstance(transform, RandomCrop)
    assert torch.equal(output["row"], batch["row"])
    image_output = transform({"x": batch["x"]}, torch.Generator().manual_seed(1))
    assert torch.equal(image_output["x"], output["x"])


def test_mask_zoom_reads_image_and_mask_at_the_same_position():
    """Pixel p of the result is q = (p - c - t) / s + c of the image, here computed by hand."""
    blocks = torch.randint(0, 9, (16, 4, 6), generator=torch.Generator().manual_seed(0))
    y = blocks.repeat_interleave(4, 1).repeat_interleave(4, 2).byte()                        # (16, 16, 24)
    batch = {"x": y[:, None].expand(-1, 3, -1, -1) / 255, "y": y}
    output = MaskZoom(0.7, 2.0)(batch, torch.Generator().manual_seed(1))
    draws = torch.Generator().manual_seed(1)
    s, right, down = (torch.rand(16, 1, 1, 1, generator=draws)[:, 0, 0, 0].double() for _ in range(3))
    s = 0.7 + 1.3 * s
    # outside there is no class
    expected = torch.full_like(y, IGNORE_LABEL)
    for i in range(16):
        for row in range(16):
            for column in range(24):
                v = (row - 7.5 - (s[i] - 1) * (16 * down[i] - 8)) / s[i] + 7.5
                u = (column - 11.5 - (s[i] - 1) * (24 * right[i] - 12)) / s[i] + 11.5
                if -0.5 <= v < 15.5 and -0.5 <= u < 23.5:
                    expected[i, row, column] = y[i, int(v + 0.5), int(u + 0.5)]
    # a tie may round either way
    assert (output["y"] == expected).float().mean() > 0.995
    is_inside = output["y"] != IGNORE_LABEL
    # all but the edges of blocks
    assert ((output["x"][:, 0] * 255).round() == output["y"])[is_inside].float().mean() > 0.7
    assert output["y"].dtype == torch.uint8
    # enlarged: nothing comes from outside
    assert (MaskZoom(1.0, 3.0)({"x": batch["x"], "y": y * 0 + 7}, draws)["y"] == 7).all()
    torch.testing.assert_close(MaskZoom(1.0, 1.0)(batch, draws), batch)


def test_color_augmentations_leave_the_mask_alone():
    batch = make_batch()
    output = make_mask_augmentations(("jitter", "noise"))(batch, torch.Generator().manual_seed(1))
    assert torch.equal(output["y"], batch["y"]) and not torch.allclose(output["x"], batch["x"])


def test_make_mask_augmentations_by_name():
    assert make_mask_augmentations(()) is None
    with pytest.raises(UsageError, match="no augmentation of images with masks named 'flop'; did you mean 'flip'"):
        make_mask_augmentations(("flop",))
    with pytest.raises(UsageError, match="named 'rotate'"):             # it would mix classes
        make_mask_augmentations(("rotate",))
