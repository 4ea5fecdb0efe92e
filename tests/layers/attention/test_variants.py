"""Attention variants by name: each equals its explicit form, ignores padding and, if causal, the future."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from didact.errors import UsageError
from didact.explain.head_ablation import record_attention
from didact.layers.attention import attention_masks
from didact.layers.attention.flash import flash_attention
from didact.layers.attention.linear_attention import causal_linear_attention, linear_attention
from didact.layers.attention.variants import VARIANTS, WINDOW_VARIANTS, make_self_attention
from didact.models.text.transformer_classifier import TransformerClassifier

PADDING_MASK = attention_masks.padding_mask(torch.tensor([11, 6, 1]), 11)          # (3, 11)


@pytest.fixture(autouse=True)
def seed_torch():
    torch.manual_seed(0)


def make_layer(variant, depth=1, window=3):
    layer = make_self_attention(variant, 12, 3, window=window, depth=depth).double()
    for p in layer.parameters():
        nn.init.normal_(p, std=0.4)
    return layer


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_attention_variant_equals_its_explicit_matrix_forward_and_backward(variant, depth, causal):
    layer, x = make_layer(variant, depth), torch.randn(3, 11, 12, dtype=torch.float64)
    for mask in (None, PADDING_MASK[:, None, None]):
        y = layer(x, mask, causal=causal)
        explicit, a = layer.forward_with_weights(x, mask, causal=causal)
        torch.testing.assert_close(y, explicit)
        assert a.shape == (3, 3, 11, 11) and y.isfinite().all()
        gradients, explicit_gradients = (
            torch.autograd.grad(out.square().sum(), list(layer.parameters())) for out in (y, explicit)
        )
        torch.testing.assert_close(gradients, explicit_gradients)
        if mask is not None:
            assert not a[~mask.expand_as(a)].any()
        if causal:
            assert not a.triu(1).any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_attention_variant_weighs_the_expected_number_of_tokens(variant):
    """Eleven tokens and a window of three, counted from the definitions."""
    layer = make_layer(variant)
    a = layer.forward_with_weights(torch.randn(1, 11, 12, dtype=torch.float64))[1][0, 0]
    num_weighed = {"local": [4, 5, 6, 7, 7, 7, 7, 7, 6, 5, 4], "strided": [4, 4, 3] * 3 + [4, 4], "topk": [3] * 11}
    assert (a != 0).sum(1).tolist() == num_weighed.get(variant, [11] * 11)
    total = 1 - layer.lam.item() if variant == "differential" else 1.0
    torch.testing.assert_close(a.sum(1), torch.full_like(a[0], total))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("variant", WINDOW_VARIANTS)
def test_window_longer_than_the_text_gives_full_attention_or_the_token_alone(variant, causal):
    """Local and top-k attention are full attention then; strided attention sees the token alone: y = W_O v."""
    layer, x = make_layer(variant, window=10**9), torch.randn(3, 11, 12, dtype=torch.float64)
    q, k, v = layer.project_qkv(x)
    heads = v if variant == "strided" else F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    for y in (layer(x, causal=causal), layer.forward_with_weights(x, causal=causal)[0]):
        torch.testing.assert_close(y, layer.merge_heads(heads))
    torch.testing.assert_close(layer(x[:, :1], causal=causal), layer.merge_heads(v[:, :, :1]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_attention_variant_ignores_padding_and_later_tokens(variant):
    layer, x = make_layer(variant), torch.randn(3, 11, 12, dtype=torch.float64)
    other = torch.where(PADDING_MASK[..., None], x, torch.randn_like(x))
    torch.testing.assert_close(
        layer(other, PADDING_MASK[:, None, None])[PADDING_MASK], layer(x, PADDING_MASK[:, None, None])[PADDING_MASK]
    )
    later = x.clone()
    later[:, 7:] += 1
    torch.testing.assert_close(layer(later, causal=True)[:, :7], layer(x, causal=True)[:, :7])
    assert not torch.allclose(layer(later, causal=True)[:, 7:], layer(x, causal=True)[:, 7:])


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_transformer_classifier_ignores_trailing_padding(variant):
    model = TransformerClassifier(
        30, 3, embed_dim=16, num_layers=2, num_heads=2, ffn_dim=24, attention=variant, window=2
    ).eval()
    tokens = torch.randint(1, 30, (4, 7))
    torch.testing.assert_close(model(F.pad(tokens, (0, 6))), model(tokens))
    empty = torch.zeros(1, 7, dtype=torch.long)
    assert model(empty).isfinite().all()
    with record_attention(model) as recorded_maps:
        model(tokens)
    torch.testing.assert_close(torch.stack(list(recorded_maps.values()), dim=1), model.attention_maps(tokens))


def test_two_strided_layers_reach_every_token_and_two_local_ones_do_not():
    def find_reached_tokens(variant):
        model = TransformerClassifier(
            30, 1, embed_dim=16, num_layers=2, num_heads=2, ffn_dim=8, attention=variant, window=4, context_length=17
        ).eval()
        x = torch.randn(1, 17, 16, requires_grad=True)
        y, mask = x, torch.ones(1, 1, 1, 17, dtype=torch.bool)
        for block in model.blocks:
            y = block(y, mask)
        return torch.autograd.grad(y[0, 16].sum(), x)[0][0].abs().sum(1) > 0

    assert find_reached_tokens("strided").all()
    assert find_reached_tokens("local").tolist() == [j >= 8 for j in range(17)]


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_gives_padded_tiles_no_weight(causal):
    q, k, v = (torch.randn(2, 3, 9, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    is_token = torch.ones(2, 1, 9, dtype=torch.bool)
    # a whole tile, in the middle and at the beginning
    is_token[0, :, 3:6] = is_token[1, :, :3] = False
    mask = (
        is_token[..., None, :] & attention_masks.causal_mask(9) if causal else is_token[..., None, :].expand(2, 1, 9, 9)
    )
    output = flash_attention(q, k, v, causal=causal, key_mask=is_token, tile=3)
    has_visible = mask.any(-1, keepdim=True)                                          # a query without any key gets 0
    expected = F.scaled_dot_product_attention(q, k, v, mask | ~has_visible) * has_visible
    torch.testing.assert_close(output, expected)
    dy = torch.randn_like(output)
    torch.testing.assert_close(torch.autograd.grad(output, (q, k, v), dy), torch.autograd.grad(expected, (q, k, v), dy))


def test_linear_attention_of_padding_alone_is_zero():
    q, k, v = (torch.randn(2, 1, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    is_token = torch.tensor([[False] * 5, [False, False, True, True, True]])[:, None]
    for y, num_nonzero in (
        (linear_attention(q, k, v, key_mask=is_token), [0, 5]),
        (causal_linear_attention(q, k, v, key_mask=is_token), [0, 3]),
    ):
        assert y.isfinite().all() and (y != 0).any(-1).sum((1, 2)).tolist() == num_nonzero
        assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), (q, k, v)))
    torch.testing.assert_close(y[1, 0, 2], v[1, 0, 2])                         # a single key: its value
    layer, x = make_layer("linear"), torch.randn(2, 5, 12, dtype=torch.float64)
    for causal in (False, True):
        y, a = layer.forward_with_weights(x, is_token[..., None, :], causal=causal)
        assert not a[0].any()
        torch.testing.assert_close(y, layer(x, is_token[..., None, :], causal=causal))


@pytest.mark.parametrize("variant", VARIANTS)
def test_attention_variant_in_bf16_raises_no_warning_and_stays_close(variant):
    layer, x = make_layer(variant).float(), torch.randn(3, 11, 12)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x, PADDING_MASK[:, None, None])
    y.float().square().mean().backward()
    if variant != "topk":                                                         # rounding may choose another
        torch.testing.assert_close(y.float(), layer(x, PADDING_MASK[:, None, None]), atol=0.1, rtol=0.05)


def test_unknown_attention_variant_suggests_the_nearest():
    with pytest.raises(UsageError, match="no attention variant named 'locl'; did you mean 'local'"):
        make_self_attention("locl", 8, 2)
