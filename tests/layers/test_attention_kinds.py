"""Every kind of attention against the explicit form, PyTorch's kernel, or a closed form."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from didact.errors import UsageError
from didact.layers import masks
from didact.layers.alignment import Bahdanau, Luong, alignment
from didact.layers.attention import CrossAttention, SelfAttention, attention
from didact.layers.differential import DifferentialAttention, differential_attention
from didact.layers.grouped import GroupedQueryAttention
from didact.layers.linear_attention import causal_linear_attention, feature, linear_attention
from didact.layers.positions import rotation
from didact.layers.sparse import local_attention, strided_attention, topk_attention
from didact.layers.tiled import tiled_attention


def qkv(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator, dtype=dtype) for _ in range(3)]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_masks_on_five_tokens():
    assert masks.causal(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert masks.padding(torch.tensor([2, 0]), 3).tolist() == [[True, True, False], [False, False, False]]
    assert masks.window(5, 1).sum(1).tolist() == [2, 3, 3, 3, 2]
    assert masks.strided(5, 2)[0].tolist() == [True, False, True, False, True]


@pytest.mark.parametrize("mask", [masks.causal(7), masks.window(7, 2), masks.padding(torch.tensor([7, 3]), 7)[:, None, None]])
def test_a_masked_explicit_form_is_pytorchs(mask):
    q, k, v = qkv(2, 3, 7, 5)
    y, a = attention(q, k, v, mask)
    torch.testing.assert_close(y, F.scaled_dot_product_attention(q, k, v, mask))
    assert (a[~mask.expand_as(a)] == 0).all()
    torch.testing.assert_close(a.sum(-1), torch.ones_like(a[..., 0]))


def test_who_may_look_nowhere_gets_nothing_and_sends_no_nan_back():
    q, k, v = (t.requires_grad_() for t in qkv(1, 1, 3, 4))
    mask = torch.tensor([[True, True, False], [False] * 3, [True] * 3])
    y, _ = attention(q, k, v, mask)
    assert (y[0, 0, 1] == 0).all()
    y.sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_under_causality_and_padding_is_pytorchs(causal):
    ours, theirs = SelfAttention(12, 3), nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.load_state_dict(ours.state_dict())
    x, there = torch.randn(2, 7, 12), masks.padding(torch.tensor([7, 4]), 7)
    blocked = ~masks.causal(7) if causal else None     # True is forbidden over there
    y, a = theirs(x, x, x, key_padding_mask=~there, attn_mask=blocked, average_attn_weights=False)
    torch.testing.assert_close(ours(x, there[:, None, None], causal=causal), y)
    explicit, weights = ours.look(x, there[:, None, None], causal=causal)
    torch.testing.assert_close(explicit, y)
    torch.testing.assert_close(weights, a)
    torch.testing.assert_close(ours(x, causal=True), ours(x, masks.causal(7)))


def test_cross_attention_is_pytorchs():
    ours, theirs = CrossAttention(12, 4), nn.MultiheadAttention(12, 4, batch_first=True)
    nn.init.normal_(ours.in_proj_bias)
    theirs.load_state_dict(ours.state_dict())
    x, memory, there = torch.randn(2, 5, 12), torch.randn(2, 7, 12), masks.padding(torch.tensor([7, 4]), 7)
    y, a = theirs(x, memory, memory, key_padding_mask=~there, average_attn_weights=False)
    torch.testing.assert_close(ours(x, memory, there[:, None, None]), y)
    torch.testing.assert_close(ours.look(x, memory, there[:, None, None])[1], a)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_grouped_queries_are_multi_head_attention_with_repeated_keys(groups):
    layer, x = GroupedQueryAttention(24, 6, groups), torch.randn(2, 7, 24)
    whole = nn.MultiheadAttention(24, 6, batch_first=True, bias=False)
    few = layer.k_proj.weight, layer.v_proj.weight
    spread = [w.unflatten(0, (groups, 4)).repeat_interleave(6 // groups, 0).flatten(0, 1) for w in few]
    whole.load_state_dict({"in_proj_weight": torch.cat([layer.q_proj.weight, *spread]), "out_proj.weight": layer.o_proj.weight})
    y, a = whole(x, x, x, attn_mask=~masks.causal(7), average_attn_weights=False)
    torch.testing.assert_close(layer(x, causal=True), y)
    torch.testing.assert_close(layer.look(x, causal=True)[1], a)
    assert layer.project(x)[1].shape == (2, groups, 7, 4)          # what a cache holds


def test_turned_queries_and_keys_see_offsets_alone():
    layer, x = GroupedQueryAttention(16, 2, 1), torch.randn(1, 6, 16)
    near, far = rotation(torch.arange(6), 8), rotation(torch.arange(6) + 100, 8)
    torch.testing.assert_close(layer(x, near, causal=True), layer(x, far, causal=True), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(layer(x, near), layer(x))


def test_bahdanau_by_hand():
    layer = Bahdanau(1, 2, width=1)
    with torch.no_grad():
        layer.w.weight.fill_(1.0), layer.u.weight.copy_(torch.tensor([[1.0, -1.0]])), layer.v.weight.fill_(2.0)
    s, h = torch.tensor([[[0.5]]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]]])
    c, a = layer(s, h, torch.tensor([[True, True, False]]))
    e = [math.exp(2 * math.tanh(1.5)), math.exp(2 * math.tanh(-0.5))]
    expected = torch.tensor([e[0] / sum(e), e[1] / sum(e), 0.0])
    torch.testing.assert_close(a[0, 0], expected)
    torch.testing.assert_close(c[0, 0], expected[:2])


def test_luong_scores_and_their_relations():
    s, h = torch.randn(2, 3, 6), torch.randn(2, 5, 6)
    torch.testing.assert_close(Luong(6, 6, score="dot")(s, h)[1], (s @ h.mT).softmax(-1))
    general = Luong(6, 6)
    nn.init.eye_(general.w.weight)
    torch.testing.assert_close(general(s, h)[0], Luong(6, 6, score="dot")(s, h)[0])
    concat, additive = Luong(6, 6, score="concat", width=4), Bahdanau(6, 6, width=4)
    with torch.no_grad():
        additive.w.weight.copy_(concat.w.weight[:, :6]), additive.u.weight.copy_(concat.w.weight[:, 6:])
        additive.v.weight.copy_(concat.v.weight)
    torch.testing.assert_close(concat(s, h), additive(s, h))
    assert alignment("concat", 6, 8, width=4)(s, torch.randn(2, 5, 8))[0].shape == (2, 3, 8)
    with pytest.raises(UsageError, match="needs states as wide as the memory, got 6 and 8"):
        alignment("dot", 6, 8, width=4)


@pytest.mark.parametrize("n, reach", [(17, 3), (16, 4), (5, 9), (1, 1), (6, 0)])
@pytest.mark.parametrize("causal", [False, True])
def test_local_attention_is_the_explicit_form_under_a_window(n, reach, causal):
    q, k, v = qkv(2, 3, n, 4)
    mask = masks.window(n, reach) & masks.causal(n) if causal else masks.window(n, reach)
    torch.testing.assert_close(local_attention(q, k, v, reach=reach, causal=causal), attention(q, k, v, mask)[0])


@pytest.mark.parametrize("n, stride", [(17, 3), (12, 4), (5, 9), (7, 1)])
def test_strided_attention_is_the_explicit_form_under_its_mask(n, stride):
    q, k, v = qkv(2, 3, n, 4)
    torch.testing.assert_close(strided_attention(q, k, v, stride=stride), attention(q, k, v, masks.strided(n, stride))[0])


def test_top_k_of_all_is_attention_and_of_one_is_the_best():
    q, k, v = qkv(2, 3, 9, 4)
    torch.testing.assert_close(topk_attention(q, k, v, top=20), attention(q, k, v)[0])
    best = (q @ k.mT).argmax(-1)
    torch.testing.assert_close(topk_attention(q, k, v, top=1), v.gather(-2, best[..., None].expand_as(v)))
    causal = masks.causal(9)
    torch.testing.assert_close(topk_attention(q, k, v, top=9, mask=causal), attention(q, k, v, causal)[0])


@pytest.mark.parametrize("n", [1, 9, 64, 130])
def test_linear_attention_is_its_quadratic_form(n):
    q, k, v = qkv(2, 3, n, 4)
    a = feature(q) @ feature(k).mT
    torch.testing.assert_close(linear_attention(q, k, v), a / a.sum(-1, keepdim=True) @ v)
    a = a.tril()
    torch.testing.assert_close(causal_linear_attention(q, k, v), a / a.sum(-1, keepdim=True) @ v)


def test_differential_attention_cancels_what_both_maps_share():
    q, k, v = qkv(2, 3, 7, 4)
    y, a = differential_attention(q, k, q, k, v, 0.25)
    torch.testing.assert_close(y, 0.75 * attention(q, k, v)[0])
    torch.testing.assert_close(a.sum(-1), torch.full_like(a[..., 0], 0.75))


def test_differential_layer_by_pytorchs_kernel():
    layer, x = DifferentialAttention(24, 3, depth=2), torch.randn(2, 7, 24)
    q, k = (f(x).view(2, 7, 3, 2, 4).permute(3, 0, 2, 1, 4) for f in (layer.q_proj, layer.k_proj))
    v = layer.v_proj(x).view(2, 7, 3, 8).transpose(1, 2)
    one, two = (F.scaled_dot_product_attention(q[i], k[i], v, is_causal=True) for i in range(2))
    initial = 0.8 - 0.6 * math.exp(-0.6)
    lam = layer.lambdas[0].dot(layer.lambdas[1]).exp() - layer.lambdas[2].dot(layer.lambdas[3]).exp() + initial
    heads = (1 - initial) * F.rms_norm(one - lam * two, (8,), eps=1e-5)
    torch.testing.assert_close(layer(x, causal=True), layer.o_proj(heads.transpose(1, 2).reshape(2, 7, 24)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n, tile", [(13, 4), (8, 4), (3, 8)])
def test_tiled_attention_is_exact_forward_and_back(n, tile, causal):
    q, k, v = (t.requires_grad_() for t in qkv(2, 3, n, 5))
    dy = torch.randn(2, 3, n, 5, dtype=torch.float64)
    exact = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    ours = tiled_attention(q, k, v, causal=causal, tile=tile)
    torch.testing.assert_close(ours, exact)
    for a, b in zip(torch.autograd.grad(ours, (q, k, v), dy), torch.autograd.grad(exact, (q, k, v), dy), strict=True):
        torch.testing.assert_close(a, b)


def test_tiled_attention_survives_scores_that_overflow_e_to_the_s():
    q, k, v = qkv(1, 1, 9, 4, dtype=torch.float32)
    torch.testing.assert_close(tiled_attention(300 * q, k, v, tile=2), F.scaled_dot_product_attention(300 * q, k, v))


def test_tiled_attention_has_the_right_gradient_by_differences():
    inputs = [t.requires_grad_() for t in qkv(1, 5, 2)]
    assert torch.autograd.gradcheck(lambda q, k, v: tiled_attention(q, k, v, causal=True, tile=2), inputs)


def numbers_kept(f, n):
    """Entries of the tensors that autograd keeps for the backward pass."""
    q, k, v = (t.requires_grad_() for t in qkv(1, 1, n, 8, dtype=torch.float32))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        f(q, k, v)
    return sum(kept)


@pytest.mark.parametrize(
    "f, power",
    [
        (lambda q, k, v: attention(q, k, v), 2),
        (tiled_attention, 1), (linear_attention, 1), (causal_linear_attention, 1),
        (lambda q, k, v: local_attention(q, k, v, reach=16), 1),
    ],
)
def test_how_memory_grows_with_length(f, power):
    small, large = numbers_kept(f, 1024), numbers_kept(f, 4096)
    assert math.log(large / small, 4) == pytest.approx(power, abs=0.1)


def test_uneven_heads_are_refused():
    with pytest.raises(UsageError, match="heads must be a multiple of groups=4, got heads=6"):
        GroupedQueryAttention(24, 6, 4)
    with pytest.raises(UsageError, match="dim must be a multiple of 2 heads=8, got dim=12"):
        DifferentialAttention(12, 4)
