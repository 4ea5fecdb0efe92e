"""Van Schependom, chapter 7: Transformers and attention."""

import math

import torch
from torch import Tensor

from didact.claims.forms import CorrectedClaim, Equal, Exactly
from didact.claims.groudiev import chapter_06 as groudiev_6
from didact.claims.groudiev.chapter_03 import to_scratch
from didact.claims.helpers import Pair, count_multiplications
from didact.claims.registry import claim
from didact.layers.attention import attention_masks
from didact.layers.attention.multihead import MultiHeadAttention, dot_product_attention
from didact.scratch.norm import layer_norm as scratch_layer_norm


@claim("CV34", Exactly(((2, 4, 7, 6), (2, 4, 7, 7))))
def shapes_of_heads() -> tuple[tuple[int, ...], ...]:
    """didact's self-attention: B × T × D → B × P × T × D_h, weights B × P × T × T, with B = 2, T = 7, D = 24, P = 4"""
    layer, x = MultiHeadAttention(24, 4), torch.randn(2, 7, 24)
    return tuple(layer.project_qkv(x)[0].shape), tuple(layer.forward_with_weights(x)[1].shape)


@claim("CV35", Equal(), correction="each head divides by √D_h = √(D/P), the dimension of its own keys")
def scale_of_heads() -> CorrectedClaim:
    """softmax(Q_p K_pᵀ/√D) V_p concatenated, against didact's self-attention, on PyTorch's kernel, with the same
    projections; corrected: √(D/P)"""
    layer, x = MultiHeadAttention(24, 4), torch.randn(2, 7, 24)
    q, k, v = layer.project_qkv(x)

    def attend_with_scale(scale: float) -> Tensor:
        return layer.merge_heads((q @ k.mT / scale).softmax(-1) @ v)

    return CorrectedClaim(
        (attend_with_scale(math.sqrt(24)), layer(x)), (attend_with_scale(math.sqrt(24 / 4)), layer(x))
    )


@claim("CV36", Equal())
def layer_norm() -> Pair:
    """(x − μ)/σ with 1/D in both, against the layer norm of didact's engine with ε = 0"""
    x = torch.randn(5, 9)
    return (x - x.mean(1, keepdim=True)) / x.std(1, correction=0, keepdim=True), scratch_layer_norm(
        to_scratch(x), (9,), eps=0.0
    ).data


claim("CV37", Equal(), correction="self-attention is equivariant: shuffled tokens give shuffled outputs")(
    groudiev_6.invariance_of_self_attention
)


@claim("CV38", Equal(), correction="lower-triangular with the diagonal: a token attends to itself")
def causal_attention_matrix() -> CorrectedClaim:
    """the weights of didact's causal attention, against their strictly lower part; corrected: their lower part with the
    diagonal"""
    q, k = torch.randn(6, 4), torch.randn(6, 4)
    _, A = dot_product_attention(q, k, k, attention_masks.causal_mask(6))
    return CorrectedClaim((A, A.tril(-1)), (A, A.tril()))


@claim("CV39", Equal(), remark="for the attention alone; the projections before it cost B·T·D² more")
def cost_in_the_length() -> Pair:
    """multiplications of didact's attention, QKᵀ and AV: 2 B T² D, four times as many for twice the tokens"""
    def cost(B: int, T: int, D: int) -> int:
        q = torch.randn(B, T, D)
        return count_multiplications(lambda: dot_product_attention(q, q, q))

    return [cost(2, 8, 16), cost(2, 16, 16)], [2 * 2 * 8**2 * 16, 4 * 2 * 2 * 8**2 * 16]


@claim("CV46", Exactly(((4, 6), (4, 5))))
def shapes_of_cross_attention() -> tuple[tuple[int, ...], ...]:
    """A is T × S and the output T × D_v, with T = 4, S = 6, D_k = 3, D_v = 5"""
    y, a = dot_product_attention(torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 5))
    return tuple(a.shape), tuple(y.shape)
