"""Groudiev, chapters 4 to 6: convolutions, recurrent networks, attention."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact.analysis.receptive_field import SlidingWindow
from didact.claims import gaba_3, gaba_4
from didact.claims.compare import Conditional, CorrectedClaim, Equal, Exactly, Increasing, InInterval, ShownAs
from didact.claims.core import claim
from didact.claims.groudiev_1 import to_scratch
from didact.claims.tools import Pair
from didact.explain.gradient_memory import compute_gradient_decay
from didact.layers.attention.multihead import MultiHeadAttention, dot_product_attention, softmax_weighted_sum
from didact.layers.autoencoder_blocks import dense_encoder
from didact.layers.recurrent import cells
from didact.layers.recurrent.cells import CellWeights
from didact.layers.recurrent.recurrent import Recurrent, cell_weights
from didact.models.text.encoder_decoder import EncoderLayer, Transformer
from didact.models.vision.lenet import LeNet5
from didact.scratch import modules, norm
from didact.scratch.convolution import conv2d, convolution_transpose
from didact.scratch.optim import clip_norm
from didact.scratch.pooling import max_pool


def _cross_correlate(x: Tensor, k: Tensor) -> Any:
    """The convolution of didact's engine, of one image with one kernel."""
    return conv2d(to_scratch(x[None, None]), to_scratch(k[None, None])).data[0, 0]


@claim("CE33", Exactly((1024, 3072)))
def size_of_flattened_images() -> tuple[int, ...]:
    """the numbers that didact's dense encoder makes of an image, before its first layer: 32 × 32, and 32 × 32 × 3"""
    return tuple(dense_encoder((c, 32, 32), ())[0](torch.zeros(2, c, 32, 32)).shape[1] for c in (1, 3))


@claim(
    "CE34",
    Equal(),
    correction="the dot product with the patch is the cross-correlation; a convolution flips the kernel",
)
def convolution_and_dot_product() -> CorrectedClaim:
    """Σ x[i − m, j − n] k[m, n] over a 3 × 3 patch, against what didact's convolution layer computes; mended:
    indices not flipped"""
    x, k = torch.randn(3, 3), torch.randn(3, 3)
    pairs = [(m, n) for m in range(3) for n in range(3)]
    flipped, unflipped = (
        sum(float(x[2 - m, 2 - n] * k[m, n]) for m, n in pairs),
        sum(float(x[m, n] * k[m, n]) for m, n in pairs),
    )
    return CorrectedClaim((flipped, _cross_correlate(x, k)), (unflipped, _cross_correlate(x, k)))


@claim("CE35", Equal())
def shape_of_a_convolution() -> Pair:
    """C′ × (H − K + 1) × (W − K + 1), against the output of didact's layer"""
    cases = [(3, 8, 12, 15, 5), (1, 2, 7, 7, 3), (4, 4, 9, 6, 1)]
    return [[c2, H - K + 1, W - K + 1] for _, c2, H, W, K in cases], [
        list(modules.Conv2d(c, c2, K)(to_scratch(torch.zeros(1, c, H, W))).shape[1:]) for c, c2, H, W, K in cases
    ]


@claim("CE36", Equal(), correction="one bias for each kernel, the same at every place")
def biases_of_a_convolution() -> CorrectedClaim:
    """biases of didact's layer of 8 kernels 5 × 5: 8 times the places of its output for a 12 × 12 image; mended: 8"""
    layer = modules.Conv2d(3, 8, 5, dtype=np.float64)
    assert layer.bias is not None
    num_outputs = layer(to_scratch(torch.zeros(1, 3, 12, 12))).size
    return CorrectedClaim((num_outputs, layer.bias.size), (8, layer.bias.size))


@claim("CE37", Equal())
def two_convolutions_as_one() -> Pair:
    """k₂ ∗ (k₁ ∗ x) by didact's engine, without padding, is one convolution with a 5 × 5 kernel, the full
    convolution of the two: its
    transposed one"""
    x, k1, k2 = torch.randn(1, 1, 9, 9), torch.randn(1, 1, 3, 3), torch.randn(1, 1, 3, 3)
    joint = convolution_transpose(to_scratch(k1), to_scratch(k2))
    return conv2d(conv2d(to_scratch(x), to_scratch(k1)), to_scratch(k2)).data, conv2d(to_scratch(x), joint).data


@claim("CE38", Equal())
def sizes_with_padding_and_stride() -> Pair:
    """(W − K + 2P)/S + 1, rounded down where S does not divide, as the course lets an implementation do, and W
    again for P = (K − 1)/2 and
    S = 1, against didact's windows"""
    cases = [(W, K, (K - 1) // 2, S) for W in (11, 16, 21) for K in (1, 3, 5) for S in (1, 2, 3, 5)]
    stated = [math.floor((W - K + 2 * P) / S + 1) for W, K, P, S in cases] + [W for W, _, _, S in cases if S == 1]
    return stated, [
        SlidingWindow(K, S, P).output_size(W) for W, K, P, S in cases + [case for case in cases if case[3] == 1]
    ]


claim("CE39", Equal())(gaba_4.receptive_field_of_a_stack)


@claim("CE40", Equal())
def gaussian_kernel() -> ShownAs:
    """1/16 [[1, 2, 1], [2, 4, 2], [1, 2, 1]] is exp(−(x² + y²)/2σ²) over its sum, σ² = 1/(2 ln 2), and what
    didact's convolution makes of
    two means over 2 × 2 pixels, one behind the other"""
    kernel = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
    x, σ2, box = torch.arange(-1.0, 2.0), 1 / (2 * math.log(2)), to_scratch(torch.full((1, 1, 2, 2), 0.25))
    G = (-(x[:, None] ** 2 + x**2) / (2 * σ2)).exp()
    G = G / G.sum()
    value = [kernel, kernel], [G, convolution_transpose(box, box).data]
    return ShownAs(value, {"16 times the Gaussian": 16 * G, "its σ": math.sqrt(σ2)})


@claim("CE41", Equal())
def sobel() -> Pair:
    """S_x and S_xᵀ as printed, flipped as eq. 4.2.1 flips a kernel, by didact's convolution, which flips none, on
    the plane 3x − 2y + 1:
    eight times its two derivatives, at every place"""
    S = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    y, x = torch.meshgrid(torch.arange(6.0), torch.arange(7.0), indexing="ij")
    plane = 3 * x - 2 * y + 1
    return [_cross_correlate(plane, k.flip(0, 1)) / 8 for k in (S, S.T)], [
        torch.full((4, 5), 3.0),
        torch.full((4, 5), -2.0),
    ]


@claim(
    "CE42", Equal(), condition="a shift that keeps the largest pixel of each window in it and brings no larger one in"
)
def pooling_and_shifts() -> Conditional:
    """didact's max pooling 2 × 2 of a row of pixels and of the same a pixel further: 9, 0, 5, 0; and 0, 9, 0, 0, of
    which 9 crosses the
    border, with 9, 8, 1, 0, of which 8 comes to the 1"""
    def pool_row(*row: int) -> Any:
        return max_pool(to_scratch(torch.tensor([[[row, row]]]).double()), 2).data

    pooled, pooled_shifted = [pool_row(0, 9, 0, 0), pool_row(9, 8, 1, 0)], [pool_row(0, 0, 9, 0), pool_row(0, 9, 8, 1)]
    return Conditional((pool_row(9, 0, 5, 0), pool_row(0, 9, 0, 5)), (pooled, pooled_shifted))


@claim("CE43", Equal(), correction="the volume rises at first and then shrinks to a few hundred numbers")
def volume_of_lenet() -> Pair:
    """numbers in each feature map of LeNet-5 on a 32 × 32 image, against those of the image"""
    x, volumes = torch.zeros(1, 1, 32, 32), []
    for layer in LeNet5(size=(32, 32)).features:
        x = layer(x)
        volumes.append(x.numel())
    return volumes, [1024] * len(volumes)


@claim("CE44", Equal(), correction="γ = √(σ² + ε): with γ = σ the ε remains")
def batch_norm_as_the_identity() -> CorrectedClaim:
    """γ = σ_B, β = μ_B gives x back from didact's batch norm; mended: γ = √(σ_B² + ε)"""
    x, norm = torch.randn(10, 4), modules.BatchNorm1d(4, dtype=np.float64)
    μ, σ2 = x.mean(0), x.var(0, correction=0)

    def normalize(γ: Tensor) -> Any:
        norm.weight, norm.bias = to_scratch(γ), to_scratch(μ)
        return norm(to_scratch(x)).data

    return CorrectedClaim((normalize(σ2.sqrt()), x), (normalize((σ2 + norm.eps).sqrt()), x))


@claim("CE45", Equal(1e-6))
def fused_batch_norm() -> Pair:
    """a linear layer and the batch norm behind it at test time, against the one layer that didact's engine folds
    them into"""
    import numpy as np

    from didact.scratch.autograd.tensor import Tensor as Scratch
    from didact.scratch.modules import BatchNorm1d, Linear
    from didact.scratch.norm import fold_batch_norm

    random = np.random.default_rng(0)
    layer, norm = Linear(5, 4, rng=0), BatchNorm1d(4)
    for _ in range(3):
        norm(layer(Scratch(random.normal(size=(20, 5)).astype(np.float32))))
    norm.eval()
    x = Scratch(random.normal(size=(7, 5)).astype(np.float32))
    return fold_batch_norm(layer, norm)(x).data, norm(layer(x)).data


@claim("CE46", Equal())
def axes_of_the_norms() -> Pair:
    """(x − μ)/√(σ² + ε) with statistics 1 × C × 1 × 1, N × C × 1 × 1 and N × 1, against didact's batch, instance
    and layer norm"""
    x, v = torch.randn(3, 4, 5, 6), torch.randn(3, 7)

    def normalize(x: Tensor, axes: tuple[int, ...]) -> Tensor:
        return (x - x.mean(axes, keepdim=True)) / (x.var(axes, correction=0, keepdim=True) + 1e-5).sqrt()

    stated = [normalize(x, (0, 2, 3)), normalize(x, (2, 3)), normalize(v, (1,))]
    batch = norm.batch_norm(to_scratch(x), np.zeros(4), np.ones(4), training=True)
    return stated, [batch.data, norm.instance_norm(to_scratch(x)).data, norm.layer_norm(to_scratch(v), (7,)).data]


@claim(
    "CE47", Equal(), correction="layer norm takes all channels of an example together; instance norm takes each alone"
)
def instance_norm_as_layer_norm() -> CorrectedClaim:
    """didact's instance norm against its layer norm over C, H, W; mended: its group norm with one group"""
    x = to_scratch(3 * torch.randn(2, 4, 5, 6) + torch.arange(4.0)[:, None, None])
    layer = norm.layer_norm(x, (4, 5, 6)).data
    return CorrectedClaim((norm.instance_norm(x).data, layer), (norm.group_norm(x, 1).data, layer))


@claim("CE48", Exactly((True, False)))
def dependence_on_the_batch() -> tuple[bool, ...]:
    """does the first example's output change with the rest of the batch: didact's batch norm, layer norm"""
    norms = modules.BatchNorm1d(5, dtype=np.float64), modules.LayerNorm(5, dtype=np.float64)
    return tuple(not gaba_3.is_output_unchanged(norm)[0] for norm in norms)


@claim("CE49", Equal(1e-6))
def clipped_gradient() -> ShownAs:
    """g θ/‖g‖ where ‖g‖ = 100 and 2 is above θ = 1, and g where it is 0.5, against what didact's clipping and
    torch's leave of g"""
    stated, clipped, sizes = [], [], (100.0, 2.0, 0.5)
    for size in sizes:
        g = F.normalize(torch.randn(8), dim=0) * size
        ours, theirs = to_scratch(g, grad=True), torch.zeros(8, requires_grad=True)
        ours.grad, theirs.grad = g.numpy().copy(), g.clone()
        clip_norm([ours], 1.0)
        nn.utils.clip_grad_norm_([theirs], max_norm=1.0)
        stated += [g / g.norm() if g.norm() > 1 else g] * 2
        clipped += [torch.from_numpy(ours.grad), theirs.grad]
    return ShownAs((stated, clipped), {"lengths of g": sizes, "clipped": [g.norm() for g in clipped[::2]]})


@claim(
    "CE50",
    Increasing(),
    condition="a linear recurrence, and the largest |λ| of the W of h alone; behind a tanh that saturates the gradient "
              "falls all the "
    "same",
)
def eigenvalue_criterion() -> Conditional:
    """‖∂h_T/∂h_{T−d}‖ of didact's RNN of four units, as didact explains its memory, the largest eigenvalue 0.8 for
    d = 40, 30, 20, 10, 0,
    then 1.2 for d = 10, 20, 30, 40, the others drawn: at h = 0, where tanh is linear, and with a bias of 3"""
    W = torch.randn(4, 4)

    def norms(size: float, bias: float) -> Tensor:
        reader = Recurrent("rnn", 1, 4)
        with torch.no_grad():
            reader.rnn.get_parameter("weight_hh_l0").copy_(size * W / torch.linalg.eigvals(W).abs().max())
            reader.rnn.get_parameter("bias_ih_l0").fill_(bias)
        return compute_gradient_decay(reader, torch.zeros(41, 1))[::10]

    return Conditional(*(torch.cat([norms(0.8, bias).flip(0), norms(1.2, bias)[1:]]) for bias in (0.0, 3.0)))


@claim(
    "CE51",
    InInterval(-1, 1),
    correction="|c_t| can grow by up to 1 at each step: |c_t| ≤ t; it is h_t that lies in (−1, 1)",
)
def range_of_the_cell() -> CorrectedClaim:
    """c_1 … c_10 of didact's LSTM whose gates and candidate are all driven to 1; mended: h_1 … h_10"""
    reader = Recurrent("lstm", 1, 1)
    with torch.no_grad():
        for p in reader.parameters():
            p.zero_()
        reader.rnn.get_parameter("bias_ih_l0").fill_(20.0)
        gates = reader.forward_with_gates(torch.zeros(1, 10, 1))[1][0]
    return CorrectedClaim(gates["cell"], gates["h"])


def lstm_step(x: Tensor, h: Tensor, c: Tensor, w: CellWeights) -> tuple[Tensor, Tensor]:
    """h_t and c_t of f, i, C̃, o as the courses write them."""
    w_ih, w_hh, b_ih, b_hh = w
    i, f, new, o = (w_ih @ x + b_ih + w_hh @ h + b_hh).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * new.tanh()
    return o.sigmoid() * c.tanh(), c


@claim(
    "CE52", Equal(), condition="along the cell alone, its gates held fixed; they depend on h_{t−1}, hence on c_{t−1}"
)
def step_of_the_cell() -> Conditional:
    """∂c_t/∂c_{t−1} of the course's equations = diag(f_t), f the forget gate of didact's LSTM: at fixed h_{t−1},
    and with
    h_{t−1} = o ⊙ tanh c_{t−1}"""
    w, x, o, c = cell_weights(Recurrent("lstm", 3, 4).rnn, 0), torch.randn(3), torch.rand(4), torch.randn(4)
    h = o * c.tanh()
    f = torch.diag(cells.lstm_step(x, (h, c), w)[1]["forget"])
    jacobian_at_fixed_h, full_jacobian = (
        jacobian(lambda c: lstm_step(x, h, c, w)[1], c),
        jacobian(lambda c: lstm_step(x, o * c.tanh(), c, w)[1], c),
    )
    return Conditional((jacobian_at_fixed_h, f), (full_jacobian, f))


@claim("CE53", Equal())
def context_of_a_set() -> Pair:
    """Σ a_i h_i of shuffled encoder states is the same, and Σ a_i = 1"""
    s, h, order = torch.randn(1, 4), torch.randn(6, 4), torch.tensor([3, 0, 5, 1, 4, 2])
    (y, a), (z, _) = dot_product_attention(s, h, h), dot_product_attention(s, h[order], h[order])
    return [y, a.sum()], [z, 1.0]


def _outputs_of_shuffled_tokens() -> tuple[Tensor, Tensor, Tensor]:
    """The answers of didact's self-attention, queries, keys and values projected: to shuffled tokens, to the
    tokens, and these shuffled."""
    layer, x, order = MultiHeadAttention(8, 2), torch.randn(1, 6, 8), torch.tensor([3, 0, 5, 1, 4, 2])
    return layer(x[:, order]), layer(x), layer(x)[:, order]


@claim("CE56", Equal())
def equivariance_of_self_attention() -> Pair:
    """the answers of didact's self-attention to shuffled tokens are the shuffled answers, with projections of
    queries, keys and values"""
    output_of_shuffled, _, shuffled_output = _outputs_of_shuffled_tokens()
    return output_of_shuffled, shuffled_output


def invariance_of_self_attention() -> CorrectedClaim:
    """the answers of didact's self-attention to shuffled tokens are those to the tokens; mended: they are the
    shuffled answers"""
    output_of_shuffled, output, shuffled_output = _outputs_of_shuffled_tokens()
    return CorrectedClaim((output_of_shuffled, output), (output_of_shuffled, shuffled_output))


@claim("CE57", Equal())
def masked_score() -> Pair:
    """a score of −∞, which is what didact's mask gives, gets the weight 0, and the others the softmax among
    themselves"""
    s, allowed_keys = torch.randn(1, 6), torch.tensor([0, 2, 3, 5])
    allowed = torch.zeros(1, 6, dtype=torch.bool).index_fill(1, allowed_keys, value=True)
    masked_scores = s.masked_fill(~allowed, -torch.inf)
    weights = s[0, allowed_keys].exp() / s[0, allowed_keys].exp().sum()
    stated = torch.zeros(6).index_put((allowed_keys,), weights)
    return [softmax_weighted_sum(s, torch.eye(6), allowed)[1], softmax_weighted_sum(masked_scores, torch.eye(6))[1]], [
        stated,
        stated,
    ]


@claim("CE58", Exactly(6), correction="8 heads of 64; six is the number of layers")
def heads_of_the_transformer() -> int:
    """heads of didact's Transformer, whose defaults are those of Vaswani et al. 2017, read off its weights of
    attention, width 512"""
    layer = Transformer(11, 11, num_layers=1).encoder[0]
    assert isinstance(layer, EncoderLayer)
    return layer.self_attn.forward_with_weights(torch.randn(1, 3, 512))[1].shape[1]


@claim("CE54", InInterval(0.8, 1))
def saturation_of_the_softmax() -> ShownAs:
    """entropy of didact's weights of 32 keys over log 32, products divided by √D_Q, D_Q = 16, 64, 256, 1024; and
    one less the entropy with
    D_Q = 1024 where they are not: the first stays near 1, the second falls towards 0"""
    v = torch.eye(32)

    def relative_entropy(a: Tensor) -> float:
        return float(torch.special.entr(a).sum(-1).mean() / math.log(32))

    queries_and_keys = [(torch.randn(200, D), torch.randn(32, D)) for D in (16, 64, 256, 1024)]
    q, k = queries_and_keys[-1]
    scaled_entropies, unscaled_entropy = (
        [relative_entropy(dot_product_attention(*qk, v)[1]) for qk in queries_and_keys],
        relative_entropy(softmax_weighted_sum(q @ k.T, v)[1]),
    )
    return ShownAs(
        [*scaled_entropies, 1 - unscaled_entropy],
        {"share of the largest entropy, divided by √D_Q": scaled_entropies, "not divided": unscaled_entropy},
    )


@claim(
    "CE93",
    Equal(),
    correction="each head projects the whole input; the chunks are those of the projections, and W_O joins them",
)
def heads_of_attention() -> CorrectedClaim:
    """four heads on chunks of the input, each with 4 × 4 of the matrices, against didact's self-attention; mended:
    project, then cut"""
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


@claim("CE55", Exactly("D_Q"), correction="over the keys, the N_X dimension, as the formula beside it has it")
def axis_of_the_softmax() -> str:
    """the size of the axis along which didact's weights of attention add up to 1, for N_Q = 4 queries and N_X = 6
    keys of width D_Q = 3"""
    _, a = dot_product_attention(torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 5))
    (axis,) = (i for i in range(2) if torch.allclose(a.sum(i), torch.ones(())))
    return {4: "N_Q", 6: "N_X", 3: "D_Q"}[a.shape[axis]]
