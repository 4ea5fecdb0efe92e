"""Every kind of attention against the explicit form, PyTorch's kernel, or a closed form."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from didact.errors import UsageError
from didact.layers.attention import attention_masks
from didact.layers.attention.additive import BahdanauAttention, LuongAttention, make_alignment_attention
from didact.layers.attention.differential import DifferentialAttention, differential_attention
from didact.layers.attention.flash import flash_attention
from didact.layers.attention.grouped_query import GroupedQueryAttention
from didact.layers.attention.linear_attention import causal_linear_attention, feature_map, linear_attention
from didact.layers.attention.multihead import CrossAttention, MultiHeadAttention, dot_product_attention
from didact.layers.attention.sparse import local_attention, strided_attention, topk_attention
from didact.layers.positional import rotary_angles


def qkv(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator, dtype=dtype) for _ in range(3)]


@pytest.fixture(autouse=True)
def seed_torch():
    torch.manual_seed(0)


def test_attention_masks_on_five_tokens():
    assert attention_masks.causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert attention_masks.padding_mask(torch.tensor([2, 0]), 3).tolist() == [
        [True, True, False],
        [False, False, False],
    ]
    assert attention_masks.local_mask(5, 1).sum(1).tolist() == [2, 3, 3, 3, 2]
    assert attention_masks.strided_mask(5, 2)[0].tolist() == [True, False, True, False, True]


@pytest.mark.parametrize(
    "mask",
    [
        attention_masks.causal_mask(7),
        attention_masks.local_mask(7, 2),
        attention_masks.padding_mask(torch.tensor([7, 3]), 7)[:, None, None],
    ],
)
def test_masked_dot_product_attention_matches_pytorch(mask):
    q, k, v = qkv(2, 3, 7, 5)
    y, a = dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(y, F.scaled_dot_product_attention(q, k, v, mask))
    assert (a[~mask.expand_as(a)] == 0).all()
    torch.testing.assert_close(a.sum(-1), torch.ones_like(a[..., 0]))


def test_fully_masked_query_gives_zero_and_finite_gradients():
    q, k, v = (t.requires_grad_() for t in qkv(1, 1, 3, 4))
    mask = torch.tensor([[True, True, False], [False] * 3, [True] * 3])
    y, _ = dot_product_attention(q, k, v, mask)
    assert (y[0, 0, 1] == 0).all()
    y.sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_with_causal_and_padding_masks_matches_pytorch(causal):
    layer, reference = MultiHeadAttention(12, 3), nn.MultiheadAttention(12, 3, batch_first=True)
    reference.load_state_dict(layer.state_dict())
    x, is_token = torch.randn(2, 7, 12), attention_masks.padding_mask(torch.tensor([7, 4]), 7)
    blocked = ~attention_masks.causal_mask(7) if causal else None     # there True is forbidden
    y, a = reference(x, x, x, key_padding_mask=~is_token, attn_mask=blocked, average_attn_weights=False)
    torch.testing.assert_close(layer(x, is_token[:, None, None], causal=causal), y)
    explicit, weights = layer.forward_with_weights(x, is_token[:, None, None], causal=causal)
    torch.testing.assert_close(explicit, y)
    torch.testing.assert_close(weights, a)
    torch.testing.assert_close(layer(x, causal=True), layer(x, attention_masks.causal_mask(7)))


def test_cross_attention_matches_pytorch():
    layer, reference = CrossAttention(12, 4), nn.MultiheadAttention(12, 4, batch_first=True)
    nn.init.normal_(layer.in_proj_bias)
    reference.load_state_dict(layer.state_dict())
    x, memory, is_token = (
        torch.randn(2, 5, 12),
        torch.randn(2, 7, 12),
        attention_masks.padding_mask(torch.tensor([7, 4]), 7),
    )
    y, a = reference(x, memory, memory, key_padding_mask=~is_token, average_attn_weights=False)
    torch.testing.assert_close(layer(x, memory, is_token[:, None, None]), y)
    general = MultiHeadAttention(12, 4)
    general.load_state_dict(layer.state_dict())
    assert torch.equal(general(x, is_token[:, None, None], memory=memory), layer(x, memory, is_token[:, None, None]))
    torch.testing.assert_close(layer.forward_with_weights(x, memory, is_token[:, None, None])[1], a)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_grouped_query_attention_is_multi_head_attention_with_repeated_keys(groups):
    layer, x = GroupedQueryAttention(24, 6, groups), torch.randn(2, 7, 24)
    reference = nn.MultiheadAttention(24, 6, batch_first=True, bias=False)
    grouped_weights = layer.k_proj.weight, layer.v_proj.weight
    repeated_weights = [
        w.unflatten(0, (groups, 4)).repeat_interleave(6 // groups, 0).flatten(0, 1) for w in grouped_weights
    ]
    reference.load_state_dict(
        {"in_proj_weight": torch.cat([layer.q_proj.weight, *repeated_weights]), "out_proj.weight": layer.o_proj.weight}
    )
    y, a = reference(x, x, x, attn_mask=~attention_masks.causal_mask(7), average_attn_weights=False)
    torch.testing.assert_close(layer(x, causal=True), y)
    torch.testing.assert_close(layer.forward_with_weights(x, causal=True)[1], a)
    assert layer.project_qkv(x)[1].shape == (2, groups, 7, 4)          # what a cache holds


def test_rotary_grouped_query_attention_depends_on_offsets_alone():
    layer, x = GroupedQueryAttention(16, 2, 1), torch.randn(1, 6, 16)
    angles, shifted_angles = rotary_angles(torch.arange(6), 8), rotary_angles(torch.arange(6) + 100, 8)
    torch.testing.assert_close(
        layer(x, angles, causal=True), layer(x, shifted_angles, causal=True), atol=1e-5, rtol=1e-4
    )
    assert not torch.allclose(layer(x, angles), layer(x))


def test_bahdanau_attention_matches_hand_values():
    layer = BahdanauAttention(1, 2, attention_dim=1)
    with torch.no_grad():
        layer.w.weight.fill_(1.0), layer.u.weight.copy_(torch.tensor([[1.0, -1.0]])), layer.v.weight.fill_(2.0)
    s, h = torch.tensor([[[0.5]]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]]])
    c, a = layer(s, h, torch.tensor([[True, True, False]]))
    e = [math.exp(2 * math.tanh(1.5)), math.exp(2 * math.tanh(-0.5))]
    expected = torch.tensor([e[0] / sum(e), e[1] / sum(e), 0.0])
    torch.testing.assert_close(a[0, 0], expected)
    torch.testing.assert_close(c[0, 0], expected[:2])


def test_luong_scores_agree_with_dot_products_and_bahdanau():
    s, h = torch.randn(2, 3, 6), torch.randn(2, 5, 6)
    torch.testing.assert_close(LuongAttention(6, 6, score="dot")(s, h)[1], (s @ h.mT).softmax(-1))
    general = LuongAttention(6, 6)
    nn.init.eye_(general.w.weight)
    torch.testing.assert_close(general(s, h)[0], LuongAttention(6, 6, score="dot")(s, h)[0])
    concat, additive = LuongAttention(6, 6, score="concat", attention_dim=4), BahdanauAttention(6, 6, attention_dim=4)
    with torch.no_grad():
        additive.w.weight.copy_(concat.w.weight[:, :6]), additive.u.weight.copy_(concat.w.weight[:, 6:])
        additive.v.weight.copy_(concat.v.weight)
    torch.testing.assert_close(concat(s, h), additive(s, h))
    assert make_alignment_attention("concat", 6, 8, attention_dim=4)(s, torch.randn(2, 5, 8))[0].shape == (2, 3, 8)
    with pytest.raises(UsageError, match="needs queries as wide as the memory, got 6 and 8"):
        make_alignment_attention("dot", 6, 8, attention_dim=4)


@pytest.mark.parametrize("n, radius", [(17, 3), (16, 4), (5, 9), (1, 1), (6, 0)])
@pytest.mark.parametrize("causal", [False, True])
def test_local_attention_is_the_explicit_form_under_a_local_mask(n, radius, causal):
    q, k, v = qkv(2, 3, n, 4)
    mask = (
        attention_masks.local_mask(n, radius) & attention_masks.causal_mask(n)
        if causal
        else attention_masks.local_mask(n, radius)
    )
    torch.testing.assert_close(
        local_attention(q, k, v, radius=radius, causal=causal), dot_product_attention(q, k, v, mask)[0]
    )


@pytest.mark.parametrize("n, stride", [(17, 3), (12, 4), (5, 9), (7, 1)])
def test_strided_attention_is_the_explicit_form_under_a_strided_mask(n, stride):
    q, k, v = qkv(2, 3, n, 4)
    torch.testing.assert_close(
        strided_attention(q, k, v, stride=stride),
        dot_product_attention(q, k, v, attention_masks.strided_mask(n, stride))[0],
    )


def test_topk_attention_of_all_is_attention_and_of_one_takes_the_best():
    q, k, v = qkv(2, 3, 9, 4)
    torch.testing.assert_close(topk_attention(q, k, v, top_k=20), dot_product_attention(q, k, v)[0])
    best = (q @ k.mT).argmax(-1)
    torch.testing.assert_close(topk_attention(q, k, v, top_k=1), v.gather(-2, best[..., None].expand_as(v)))
    causal = attention_masks.causal_mask(9)
    torch.testing.assert_close(topk_attention(q, k, v, top_k=9, mask=causal), dot_product_attention(q, k, v, causal)[0])


@pytest.mark.parametrize("n", [1, 9, 64, 130])
def test_linear_attention_is_its_quadratic_form(n):
    q, k, v = qkv(2, 3, n, 4)
    a = feature_map(q) @ feature_map(k).mT
    torch.testing.assert_close(linear_attention(q, k, v), a / a.sum(-1, keepdim=True) @ v)
    a = a.tril()
    torch.testing.assert_close(causal_linear_attention(q, k, v), a / a.sum(-1, keepdim=True) @ v)


def test_differential_attention_cancels_what_both_maps_share():
    q, k, v = qkv(2, 3, 7, 4)
    y, a = differential_attention(q, k, q, k, v, 0.25)
    torch.testing.assert_close(y, 0.75 * dot_product_attention(q, k, v)[0])
    torch.testing.assert_close(a.sum(-1), torch.full_like(a[..., 0], 0.75))


def test_differential_attention_layer_matches_pytorch_kernels():
    layer, x = DifferentialAttention(24, 3, depth=2), torch.randn(2, 7, 24)
    q, k = (f(x).view(2, 7, 3, 2, 4).permute(3, 0, 2, 1, 4) for f in (layer.q_proj, layer.k_proj))
    v = layer.v_proj(x).view(2, 7, 3, 8).transpose(1, 2)
    first_head, second_head = (F.scaled_dot_product_attention(q[i], k[i], v, is_causal=True) for i in range(2))
    initial = 0.8 - 0.6 * math.exp(-0.6)
    lam = layer.lambdas[0].dot(layer.lambdas[1]).exp() - layer.lambdas[2].dot(layer.lambdas[3]).exp() + initial
    heads = (1 - initial) * F.rms_norm(first_head - lam * second_head, (8,), eps=1e-5)
    torch.testing.assert_close(
        layer(x, causal=True), layer.o_proj(heads.transpose(1, 2).reshape(2, 7, 24)), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n, tile", [(13, 4), (8, 4), (3, 8)])
def test_flash_attention_is_exact_forward_and_backward(n, tile, causal):
    q, k, v = (t.requires_grad_() for t in qkv(2, 3, n, 5))
    dy = torch.randn(2, 3, n, 5, dtype=torch.float64)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    output = flash_attention(q, k, v, causal=causal, tile=tile)
    torch.testing.assert_close(output, expected)
    for a, b in zip(
        torch.autograd.grad(output, (q, k, v), dy), torch.autograd.grad(expected, (q, k, v), dy), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_flash_attention_handles_scores_whose_exponential_overflows():
    q, k, v = qkv(1, 1, 9, 4, dtype=torch.float32)
    torch.testing.assert_close(flash_attention(300 * q, k, v, tile=2), F.scaled_dot_product_attention(300 * q, k, v))


def test_flash_attention_gradient_matches_finite_differences():
    inputs = [t.requires_grad_() for t in qkv(1, 5, 2)]
    assert torch.autograd.gradcheck(lambda q, k, v: flash_attention(q, k, v, causal=True, tile=2), inputs)


def count_saved_numbers(f, n):
    """Number of entries in the tensors that autograd saves for the backward pass."""
    q, k, v = (t.requires_grad_() for t in qkv(1, 1, n, 8, dtype=torch.float32))
    saved_sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved_sizes.append(t.numel()) or t, lambda t: t):
        f(q, k, v)
    return sum(saved_sizes)


@pytest.mark.parametrize(
    "f, power",
    [
        (lambda q, k, v: dot_product_attention(q, k, v), 2),
        (flash_attention, 1), (linear_attention, 1), (causal_linear_attention, 1),
        (lambda q, k, v: local_attention(q, k, v, radius=16), 1),
    ],
)
def test_attention_memory_grows_with_the_expected_power_of_length(f, power):
    small, large = count_saved_numbers(f, 1024), count_saved_numbers(f, 4096)
    assert math.log(large / small, 4) == pytest.approx(power, abs=0.1)


def test_uneven_head_counts_are_refused():
    with pytest.raises(UsageError, match="num_heads must be a multiple of num_kv_heads=4, got num_heads=6"):
        GroupedQueryAttention(24, 6, 4)
    with pytest.raises(UsageError, match="dim must be a multiple of 2 num_heads=8, got dim=12"):
        DifferentialAttention(12, 4)
