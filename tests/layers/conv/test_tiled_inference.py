"""Tiled inference of a large image gives the output of the whole image."""

import pytest
import torch
from torch import nn

from didact.layers.conv.tiled_inference import TiledInference
from didact.models.vision.denoising_autoencoder import DenoisingAutoencoder


def make_denoiser(widths):
    torch.manual_seed(0)
    network = DenoisingAutoencoder(widths=widths)
    nn.init.normal_(network.head.weight, std=0.1)               # else the identity, which sees one pixel
    return network


@torch.no_grad()
@pytest.mark.parametrize("widths", [(4,), (4, 5), (4, 5, 6)])
@pytest.mark.parametrize("size", [(136, 72), (8, 200), (64, 64)])
def test_tiled_inference_matches_the_whole_image(widths, size):
    network, x = make_denoiser(widths), torch.rand(2, 3, *size)
    shapes = []
    network.register_forward_pre_hook(lambda module, inputs: shapes.append(tuple(inputs[0].shape[2:])))
    y = TiledInference(network, tile_size=32)(x)
    assert max(max(shape) for shape in shapes) < max(size) or size == (64, 64)      # never the whole image
    torch.testing.assert_close(y, network(x), rtol=0, atol=1e-5)


@torch.no_grad()
def test_tiled_inference_with_too_small_a_margin_differs(monkeypatch):
    network, x = make_denoiser((4, 5, 6)), torch.rand(1, 3, 64, 96)
    monkeypatch.setattr(TiledInference, "receptive_margin", lambda self, x: 4)
    assert (TiledInference(network, tile_size=32)(x) - network(x)).abs().max() > 1e-3


class AddGlobalMean(nn.Module):
    """Each output depends on all inputs."""

    def __init__(self):
        super().__init__()
        self.last = nn.Identity()

    def forward(self, x):
        return self.last(x + x.mean((2, 3), keepdim=True))

    def input_size_for(self, output_size):
        return output_size


@torch.no_grad()
def test_tiled_inference_gives_a_global_network_the_whole_image():
    x = torch.rand(1, 2, 90, 40)
    torch.testing.assert_close(TiledInference(AddGlobalMean(), tile_size=32)(x), x + x.mean((2, 3), keepdim=True))
