import torch
from torch.nn import functional as F

from didact.layers.conv.separable import SeparableConv2d, depthwise, pointwise


def test_separable_conv_is_the_full_convolution_of_products():
    layer, x = SeparableConv2d(3, 5, 3, stride=2), torch.randn(2, 3, 9, 12)
    d, p = layer.depthwise.weight, layer.pointwise.weight
    full = p * d[None, :, 0]                                           # (5, 3, 1, 1) * (1, 3, 3, 3): w_oc = p_oc d_c
    bias = layer.pointwise.bias + p[:, :, 0, 0] @ layer.depthwise.bias
    torch.testing.assert_close(layer(x), F.conv2d(x, full, bias, stride=2, padding=1), rtol=1e-5, atol=1e-5)


def test_depthwise_conv_filters_each_channel_separately():
    layer, x = depthwise(4, 5), torch.randn(1, 4, 7, 6)
    for c in range(4):
        expected = F.conv2d(x[:, c : c + 1], layer.weight[c : c + 1], padding=2)
        torch.testing.assert_close(layer(x)[:, c : c + 1], expected, rtol=1e-5, atol=1e-6)


def test_pointwise_conv_is_an_affine_map_at_each_pixel():
    layer, x = pointwise(4, 3, bias=True), torch.randn(2, 4, 5, 6)
    affine = F.linear(x.permute(0, 2, 3, 1), layer.weight[:, :, 0, 0], layer.bias).permute(0, 3, 1, 2)
    torch.testing.assert_close(layer(x), affine, rtol=1e-5, atol=1e-6)


def test_separable_conv_has_the_cost_ratio_of_gaba():
    def count_weights(layer):
        return sum(p.numel() for p in layer.parameters())

    c, k = 256, 3
    assert count_weights(SeparableConv2d(c, c, k, bias=False)) / (c * c * k * k) == 1 / c + 1 / k**2  # eq. 4.10
