import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from didact.layers.conv.residual import BasicBlock, Bottleneck


def conv2d_reference(x, w, stride):
    """Cross-correlation in NumPy, padded with zeros so that the size stays at stride 1."""
    (B, _, H, W), (O, _, k, _) = x.shape, w.shape
    x = np.pad(x, ((0, 0), (0, 0), (k // 2,) * 2, (k // 2,) * 2))
    y = np.zeros((B, O, (H - 1) // stride + 1, (W - 1) // stride + 1))
    for i in range(y.shape[2]):
        for j in range(y.shape[3]):
            window = x[:, :, i * stride : i * stride + k, j * stride : j * stride + k]
            y[:, :, i, j] = np.tensordot(window, w, axes=((1, 2, 3), (1, 2, 3)))
    return y


def batch_norm_reference(x, bn):
    mean, var = x.mean(axis=(0, 2, 3), keepdims=True), x.var(axis=(0, 2, 3), keepdims=True)
    gamma, beta = (p.detach().numpy()[:, None, None] for p in (bn.weight, bn.bias))
    return gamma * (x - mean) / np.sqrt(var + bn.eps) + beta


def relu_reference(x):
    return np.maximum(x, 0)


def get_weight(layer):
    return layer.weight.detach().numpy()


def randomize_norms(block):
    for m in block.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.normal_(m.weight), nn.init.normal_(m.bias)
    return block.double()


@pytest.mark.parametrize(("c_in", "stride"), [(4, 1), (3, 1), (3, 2)])
def test_basic_block_against_numpy(c_in, stride):
    torch.manual_seed(0)
    b, x = randomize_norms(BasicBlock(c_in, 4, stride=stride)), torch.randn(3, c_in, 5, 8, dtype=torch.float64)
    a = x.numpy()
    f = batch_norm_reference(
        conv2d_reference(
            relu_reference(batch_norm_reference(conv2d_reference(a, get_weight(b.conv1), stride), b.bn1)),
            get_weight(b.conv2),
            1,
        ),
        b.bn2,
    )
    skip = a if b.downsample is None else batch_norm_reference(conv2d_reference(a, get_weight(b.downsample[0]), stride),
        b.downsample[1])
    np.testing.assert_allclose(b(x).detach().numpy(), relu_reference(f + skip), atol=1e-10)


@pytest.mark.parametrize(("c_in", "stride"), [(8, 1), (3, 1), (3, 2)])
def test_bottleneck_against_numpy(c_in, stride):
    torch.manual_seed(0)
    b, x = randomize_norms(Bottleneck(c_in, 2, stride=stride)), torch.randn(3, c_in, 6, 5, dtype=torch.float64)
    a = x.numpy()
    f = relu_reference(batch_norm_reference(conv2d_reference(a, get_weight(b.conv1), 1), b.bn1))
    f = relu_reference(batch_norm_reference(conv2d_reference(f, get_weight(b.conv2), stride), b.bn2))
    f = batch_norm_reference(conv2d_reference(f, get_weight(b.conv3), 1), b.bn3)
    skip = (
        a
        if b.downsample is None
        else batch_norm_reference(conv2d_reference(a, get_weight(b.downsample[0]), stride), b.downsample[1])
    )
    assert (b.downsample is None) == (c_in == 8)
    np.testing.assert_allclose(b(x).detach().numpy(), relu_reference(f + skip), atol=1e-10)


def test_basic_block_with_pad_shortcut_and_without_shortcut():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 5, 7)
    padded, plain = (
        BasicBlock(3, 8, stride=2, shortcut="pad").eval(),
        BasicBlock(3, 8, stride=2, shortcut="none").eval(),
    )
    plain.load_state_dict(padded.state_dict())
    f = plain.bn2(plain.conv2(F.relu(plain.bn1(plain.conv1(x)))))
    skip = torch.zeros_like(f)
    skip[:, 2:5] = x[:, :, ::2, ::2]                                   # 5 new channels: 2 before, 3 after
    torch.testing.assert_close(plain(x), F.relu(f))
    torch.testing.assert_close(padded(x), F.relu(f + skip))


def test_dropped_residual_branch_leaves_the_skip():
    torch.manual_seed(0)
    block, x = BasicBlock(4, 4, drop_path=0.999), torch.randn(6, 4, 5, 5)
    torch.testing.assert_close(block(x), F.relu(x))
