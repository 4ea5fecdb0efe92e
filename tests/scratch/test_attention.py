"""Attention against torch: masks of every kind, second derivatives, the multi-head module with torch's own weights."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from both_engines import agree, close, few
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from didact.scratch import ScratchError, Tensor, modules, tensor
from didact.scratch.attention import attention, attention_weights

small = st.sampled_from([1, 2, 3, 5])


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).normal(size=shape)


@few
@given(st.lists(small, max_size=2).map(tuple), small, small, small, small, st.sampled_from(["none", "causal", "bool", "float"]))
def test_attention(batch, t, s, d, e, mask):
    q, k, v = normal(*batch, t, d), normal(*batch, s, d, seed=1), normal(*batch, s, e, seed=2)
    given = {"none": None, "causal": None, "bool": normal(t, s, seed=3) > -0.3, "float": normal(t, s, seed=3)}[mask]
    if mask == "bool":
        given[:, 0] = True  # the row that may look nowhere has its own test
    other = None if given is None else torch.from_numpy(given)
    with sdpa_kernel(SDPBackend.MATH):  # the only one of PyTorch's that can be differentiated twice
        agree(lambda q, k, v: attention(q, k, v, given, mask == "causal"),
              lambda q, k, v: F.scaled_dot_product_attention(q, k, v, other, is_causal=mask == "causal"), q, k, v)


def test_a_query_that_may_look_nowhere_gets_zero():
    q, k, v = (tensor(normal(2, 3, seed=i), requires_grad=True) for i in range(3))
    mask = np.array([[True, True], [False, False]])
    y = attention(q, k, v, mask)
    y.sum().backward()
    assert not y.data[1].any()
    assert not q.grad[1].any()
    assert np.isfinite(k.grad).all()


def test_the_future_is_not_seen():
    """Lower-triangular with the diagonal (Van Schependom 7.6.3 says strictly): position t sees 0 … t."""
    a = attention_weights(Tensor(normal(4, 3)), Tensor(normal(4, 3, seed=1)), np.triu(np.full((4, 4), -np.inf), 1)).data
    np.testing.assert_array_equal(a != 0, np.tri(4, dtype=bool))
    np.testing.assert_allclose(a.sum(1), 1)


def test_attention_is_equivariant_to_order():
    """Permuting the tokens permutes the output (the courses that say invariant mean this)."""
    x, order = normal(5, 4), np.array([3, 0, 4, 1, 2])
    y, moved = (attention(Tensor(v), Tensor(v), Tensor(v)).data for v in (x, x[order]))
    np.testing.assert_allclose(y[order], moved, atol=1e-12)


@few
@given(small, small, small, st.sampled_from([1, 2]), st.booleans(), st.booleans(),
       st.sampled_from(["none", "padding", "mask", "per head", "both"]))
def test_multi_head_attention(n, t, s, heads, bias, batch_first, masked):
    e = 2 * heads * 2
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(e, heads, bias=bias, batch_first=batch_first).double()
    ours = modules.MultiHeadAttention(e, heads, bias, batch_first, dtype=np.float64)
    if bias:
        torch.nn.init.normal_(theirs.in_proj_bias), torch.nn.init.normal_(theirs.out_proj.bias)
    ours.load_state_dict(theirs.state_dict())
    padding = normal(n, s, seed=5) > 0.5 if masked in ("padding", "both") else None
    mask = {"mask": (t, s), "both": (t, s), "per head": (n * heads, t, s)}.get(masked)
    mask = None if mask is None else normal(*mask, seed=6) > 0.5
    for m in (padding, mask):
        if m is not None:
            m[..., 0] = False  # every query keeps something to look at
    shape = (lambda length: (n, length, e)) if batch_first else (lambda length: (length, n, e))
    arrays = [normal(*shape(length), seed=i) for i, length in enumerate((t, s, s))]
    mine, other = [tensor(a, requires_grad=True) for a in arrays], [torch.tensor(a, requires_grad=True) for a in arrays]
    y = ours(*mine, key_padding_mask=padding, attn_mask=mask)
    given = {"key_padding_mask": padding, "attn_mask": mask}
    r, _ = theirs(*other, **{key: None if m is None else torch.from_numpy(m) for key, m in given.items()}, need_weights=False)
    close("value", y.data, r)
    (y**3).sum().backward()
    (r**3).sum().backward()
    for a, b in zip(mine, other, strict=True):
        close("gradient", a.grad, b.grad)
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        close(name, p.grad, q.grad)


def test_causal_self_attention_of_the_module():
    ours = modules.MultiHeadAttention(6, 2, batch_first=True, rng=0, dtype=np.float64)
    x, y = tensor(normal(2, 5, 6), requires_grad=True), normal(2, 5, 6)
    one = ours(x, is_causal=True)
    theirs = torch.nn.MultiheadAttention(6, 2, batch_first=True).double()
    theirs.load_state_dict({k: torch.from_numpy(v) for k, v in ours.state_dict().items()})
    t = torch.tensor(x.data, requires_grad=True)
    future = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    r, _ = theirs(t, t, t, attn_mask=future, is_causal=True, need_weights=False)
    one.backward(y)
    r.backward(torch.from_numpy(y))
    close("value", one.data, r)
    close("gradient", x.grad, t.grad)


def test_what_does_not_fit_is_named():
    with pytest.raises(ScratchError, match=r"attention.*\(2, 3\).*\(4, 5\)"):
        attention(Tensor(normal(2, 3)), Tensor(normal(4, 5)), Tensor(normal(4, 5)))
    with pytest.raises(ScratchError, match="multiple of heads=4, got 6"):
        modules.MultiHeadAttention(6, 4)
