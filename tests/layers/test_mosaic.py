"""A large image in tiles gives what it gives at once."""

import pytest
import torch
from torch import nn

from didact.layers.mosaic import Mosaic
from didact.models.denoiser import Denoiser


def denoiser(widths):
    torch.manual_seed(0)
    network = Denoiser(widths=widths)
    nn.init.normal_(network.head.weight, std=0.1)               # else it would be the identity, which sees one pixel
    return network


@torch.no_grad()
@pytest.mark.parametrize("widths", [(4,), (4, 5), (4, 5, 6)])
@pytest.mark.parametrize("size", [(136, 72), (8, 200), (64, 64)])
def test_tiles_are_the_whole(widths, size):
    network, x = denoiser(widths), torch.rand(2, 3, *size)
    shapes = []
    network.register_forward_pre_hook(lambda module, inputs: shapes.append(tuple(inputs[0].shape[2:])))
    y = Mosaic(network, side=32)(x)
    assert max(max(shape) for shape in shapes) < max(size) or size == (64, 64)      # never the image at once
    torch.testing.assert_close(y, network(x), rtol=0, atol=1e-5)


@torch.no_grad()
def test_an_overlap_that_is_too_small_would_be_seen(monkeypatch):
    network, x = denoiser((4, 5, 6)), torch.rand(1, 3, 64, 96)
    monkeypatch.setattr(Mosaic, "reach", lambda self, x: 4)
    assert (Mosaic(network, side=32)(x) - network(x)).abs().max() > 1e-3


class Mean(nn.Module):
    """Each output sees all."""

    def __init__(self):
        super().__init__()
        self.last = nn.Identity()

    def forward(self, x):
        return self.last(x + x.mean((2, 3), keepdim=True))

    def side_for(self, side):
        return side


@torch.no_grad()
def test_who_sees_all_is_given_all():
    x = torch.rand(1, 2, 90, 40)
    torch.testing.assert_close(Mosaic(Mean(), side=32)(x), x + x.mean((2, 3), keepdim=True))
