from itertools import pairwise

import pytest
import torch
from torch import nn

from didact.layers.initialise import initialise
from didact.layers.propagation import propagation
from didact.layers.stack import stack


def deep(activation, scheme, *, layers=20, width=256, seed=0):
    torch.manual_seed(seed)
    net = stack((width,) * (layers + 1), activation)
    initialise(net, scheme, activation=activation)
    return net


def affine(rows):
    return [r for r in rows if r["kind"] == "Linear"]


def test_by_hand():
    net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU())
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0], [-3.0]]))
    rows = propagation(net, torch.tensor([[2.0]]), lambda y: 5 * y.sum())
    # z = (2, -6), h = (2, 0); dL/dh = (5, 5), dL/dz = (5, 0)
    assert rows == [
        {"layer": "0", "kind": "Linear", "mean": -2, "variance": 16, "gradient_mean": 2.5, "gradient_variance": 6.25},
        {"layer": "1", "kind": "ReLU", "mean": 1, "variance": 1, "gradient_mean": 5, "gradient_variance": 0},
    ]


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_transposed_convolution_is_a_layer_too(d):
    """One number becomes two, (1, -3) times it: the affine map of the hand-worked case."""
    layer = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[d - 1](1, 1, (2,) + (1,) * (d - 1), bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, -3.0]).view_as(layer.weight))
    before, after = propagation(nn.Sequential(layer, nn.ReLU()), torch.full((1,) * (2 + d), 2.0), lambda y: 5 * y.sum())
    expected = {"mean": -2, "variance": 16, "gradient_mean": 2.5, "gradient_variance": 6.25}
    assert before == {"layer": "0", "kind": f"ConvTranspose{d}d", **expected} and after["variance"] == 1


def test_gradients_of_a_deep_sigmoid_net_vanish():
    rows = affine(propagation(deep("sigmoid", "xavier_normal"), torch.randn(64, 256)))
    ratios = [a["gradient_variance"] / b["gradient_variance"] for a, b in pairwise(rows)]
    assert max(ratios) < 1 / 10        # sigma' <= 1/4 and Var W = 1/n: at most 1/16 a layer, but for sampling
    assert rows[0]["gradient_variance"] < 1e-20 * rows[-1]["gradient_variance"]


@pytest.mark.parametrize("scheme", ["he_normal", "he_uniform", "orthogonal"])
def test_he_keeps_the_signal_through_relu(scheme):
    # theory speaks of the mean over networks: one alone wanders by sqrt(5 * 20 / width) in log variance
    nets = [affine(propagation(deep("relu", scheme, seed=seed), torch.randn(64, 256))) for seed in range(8)]
    for key, entry in [("variance", 0), ("gradient_variance", -1)]:
        means = [sum(row[key] for row in layer) / 8 for layer in zip(*nets, strict=True)]
        assert all(means[entry] / 2 < m < 2 * means[entry] for m in means)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "arctan", "leaky_relu", "elu"])
def test_its_gain_keeps_the_signal_through_other_activations(name):
    rows = affine(propagation(deep(name, "he_normal", width=512), torch.randn(64, 512)))
    assert all(1 / 3 < r["variance"] + r["mean"] ** 2 < 3 for r in rows[1:])


@pytest.mark.parametrize(("std", "explodes"), [(1.0, True), (0.01, False)])
def test_a_bad_scale_explodes_or_vanishes(std, explodes):
    net = deep("relu", "pytorch")
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)
    rows = affine(propagation(net, torch.randn(64, 256)))
    for key, first, last in [("variance", 0, -1), ("gradient_variance", -1, 0)]:
        ratio = rows[last][key] / rows[first][key]
        assert ratio > 1e30 if explodes else ratio < 1e-30


def test_leaves_everything_as_it_was():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(), nn.Flatten(),
                        nn.Linear(60, 2))
    state = {k: v.clone() for k, v in net.state_dict().items()}
    x = torch.randn(6, 3, 5, 7)
    torch.manual_seed(3)
    rows = propagation(net, x)
    after = torch.rand(2)
    torch.manual_seed(3)
    torch.testing.assert_close(after, torch.rand(2), rtol=0, atol=0)
    assert [r["kind"] for r in rows] == ["Conv2d", "ReLU", "Linear"]
    assert all(p.grad is None for p in net.parameters())
    assert not any(m._forward_hooks for m in net.modules())
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=0)


def test_an_inplace_activation_does_not_overwrite_what_came_before():
    torch.manual_seed(0)
    plain, x = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)), torch.randn(4, 5)
    inplace = nn.Sequential(plain[0], nn.ReLU(inplace=True), plain[2])
    assert propagation(plain, x) == propagation(inplace, x)
