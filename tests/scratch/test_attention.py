"""Attention against torch: masks of every kind, second derivatives, the multi-head module with torch's own weights."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from didact.scratch import ScratchError, Tensor, modules, tensor
from didact.scratch.attention import attention, attention_weights
from helpers.op_comparison import assert_close, assert_matches_torch, few_examples

small_sizes = st.sampled_from([1, 2, 3, 5])


def sample_normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).normal(size=shape)


@few_examples
@given(
    st.lists(small_sizes, max_size=2).map(tuple),
    small_sizes,
    small_sizes,
    small_sizes,
    small_sizes,
    st.sampled_from(["none", "causal", "bool", "float"]),
)
def test_attention_matches_torch(batch, t, s, d, e, mask):
    q, k, v = sample_normal(*batch, t, d), sample_normal(*batch, s, d, seed=1), sample_normal(*batch, s, e, seed=2)
    scratch_mask = {
        "none": None,
        "causal": None,
        "bool": sample_normal(t, s, seed=3) > -0.3,
        "float": sample_normal(t, s, seed=3),
    }[mask]
    if mask == "bool":
        scratch_mask[:, 0] = True  # a fully masked row has its own test
    torch_mask = None if scratch_mask is None else torch.from_numpy(scratch_mask)
    with sdpa_kernel(SDPBackend.MATH):  # the only kernel of PyTorch's that can be differentiated twice
        assert_matches_torch(lambda q, k, v: attention(q, k, v, scratch_mask, mask == "causal"),
              lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch_mask, is_causal=mask == "causal"), q, k, v)


def test_fully_masked_query_gets_zero():
    q, k, v = (tensor(sample_normal(2, 3, seed=i), requires_grad=True) for i in range(3))
    mask = np.array([[True, True], [False, False]])
    y = attention(q, k, v, mask)
    y.sum().backward()
    assert not y.data[1].any()
    assert not q.grad[1].any()
    assert np.isfinite(k.grad).all()


def test_causal_mask_hides_the_future():
    """Lower-triangular with the diagonal (Van Schependom 7.6.3 says strictly): position t sees 0 … t."""
    a = attention_weights(
        Tensor(sample_normal(4, 3)), Tensor(sample_normal(4, 3, seed=1)), np.triu(np.full((4, 4), -np.inf), 1)
    ).data
    np.testing.assert_array_equal(a != 0, np.tri(4, dtype=bool))
    np.testing.assert_allclose(a.sum(1), 1)


def test_attention_is_equivariant_to_order():
    """Permuting the tokens permutes the output (the courses that say invariant mean this)."""
    x, order = sample_normal(5, 4), np.array([3, 0, 4, 1, 2])
    y, permuted_output = (attention(Tensor(v), Tensor(v), Tensor(v)).data for v in (x, x[order]))
    np.testing.assert_allclose(y[order], permuted_output, atol=1e-12)


@few_examples
@given(small_sizes, small_sizes, small_sizes, st.sampled_from([1, 2]), st.booleans(), st.booleans(),
       st.sampled_from(["none", "padding", "mask", "per head", "both"]))
def test_multi_head_attention_matches_torch(n, t, s, heads, bias, batch_first, mask_kind):
    e = 2 * heads * 2
    torch.manual_seed(0)
    torch_module = torch.nn.MultiheadAttention(e, heads, bias=bias, batch_first=batch_first).double()
    scratch_module = modules.MultiHeadAttention(e, heads, bias, batch_first, dtype=np.float64)
    if bias:
        torch.nn.init.normal_(torch_module.in_proj_bias), torch.nn.init.normal_(torch_module.out_proj.bias)
    scratch_module.load_state_dict(torch_module.state_dict())
    padding = sample_normal(n, s, seed=5) > 0.5 if mask_kind in ("padding", "both") else None
    mask = {"mask": (t, s), "both": (t, s), "per head": (n * heads, t, s)}.get(mask_kind)
    mask = None if mask is None else sample_normal(*mask, seed=6) > 0.5
    for m in (padding, mask):
        if m is not None:
            m[..., 0] = False  # every query attends to something
    shape = (lambda length: (n, length, e)) if batch_first else (lambda length: (length, n, e))
    arrays = [sample_normal(*shape(length), seed=i) for i, length in enumerate((t, s, s))]
    scratch_inputs, torch_inputs = (
        [tensor(a, requires_grad=True) for a in arrays],
        [torch.tensor(a, requires_grad=True) for a in arrays],
    )
    y = scratch_module(*scratch_inputs, key_padding_mask=padding, attn_mask=mask)
    masks = {"key_padding_mask": padding, "attn_mask": mask}
    r, _ = torch_module(
        *torch_inputs,
        **{key: None if m is None else torch.from_numpy(m) for key, m in masks.items()},
        need_weights=False,
    )
    assert_close("value", y.data, r)
    (y**3).sum().backward()
    (r**3).sum().backward()
    for a, b in zip(scratch_inputs, torch_inputs, strict=True):
        assert_close("gradient", a.grad, b.grad)
    for (name, p), q in zip(scratch_module.named_parameters(), torch_module.parameters(), strict=True):
        assert_close(name, p.grad, q.grad)


def test_causal_multi_head_attention_matches_torch():
    scratch_module = modules.MultiHeadAttention(6, 2, batch_first=True, rng=0, dtype=np.float64)
    x, y = tensor(sample_normal(2, 5, 6), requires_grad=True), sample_normal(2, 5, 6)
    output = scratch_module(x, is_causal=True)
    torch_module = torch.nn.MultiheadAttention(6, 2, batch_first=True).double()
    torch_module.load_state_dict({k: torch.from_numpy(v) for k, v in scratch_module.state_dict().items()})
    t = torch.tensor(x.data, requires_grad=True)
    causal_mask = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    r, _ = torch_module(t, t, t, attn_mask=causal_mask, is_causal=True, need_weights=False)
    output.backward(y)
    r.backward(torch.from_numpy(y))
    assert_close("value", output.data, r)
    assert_close("gradient", x.grad, t.grad)


def test_attention_names_shapes_that_do_not_fit():
    with pytest.raises(ScratchError, match=r"attention.*\(2, 3\).*\(4, 5\)"):
        attention(Tensor(sample_normal(2, 3)), Tensor(sample_normal(4, 5)), Tensor(sample_normal(4, 5)))
    with pytest.raises(ScratchError, match="embed_dim must be a multiple of num_heads=4, got 6"):
        modules.MultiHeadAttention(6, 4)
