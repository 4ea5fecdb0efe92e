import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.layers.stack import stack


def kinds(module):
    return [type(m).__name__ for m in module]


def test_order_of_the_parts():
    assert kinds(stack((5, 4, 3))) == ["Linear", "ReLU"] * 2
    assert kinds(stack((5, 4), "tanh", 0.3, "batch")) == ["Linear", "BatchNorm1d", "Tanh", "Dropout"]
    assert kinds(stack((5, 4), "gelu", norm="layer")) == ["Linear", "LayerNorm", "GELU"]
    assert kinds(stack((5,))) == []


def test_value():
    torch.manual_seed(0)
    net, x = stack((5, 4, 3), "sigmoid"), torch.randn(7, 5)
    (w1, b1), (w2, b2) = ((m.weight, m.bias) for m in net if isinstance(m, nn.Linear))
    torch.testing.assert_close(net(x), torch.sigmoid(torch.sigmoid(x @ w1.T + b1) @ w2.T + b2))


def test_mistakes():
    with pytest.raises(UsageError, match="at least one unit"):
        stack((5, 0))
    with pytest.raises(UsageError, match="no norm named 'bath'; did you mean 'batch'"):
        stack((5, 4), norm="bath")
