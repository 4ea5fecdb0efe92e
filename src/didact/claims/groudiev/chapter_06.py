"""Groudiev, chapter 6: attention and Transformers."""

import math

import torch
from torch import Tensor

from didact.claims.forms import CorrectedClaim, Display, Equal, Exactly, InInterval
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.layers.attention.multihead import MultiHeadAttention, dot_product_attention, softmax_weighted_sum
from didact.models.text.encoder_decoder import EncoderLayer, Transformer


@claim("CE53", Equal())
def context_of_a_set() -> Pair:
    """Σ a_i h_i of shuffled encoder states is the same, and Σ a_i = 1"""
    s, h, order = torch.randn(1, 4), torch.randn(6, 4), torch.tensor([3, 0, 5, 1, 4, 2])
    (y, a), (z, _) = dot_product_attention(s, h, h), dot_product_attention(s, h[order], h[order])
    return [y, a.sum()], [z, 1.0]


def _outputs_of_shuffled_tokens() -> tuple[Tensor, Tensor, Tensor]:
    """Outputs of didact's self-attention for shuffled tokens, for the tokens, and the latter shuffled."""
    layer, x, order = MultiHeadAttention(8, 2), torch.randn(1, 6, 8), torch.tensor([3, 0, 5, 1, 4, 2])
    return layer(x[:, order]), layer(x), layer(x)[:, order]


@claim("CE56", Equal())
def equivariance_of_self_attention() -> Pair:
    """the outputs of didact's self-attention for shuffled tokens are the shuffled outputs, with projections of queries,
    keys and values"""
    output_of_shuffled, _, shuffled_output = _outputs_of_shuffled_tokens()
    return output_of_shuffled, shuffled_output


def invariance_of_self_attention() -> CorrectedClaim:
    """the outputs of didact's self-attention for shuffled tokens are those for the tokens; corrected: they are the
    shuffled outputs"""
    output_of_shuffled, output, shuffled_output = _outputs_of_shuffled_tokens()
    return CorrectedClaim((output_of_shuffled, output), (output_of_shuffled, shuffled_output))


@claim("CE57", Equal())
def masked_score() -> Pair:
    """a score of −∞, as set by didact's mask, gets the weight 0, and the others their softmax"""
    s, allowed_keys = torch.randn(1, 6), torch.tensor([0, 2, 3, 5])
    allowed = torch.zeros(1, 6, dtype=torch.bool).index_fill(1, allowed_keys, value=True)
    masked_scores = s.masked_fill(~allowed, -torch.inf)
    weights = s[0, allowed_keys].exp() / s[0, allowed_keys].exp().sum()
    stated = torch.zeros(6).index_put((allowed_keys,), weights)
    return [softmax_weighted_sum(s, torch.eye(6), allowed)[1], softmax_weighted_sum(masked_scores, torch.eye(6))[1]], [
        stated,
        stated,
    ]


@claim("CE58", Exactly(6), correction="8 heads of dimension 64; six is the number of layers")
def heads_of_the_transformer() -> int:
    """heads of didact's Transformer, whose defaults are those of Vaswani et al. 2017, read from its attention weights,
    embedding dimension 512"""
    layer = Transformer(11, 11, num_layers=1).encoder[0]
    assert isinstance(layer, EncoderLayer)
    return layer.self_attn.forward_with_weights(torch.randn(1, 3, 512))[1].shape[1]


@claim("CE54", InInterval(0.8, 1))
def saturation_of_the_softmax() -> Display:
    """entropy of didact's attention weights over 32 keys, over log 32, with scores divided by √D_Q, D_Q = 16, 64, 256,
    1024; and 1 minus the entropy at D_Q = 1024 without: the scaled entropy stays near 1, the other falls towards 0"""
    v = torch.eye(32)

    def relative_entropy(a: Tensor) -> float:
        return float(torch.special.entr(a).sum(-1).mean() / math.log(32))

    queries_and_keys = [(torch.randn(200, D), torch.randn(32, D)) for D in (16, 64, 256, 1024)]
    q, k = queries_and_keys[-1]
    scaled_entropies, unscaled_entropy = (
        [relative_entropy(dot_product_attention(*qk, v)[1]) for qk in queries_and_keys],
        relative_entropy(softmax_weighted_sum(q @ k.T, v)[1]),
    )
    return Display(
        [*scaled_entropies, 1 - unscaled_entropy],
        {"fraction of the largest entropy, divided by √D_Q": scaled_entropies, "not divided": unscaled_entropy},
    )


@claim(
    "CE93",
    Equal(),
    correction="each head projects the whole input; the projections are split into chunks, and W_O joins them",
)
def heads_of_attention() -> CorrectedClaim:
    """four heads on chunks of the input, each with 4 × 4 of the matrices, against didact's self-attention; corrected:
    project, then split"""
    layer, x = MultiHeadAttention(16, 4), torch.randn(1, 5, 16)
    projections = list(layer.in_proj_weight.chunk(3))                               # each (16, 16)

    def join_heads(qkv_by_head: list[list[Tensor]]) -> Tensor:
        y: Tensor = layer.out_proj(
            torch.cat([dot_product_attention(*qkv)[0] for qkv in zip(*qkv_by_head, strict=True)], dim=-1)
        )
        return y

    spans = [slice(4 * h, 4 * h + 4) for h in range(4)]
    from_chunks = [[x[..., s] @ W[s, s].T for s in spans] for W in projections]
    from_all = [list((x @ W.T).chunk(4, dim=-1)) for W in projections]
    return CorrectedClaim((join_heads(from_chunks), layer(x)), (join_heads(from_all), layer(x)))


@claim("CE55", Exactly("D_Q"), correction="over the keys, the N_X dimension, as in the formula next to it")
def axis_of_the_softmax() -> str:
    """the axis along which didact's attention weights sum to 1, for N_Q = 4 queries and N_X = 6 keys of dimension D_Q =
    3"""
    _, a = dot_product_attention(torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 5))
    (axis,) = (i for i in range(2) if torch.allclose(a.sum(i), torch.ones(())))
    return {4: "N_Q", 6: "N_X", 3: "D_Q"}[a.shape[axis]]
