import pytest
import torch
from torch import nn

from didact.models import MLP, WideDeep
from didact.registry import create_model


def count_parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_mlp_parameter_counts_match_the_courses():
    # Gaba 1.2
    assert count_parameters(create_model("mlp", features=784, outputs=10)) == 235_146
    assert count_parameters(MLP(784, 10, hidden=(256, 256), dropout=0.3, norm="batch")) == 270_346          # Gaba 3.10
    assert count_parameters(MLP(100, 10, hidden=(100,), dropout=0.5, norm="batch")) == 11_310               # Lhotte 4.4
    assert count_parameters(MLP(2, 1, hidden=(16, 16))) == 337                                              # Lhotte 3.2
    # Lhotte 1.3
    assert count_parameters(create_model("mlp_tiny", features=10, outputs=1)) == 385


def test_regularized_mlp_has_gabas_layers():
    layer_names = [type(m).__name__ for m in MLP(784, 10, hidden=(256, 256), dropout=0.3, norm="batch").hidden]
    assert layer_names == ["Linear", "BatchNorm1d", "ReLU", "Dropout"] * 2


@pytest.mark.parametrize("cls", [MLP, WideDeep])
def test_mlps_standardize_then_flatten(cls):
    torch.manual_seed(0)
    x, mean, std = torch.rand(4, 3, 5, 7), torch.rand(3, 1, 1), torch.rand(3, 1, 1) + 0.5
    torch.manual_seed(1)
    standardized = cls(105, 2, hidden=(6,), mean=mean, std=std)
    torch.manual_seed(1)
    plain = cls(105, 2, hidden=(6,))
    torch.testing.assert_close(standardized(x), plain(((x - mean) / std).reshape(4, 105)))


@pytest.mark.parametrize("cls", [MLP, WideDeep])
def test_mlps_without_hidden_layers_are_linear(cls):
    model, a, b = cls(6, 2, hidden=()), torch.randn(3, 6), torch.randn(3, 6)
    torch.testing.assert_close(model(a + b) + model(torch.zeros(3, 6)), model(a) + model(b))


def test_wide_and_deep_is_the_sum_of_both():
    torch.manual_seed(0)
    model, x = WideDeep(6, 3, hidden=(5, 4), activation="tanh"), torch.randn(7, 6)
    deep = MLP(6, 3, hidden=(5, 4), activation="tanh")
    deep.hidden.load_state_dict(model.hidden.state_dict())
    deep.head.load_state_dict(model.deep.state_dict())
    torch.testing.assert_close(model(x), x @ model.wide.weight.T + deep(x))
    assert count_parameters(model) == count_parameters(deep) + 3 * 6


@pytest.mark.parametrize("cls", [MLP, WideDeep])
def test_mlps_pass_init_and_activation_to_their_layers(cls):
    model = cls(40, 3, hidden=(30, 20), init="orthogonal", activation="relu")
    w = model.hidden[0].weight
    torch.testing.assert_close(w @ w.T, 2 * torch.eye(30), atol=1e-5, rtol=0)
    assert all(not m.bias.any() for m in model.modules() if isinstance(m, nn.Linear) and m.bias is not None)


def test_mlp_learns_two_spirals():
    torch.manual_seed(0)
    t = torch.linspace(0.5, 3, 200).repeat(2)
    y = torch.arange(2).repeat_interleave(200)
    x = torch.stack((t * torch.cos(3 * t + torch.pi * y), t * torch.sin(3 * t + torch.pi * y)), dim=1)
    model = MLP(2, 2, hidden=(64, 64), mean=x.mean(0), std=x.std(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model(x).argmax(1) == y).float().mean() > 0.98  # a line reaches about 0.6
