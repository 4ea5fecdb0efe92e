import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.layers.attention import SelfAttention, attention


def made(dim=24, heads=3, seed=0):
    torch.manual_seed(seed)
    layer = SelfAttention(dim, heads)
    nn.init.normal_(layer.in_proj_bias)                      # zero at first: a bias that is dropped would not be seen
    return layer, torch.randn(2, 7, dim)


def test_fused_explicit_and_pytorchs_own_agree():
    layer, x = made()
    reference = nn.MultiheadAttention(24, 3, batch_first=True)
    reference.load_state_dict(layer.state_dict())            # the same names and shapes
    y, a = layer.look(x)
    theirs, weights = reference(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(layer(x), y)
    torch.testing.assert_close(y, theirs)
    torch.testing.assert_close(a, weights)
    assert a.shape == (2, 3, 7, 7)
    torch.testing.assert_close(a.sum(-1), torch.ones(2, 3, 7))


def test_gradients_agree():
    layer, x = made()
    one, two = (torch.autograd.grad(y.square().sum(), list(layer.parameters())) for y in (layer(x), layer.look(x)[0]))
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_the_equation_in_double_precision():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(lambda q, k, v: attention(q, k, v)[0], (q, k, v))
    torch.testing.assert_close(attention(q, k, v)[0], nn.functional.scaled_dot_product_attention(q, k, v))


def test_who_asks_alike_takes_the_mean():
    v = torch.randn(1, 6, 3)
    y, a = attention(torch.zeros(1, 6, 4), torch.randn(1, 6, 4), v)
    torch.testing.assert_close(a, torch.full((1, 6, 6), 1 / 6))
    torch.testing.assert_close(y, v.mean(1, keepdim=True).expand(1, 6, 3))


def test_order_does_not_matter_without_positions():
    layer, x = made()
    order = torch.randperm(7)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])


def test_heads_share_the_width():
    with pytest.raises(UsageError, match="dim must be a multiple of heads=3, got dim=10"):
        SelfAttention(10, 3)
