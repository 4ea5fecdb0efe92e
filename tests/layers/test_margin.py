import numpy as np
import pytest
import torch
from torch import nn

from didact.layers.margin import Whole, mirrored
from didact.models.unet import UNet


@pytest.mark.parametrize(("small", "large"), [((3, 5), (4, 9)), ((2, 7), (30, 8)), ((1, 4), (5, 4)), ((6, 6), (6, 6))])
def test_mirrored_as_numpy_does(small, large):
    x = torch.rand(2, 3, *small)
    sides = [((b - a) // 2, b - a - (b - a) // 2) for a, b in zip(small, large, strict=True)]
    expected = np.pad(x.numpy(), [(0, 0), (0, 0), *sides], mode="reflect")
    assert np.array_equal(mirrored(x, large).numpy(), expected)


@pytest.mark.parametrize(("levels", "padded", "side", "least"), [
    (4, False, 388, 572), (4, False, 373, 572), (4, False, 389, 588), (4, True, 388, 400), (1, True, 7, 8), (2, False, 1, 44),
])
def test_the_least_side_that_covers(levels, padded, side, least):
    """572 pixels give 388 in Ronneberger's figure 1; sides between come in steps of 2^levels."""
    net = UNet(widths=(2,) * (levels + 1), channels=1, padded=padded)
    assert net.side_for(side) == least
    with torch.no_grad():
        assert net(torch.zeros(1, 1, least, least)).shape[2] >= side


def test_every_pixel_is_answered_in_its_place():
    """A network that only crops what it gets: the image comes back as it was."""
    class Crop(nn.Module):
        def side_for(self, side):
            return side + 9

        def forward(self, x):
            return x[:, :, 4:-4, 4:-4]

    x = torch.rand(2, 3, 5, 8)
    assert torch.equal(Whole(Crop())(x), x)
