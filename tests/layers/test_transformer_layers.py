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
from didact.layers.auxiliary_loss import pop_auxiliary_loss
from didact.layers.feedforward import FeedForward, SwiGLU
from didact.layers.moe import MixtureOfExperts, load_balancing_loss, top_k_routing
from didact.layers.norm import PostNorm, PreNorm, make_norm, rms_norm
from didact.layers.positional import (
    LearnedPositions,
    SinusoidalPositions,
    apply_rotary,
    apply_rotary_interleaved,
    rotary_angles,
    sinusoidal_table,
)


@pytest.fixture(autouse=True)
def seed_torch():
    torch.manual_seed(0)


def test_sinusoidal_positions_follow_the_formula():
    table = sinusoidal_table(50, 6)
    for p, i in ((0, 0), (3, 1), (49, 2)):
        assert table[p, 2 * i].item() == pytest.approx(math.sin(p / 10_000 ** (2 * i / 6)), abs=1e-6)
        assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(p / 10_000 ** (2 * i / 6)), abs=1e-6)
    assert sinusoidal_table(4, 5).shape == (4, 5)
    # relative: PE_p · PE_{p+k} depends on k alone (Gaba eq. 7.6)
    products = table @ table.T
    for k in (1, 7):
        torch.testing.assert_close(products.diagonal(k), products[0, k].expand(50 - k), atol=1e-4, rtol=0)
    x = torch.randn(2, 7, 6)
    torch.testing.assert_close(SinusoidalPositions(50, 6)(x) - x, table[:7].expand(2, 7, 6))
    assert not SinusoidalPositions(50, 6).state_dict()


def test_learned_positions_are_added():
    layer, x = LearnedPositions(10, 6), torch.randn(2, 7, 6)
    torch.testing.assert_close(layer(x), x + layer.table[:7])


@pytest.mark.parametrize("apply", [apply_rotary, apply_rotary_interleaved])
def test_rotary_scores_depend_on_the_offset_alone(apply):
    q, k = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    angles = rotary_angles(torch.arange(40), 8)
    rotated_q, rotated_k = apply(q.expand(40, 8), angles), apply(k.expand(40, 8), angles)
    scores = rotated_q @ rotated_k.T
    for offset in (-9, 0, 5):
        row = scores.diagonal(offset)
        torch.testing.assert_close(row, row[:1].expand_as(row), atol=1e-5, rtol=0)
    torch.testing.assert_close(rotated_q.norm(dim=-1), q.norm().expand(40))
    torch.testing.assert_close(rotated_q[0], q)


def test_rotary_multiplies_by_complex_exponentials():
    x, theta = torch.randn(5, 8, dtype=torch.float64), 10_000 ** (-torch.arange(4, dtype=torch.float64) / 4)
    angle = torch.arange(5)[:, None] * theta
    pairs = torch.view_as_complex(x.view(5, 4, 2)) * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(
        apply_rotary_interleaved(x, rotary_angles(torch.arange(5), 8)),
        torch.view_as_real(pairs).flatten(1),
        atol=1e-5,
        rtol=1e-5,
    )
    halves = torch.complex(x[:, :4], x[:, 4:]) * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(
        apply_rotary(x, rotary_angles(torch.arange(5), 8)),
        torch.cat([halves.real, halves.imag], 1),
        atol=1e-5,
        rtol=1e-5,
    )


def test_rms_norm_matches_pytorch():
    x, gamma = torch.randn(2, 5, 7), torch.randn(7)
    torch.testing.assert_close(rms_norm(x, gamma, eps=1e-5), F.rms_norm(x, (7,), gamma, 1e-5))
    layer = make_norm("rms", 7)
    torch.testing.assert_close(layer(x), rms_norm(x, layer.weight))
    centered = x - x.mean(-1, keepdim=True)                    # of inputs with mean 0 it is a layer norm
    torch.testing.assert_close(rms_norm(centered, torch.ones(7), eps=1e-5), F.layer_norm(x, (7,)))
    with pytest.raises(UsageError, match="no norm named 'rmss'"):
        make_norm("rmss", 7)


@pytest.mark.parametrize("norm_first", [True, False])
def test_pre_and_post_norm_match_pytorch_encoder_layer(norm_first):
    reference = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True, norm_first=norm_first)
    feed_forward = FeedForward(12, 24)
    feed_forward.load_state_dict({"w1.weight": reference.linear1.weight, "w1.bias": reference.linear1.bias,
                          "w2.weight": reference.linear2.weight, "w2.bias": reference.linear2.bias})
    x = torch.randn(2, 5, 12)
    u = (
        reference.norm1(x + reference._sa_block(x, None, None))
        if not norm_first
        else x + reference._sa_block(reference.norm1(x), None, None)
    )
    block = (PreNorm if norm_first else PostNorm)(feed_forward, reference.norm2)
    torch.testing.assert_close(block(u), reference(x), atol=1e-5, rtol=1e-4)


def test_feed_forward_widens_four_times_and_swiglu_has_as_many_parameters():
    assert FeedForward(12, activation="gelu").w1.out_features == 48
    count = lambda m: sum(p.numel() for p in m.parameters())  # noqa: E731
    assert count(SwiGLU(96)) == pytest.approx(count(FeedForward(96)), rel=0.02)
    layer, x = SwiGLU(4, 6), torch.randn(3, 4)
    gate, up, down = (w.weight for w in (layer.gate_proj, layer.up_proj, layer.down_proj))
    a = x @ gate.T
    torch.testing.assert_close(layer(x), (a / (1 + torch.exp(-a)) * (x @ up.T)) @ down.T)


def route_token_by_token(layer, x):
    """Two experts for each token, one token after another."""
    out = torch.zeros_like(x)
    for n, token in enumerate(x):
        p = layer.router(token)
        order = p.argsort(descending=True)[: layer.top_k]
        for e, g in zip(order, p[order].softmax(0), strict=True):
            out[n] += g * ((F.silu(token @ layer.w1[e]) * (token @ layer.w3[e])) @ layer.w2[e])
    return out


@pytest.mark.parametrize("top", [1, 2, 4])
def test_mixture_of_experts_matches_a_loop_over_tokens(top):
    layer, x = MixtureOfExperts(6, 10, num_experts=4, top_k=top), torch.randn(17, 6)
    torch.testing.assert_close(layer(x), route_token_by_token(layer, x), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(layer(x.view(1, 17, 6))[0], layer(x))


@pytest.mark.parametrize("n", [1, 3, 40])
@pytest.mark.parametrize("assignment", ["random", "all by one", "by the last two"])
def test_grouped_matmul_of_experts_matches_a_loop_over_experts(n, assignment):
    layer, x = MixtureOfExperts(6, 10, num_experts=5), torch.randn(n, 6)
    expert = {
        "random": torch.randint(5, (n,)),
        "all by one": torch.full((n,), 2),
        "by the last two": torch.arange(n) % 2 + 3,
    }[assignment]
    results = []
    for forward in (layer._loop_over_experts, layer._grouped_matmul):
        y = forward(x, expert)
        results.append((y, torch.autograd.grad(y.square().sum(), [layer.w1, layer.w2, layer.w3])))
    torch.testing.assert_close(results[0], results[1])


class GatherDtypeRecorder(TorchDispatchMode):
    """Records the data type in which stacks of matrices are copied."""

    def __init__(self):
        super().__init__()
        self.dtypes = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        y = function(*args, **kwargs or {})
        if function is torch.ops.aten.index.Tensor and y.ndim == 3:
            self.dtypes.append(y.dtype)
        return y


def test_experts_are_gathered_in_the_precision_of_their_products():
    layer, x, expert = MixtureOfExperts(6, 10, num_experts=5), torch.randn(40, 6), torch.randint(5, (40,))
    weights = [layer.w1, layer.w2, layer.w3]
    with torch.autocast("cpu", torch.bfloat16):
        loop_output = layer._loop_over_experts(x, expert)
        with GatherDtypeRecorder() as recorder:
            grouped_output = layer._grouped_matmul(x, expert)
    assert recorder.dtypes == [torch.bfloat16] * 3
    torch.testing.assert_close(grouped_output, loop_output, atol=0, rtol=0)
    for grouped_gradient, loop_gradient in zip(
        *(torch.autograd.grad(y.float().square().sum(), weights) for y in (grouped_output, loop_output)), strict=True
    ):
        assert grouped_gradient.dtype == torch.float32
        torch.testing.assert_close(
            grouped_gradient, loop_gradient, atol=0.02 * float(loop_gradient.abs().max()), rtol=0
        )
    with GatherDtypeRecorder() as recorder:
        layer.double()._grouped_matmul(x.double(), expert)
    assert recorder.dtypes == [torch.float64] * 3


def test_expert_output_is_independent_of_other_tokens():
    """Whichever experts other tokens chose, the output of a token is that of the token alone; in training, too."""
    layer, x = MixtureOfExperts(6, 10, num_experts=4).train(), torch.randn(1, 6)
    torch.testing.assert_close(layer(torch.cat([torch.randn(20, 6), x.expand(50, 6)]))[20:], layer(x).expand(50, 6))


def test_unused_experts_add_no_flops():
    """As many products for 64 experts as for 2, in training or not: each token's own."""
    def count_flops(experts, training):
        layer = MixtureOfExperts(8, 16, num_experts=experts).train(training)
        with FlopCounterMode(display=False) as counter:
            layer(torch.randn(256, 8))
        return counter.get_total_flops() - 2 * 256 * 8 * experts               # without the router's

    expected_flops = 2 * 256 * 2 * 3 * 8 * 16
    assert {count_flops(experts, training) for experts in (2, 64) for training in (True, False)} == {expected_flops}


def test_deepcopy_of_experts_drops_the_auxiliary_loss():
    layer, x = MixtureOfExperts(6, 10, num_experts=4), torch.randn(9, 6)
    layer(x)
    layer_copy = copy.deepcopy(layer)
    assert layer_copy.auxiliary_loss is None and layer.auxiliary_loss is not None
    torch.testing.assert_close(layer_copy(x), layer(x))
    layer.eval()(x)
    # the loss of a training pass is not mistaken for one of this pass
    assert layer.auxiliary_loss is None


def test_load_balancing_loss_is_one_when_even_and_num_experts_when_concentrated():
    even_logits = torch.eye(4).repeat(3, 1) * 50
    assert load_balancing_loss(even_logits, top_k_routing(even_logits, 1)[1]).item() == pytest.approx(1)
    one_expert_logits = torch.tensor([[50.0, 0, 0, 0]]).repeat(5, 1)
    assert load_balancing_loss(one_expert_logits, top_k_routing(one_expert_logits, 1)[1]).item() == pytest.approx(4)
    layer = MixtureOfExperts(6, 10, num_experts=4)
    layer(torch.randn(50, 6))
    pop_auxiliary_loss(layer).backward()
    assert layer.router.weight.grad.abs().sum() > 0
    with pytest.raises(UsageError, match="top_k must be from 1 to num_experts=4, got top_k=5"):
        MixtureOfExperts(6, 10, num_experts=4, top_k=5)
