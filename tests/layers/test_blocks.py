"""Positions, norms, feed-forward networks and experts, against PyTorch and closed forms."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from didact.errors import UsageError
from didact.layers.feedforward import FeedForward, SwiGLU
from didact.layers.moe import MixtureOfExperts, balance_loss, route
from didact.layers.norms import PostNorm, PreNorm, norm, rms_norm
from didact.layers.penalty import penalty
from didact.layers.positions import LearnedPositions, Sinusoidal, rotation, sinusoidal, turn, turn_pairs


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_sinusoidal_positions_are_the_formula():
    table = sinusoidal(50, 6)
    for p, i in ((0, 0), (3, 1), (49, 2)):
        assert table[p, 2 * i].item() == pytest.approx(math.sin(p / 10_000 ** (2 * i / 6)), abs=1e-6)
        assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(p / 10_000 ** (2 * i / 6)), abs=1e-6)
    assert sinusoidal(4, 5).shape == (4, 5)
    products = table @ table.T                                # relative: PE_p · PE_{p+k} depends on k alone (Gaba eq. 7.6)
    for k in (1, 7):
        torch.testing.assert_close(products.diagonal(k), products[0, k].expand(50 - k), atol=1e-4, rtol=0)
    x = torch.randn(2, 7, 6)
    torch.testing.assert_close(Sinusoidal(50, 6)(x) - x, table[:7].expand(2, 7, 6))
    assert not Sinusoidal(50, 6).state_dict()


def test_learned_positions_are_added():
    layer, x = LearnedPositions(10, 6), torch.randn(2, 7, 6)
    torch.testing.assert_close(layer(x), x + layer.table[:7])


@pytest.mark.parametrize("how", [turn, turn_pairs])
def test_rotary_scores_depend_on_the_offset_alone(how):
    q, k = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    by = rotation(torch.arange(40), 8)
    turned_q, turned_k = how(q.expand(40, 8), by), how(k.expand(40, 8), by)
    scores = turned_q @ turned_k.T
    for offset in (-9, 0, 5):
        row = scores.diagonal(offset)
        torch.testing.assert_close(row, row[:1].expand_as(row), atol=1e-5, rtol=0)
    torch.testing.assert_close(turned_q.norm(dim=-1), q.norm().expand(40))
    torch.testing.assert_close(turned_q[0], q)


def test_rotary_is_multiplication_by_e_to_the_i_p_theta():
    x, theta = torch.randn(5, 8, dtype=torch.float64), 10_000 ** (-torch.arange(4, dtype=torch.float64) / 4)
    angle = torch.arange(5)[:, None] * theta
    pairs = torch.view_as_complex(x.view(5, 4, 2)) * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(turn_pairs(x, rotation(torch.arange(5), 8)), torch.view_as_real(pairs).flatten(1), atol=1e-5, rtol=1e-5)
    halves = torch.complex(x[:, :4], x[:, 4:]) * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(turn(x, rotation(torch.arange(5), 8)), torch.cat([halves.real, halves.imag], 1), atol=1e-5, rtol=1e-5)


def test_rms_norm_is_pytorchs():
    x, gamma = torch.randn(2, 5, 7), torch.randn(7)
    torch.testing.assert_close(rms_norm(x, gamma, eps=1e-5), F.rms_norm(x, (7,), gamma, 1e-5))
    layer = norm("rms", 7)
    torch.testing.assert_close(layer(x), rms_norm(x, layer.weight))
    centred = x - x.mean(-1, keepdim=True)                    # of inputs with mean 0 it is a layer norm
    torch.testing.assert_close(rms_norm(centred, torch.ones(7), eps=1e-5), F.layer_norm(x, (7,)))
    with pytest.raises(UsageError, match="no norm named 'rmss'"):
        norm("rmss", 7)


@pytest.mark.parametrize("first", [True, False])
def test_norms_before_and_after_are_pytorchs_encoder_layer(first):
    theirs = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True, norm_first=first)
    feed = FeedForward(12, 24)
    feed.load_state_dict({"w1.weight": theirs.linear1.weight, "w1.bias": theirs.linear1.bias,
                          "w2.weight": theirs.linear2.weight, "w2.bias": theirs.linear2.bias})
    x = torch.randn(2, 5, 12)
    u = theirs.norm1(x + theirs._sa_block(x, None, None)) if not first else x + theirs._sa_block(theirs.norm1(x), None, None)
    block = (PreNorm if first else PostNorm)(feed, theirs.norm2)
    torch.testing.assert_close(block(u), theirs(x), atol=1e-5, rtol=1e-4)


def test_feed_forward_widens_four_times_and_swiglu_costs_the_same():
    assert FeedForward(12, activation="gelu").w1.out_features == 48
    count = lambda m: sum(p.numel() for p in m.parameters())  # noqa: E731
    assert count(SwiGLU(96)) == pytest.approx(count(FeedForward(96)), rel=0.02)
    layer, x = SwiGLU(4, 6), torch.randn(3, 4)
    gate, up, down = (w.weight for w in (layer.gate_proj, layer.up_proj, layer.down_proj))
    a = x @ gate.T
    torch.testing.assert_close(layer(x), (a / (1 + torch.exp(-a)) * (x @ up.T)) @ down.T)


def each_by_itself(layer, x):
    """Two experts for each token, one token after another."""
    out = torch.zeros_like(x)
    for n, token in enumerate(x):
        p = layer.router(token)
        order = p.argsort(descending=True)[: layer.top]
        for e, g in zip(order, p[order].softmax(0), strict=True):
            out[n] += g * ((F.silu(token @ layer.w1[e]) * (token @ layer.w3[e])) @ layer.w2[e])
    return out


@pytest.mark.parametrize("top", [1, 2, 4])
def test_experts_are_asked_token_by_token(top):
    layer, x = MixtureOfExperts(6, 10, experts=4, top=top), torch.randn(17, 6)
    torch.testing.assert_close(layer(x), each_by_itself(layer, x), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(layer(x.view(1, 17, 6))[0], layer(x))


@pytest.mark.parametrize("n", [1, 3, 40])
@pytest.mark.parametrize("chosen", ["drawn", "all by one", "by the last two"])
def test_experts_in_blocks_are_experts_in_turn(n, chosen):
    layer, x = MixtureOfExperts(6, 10, experts=5), torch.randn(n, 6)
    expert = {"drawn": torch.randint(5, (n,)), "all by one": torch.full((n,), 2), "by the last two": torch.arange(n) % 2 + 3}[chosen]
    found = []
    for ask in (layer.in_turn, layer.in_blocks):
        y = ask(x, expert)
        found.append((y, torch.autograd.grad(y.square().sum(), [layer.w1, layer.w2, layer.w3])))
    torch.testing.assert_close(found[0], found[1])


class Gathered(TorchDispatchMode):
    """Notes in what precision stacks of matrices are copied."""

    def __init__(self):
        super().__init__()
        self.kinds = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        y = function(*args, **kwargs or {})
        if function is torch.ops.aten.index.Tensor and y.ndim == 3:
            self.kinds.append(y.dtype)
        return y


def test_experts_are_copied_in_the_precision_that_they_are_multiplied_in():
    layer, x, expert = MixtureOfExperts(6, 10, experts=5), torch.randn(40, 6), torch.randint(5, (40,))
    weights = [layer.w1, layer.w2, layer.w3]
    with torch.autocast("cpu", torch.bfloat16):
        turn = layer.in_turn(x, expert)
        with Gathered() as copied:
            blocks = layer.in_blocks(x, expert)
    assert copied.kinds == [torch.bfloat16] * 3
    torch.testing.assert_close(blocks, turn, atol=0, rtol=0)
    for ours, theirs in zip(*(torch.autograd.grad(y.float().square().sum(), weights) for y in (blocks, turn)), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, atol=0.02 * float(theirs.abs().max()), rtol=0)
    with Gathered() as copied:
        layer.double().in_blocks(x.double(), expert)
    assert copied.kinds == [torch.float64] * 3


def test_no_token_waits_for_another():
    """Whoever else chose its experts, a token is answered as if it were alone; in training too."""
    layer, x = MixtureOfExperts(6, 10, experts=4).train(), torch.randn(1, 6)
    torch.testing.assert_close(layer(torch.cat([torch.randn(20, 6), x.expand(50, 6)]))[20:], layer(x).expand(50, 6))


def test_unused_experts_cost_nothing():
    """As many products for 64 experts as for 2, training or not: each token's own."""
    def products(experts, training):
        layer = MixtureOfExperts(8, 16, experts=experts).train(training)
        with FlopCounterMode(display=False) as counted:
            layer(torch.randn(256, 8))
        return counted.get_total_flops() - 2 * 256 * 8 * experts               # less the router's

    own = 2 * 256 * 2 * 3 * 8 * 16
    assert {products(experts, training) for experts in (2, 64) for training in (True, False)} == {own}


def test_a_copy_of_experts_has_no_part_in_the_graph():
    layer, x = MixtureOfExperts(6, 10, experts=4), torch.randn(9, 6)
    layer(x)
    twin = copy.deepcopy(layer)
    assert twin.penalty is None and layer.penalty is not None
    torch.testing.assert_close(twin(x), layer(x))
    layer.eval()(x)
    assert layer.penalty is None                              # what was left while training is not taken for this pass's


def test_balance_is_one_when_even_and_all_experts_when_alone():
    even = torch.eye(4).repeat(3, 1) * 50
    assert balance_loss(even, route(even, 1)[1]).item() == pytest.approx(1)
    alone = torch.tensor([[50.0, 0, 0, 0]]).repeat(5, 1)
    assert balance_loss(alone, route(alone, 1)[1]).item() == pytest.approx(4)
    layer = MixtureOfExperts(6, 10, experts=4)
    layer(torch.randn(50, 6))
    penalty(layer).backward()
    assert layer.router.weight.grad.abs().sum() > 0
    with pytest.raises(UsageError, match="top must be from 1 to experts=4, got top=5"):
        MixtureOfExperts(6, 10, experts=4, top=5)
