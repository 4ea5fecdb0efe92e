"""Gaba, chapter 6: attention."""

from itertools import pairwise, product
from math import sqrt

import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from didact.claims.forms import Conditional, CorrectedClaim, Display, Equal, Exactly, InInterval, LessOrEqual
from didact.claims.helpers import Pair, compute_gradients, count_multiplications, count_parameters
from didact.claims.registry import claim, mark_not_checkable
from didact.layers.attention.additive import BahdanauAttention, LuongAttention
from didact.layers.attention.flash import flash_attention, tile_scores
from didact.layers.attention.grouped_query import GroupedQueryAttention
from didact.layers.attention.linear_attention import feature_map, linear_attention
from didact.layers.attention.multihead import CrossAttention, MultiHeadAttention, dot_product_attention
from didact.layers.recurrent.recurrent import Recurrent


@claim("C6.1", Equal())
def weights_of_attention() -> Pair:
    """α_ij ≥ 0 and Σ_j α_ij = 1"""
    _, a = dot_product_attention(5 * torch.randn(3, 4, 8), 5 * torch.randn(3, 6, 8), torch.randn(3, 6, 2))
    return [a.sum(-1), a.clamp(max=0)], [torch.ones(3, 4), torch.zeros(3, 4, 6)]


@claim("C6.2", Equal())
def concat_is_additive() -> Pair:
    """vᵀ tanh(W [s; h]) with W = [W_a U_a], didact's Luong, = vᵀ tanh(W_a s + U_a h); and the weights, its Bahdanau's
    too"""
    concat, additive, s, h = (
        LuongAttention(3, 4, score="concat", attention_dim=5),
        BahdanauAttention(3, 4, attention_dim=5),
        torch.randn(2, 6, 3),
        torch.randn(2, 7, 4),
    )
    W_a, U_a, v = additive.w.weight, additive.u.weight, additive.v.weight[0]
    with torch.no_grad():
        concat.w.weight.copy_(torch.cat([W_a, U_a], dim=1))
        concat.v.weight.copy_(additive.v.weight)
    stated = torch.tanh((s @ W_a.T)[:, :, None] + (h @ U_a.T)[:, None]) @ v              # (B, T, S)
    α = stated.exp() / stated.exp().sum(-1, keepdim=True)
    return [stated, α, α], [concat.compute_scores(s, h), concat(s, h)[1], additive(s, h)[1]]


def _enumerate_pairs(d: int, *, same_qk: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Every q and k with d entries −1, 0 or 2, or every q with k = q, and its probability; entries have mean 0 and
    variance 1."""
    values, probabilities = torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([1 / 3, 1 / 2, 1 / 6])
    index = torch.tensor(list(product(range(3), repeat=d if same_qk else 2 * d)))
    return values[index[:, None, :d]], values[index[:, None, -d:]], probabilities[index].prod(1)


def _score_moments(*, same_qk: bool, scaled: bool = False) -> tuple[list[Tensor], list[Tensor]]:
    """E z and Var z of didact's scores z = qᵀk, or qᵀk/√d, over all pairs, for d = 1 … 4."""
    means, variances = [], []
    for d in (1, 2, 3, 4):
        q, k, p = _enumerate_pairs(d, same_qk=same_qk)
        z = (
            tile_scores(q, k, causal=False, key_mask=None)
            if scaled
            else LuongAttention(d, d, score="dot").compute_scores(q, k)
        )[:, 0, 0]
        means.append(p @ z)
        variances.append(p @ (z - p @ z) ** 2)
    return means, variances


_INDEPENDENT_QK = "q and k independent of each other, not only their components"


@claim("C6.3", Equal(), condition=f"{_INDEPENDENT_QK}; with k = q the mean is d_k")
def mean_of_dot_products() -> Conditional:
    """E[qᵀk] = 0 for independent entries of mean 0, over all vectors of three values, d = 1 … 4; and with k = q"""
    return Conditional(*((_score_moments(same_qk=same_qk)[0], [0.0] * 4) for same_qk in (False, True)))


@claim("C6.4", Equal(), condition=f"{_INDEPENDENT_QK}; with k = q it is d_k times the variance of q_i²")
def variance_of_dot_products() -> Conditional:
    """Var[qᵀk] = d_k for independent entries of mean 0 and variance 1, d = 1 … 4; and with k = q"""
    return Conditional(*((_score_moments(same_qk=same_qk)[1], [1, 2, 3, 4]) for same_qk in (False, True)))


@claim("C6.5", Equal(), condition=f"{_INDEPENDENT_QK}; with k = q it is the variance of q_i²")
def variance_of_scaled_dot_products() -> Conditional:
    """Var[qᵀk/√d_k] = 1, d = 1 … 4; and with k = q"""
    return Conditional(*((_score_moments(same_qk=same_qk, scaled=True)[1], [1.0] * 4) for same_qk in (False, True)))


@claim("C6.6", InInterval(1.4, 2.4))
def saturation_without_scaling() -> Display:
    """the factor by which the mean norm of ∂softmax/∂z falls each time d_k grows fourfold, from 16 to 1024, without
    1/√d_k: it tends to 2, and so the norm to 0; shown with the norms for 1/√d_k"""
    def norm(q: Tensor, k: Tensor) -> Tensor:
        _, a = dot_product_attention(q, k, k)
        J = torch.diag_embed(a) - a[..., :, None] * a[..., None, :]
        mean: Tensor = torch.linalg.matrix_norm(J).mean()
        return mean

    unscaled, scaled = [], []
    for d in (16, 64, 256, 1024):
        q, k = torch.randn(100, 20, d), torch.randn(100, 20, d)
        unscaled.append(norm(sqrt(d) * q, k))                     # takes the scale out again
        scaled.append(norm(q, k))
    return Display(
        [before / after for before, after in pairwise(unscaled)],
        {"norm at d_k = 16, 64, 256 and 1024:": unscaled, "scaled": scaled},
    )


@claim("C6.7", Equal())
def cost_of_heads() -> Pair:
    """multiplications of QKᵀ and AV for h = 1, 2, 4, 8 heads of dimension d/h: 2 n² d for each h"""
    n, d = 24, 64
    counts = []
    for h in (1, 2, 4, 8):
        q = torch.randn(h, n, d // h)
        counts.append(count_multiplications(lambda q=q: dot_product_attention(q, q, q)))  # type: ignore[misc]
    return counts, [2 * n**2 * d] * 4


@claim(
    "C6.8",
    InInterval(0, 10),
    condition="n at least of the order of d: the projections cost n d² more, so the whole is O(n² d + n d²)",
)
def cost_of_self_attention() -> Conditional:
    """multiplications of self-attention over n² d: for n = 256, d = 64, and for n = 16, d = 512"""
    def cost_ratio(n: int, d: int) -> float:
        layer, x = MultiHeadAttention(d, 4), torch.randn(1, n, d)
        return count_multiplications(lambda: layer.forward_with_weights(x)) / (n**2 * d)

    return Conditional(cost_ratio(256, 64), cost_ratio(16, 512))


@claim("C6.10", Exactly(((2, 4, 64), (2, 4, 6), "1.0000")))
def shapes_of_attention() -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """softmax(QKᵀ/√d)V and its weights for 4 queries and 6 keys of 64"""
    y, a = dot_product_attention(torch.randn(2, 4, 64), torch.randn(2, 6, 64), torch.randn(2, 6, 64))
    (total,) = {f"{s:.4f}" for s in a.sum(-1).flatten().tolist()}
    return tuple(y.shape), tuple(a.shape), total


@claim("C6.11", Exactly(((2, 10, 512),) * 3))
def shapes_of_multi_head_attention() -> tuple[tuple[int, ...], ...]:
    """didact's self-attention over 10 tokens, its cross-attention with 20, and its self-attention with a causal mask"""
    layer, cross, x, context = (
        MultiHeadAttention(512, 8),
        CrossAttention(512, 8),
        torch.randn(2, 10, 512),
        torch.randn(2, 20, 512),
    )
    return tuple(tuple(y.shape) for y in (layer(x), cross(x, context), layer(x, causal=True)))


@claim("C6.12", Exactly(1_048_576))
def parameters_of_multi_head_attention() -> int:
    """4 d² without biases, d = 512: didact's layer with a key and a value for each of its eight heads"""
    return count_parameters(GroupedQueryAttention(512, 8, 8))


_WIDTHS_AND_HEADS = ((512, 1), (512, 2), (512, 4), (512, 8), (512, 16), (512, 32), (256, 8), (768, 8), (1024, 8))


@claim("C6.13", Exactly((*[1_048_576] * 6, 262_144, 2_359_296, 4_194_304)))
def parameters_of_the_benchmark() -> tuple[int, ...]:
    """4 d² for the nine pairs of width and heads"""
    return tuple(count_parameters(GroupedQueryAttention(d, h, h)) for d, h in _WIDTHS_AND_HEADS)


@claim("C6.14", Exactly((512, 256, 128, 64, 32, 16, 32, 96, 128)))
def widths_of_the_benchmark() -> tuple[int, ...]:
    """d/h for the nine pairs"""
    layers = [(MultiHeadAttention(d, h), torch.zeros(1, 1, d)) for d, h in _WIDTHS_AND_HEADS]
    return tuple(int(layer.project_qkv(x)[0].shape[-1]) for layer, x in layers)


@claim("C6.16", Equal())
def causal_mask() -> Pair:
    """∂y_i/∂x_j of didact's causal attention, fused and explicit: 0 for every j > i, and not 0 for every j ≤ i"""
    layer = MultiHeadAttention(4, 2)
    attentions = (
        lambda x: layer(x[None], causal=True)[0].sum(-1),
        lambda x: layer.forward_with_weights(x[None], causal=True)[0][0].sum(-1),
    )
    # (query token, key token)
    dependence = [jacobian(attention_sum, torch.randn(6, 4)).abs().amax(-1) for attention_sum in attentions]
    return [(J > 0).double() for J in dependence], [torch.ones(6, 6).tril()] * 2


@claim("C6.17", Equal())
def parameters_of_the_general_score() -> Pair:
    """parameters of didact's score sᵀ W h, minus those of sᵀ h (none), for d_s and d_h of 3 to 64, against d_s d_h"""
    sizes, dot = ((3, 5), (16, 16), (64, 32)), count_parameters(LuongAttention(16, 16, score="dot"))
    return [count_parameters(LuongAttention(s, h, score="general")) - dot for s, h in sizes], [s * h for s, h in sizes]


@claim("C6.18", Equal())
def flash_attention_is_exact() -> Pair:
    """didact's attention in tiles of four keys, with a running maximum and a running sum, and its gradients, against
    softmax(QKᵀ/√d)V"""
    q, k, v, dy = torch.randn(7, 8), torch.randn(30, 8), torch.randn(30, 5), torch.randn(7, 5)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    tiled, stated = flash_attention(q, k, v, tile=4), (q @ k.T / sqrt(8)).softmax(1) @ v
    outputs_and_gradients = [[y, *compute_gradients((y * dy).sum(), *leaves)] for y in (tiled, stated)]
    return outputs_and_gradients[0], outputs_and_gradients[1]


@claim("C6.21", Equal())
def reordered_product() -> Pair:
    """φ(Q)(φ(K)ᵀ V), didact's linear attention times its normalizer, = (φ(Q) φ(K)ᵀ) V, with the φ of exercise 6.5, ELU
    + 1"""
    q, k, v = torch.randn(9, 4), torch.randn(9, 4), torch.randn(9, 3)
    φq, φk = (torch.where(x > 0, x + 1, x.exp()) for x in (q, k))
    return (φq @ φk.T) @ v, linear_attention(q, k, v) * (φq @ φk.sum(0))[:, None]


@claim(
    "C6.22",
    Equal(),
    correction="the normalizer is missing: divide row i by φ(q_i)ᵀ Σ_j φ(k_j), else the weights do not sum to 1",
)
def linear_attention_as_attention() -> CorrectedClaim:
    """φ(Q)(φ(K)ᵀV) is a mean of values, Σ_j α_ij v_j with α_ij = φ(q_i)·φ(k_j) over their sum; corrected: divided by
    φ(q_i)ᵀ Σ_j φ(k_j), by hand and by didact's linear attention"""
    q, k, v = torch.randn(9, 4), torch.randn(9, 4), torch.randn(9, 3)
    φq, φk = feature_map(q), feature_map(k)
    products = torch.einsum("id,jd->ij", φq, φk)
    mean = torch.stack(
        [sum((a * x for a, x in zip(row / row.sum(), v, strict=True)), torch.zeros(3)) for row in products]
    )
    printed = φq @ (φk.T @ v)
    return CorrectedClaim(
        (printed, mean), ([printed / (φq @ φk.sum(0))[:, None], linear_attention(q, k, v)], [mean, mean])
    )


@claim("C6.23", Equal())
def cache_of_multi_query_attention() -> Pair:
    """KV cache of 100 tokens in didact's layers: keys and values per head over one pair for all heads, for h = 1, 8, 32
    heads"""
    heads, x = (1, 8, 32), torch.randn(1, 100, 64)

    def count_cached_numbers(h: int, groups: int) -> int:
        _, k, v = GroupedQueryAttention(64, h, groups).project_qkv(x)
        return k.numel() + v.numel()

    return [count_cached_numbers(h, h) / count_cached_numbers(h, 1) for h in heads], heads


@claim(
    "C6.9",
    LessOrEqual(),
    condition="counted in multiplications, and for the attention alone: with its four projections it takes more at any "
    "n; time depends on hardware and batch",
)
def work_of_attention_and_recurrence() -> Conditional:
    """multiplications of didact's softmax(QKᵀ)V against those of its RNN over n < d tokens, (n, d) = (10, 64), (64,
    128); and with projections"""
    def products(n: int, d: int, *, projected: bool) -> tuple[int, int]:
        x, rnn, layer = torch.randn(1, n, d), Recurrent("rnn", d, d), MultiHeadAttention(d, 1)
        return count_multiplications(
            lambda: layer.forward_with_weights(x) if projected else dot_product_attention(x, x, x)
        ), count_multiplications(lambda: rnn.forward_with_gates(x))

    sizes = ((10, 64), (64, 128))
    under, otherwise = ([products(n, d, projected=p) for n, d in sizes] for p in (False, True))
    return Conditional(tuple(zip(*under, strict=True)), tuple(zip(*otherwise, strict=True)))


mark_not_checkable("C6.24", "the table has times but no quality, so nothing defines what too small means")
mark_not_checkable(
    "C6.25", "the course names no data, no network and no measure of the performance that is said to degrade"
)
