import pytest
import torch
from torch import nn
from torch.testing import assert_close

from didact.layers.conv.fpn import AnchorHead, Backbone, FeaturePyramid, set_prior_bias, size_after_strides
from didact.models.vision.ssd import SSD
from didact.models.vision.yolo import YOLO


@pytest.mark.parametrize("size", [(64, 64), (35, 44), (1, 3), (240, 320)])
def test_backbone_maps_have_the_expected_sizes(size):
    maps = Backbone(2, (4, 4, 4, 4), 1)(torch.rand(2, 2, *size))
    assert [tuple(m.shape[2:]) for m in maps] == [size_after_strides(size, n) for n in (1, 2, 3, 4)]


def test_feature_pyramid_adds_upsampled_coarse_maps():
    """One channel, weights one: a fine pixel is its own value plus that of the coarse pixel above it."""
    neck = FeaturePyramid((1, 1), 1, num_outputs=1)
    for lateral in neck.lateral:
        nn.init.ones_(lateral.weight)
        nn.init.zeros_(lateral.bias)
    neck.smooth[0] = nn.Identity()
    fine, coarse = torch.arange(15.0).view(1, 1, 3, 5), torch.tensor([[[[100.0, 200, 300], [400, 500, 600]]]])
    (merged,) = neck([fine, coarse])
    assert_close(merged[0, 0], fine[0, 0] + torch.tensor([
        [100.0, 100, 200, 200, 300], [100.0, 100, 200, 200, 300], [400.0, 400, 500, 500, 600],
    ]))


def test_anchor_head_groups_the_outputs_of_a_cell():
    head = AnchorHead(3, 2, 5)
    set_prior_bias(head, slice(4, 5), -4.0)
    x = torch.rand(2, 3, 4, 6)
    y = head(x)
    assert y.shape == (2, 4 * 6 * 2, 5)
    assert_close(y.view(2, 4, 6, 2, 5)[1, 2, 5, 1], head.conv(x)[1, 5:, 2, 5])             # row 2, column 5, second box
    assert_close(head(torch.zeros(1, 3, 1, 1))[0], torch.tensor([0.0, 0, 0, 0, -4]).expand(2, 5))


def test_detectors_have_the_expected_outputs_per_box():
    """k (4 + C + 1) channels of an SSD (MF09), k (5 + K) of a YOLO (Gaba 12.1.1)."""
    ssd = SSD(widths=(4, 4, 4, 4), levels=2, num_classes=7, size=(50, 70), neck=8, sizes=torch.full((2, 5, 2), 0.2))
    assert [head.conv.out_channels for head in ssd.heads] == [5 * (4 + 7 + 1)] * 2
    assert ssd(torch.rand(2, 3, 50, 70)).shape == (2, len(ssd.anchors), 12)
    assert len(ssd.anchors) == 5 * (7 * 9 + 4 * 5)
    yolo = YOLO(widths=(4, 4, 4, 4), stride=8, num_classes=7, size=(50, 70), neck=8)
    assert yolo(torch.rand(2, 3, 50, 70)).shape == (2, 7 * 9 * 5, 12) and yolo.head.conv.out_channels == 5 * 12
    assert_close(yolo.cell, torch.tensor([1 / 9, 1 / 7]))


@pytest.mark.parametrize(("make", "message"), [
    (lambda: SSD(widths=(4, 4), levels=2), "uses 1 to 1 maps"),
    (lambda: YOLO(widths=(4, 4, 4), stride=12), r"a stride among \[4, 8\], got 12"),
    (lambda: YOLO(widths=(4, 4, 4), stride=16), "got 16"),
])
def test_detectors_refuse_impossible_maps(make, message):
    with pytest.raises(ValueError, match=message):
        make()
