import torch
from torch import nn

from didact.layers.flip_tta import FlipTTA


def test_flip_tta_averages_an_image_and_its_mirror_image():
    torch.manual_seed(0)
    net = FlipTTA(nn.Sequential(nn.Flatten(), nn.Linear(24, 3)))
    x = torch.randn(5, 1, 4, 6)
    assert torch.equal(net.train()(x), net.network(x))
    torch.testing.assert_close(net.eval()(x), net(x.flip(-1)))
    torch.testing.assert_close(net(x), (net.network(x) + net.network(x.flip(-1))) / 2)
    assert not torch.allclose(net(x), net.network(x))
