"""Forms of attention by name: each is its explicit matrix, sees no padding and, where asked, no future."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from didact.errors import UsageError
from didact.explain.heads import watched
from didact.layers import masks
from didact.layers.forms import FORMS, SPANNED, self_attention
from didact.layers.linear_attention import causal_linear_attention, linear_attention
from didact.layers.tiled import tiled_attention
from didact.models.text_encoder import TextEncoder

THERE = masks.padding(torch.tensor([11, 6, 1]), 11)          # (3, 11)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def layer(form, depth=1, span=3):
    made = self_attention(form, 12, 3, span=span, depth=depth).double()
    for p in made.parameters():
        nn.init.normal_(p, std=0.4)
    return made


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_its_explicit_matrix_forward_and_back(form, depth, causal):
    asks, x = layer(form, depth), torch.randn(3, 11, 12, dtype=torch.float64)
    for mask in (None, THERE[:, None, None]):
        y = asks(x, mask, causal=causal)
        explicit, a = asks.look(x, mask, causal=causal)
        torch.testing.assert_close(y, explicit)
        assert a.shape == (3, 3, 11, 11) and y.isfinite().all()
        ours, theirs = (torch.autograd.grad(out.square().sum(), list(asks.parameters())) for out in (y, explicit))
        torch.testing.assert_close(ours, theirs)
        if mask is not None:
            assert not a[~mask.expand_as(a)].any()
        if causal:
            assert not a.triu(1).any()


@pytest.mark.parametrize("form", FORMS)
def test_who_is_weighed(form):
    """Of eleven tokens and a span of three, counted from the definitions."""
    asks = layer(form)
    a = asks.look(torch.randn(1, 11, 12, dtype=torch.float64))[1][0, 0]
    weighed = {"local": [4, 5, 6, 7, 7, 7, 7, 7, 6, 5, 4], "strided": [4, 4, 3] * 3 + [4, 4], "topk": [3] * 11}
    assert (a != 0).sum(1).tolist() == weighed.get(form, [11] * 11)
    total = 1 - asks.lam.item() if form == "differential" else 1.0
    torch.testing.assert_close(a.sum(1), torch.full_like(a[0], total))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("form", SPANNED)
def test_a_span_beyond_the_text_reaches_all_of_it_or_none_else(form, causal):
    """A window and the largest scores are then the full form, every so-manyth token is itself alone: y = W_O v."""
    asks, x = layer(form, span=10**9), torch.randn(3, 11, 12, dtype=torch.float64)
    q, k, v = asks.project(x)
    heads = v if form == "strided" else F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    for y in (asks(x, causal=causal), asks.look(x, causal=causal)[0]):
        torch.testing.assert_close(y, asks.join(heads))
    torch.testing.assert_close(asks(x[:, :1], causal=causal), asks.join(v[:, :, :1]))


@pytest.mark.parametrize("form", FORMS)
def test_padding_and_what_comes_later_change_nothing(form):
    asks, x = layer(form), torch.randn(3, 11, 12, dtype=torch.float64)
    other = torch.where(THERE[..., None], x, torch.randn_like(x))
    torch.testing.assert_close(asks(other, THERE[:, None, None])[THERE], asks(x, THERE[:, None, None])[THERE])
    later = x.clone()
    later[:, 7:] += 1
    torch.testing.assert_close(asks(later, causal=True)[:, :7], asks(x, causal=True)[:, :7])
    assert not torch.allclose(asks(later, causal=True)[:, 7:], asks(x, causal=True)[:, 7:])


@torch.no_grad()
@pytest.mark.parametrize("form", FORMS)
def test_a_text_with_padding_behind_is_the_same_text(form):
    model = TextEncoder(30, 3, dim=16, layers=2, heads=2, hidden=24, attention=form, span=2).eval()
    tokens = torch.randint(1, 30, (4, 7))
    torch.testing.assert_close(model(F.pad(tokens, (0, 6))), model(tokens))
    empty = torch.zeros(1, 7, dtype=torch.long)
    assert model(empty).isfinite().all()
    with watched(model) as seen:
        model(tokens)
    torch.testing.assert_close(torch.stack(list(seen.values()), dim=1), model.attention_maps(tokens))


def test_a_strided_stack_reaches_everything_in_two_layers_and_a_local_one_does_not():
    def reached(form):
        model = TextEncoder(30, 1, dim=16, layers=2, heads=2, hidden=8, attention=form, span=4, context=17).eval()
        x = torch.randn(1, 17, 16, requires_grad=True)
        y, mask = x, torch.ones(1, 1, 1, 17, dtype=torch.bool)
        for block in model.blocks:
            y = block(y, mask)
        return torch.autograd.grad(y[0, 16].sum(), x)[0][0].abs().sum(1) > 0

    assert reached("strided").all()
    assert reached("local").tolist() == [j >= 8 for j in range(17)]


@pytest.mark.parametrize("causal", [False, True])
def test_tiles_without_a_token_weigh_nothing(causal):
    q, k, v = (torch.randn(2, 3, 9, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    there = torch.ones(2, 1, 9, dtype=torch.bool)
    there[0, :, 3:6] = there[1, :, :3] = False                                 # a whole tile, in the middle and at the beginning
    mask = there[..., None, :] & masks.causal(9) if causal else there[..., None, :].expand(2, 1, 9, 9)
    ours = tiled_attention(q, k, v, causal=causal, there=there, tile=3)
    seen = mask.any(-1, keepdim=True)                                          # who may look nowhere gets 0
    exact = F.scaled_dot_product_attention(q, k, v, mask | ~seen) * seen
    torch.testing.assert_close(ours, exact)
    dy = torch.randn_like(ours)
    torch.testing.assert_close(torch.autograd.grad(ours, (q, k, v), dy), torch.autograd.grad(exact, (q, k, v), dy))


def test_where_nothing_is_there_the_linear_form_gives_nothing():
    q, k, v = (torch.randn(2, 1, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    there = torch.tensor([[False] * 5, [False, False, True, True, True]])[:, None]
    for y, seen in ((linear_attention(q, k, v, there=there), [0, 5]), (causal_linear_attention(q, k, v, there=there), [0, 3])):
        assert y.isfinite().all() and (y != 0).any(-1).sum((1, 2)).tolist() == seen
        assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), (q, k, v)))
    torch.testing.assert_close(y[1, 0, 2], v[1, 0, 2])                         # who sees one alone gets its value
    asks, x = layer("linear"), torch.randn(2, 5, 12, dtype=torch.float64)
    for causal in (False, True):
        y, a = asks.look(x, there[..., None, :], causal=causal)
        assert not a[0].any()
        torch.testing.assert_close(y, asks(x, there[..., None, :], causal=causal))


@pytest.mark.parametrize("form", FORMS)
def test_half_precision_warns_of_nothing_and_stays_near(form):
    asks, x = layer(form).float(), torch.randn(3, 11, 12)
    with torch.autocast("cpu", torch.bfloat16):
        y = asks(x, THERE[:, None, None])
    y.float().square().mean().backward()
    if form != "topk":                                                         # rounding may choose another
        torch.testing.assert_close(y.float(), asks(x, THERE[:, None, None]), atol=0.1, rtol=0.05)


def test_an_unknown_form_names_the_nearest():
    with pytest.raises(UsageError, match="no form of attention named 'locl'; did you mean 'local'"):
        self_attention("locl", 8, 2)
