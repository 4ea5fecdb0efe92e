"""Groudiev, chapters 4 to 6: convolutions, recurrent networks, attention."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.claims import gaba_2
from didact.claims.compare import Cases, Corrected, Exactly, Inside, Rising, Same
from didact.claims.core import claim
from didact.claims.gaba_5 import lstm_step
from didact.claims.tools import Pair, gradients
from didact.layers.attention import attention
from didact.layers.geometry import Window, receptive_field
from didact.models.lenet import LeNet5


@claim("CE33", Exactly((1024, 3072)))
def flattened() -> tuple[int, ...]:
    """32 × 32, and 32 × 32 × 3"""
    return tuple(torch.zeros(1, c, 32, 32).flatten(1).shape[1] for c in (1, 3))


@claim("CE34", Same(), right="the dot product with the patch is the cross-correlation; a convolution flips the kernel")
def convolution_and_dot_product() -> Corrected:
    """Σ x[i − m, j − n] k[m, n] over a 3 × 3 patch against the patch's dot product with k; mended: indices not flipped"""
    x, k = torch.randn(3, 3), torch.randn(3, 3)
    pairs = [(m, n) for m in range(3) for n in range(3)]
    convolved = sum(x[2 - m, 2 - n] * k[m, n] for m, n in pairs)
    correlated = sum(x[m, n] * k[m, n] for m, n in pairs)
    dot = F.conv2d(x[None, None], k[None, None]).squeeze()
    return Corrected((convolved, dot), (correlated, dot))


@claim("CE35", Same())
def shape_of_a_convolution() -> Pair:
    """C′ × (H − K + 1) × (W − K + 1)"""
    cases = [(3, 8, 12, 15, 5), (1, 2, 7, 7, 3), (4, 4, 9, 6, 1)]
    return [[c2, H - K + 1, W - K + 1] for _, c2, H, W, K in cases], [
        list(nn.Conv2d(c, c2, K)(torch.zeros(1, c, H, W)).shape[1:]) for c, c2, H, W, K in cases
    ]


@claim("CE36", Same(), right="one bias for each kernel, the same at every place")
def biases_of_a_convolution() -> Corrected:
    """biases of nn.Conv2d(3, 8, 5): 8 times the places of the output of a 12 × 12 image; mended: 8"""
    bias = nn.Conv2d(3, 8, 5).bias
    assert bias is not None
    return Corrected((8 * 8 * 8, bias.numel()), (8, bias.numel()))


@claim("CE37", Same())
def two_convolutions_as_one() -> Pair:
    """k₂ ∗ (k₁ ∗ x) is one convolution with a 5 × 5 kernel, itself the full convolution of the two"""
    x, k1, k2 = torch.randn(1, 1, 9, 9), torch.randn(1, 1, 3, 3), torch.randn(1, 1, 3, 3)
    joint = F.conv2d(F.pad(k1, (2, 2, 2, 2)), k2.flip(2, 3))
    return F.conv2d(F.conv2d(x, k1), k2), F.conv2d(x, joint)


@claim("CE38", Same(), condition="a stride that divides W − K + 2P; else the quotient is rounded down")
def sizes_with_padding_and_stride() -> Cases:
    """(W − K + 2P)/S + 1, and W again for P = (K − 1)/2 and S = 1: strides that divide, and those that do not"""
    cases = [(W, K, (K - 1) // 2, S) for W in (11, 16, 21) for K in (1, 3, 5) for S in (1, 2, 3, 5)]

    def both(divides: bool) -> Pair:
        chosen = [c for c in cases if ((c[0] - c[1] + 2 * c[2]) % c[3] == 0) == divides]
        sizes = [(W - K + 2 * P) / S + 1 for W, K, P, S in chosen]
        return sizes, [F.conv1d(torch.zeros(1, 1, W), torch.zeros(1, 1, K), stride=S, padding=P).shape[-1] for W, K, P, S in chosen]

    return Cases(both(True), both(False))


@claim("CE39", Same())
def receptive_field_of_layers() -> Pair:
    """1 + L(K − 1)"""
    cases = [(L, K) for L in (1, 2, 5) for K in (2, 3, 7)]
    return [1 + L * (K - 1) for L, K in cases], [receptive_field([Window(K)] * L) for L, K in cases]


@claim("CE40", Same())
def gaussian_kernel() -> Pair:
    """1/16 [[1, 2, 1], [2, 4, 2], [1, 2, 1]] is the product of two binomial laws, and sums to 1"""
    kernel = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
    law = torch.tensor([math.comb(2, k) / 4 for k in range(3)])
    return [kernel, kernel.sum()], [torch.outer(law, law), 1.0]


@claim("CE41", Same())
def sobel() -> Pair:
    """S_x and S_xᵀ on the plane 3x − 2y + 1: eight times its two derivatives, at every place"""
    S = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    y, x = torch.meshgrid(torch.arange(6.0), torch.arange(7.0), indexing="ij")
    plane = (3 * x - 2 * y + 1)[None, None]
    return [F.conv2d(plane, k[None, None]) / 8 for k in (S, S.T)], [torch.full((4, 5), 3.0), torch.full((4, 5), -2.0)]


@claim("CE42", Same(), condition="a shift that keeps the largest pixel in its window; one pixel across the border changes the output")
def pooling_and_shifts() -> Cases:
    """max pooling 2 × 2 of one bright pixel and of the same a pixel further: inside its window, and into the next"""
    def pooled(column: int) -> Tensor:
        x = torch.zeros(1, 1, 4, 8)
        x[0, 0, 1, column] = 1.0
        return F.max_pool2d(x, 2)

    return Cases((pooled(2), pooled(3)), (pooled(3), pooled(4)))


@claim("CE43", Same(), right="the volume rises at first and then shrinks to a few hundred numbers")
def volume_of_lenet() -> Pair:
    """numbers in each feature map of LeNet-5 on a 32 × 32 image, against those of the image"""
    x, volumes = torch.zeros(1, 1, 32, 32), []
    for layer in LeNet5(size=(32, 32)).features:
        x = layer(x)
        volumes.append(x.numel())
    return volumes, [1024] * len(volumes)


@claim("CE44", Same(), right="γ = √(σ² + ε): with γ = σ the ε remains")
def batch_norm_as_the_identity() -> Corrected:
    """γ = σ_B, β = μ_B gives x back from nn.BatchNorm1d; mended: γ = √(σ_B² + ε)"""
    x, norm = torch.randn(10, 4), nn.BatchNorm1d(4)
    μ, σ2 = x.mean(0), x.var(0, correction=0)

    def through(γ: Tensor) -> Tensor:
        norm.weight.data, norm.bias.data = γ, μ
        y: Tensor = norm(x)
        return y

    return Corrected((through(σ2.sqrt()), x), (through((σ2 + norm.eps).sqrt()), x))


@claim("CE45", Same(1e-6))
def fused_batch_norm() -> Pair:
    """a linear layer and the batch norm behind it at test time, against the one layer that didact's engine folds them into"""
    import numpy as np

    from didact.scratch.modules import BatchNorm1d, Linear
    from didact.scratch.normalise import fold
    from didact.scratch.tensor import Tensor as Scratch

    random = np.random.default_rng(0)
    layer, norm = Linear(5, 4), BatchNorm1d(4)
    for _ in range(3):
        norm(layer(Scratch(random.normal(size=(20, 5)).astype(np.float32))))
    norm.eval()
    x = Scratch(random.normal(size=(7, 5)).astype(np.float32))
    return fold(layer, norm)(x).data, norm(layer(x)).data


@claim("CE46", Same())
def axes_of_the_norms() -> Pair:
    """batch norm with statistics 1 × C × 1 × 1, instance norm with N × C × 1 × 1, layer norm of vectors with N × 1, against torch"""
    x, v = torch.randn(3, 4, 5, 6), torch.randn(3, 7)

    def normal(x: Tensor, axes: tuple[int, ...]) -> Tensor:
        return (x - x.mean(axes, keepdim=True)) / (x.var(axes, correction=0, keepdim=True) + 1e-5).sqrt()

    ours: list[Any] = [normal(x, (0, 2, 3)), normal(x, (2, 3)), normal(v, (1,))]
    return ours, [nn.BatchNorm2d(4)(x), nn.InstanceNorm2d(4)(x), nn.LayerNorm(7)(v)]


@claim("CE47", Same(), right="layer norm takes all channels of an example together; instance norm takes each alone")
def instance_norm_as_layer_norm() -> Corrected:
    """nn.InstanceNorm2d against nn.LayerNorm over C, H, W; mended: group norm with one group"""
    x = 3 * torch.randn(2, 4, 5, 6) + torch.arange(4.0)[:, None, None]
    layer = nn.LayerNorm((4, 5, 6))(x)
    return Corrected((nn.InstanceNorm2d(4)(x), layer), (nn.GroupNorm(1, 4)(x), layer))


@claim("CE48", Exactly((True, False)))
def dependence_on_the_batch() -> tuple[bool, bool]:
    """does the first example's output change with the rest of the batch: batch norm, layer norm"""
    x, other = torch.randn(6, 5), torch.randn(6, 5)
    other[0] = x[0]
    return tuple(not torch.equal(norm(x)[0], norm(other)[0]) for norm in (nn.BatchNorm1d(5), nn.LayerNorm(5)))  # type: ignore[return-value]


claim("CE49", Same(1e-6))(gaba_2.clipped_norm)


@claim("CE50", Rising(), condition="a linear recurrence, W that of h alone; behind a tanh that saturates the gradient falls all the same")
def eigenvalue_criterion() -> Cases:
    """‖∂h_t/∂h_0‖ for t = 1 … 15 and a largest eigenvalue of 1.2: h ← W h, and h ← tanh(W h + 3)"""
    W = 1.2 * torch.linalg.qr(torch.randn(4, 4)).Q

    def norms(bias: float, f: Any) -> list[Tensor]:
        h, J, found = torch.randn(4), torch.eye(4), []
        for _ in range(15):
            z = (W @ h + bias).requires_grad_()
            h = f(z)
            (s,) = gradients(h.sum(), z)
            h, J = h.detach(), s[:, None] * W @ J
            found.append(torch.linalg.matrix_norm(J, 2))
        return found

    return Cases(norms(0.0, lambda z: z + 0), norms(3.0, torch.tanh))


@claim("CE51", Inside(-1, 1), right="c_t adds up to one more at each step: |c_t| ≤ t; it is h_t that lies in (−1, 1)")
def range_of_the_cell() -> list[float]:
    """c_1 … c_10 of an LSTM whose gates and candidate are all driven to 1"""
    cell, found = nn.LSTMCell(1, 1), []
    with torch.no_grad():
        for p in cell.parameters():
            p.zero_()
        cell.bias_ih.fill_(20.0)
        h, c = torch.zeros(1, 1), torch.zeros(1, 1)
        for _ in range(10):
            h, c = cell(torch.zeros(1, 1), (h, c))
            found.append(float(c))
    return found


@claim("CE52", Same())
def step_of_the_cell() -> Pair:
    """∂c_t/∂c_{t−1} at fixed h_{t−1} = diag(f_t)"""
    cell, x, h, c = nn.LSTMCell(3, 4), torch.randn(3), torch.randn(4), torch.randn(4)
    J = torch.autograd.functional.jacobian(lambda c: lstm_step(x, h, c, cell)[1], c)
    return J, torch.diag(lstm_step(x, h, c, cell)[2])


@claim("CE53", Same())
def context_of_a_set() -> Pair:
    """Σ a_i h_i of shuffled encoder states is the same, and Σ a_i = 1"""
    s, h, order = torch.randn(1, 4), torch.randn(6, 4), torch.tensor([3, 0, 5, 1, 4, 2])
    (y, a), (z, _) = attention(s, h, h), attention(s, h[order], h[order])
    return [y, a.sum()], [z, 1.0]


@claim("CE56", Same())
def equivariance_of_self_attention() -> Pair:
    """the answers to shuffled tokens are the shuffled answers, with projections of queries, keys and values"""
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x, order = torch.randn(1, 6, 8), torch.tensor([3, 0, 5, 1, 4, 2])
    y, z = (layer(t, t, t)[0] for t in (x, x[:, order]))
    return z, y[:, order]


@claim("CE57", Same())
def masked_score() -> Pair:
    """a score of −∞ gets the weight 0, and the others the softmax among themselves"""
    s = torch.randn(6)
    masked = s.clone()
    masked[[1, 4]] = -torch.inf
    kept = torch.tensor([0, 2, 3, 5])
    return masked.softmax(0), torch.zeros(6).index_put((kept,), s[kept].softmax(0))


@claim("CE58", Exactly(6), right="8 heads of 64; six is the number of layers")
def heads_of_the_transformer() -> int:
    """the heads of torch.nn.Transformer at a width of 512, whose defaults are those of Vaswani et al. 2017; 6 would not divide 512"""
    with torch.device("meta"):
        net = nn.Transformer(512, batch_first=True)
    assert len(net.encoder.layers) == 6
    heads: int = net.nhead
    return heads


@claim("CE54", Rising())
def saturation_of_the_softmax() -> list[float]:
    """entropy of the weights of 32 keys over log 32, D_Q = 1024: below 0.3 as the products are, above 0.8 divided by √D_Q"""
    q, k = torch.randn(200, 1024), torch.randn(32, 1024)

    def evenness(scores: Tensor) -> float:
        return float(torch.distributions.Categorical(logits=scores).entropy().mean() / math.log(32))

    return [evenness(q @ k.T), 0.3, 0.8, evenness(q @ k.T / math.sqrt(1024))]


@claim("CE93", Same(), right="each head projects the whole input; the chunks are those of the projections, and W_O joins them")
def heads_of_attention() -> Corrected:
    """four heads on chunks of the input, each with 4 × 4 parts of the matrices, against nn.MultiheadAttention; mended: project, then cut"""
    mha, x = nn.MultiheadAttention(16, 4, bias=False, batch_first=True), torch.randn(1, 5, 16)
    whole = list(mha.in_proj_weight.chunk(3))                                 # each (16, 16)

    def joined(cut: list[list[Tensor]]) -> Tensor:
        y: Tensor = mha.out_proj(torch.cat([attention(*qkv)[0] for qkv in zip(*cut, strict=True)], dim=-1))
        return y

    spans = [slice(4 * h, 4 * h + 4) for h in range(4)]
    of_chunks = [[x[..., s] @ W[s, s].T for s in spans] for W in whole]
    of_all = [list((x @ W.T).chunk(4, dim=-1)) for W in whole]
    right = mha(x, x, x, need_weights=False)[0]
    return Corrected((joined(of_chunks), right), (joined(of_all), right))


@claim("CE55", Exactly("D_Q"), right="over the keys, the N_X dimension, as the formula beside it has it")
def axis_of_the_softmax() -> str:
    """the axis dim=1 of E = QKᵀ/√D_Q, for N_Q = 4 queries and N_X = 6 keys of width D_Q = 3"""
    E = torch.randn(4, 3) @ torch.randn(6, 3).T / math.sqrt(3)
    return {4: "N_Q", 6: "N_X", 3: "D_Q"}[E.shape[1]]
