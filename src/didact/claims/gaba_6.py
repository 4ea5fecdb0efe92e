"""Gaba, chapter 6: attention."""

from itertools import product
from math import sqrt

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact.claims.compare import Cases, Corrected, Exactly, Inside, NeverMore, Rising, Same
from didact.claims.core import claim, unable
from didact.claims.tools import Pair, count_products, parameters
from didact.layers.alignment import Luong
from didact.layers.attention import SelfAttention, attention
from didact.layers.grouped import GroupedQueryAttention
from didact.scratch import tensor
from didact.scratch.attention import attention as scratch_attention


@claim("C6.1", Same())
def weights_of_attention() -> Pair:
    """α_ij ≥ 0 and Σ_j α_ij = 1"""
    _, a = attention(5 * torch.randn(3, 4, 8), 5 * torch.randn(3, 6, 8), torch.randn(3, 6, 2))
    return [a.sum(-1), a.clamp(max=0)], [torch.ones(3, 4), torch.zeros(3, 4, 6)]


@claim("C6.2", Same())
def concat_is_additive() -> Pair:
    """vᵀ tanh(W [s; h]) = vᵀ tanh(W_a s + U_a h) with W = [W_a U_a]"""
    W_a, U_a, v, s, h = torch.randn(5, 3), torch.randn(5, 4), torch.randn(5), torch.randn(3), torch.randn(7, 4)
    concat = torch.tanh(torch.cat([s.expand(7, 3), h], dim=1) @ torch.cat([W_a, U_a], dim=1).T) @ v
    return concat, torch.tanh(W_a @ s + h @ U_a.T) @ v


def all_dot_products(d: int) -> tuple[Tensor, Tensor]:
    """qᵀk and its probability for every q and k of d entries that are −1, 0 or 2, with chances that make mean 0 and variance 1."""
    values, chances = torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([1 / 3, 1 / 2, 1 / 6])
    index = torch.tensor(list(product(range(3), repeat=2 * d)))
    q, k = values[index[:, :d]], values[index[:, d:]]
    return (q * k).sum(1), chances[index].prod(1)


@claim("C6.3", Same())
def mean_of_dot_products() -> Pair:
    """E[qᵀk] = 0 for independent entries of mean 0, over all vectors of three values, d = 1 … 4"""
    return [(p * z).sum() for z, p in map(all_dot_products, (1, 2, 3, 4))], [0.0] * 4


@claim("C6.4", Same())
def variance_of_dot_products() -> Pair:
    """Var[qᵀk] = d_k for independent entries of mean 0 and variance 1"""
    return [(p * z**2).sum() for z, p in map(all_dot_products, (1, 2, 3, 4))], [1, 2, 3, 4]


@claim("C6.5", Same())
def variance_of_scaled_dot_products() -> Pair:
    """Var[qᵀk/√d_k] = 1"""
    return [(p * (z / sqrt(d)) ** 2).sum() for d in (1, 2, 3, 4) for z, p in [all_dot_products(d)]], [1.0] * 4


@claim("C6.6", Rising())
def saturation_without_scaling() -> list[Tensor]:
    """mean norm of ∂softmax/∂z over 2000 queries and 10 keys for d_k = 65536, 4096, 256, 16; the first of them below 0.02"""
    found = []
    for d in (65536, 4096, 256, 16):
        a = (sqrt(d) * torch.randn(2000, 10)).softmax(1)  # qᵀk has variance d (C6.4), and is nearly normal
        J = torch.diag_embed(a) - a[:, :, None] * a[:, None, :]
        found.append(torch.linalg.matrix_norm(J).mean())
    return [found[0], torch.tensor(0.02), *found[1:]]


@claim("C6.7", Same())
def cost_of_heads() -> Pair:
    """products of QKᵀ and AV for h = 1, 2, 4, 8 heads of width d/h: 2 n² d for each"""
    n, d = 24, 64
    counts = []
    for h in (1, 2, 4, 8):
        q = torch.randn(h, n, d // h)
        counts.append(count_products(lambda q=q: attention(q, q, q)))  # type: ignore[misc]
    return counts, [2 * n**2 * d] * 4


@claim("C6.8", Inside(0, 10), condition="n at least of the order of d: the projections cost n d² more, so the whole is O(n² d + n d²)")
def cost_of_self_attention() -> Cases:
    """products of self-attention over n² d: for n = 256, d = 64, and for n = 16, d = 512"""
    def over(n: int, d: int) -> float:
        layer, x = SelfAttention(d, 4), torch.randn(1, n, d)
        return count_products(lambda: layer.look(x)) / (n**2 * d)

    return Cases(over(256, 64), over(16, 512))


@claim("C6.10", Exactly(((2, 4, 64), (2, 4, 6), "1.0000")))
def shapes_of_attention() -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """softmax(QKᵀ/√d)V and its weights for 4 queries and 6 keys of 64"""
    y, a = attention(torch.randn(2, 4, 64), torch.randn(2, 6, 64), torch.randn(2, 6, 64))
    (total,) = {f"{s:.4f}" for s in a.sum(-1).flatten().tolist()}
    return tuple(y.shape), tuple(a.shape), total


@claim("C6.11", Exactly(((2, 10, 512),) * 3))
def shapes_of_multi_head_attention() -> tuple[tuple[int, ...], ...]:
    """self-attention over 10 tokens, cross-attention with 20, and self-attention with a causal mask"""
    layer = nn.MultiheadAttention(512, 8, bias=False, batch_first=True)
    x, other = torch.randn(2, 10, 512), torch.randn(2, 20, 512)
    future = torch.ones(10, 10).triu(1).bool()
    outs = layer(x, x, x)[0], layer(x, other, other)[0], layer(x, x, x, attn_mask=future)[0]
    return tuple(tuple(y.shape) for y in outs)


@claim("C6.12", Exactly(1_048_576))
def parameters_of_multi_head_attention() -> int:
    """4 d² without biases, d = 512"""
    return parameters(nn.MultiheadAttention(512, 8, bias=False))


GRID = ((512, 1), (512, 2), (512, 4), (512, 8), (512, 16), (512, 32), (256, 8), (768, 8), (1024, 8))


@claim("C6.13", Exactly((*[1_048_576] * 6, 262_144, 2_359_296, 4_194_304)))
def parameters_of_the_benchmark() -> tuple[int, ...]:
    """4 d² for the nine pairs of width and heads"""
    return tuple(parameters(nn.MultiheadAttention(d, h, bias=False)) for d, h in GRID)


@claim("C6.14", Exactly((512, 256, 128, 64, 32, 16, 32, 96, 128)))
def widths_of_the_benchmark() -> tuple[int, ...]:
    """d/h for the nine pairs"""
    return tuple(int(SelfAttention(d, h).project(torch.zeros(1, 1, d))[0].shape[-1]) for d, h in GRID)


@claim("C6.16", Same())
def causal_mask() -> Pair:
    """∂y_i/∂x_j for every j > i, with −∞ in the scores of later tokens: 0; and not 0 for every j ≤ i"""
    def run(x: Tensor) -> Tensor:
        return scaled(x, causal=True).sum(-1)

    J = jacobian(run, torch.randn(6, 4)).abs().amax(-1)      # (token that asks, token that answers)
    return (J > 0).double(), torch.ones(6, 6).tril()


def scaled(x: Tensor, *, causal: bool) -> Tensor:
    return F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=causal)[0]


@claim("C6.17", Same())
def parameters_of_the_general_score() -> Pair:
    """parameters of didact's sᵀ W h, less the none of sᵀ h, for d_s and d_h of 3 to 64, against d_s d_h"""
    sizes, dot = ((3, 5), (16, 16), (64, 32)), parameters(Luong(16, 16, score="dot"))
    return [parameters(Luong(s, h, score="general")) - dot for s, h in sizes], [s * h for s, h in sizes]


@claim("C6.18", Same())
def flash_attention_is_exact() -> Pair:
    """attention over blocks of keys, with a running maximum and a running sum, against softmax(QKᵀ/√d)V"""
    q, k, v = torch.randn(7, 8), torch.randn(30, 8), torch.randn(30, 5)
    top, total, y = torch.full((7, 1), -torch.inf), torch.zeros(7, 1), torch.zeros(7, 5)
    for K, V in zip(k.split(4), v.split(4), strict=True):
        s = q @ K.T / sqrt(8)
        higher = torch.maximum(top, s.amax(1, keepdim=True))
        e, fade = (s - higher).exp(), (top - higher).exp()
        top, total, y = higher, fade * total + e.sum(1, keepdim=True), fade * y + e @ V
    return y / total, scratch_attention(tensor(q.numpy()), tensor(k.numpy()), tensor(v.numpy())).data


def feature(x: Tensor) -> Tensor:
    """φ(x) = ELU(x) + 1, the kernel of exercise 6.5."""
    return F.elu(x) + 1


@claim("C6.21", Same())
def reordered_product() -> Pair:
    """φ(Q)(φ(K)ᵀ V) = (φ(Q) φ(K)ᵀ) V"""
    q, k, v = feature(torch.randn(9, 4)), feature(torch.randn(9, 4)), torch.randn(9, 3)
    return q @ (k.T @ v), (q @ k.T) @ v


@claim("C6.22", Same(), right="the normaliser is missing: divide row i by φ(q_i)ᵀ Σ_j φ(k_j), else the weights do not sum to 1")
def linear_attention_as_attention() -> Corrected:
    """attention returns 1 where all values are 1: φ(Q)(φ(K)ᵀ 1), mended with the normaliser"""
    q, k, ones = feature(torch.randn(9, 4)), feature(torch.randn(9, 4)), torch.ones(9, 1)
    plain = q @ (k.T @ ones)
    return Corrected((plain, ones), (plain / (q @ k.sum(0))[:, None], ones))


@claim("C6.23", Same())
def cache_of_multi_query_attention() -> Pair:
    """keys and values of 100 tokens that didact's layers keep, each head its own over one for all, for h = 1, 8, 32 heads"""
    heads, x = (1, 8, 32), torch.randn(1, 100, 64)

    def kept(h: int, groups: int) -> int:
        _, k, v = GroupedQueryAttention(64, h, groups).project(x)
        return k.numel() + v.numel()

    return [kept(h, h) / kept(h, 1) for h in heads], heads


@claim("C6.9", NeverMore(), condition="products of the attention alone; with the four projections of d² it costs more at any n")
def work_of_attention_and_recurrence() -> Cases:
    """products of softmax(QKᵀ)V against those of an RNN over n < d tokens, (n, d) = (10, 64), (64, 128); and with Q, K, V, O projected"""
    def products(n: int, d: int, *, projected: bool) -> tuple[int, int]:
        x, rnn = torch.randn(1, n, d), nn.RNNCell(d, d)
        mha = SelfAttention(d, 1)
        within = count_products(lambda: mha.look(x) if projected else attention(x, x, x))

        def steps() -> None:
            h = torch.zeros(1, d)
            for t in range(n):
                h = rnn(x[:, t], h)

        return within, count_products(steps)

    sizes = ((10, 64), (64, 128))
    under, otherwise = ([products(n, d, projected=p) for n, d in sizes] for p in (False, True))
    return Cases(tuple(zip(*under, strict=True)), tuple(zip(*otherwise, strict=True)))


unable("C6.19", "a ratio of times on a GPU, at lengths and in a precision that the text does not name; that it is exact is C6.18")
unable("C6.24", "the table beside it holds times and no quality, so that nothing says what too small means")
unable("C6.25", "the quality of translations in a paper; the course names neither data nor network with which to measure it")
