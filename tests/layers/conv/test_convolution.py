import numpy as np
import pytest
import torch
from torch.nn import functional as F

from didact.errors import UsageError
from didact.layers.conv.convolution import DeformableConv2d, SameConv2d, deformable_conv2d, dilated_conv, upsample_conv


def test_dilated_conv_spreads_its_taps_and_keeps_the_size():
    layer, x = dilated_conv(2, 3, 3, dilation=4), torch.randn(1, 2, 11, 7)
    spread_weight = torch.zeros(3, 2, 9, 9)
    spread_weight[:, :, ::4, ::4] = layer.weight.detach()
    torch.testing.assert_close(layer(x), F.conv2d(x, spread_weight, layer.bias, padding=4), rtol=1e-5, atol=1e-5)
    with pytest.raises(UsageError, match="odd kernel only, got kernel_size=4"):
        dilated_conv(2, 3, 4)


def test_upsample_conv_lays_patches_side_by_side():
    layer, x = upsample_conv(2, 3, 3), torch.randn(1, 2, 4, 5)
    y = layer(x)
    assert y.shape == (1, 3, 12, 15)
    patch = torch.einsum("c,cokl->okl", x[0, :, 2, 1], layer.weight) + layer.bias[:, None, None]
    torch.testing.assert_close(y[0, :, 6:9, 3:6], patch)


@pytest.mark.parametrize("size", [(7, 10), (8, 5), (1, 1), (224, 113)])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (5, 2), (3, 1), (1, 1), (2, 2)])
def test_same_conv_pads_like_tensorflow(size, kernel, stride):
    layer, x = SameConv2d(1, 1, kernel, stride=stride, bias=False), torch.randn(1, 1, *size)
    y = layer(x)
    assert y.shape[2:] == tuple(-(-side // stride) for side in size)
    # the center of an output's window, from TensorFlow's rule: the smaller half of the padding comes first
    leading_padding = [max(0, (-(-s // stride) - 1) * stride + kernel - s) // 2 for s in size]
    padded = F.pad(x, (leading_padding[1], kernel, leading_padding[0], kernel))
    torch.testing.assert_close(y, F.conv2d(padded, layer.weight, stride=stride)[..., : y.shape[2], : y.shape[3]])


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2)])
def test_deformable_conv_without_offsets_is_a_convolution(stride, padding, dilation):
    torch.manual_seed(0)
    layer = DeformableConv2d(3, 4, 3, stride=stride, padding=padding, dilation=dilation)
    x = torch.randn(2, 3, 7, 9)
    expected = F.conv2d(x, layer.conv.weight, layer.conv.bias, stride, padding, dilation)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)


def interpolate_bilinear(image, y, x):
    """The value between the four pixels around (y, x); 0 outside."""
    total, (H, W) = 0.0, image.shape
    for i in (int(np.floor(y)), int(np.floor(y)) + 1):
        for j in (int(np.floor(x)), int(np.floor(x)) + 1):
            if 0 <= i < H and 0 <= j < W:
                total += image[i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
    return total


@pytest.mark.parametrize("dtype", [torch.float64])
def test_deformable_conv_matches_plain_loops(dtype):
    torch.manual_seed(0)
    x, weight, bias = (
        torch.randn(2, 2, 5, 6, dtype=dtype),
        torch.randn(3, 2, 3, 2, dtype=dtype),
        torch.randn(3, dtype=dtype),
    )
    stride, padding, dilation = 2, 1, 2
    Ho, Wo = F.conv2d(x, weight, None, stride, padding, dilation).shape[2:]
    offset = 2 * torch.randn(2, 2 * 6, Ho, Wo, dtype=dtype)            # far enough to leave the image
    y = deformable_conv2d(x, offset, weight, bias, stride=stride, padding=padding, dilation=dilation)
    for b, o, i, j in np.ndindex(2, 3, Ho, Wo):
        value = float(bias[o])
        for c, r, s in np.ndindex(2, 3, 2):
            dy, dx = offset[b, 2 * (2 * r + s) : 2 * (2 * r + s) + 2, i, j].tolist()
            sample_position = (i * stride - padding + r * dilation + dy, j * stride - padding + s * dilation + dx)
            value += float(weight[o, c, r, s]) * interpolate_bilinear(x[b, c].numpy(), *sample_position)
        assert abs(float(y[b, o, i, j]) - value) < 1e-9


def test_deformable_conv_gradients_match_finite_differences():
    torch.manual_seed(0)
    x, weight = torch.randn(1, 2, 4, 5, dtype=torch.float64), torch.randn(2, 2, 2, 2, dtype=torch.float64)
    offset = torch.rand(1, 8, 3, 4, dtype=torch.float64) * 0.8 + 0.1   # away from the kinks at whole pixels
    assert torch.autograd.gradcheck(deformable_conv2d, [t.requires_grad_() for t in (x, offset, weight)])


def test_deformable_conv_offsets_learn_a_shift():
    """The image shifted by a pixel: starting from zero, the offsets alone learn the shift."""
    torch.manual_seed(0)
    layer = DeformableConv2d(1, 1, 1)
    layer.requires_grad_(False)
    layer.offset.bias.requires_grad_()
    layer.conv.weight.fill_(1), layer.conv.bias.fill_(0)
    x = F.interpolate(torch.randn(8, 1, 5, 5), size=(20, 20), mode="bicubic")
    optimizer = torch.optim.Adam([layer.offset.bias], lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        (layer(x)[..., :-1] - x[..., 1:]).square().mean().backward()
        optimizer.step()
    torch.testing.assert_close(layer.offset.bias.detach(), torch.tensor([0.0, 1.0]), atol=0.05, rtol=0)
