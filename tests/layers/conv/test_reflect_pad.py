import numpy as np
import pytest
import torch
from torch import nn

from didact.layers.conv.reflect_pad import ReflectPadded, reflect_pad_to
from didact.models.vision.unet import UNet


@pytest.mark.parametrize(("small", "large"), [((3, 5), (4, 9)), ((2, 7), (30, 8)), ((1, 4), (5, 4)), ((6, 6), (6, 6))])
def test_reflect_pad_matches_numpy(small, large):
    x = torch.rand(2, 3, *small)
    sides = [((b - a) // 2, b - a - (b - a) // 2) for a, b in zip(small, large, strict=True)]
    expected = np.pad(x.numpy(), [(0, 0), (0, 0), *sides], mode="reflect")
    assert np.array_equal(reflect_pad_to(x, large).numpy(), expected)


@pytest.mark.parametrize(
    ("levels", "padded", "side", "expected_side"),
    [
        (4, False, 388, 572),
        (4, False, 373, 572),
        (4, False, 389, 588),
        (4, True, 388, 400),
        (1, True, 7, 8),
        (2, False, 1, 44),
    ],
)
def test_unet_input_size_for_is_the_smallest_that_covers(levels, padded, side, expected_side):
    """572 pixels give 388 in Ronneberger's figure 1; sizes come in steps of 2^levels."""
    net = UNet(widths=(2,) * (levels + 1), channels=1, padded=padded)
    assert net.input_size_for(side) == expected_side
    with torch.no_grad():
        assert net(torch.zeros(1, 1, expected_side, expected_side)).shape[2] >= side


def test_reflect_padded_keeps_every_pixel_in_place():
    """A network that only crops its input: the image is returned unchanged."""
    class Crop(nn.Module):
        def input_size_for(self, output_size):
            return output_size + 9

        def forward(self, x):
            return x[:, :, 4:-4, 4:-4]

    x = torch.rand(2, 3, 5, 8)
    assert torch.equal(ReflectPadded(Crop())(x), x)
