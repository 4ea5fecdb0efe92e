from itertools import pairwise

import pytest
import torch
from torch import nn

from didact.analysis.signal_propagation import measure_signal_propagation
from didact.layers.init import init_weights
from didact.layers.mlp import make_mlp_layers


def make_deep_network(activation, scheme, *, layers=20, width=256, seed=0, gain_of=None):
    torch.manual_seed(seed)
    net = make_mlp_layers((width,) * (layers + 1), activation)
    init_weights(net, scheme, activation=gain_of or activation)
    return net


def select_affine_rows(rows):
    return [r for r in rows if r["kind"] == "Linear"]


def test_signal_propagation_matches_hand_values():
    net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU())
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0], [-3.0]]))
    rows = measure_signal_propagation(net, torch.tensor([[2.0]]), lambda y: 5 * y.sum())
    # z = (2, -6), h = (2, 0); dL/dh = (5, 5), dL/dz = (5, 0)
    assert rows == [
        {"layer": "0", "kind": "Linear", "mean": -2, "variance": 16, "gradient_mean": 2.5, "gradient_variance": 6.25},
        {"layer": "1", "kind": "ReLU", "mean": 1, "variance": 1, "gradient_mean": 5, "gradient_variance": 0},
    ]


@pytest.mark.parametrize("d", [1, 2, 3])
def test_signal_propagation_records_transposed_convolutions(d):
    """One number becomes two, (1, -3) times it: the affine map of the case worked out by hand."""
    layer = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[d - 1](1, 1, (2,) + (1,) * (d - 1), bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, -3.0]).view_as(layer.weight))
    conv_row, relu_row = measure_signal_propagation(
        nn.Sequential(layer, nn.ReLU()), torch.full((1,) * (2 + d), 2.0), lambda y: 5 * y.sum()
    )
    expected = {"mean": -2, "variance": 16, "gradient_mean": 2.5, "gradient_variance": 6.25}
    assert conv_row == {"layer": "0", "kind": f"ConvTranspose{d}d", **expected} and relu_row["variance"] == 1


def test_gradients_of_a_deep_sigmoid_net_vanish():
    net = make_deep_network("sigmoid", "xavier_normal", gain_of="linear")
    rows = select_affine_rows(measure_signal_propagation(net, torch.randn(64, 256)))
    ratios = [a["gradient_variance"] / b["gradient_variance"] for a, b in pairwise(rows)]
    assert max(ratios) < 1 / 10        # sigma' <= 1/4 and Var W = 1/n: at most 1/16 a layer, but for sampling
    assert rows[0]["gradient_variance"] < 1e-20 * rows[-1]["gradient_variance"]


@pytest.mark.parametrize("scheme", ["he_normal", "he_uniform", "orthogonal"])
def test_he_init_keeps_the_signal_through_relu(scheme):
    # theory is about the mean over networks: a single one varies by sqrt(5 * 20 / width) in log variance
    nets = [
        select_affine_rows(
            measure_signal_propagation(make_deep_network("relu", scheme, seed=seed), torch.randn(64, 256))
        )
        for seed in range(8)
    ]
    for key, entry in [("variance", 0), ("gradient_variance", -1)]:
        means = [sum(row[key] for row in layer) / 8 for layer in zip(*nets, strict=True)]
        assert all(means[entry] / 2 < m < 2 * means[entry] for m in means)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "arctan", "leaky_relu", "elu"])
def test_activation_gain_keeps_the_signal_through_other_activations(name):
    rows = select_affine_rows(
        measure_signal_propagation(make_deep_network(name, "he_normal", width=512), torch.randn(64, 512))
    )
    assert all(1 / 3 < r["variance"] + r["mean"] ** 2 < 3 for r in rows[1:])


@pytest.mark.parametrize(("std", "explodes"), [(1.0, True), (0.01, False)])
def test_signal_explodes_or_vanishes_with_a_bad_scale(std, explodes):
    net = make_deep_network("relu", "pytorch")
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)
    rows = select_affine_rows(measure_signal_propagation(net, torch.randn(64, 256)))
    for key, first, last in [("variance", 0, -1), ("gradient_variance", -1, 0)]:
        ratio = rows[last][key] / rows[first][key]
        assert ratio > 1e30 if explodes else ratio < 1e-30


def test_signal_propagation_leaves_network_and_rng_unchanged():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(), nn.Flatten(),
                        nn.Linear(60, 2))
    state = {k: v.clone() for k, v in net.state_dict().items()}
    x = torch.randn(6, 3, 5, 7)
    torch.manual_seed(3)
    rows = measure_signal_propagation(net, x)
    random_after = torch.rand(2)
    torch.manual_seed(3)
    torch.testing.assert_close(random_after, torch.rand(2), rtol=0, atol=0)
    assert [r["kind"] for r in rows] == ["Conv2d", "ReLU", "Linear"]
    assert all(p.grad is None for p in net.parameters())
    assert not any(m._forward_hooks for m in net.modules())
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=0)


def test_signal_propagation_is_unaffected_by_inplace_activations():
    torch.manual_seed(0)
    plain, x = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)), torch.randn(4, 5)
    inplace = nn.Sequential(plain[0], nn.ReLU(inplace=True), plain[2])
    assert measure_signal_propagation(plain, x) == measure_signal_propagation(inplace, x)
