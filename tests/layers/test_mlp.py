import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.layers.mlp import make_mlp_layers


def get_layer_names(module):
    return [type(m).__name__ for m in module]


def test_make_mlp_layers_orders_linear_norm_activation_dropout():
    assert get_layer_names(make_mlp_layers((5, 4, 3))) == ["Linear", "ReLU"] * 2
    assert get_layer_names(make_mlp_layers((5, 4), "tanh", 0.3, "batch")) == [
        "Linear",
        "BatchNorm1d",
        "Tanh",
        "Dropout",
    ]
    assert get_layer_names(make_mlp_layers((5, 4), "gelu", norm="layer")) == ["Linear", "LayerNorm", "GELU"]
    assert get_layer_names(make_mlp_layers((5,))) == []


def test_mlp_layers_compute_the_formula():
    torch.manual_seed(0)
    net, x = make_mlp_layers((5, 4, 3), "sigmoid"), torch.randn(7, 5)
    (w1, b1), (w2, b2) = ((m.weight, m.bias) for m in net if isinstance(m, nn.Linear))
    torch.testing.assert_close(net(x), torch.sigmoid(torch.sigmoid(x @ w1.T + b1) @ w2.T + b2))


def test_make_mlp_layers_refuses_invalid_options():
    with pytest.raises(UsageError, match="at least one unit"):
        make_mlp_layers((5, 0))
    with pytest.raises(UsageError, match="no norm named 'bath'; did you mean 'batch'"):
        make_mlp_layers((5, 4), norm="bath")
