import torch
from torch import nn

from didact.layers.adaptive_norm import AdaIN, ConditionalBatchNorm2d


def test_adain_gives_each_image_the_moments_of_its_style():
    torch.manual_seed(0)
    layer, x, w = AdaIN(4, 3), 5 + 2 * torch.randn(2, 4, 9, 11), torch.randn(2, 3)
    s, b = layer.style(w).chunk(2, dim=1)
    y = layer(x, w)
    torch.testing.assert_close(y.mean((2, 3)), b, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(y.std((2, 3), correction=0), s.abs(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(layer(3 * x - 7, w), y, atol=1e-4, rtol=1e-4)   # scale and shift of the image are gone


def test_conditional_batch_norm_of_one_class_is_batch_norm():
    torch.manual_seed(0)
    layer, reference = ConditionalBatchNorm2d(4, 3), nn.BatchNorm2d(4)
    nn.init.normal_(layer.gamma.weight)
    nn.init.normal_(layer.beta.weight)
    x, y = torch.randn(6, 4, 3, 5), torch.full((6,), 2)
    with torch.no_grad():
        reference.weight.copy_(layer.gamma.weight[2])
        reference.bias.copy_(layer.beta.weight[2])
    torch.testing.assert_close(layer(x, y), reference(x))
    torch.testing.assert_close(layer.eval()(x, y), reference.eval()(x))
    assert not torch.allclose(layer(x, y - 1), reference(x))
