import torch
from torch import nn

from didact.layers.adain import AdaIN, ConditionalBatchNorm2d


def test_every_image_takes_on_the_moments_of_its_style():
    torch.manual_seed(0)
    layer, x, w = AdaIN(4, 3), 5 + 2 * torch.randn(2, 4, 9, 11), torch.randn(2, 3)
    s, b = layer.style(w).chunk(2, dim=1)
    y = layer(x, w)
    torch.testing.assert_close(y.mean((2, 3)), b, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(y.std((2, 3), correction=0), s.abs(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(layer(3 * x - 7, w), y, atol=1e-4, rtol=1e-4)   # what the image brought along is gone


def test_a_class_alone_is_batch_norm():
    torch.manual_seed(0)
    ours, theirs = ConditionalBatchNorm2d(4, 3), nn.BatchNorm2d(4)
    nn.init.normal_(ours.gamma.weight)
    nn.init.normal_(ours.beta.weight)
    x, y = torch.randn(6, 4, 3, 5), torch.full((6,), 2)
    with torch.no_grad():
        theirs.weight.copy_(ours.gamma.weight[2])
        theirs.bias.copy_(ours.beta.weight[2])
    torch.testing.assert_close(ours(x, y), theirs(x))
    torch.testing.assert_close(ours.eval()(x, y), theirs.eval()(x))
    assert not torch.allclose(ours(x, y - 1), theirs(x))
