import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.layers.attention.multihead import MultiHeadAttention, dot_product_attention


def make_layer(dim=24, heads=3, seed=0):
    torch.manual_seed(seed)
    layer = MultiHeadAttention(dim, heads)
    nn.init.normal_(layer.in_proj_bias)                      # zero at first: a bias that is dropped would not be seen
    return layer, torch.randn(2, 7, dim)


def test_self_attention_fused_and_explicit_match_pytorch():
    layer, x = make_layer()
    reference = nn.MultiheadAttention(24, 3, batch_first=True)
    reference.load_state_dict(layer.state_dict())            # the same names and shapes
    y, a = layer.forward_with_weights(x)
    expected, weights = reference(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(layer(x), y)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(a, weights)
    assert a.shape == (2, 3, 7, 7)
    torch.testing.assert_close(a.sum(-1), torch.ones(2, 3, 7))


def test_self_attention_fused_and_explicit_gradients_agree():
    layer, x = make_layer()
    fused_gradients, explicit_gradients = (
        torch.autograd.grad(y.square().sum(), list(layer.parameters()))
        for y in (layer(x), layer.forward_with_weights(x)[0])
    )
    for a, b in zip(fused_gradients, explicit_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_dot_product_attention_gradcheck_in_double_precision():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(lambda q, k, v: dot_product_attention(q, k, v)[0], (q, k, v))
    torch.testing.assert_close(dot_product_attention(q, k, v)[0], nn.functional.scaled_dot_product_attention(q, k, v))


def test_zero_queries_give_the_mean_value():
    v = torch.randn(1, 6, 3)
    y, a = dot_product_attention(torch.zeros(1, 6, 4), torch.randn(1, 6, 4), v)
    torch.testing.assert_close(a, torch.full((1, 6, 6), 1 / 6))
    torch.testing.assert_close(y, v.mean(1, keepdim=True).expand(1, 6, 3))


def test_self_attention_without_positions_is_permutation_equivariant():
    layer, x = make_layer()
    order = torch.randperm(7)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])


def test_self_attention_refuses_a_width_not_divisible_by_heads():
    with pytest.raises(UsageError, match="dim must be a multiple of num_heads=3, got dim=10"):
        MultiHeadAttention(10, 3)
