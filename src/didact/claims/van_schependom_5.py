"""Van Schependom, chapters 5 to 8: convolutions, recurrence, Transformers, generative models."""

import math
from functools import partial

import torch
from torch import Tensor, nn

from didact.analysis.receptive_field import SlidingWindow, effective_receptive_field, receptive_field
from didact.claims import gaba_4, gaba_9, groudiev_4
from didact.claims.compare import Conditional, CorrectedClaim, Equal, Exactly, LessOrEqual, ShownAs
from didact.claims.core import claim
from didact.claims.groudiev_1 import to_scratch
from didact.claims.groudiev_4 import lstm_step
from didact.claims.tools import Pair, count_multiplications, count_parameters
from didact.layers.attention import attention_masks
from didact.layers.attention.multihead import MultiHeadAttention, dot_product_attention
from didact.layers.conv.convolution import SameConv2d, dilated_conv
from didact.layers.conv.norm_pool import make_pool2d
from didact.layers.recurrent import cells
from didact.layers.recurrent.recurrent import Recurrent, cell_weights
from didact.metrics.generative import gaussian_frechet_distance, inception_score
from didact.models.tabular.mlp import MLP
from didact.objectives.distributions.classification import Categorical
from didact.objectives.generative.vae import iwae_bound, kl_standard_normal
from didact.scratch.norm import layer_norm as scratch_layer_norm

claim("CV20", Equal())(gaba_4.convolution_of_many_channels)


@claim(
    "CV21",
    Equal(),
    remark="with stride 1 and away from the borders, or with wrapped ones; stride s needs shifts by multiples of s",
)
def equivariance_of_convolutions() -> Pair:
    """f(t(x)) = t(f(x)) for two of didact's convolutions with a ReLU between, of stride 1 and with wrapped borders, t a
    move by two rows and three columns"""
    output_of_shifted, _, shifted_output = gaba_4.shift_equivariance_outputs()
    return output_of_shifted, shifted_output


@claim(
    "CV22", Equal(), correction="a dense layer has a weight for each place; global pooling makes the answer invariant"
)
def invariance_of_dense_layers() -> CorrectedClaim:
    """dense(f(t(x))) = dense(f(x)), f two convolutions without a border and dense didact's network, t a move by (2,
    3); mended: the mean
    over all places instead"""
    conv = partial(nn.Conv2d, kernel_size=3, padding=1, padding_mode="circular")
    f, x, dense = (
        nn.Sequential(conv(1, 4), nn.ReLU(), conv(4, 2)),
        torch.randn(1, 1, 8, 9),
        MLP(2 * 8 * 9, 5, hidden=(7,)),
    )
    output, output_of_shifted = f(x), f(x.roll((2, 3), (2, 3)))
    return CorrectedClaim(
        (dense(output_of_shifted), dense(output)), (output_of_shifted.mean((2, 3)), output.mean((2, 3)))
    )


@claim("CV23", Equal())
def effective_kernel() -> Pair:
    """(k − 1)d + 1, against the pixels between the outermost that didact's dilated convolution sees, and its
    receptive field"""
    cases, kernel_extents = [(3, 1), (3, 4), (5, 2), (7, 3)], []
    for k, d in cases:
        rows = effective_receptive_field(dilated_conv(1, 1, k, dilation=d), torch.randn(1, 1, 41, 41)).sum(1).nonzero()
        kernel_extents.append(int(rows.max() - rows.min()) + 1)
    return [(k - 1) * d + 1 for k, d in cases] * 2, kernel_extents + [
        receptive_field([SlidingWindow(k, dilation=d)]) for k, d in cases
    ]


def _dilated_windows(layers: int) -> list[SlidingWindow]:
    return [SlidingWindow(3, dilation=2**l) for l in range(layers)]


@claim("CV24", Equal())
def growth_of_the_receptive_field() -> Pair:
    """R_l = R_{l−1} + k̃_l − 1 with k = 3 and d = 1, 2, 4, … is 2^{l+1} − 1: exponential"""
    fields, R = [], 1
    for w in _dilated_windows(8):
        R += (w.kernel_size - 1) * w.dilation
        fields.append(R)
    return [*fields, *fields], [
        *(receptive_field(_dilated_windows(l)) for l in range(1, 9)),
        *(2 ** (l + 1) - 1 for l in range(1, 9)),
    ]


@claim("CV25", Equal(), correction="linear in d, hence exponential in the layer where d doubles: k̃ − 1 doubles at each")
def growth_of_the_effective_kernel() -> CorrectedClaim:
    """k̃_l = (k − 1) 2^l + 1: its steps from layer to layer all equal; mended: k̃ − 1 doubles"""
    k = torch.tensor([float((w.kernel_size - 1) * w.dilation + 1) for w in _dilated_windows(6)])
    steps = k.diff()
    return CorrectedClaim(
        ShownAs((steps[1:], steps[:-1]), {"k̃": k, "its steps": steps}),
        ShownAs((k[1:] - 1, 2 * (k[:-1] - 1)), {"k̃ − 1 over that of the layer before": (k[1:] - 1) / (k[:-1] - 1)}),
    )


def _output_widths(dilation: int) -> tuple[list[int], list[int], list[int]]:
    """Output widths by the formula with the effective size, by that with w_f, and as didact's windows have it."""
    cases = [(w, p, k, s) for w in (20, 33) for p in (0, 2) for k in (2, 3, 5) for s in (1, 2, 3)]
    dilated = [(w + 2 * p - ((k - 1) * dilation + 1)) // s + 1 for w, p, k, s in cases]
    undilated = [(w + 2 * p - k) // s + 1 for w, p, k, s in cases]
    return dilated, undilated, [SlidingWindow(k, s, p, dilation).output_size(w) for w, p, k, s in cases]


@claim("CV26", Equal())
def output_width() -> Pair:
    """⌊(w + 2p − w̃_f)/s + 1⌋, against didact's windows with dilations 1, 2, 3"""
    widths = [_output_widths(d) for d in (1, 2, 3)]
    return [f[0] for f in widths], [f[2] for f in widths]


@claim(
    "CV27", Equal(), condition="dilation 1; else the effective size belongs in the formula, as the text beside it says"
)
def output_width_as_displayed() -> Conditional:
    """⌊(w + 2p − w_f)/s + 1⌋, against didact's windows without and with dilation"""
    return Conditional(_output_widths(1)[1:], _output_widths(2)[1:])


@claim("CV28", Equal())
def parameters_of_a_convolution() -> Pair:
    """C_i C_o w_f h_f + C_o, against didact's layer"""
    cases = [(3, 16, 3, 3), (8, 4, 1, 5), (64, 64, 7, 7)]
    return [i * o * w * h + o for i, o, w, h in cases], [
        count_parameters(SameConv2d(i, o, (h, w))) for i, o, w, h in cases
    ]


@claim("CV29", Equal(), correction="each output channel has a kernel of its own; weights are shared across places")
def sharing_of_kernels() -> CorrectedClaim:
    """weights of didact's convolution of 3 to 8 channels: as many as one kernel 5 × 5 that all output channels
    share; mended: eight of
    them, whatever the image"""
    n = count_parameters(SameConv2d(3, 8, 5, bias=False))
    return CorrectedClaim((3 * 5 * 5, n), (8 * 3 * 5 * 5, n))


@claim("CV30", Exactly((6, 6, 256)))
def pooled_size() -> tuple[int, ...]:
    """13 × 13 × 256 behind didact's 2 × 2 max pooling, which halves and drops the odd row"""
    c, h, w = make_pool2d("max")(torch.zeros(1, 256, 13, 13)).shape[1:]
    return h, w, c


@claim("CV31", Exactly(0))
def parameters_of_softmax() -> int:
    """what a softmax for ten classes adds to didact's network of 20 inputs: e^{z_d}/Σ e^{z_j}, its likelihood of
    classes, has nothing to
    learn"""
    net, classes = MLP(20, 10, hidden=()), Categorical(10)
    assert torch.allclose(classes.probabilities(net(torch.randn(5, 20))).sum(1), torch.ones(()))
    return count_parameters(nn.ModuleList([net, classes])) - (20 * 10 + 10)


@claim("CV32", Exactly((("B", "T", "h"), ("L", "B", "h"), ("B", "T", "h"), ("L", "B", "h"), ("L", "B", "h"))))
def shapes_of_recurrent_layers() -> tuple[tuple[str, ...], ...]:
    """z and h of didact's RNN, then z, h and c of its LSTM, two layers, batch first: nn.RNN and nn.LSTM inside"""
    names, x = {5: "B", 7: "T", 11: "h", 2: "L"}, torch.zeros(5, 7, 3)
    z, (h,) = Recurrent("rnn", 3, 11, num_layers=2)(x)
    y, (k, c) = Recurrent("lstm", 3, 11, num_layers=2)(x)
    return tuple(tuple(names[n] for n in t.shape) for t in (z, h, y, k, c))


@claim("CV33", Equal())
def gates_of_the_lstm() -> Pair:
    """f, i, C̃, C, o, h of the table, against didact's LSTM, by its equations and by the fused layer"""
    layer, x, zero = Recurrent("lstm", 3, 4, init="random"), torch.randn(3), torch.zeros(4)
    w, h, c = cell_weights(layer.rnn, 0), torch.randn(4), torch.randn(4)
    ours, _ = cells.lstm_step(x, (h, c), w)
    _, fused = layer(x[None, None])
    return [*lstm_step(x, h, c, w), *lstm_step(x, zero, zero, w)], [*ours, *(s[0, 0] for s in fused)]


@claim("CV34", Exactly(((2, 4, 7, 6), (2, 4, 7, 7))))
def shapes_of_heads() -> tuple[tuple[int, ...], ...]:
    """didact's self-attention: B × T × D → B × P × T × D_h, weights B × P × T × T, with B = 2, T = 7, D = 24, P = 4"""
    layer, x = MultiHeadAttention(24, 4), torch.randn(2, 7, 24)
    return tuple(layer.project_qkv(x)[0].shape), tuple(layer.forward_with_weights(x)[1].shape)


@claim("CV35", Equal(), correction="each head divides by √D_h = √(D/P), the width of its own keys")
def scale_of_heads() -> CorrectedClaim:
    """softmax(Q_p K_pᵀ/√D) V_p joined, against didact's self-attention, on PyTorch's kernel, with the same
    projections; mended: √(D/P)"""
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


claim("CV37", Equal(), correction="self-attention is equivariant: shuffled tokens give shuffled answers")(
    groudiev_4.invariance_of_self_attention
)


@claim("CV38", Equal(), correction="lower-triangular with its diagonal: a token sees itself")
def causal_attention_matrix() -> CorrectedClaim:
    """the weights of didact's causal attention, against their strictly lower part; mended: their lower part with
    the diagonal"""
    q, k = torch.randn(6, 4), torch.randn(6, 4)
    _, A = dot_product_attention(q, k, k, attention_masks.causal_mask(6))
    return CorrectedClaim((A, A.tril(-1)), (A, A.tril()))


@claim("CV39", Equal(), remark="of the attention alone; the projections before it cost B·T·D² more")
def cost_in_the_length() -> Pair:
    """products of didact's attention, QKᵀ and AV: 2 B T² D, four times as many for twice the tokens"""
    def cost(B: int, T: int, D: int) -> int:
        q = torch.randn(B, T, D)
        return count_multiplications(lambda: dot_product_attention(q, q, q))

    return [cost(2, 8, 16), cost(2, 16, 16)], [2 * 2 * 8**2 * 16, 4 * 2 * 2 * 8**2 * 16]


@claim(
    "CV40",
    Equal(),
    remark="a bound, and reached at q = p(z|x), so not strict; raising it lowers the KL for φ alone, θ fixed",
)
def identity_and_bound() -> ShownAs:
    """ELBO + KL(q ‖ p(z|x)) = log p(x) for 21 normal q, the last of them p(z|x), with didact's likelihoods and
    divergences; and that each
    ELBO ≤ log p(x)"""
    q, log_px = gaba_9.make_encoders(), gaba_9.log_evidence()
    elbo, gap = gaba_9.expected_log_likelihood(*q) - kl_standard_normal(*q), gaba_9.kl_to_posterior(*q)
    is_below = (elbo <= log_px + 1e-9).double()
    return ShownAs(([elbo + gap, is_below], [log_px.expand(21), torch.ones(21)]), {
        "log p(x)": log_px, "ELBO of one q": elbo[0], "its KL": gap[0], "ELBO of q = p(z|x)": elbo[-1]})


@claim("CV41", LessOrEqual())
def jensen() -> ShownAs:
    """E log f ≤ log E f for twenty positive f on six values, and by didact's log-mean of six weights; equal where f
    is one number"""
    p, f = torch.randn(20, 6).softmax(1), torch.rand(20, 6) + 1e-3
    mean, constant = iwae_bound(f.log().T), torch.rand(6)
    mean_of_logs, log_of_means = (p * f.log()).sum(1), (p * f).sum(1).log()
    compared = (
        [mean_of_logs, f.log().mean(1), iwae_bound(constant.log().expand(4, 6))],
        [log_of_means, mean, constant.log()],
    )
    return ShownAs(compared, {"E log f of three": mean_of_logs[:3], "log E f": log_of_means[:3]})


@claim(
    "CV43",
    Equal(),
    correction="the marginal is that of the generated samples; then a generator that repeats itself scores exactly 1",
)
def inception_score_of_one_answer() -> CorrectedClaim:
    """exp E KL(p(y|x) ‖ p_test(y)), p_test uniform, of a generator that always gives one answer against 1, the
    least score, and of one that
    varies against didact's score; mended: with the generator's own marginal"""
    repeated, varied = torch.randn(10).softmax(0).expand(40, 10), torch.randn(40, 10).softmax(1)

    def score(p: Tensor, marginal: Tensor) -> Tensor:
        return (p * (p / marginal).log()).sum(1).mean().exp()

    uniform, ours = torch.full((10,), 0.1), [inception_score(repeated), inception_score(varied)]
    printed, with_own_marginal = (
        [score(p, uniform if test else p.mean(0)) for p in (repeated, varied)] for test in (True, False)
    )
    return CorrectedClaim(
        (printed, [1.0, ours[1]]), (with_own_marginal + ours, [1.0, ours[1], 1.0, with_own_marginal[1]])
    )


@claim("CV44", Equal(1e-4), correction="FID is the square of W2")
def distance_of_fid() -> CorrectedClaim:
    """didact's FID of two samples on a line, 20,001 quantiles of N(0.3, 1.2²) and of N(2, 0.5²), against W2, the
    root mean square distance
    of their quantiles; mended: against W2²"""
    normal, u = torch.distributions.Normal, (torch.arange(20_001) + 0.5) / 20_001
    a, b = normal(0.3, 1.2).icdf(u), normal(2.0, 0.5).icdf(u)
    fid, squared = gaussian_frechet_distance(a[:, None], b[:, None]), (a - b).square().mean()
    return CorrectedClaim((fid, squared.sqrt()), (fid, squared))


@claim("CV46", Exactly(((4, 6), (4, 5))))
def shapes_of_cross_attention() -> tuple[tuple[int, ...], ...]:
    """A is T × S and the output T × D_v, with T = 4, S = 6, D_k = 3, D_v = 5"""
    y, a = dot_product_attention(torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 5))
    return tuple(a.shape), tuple(y.shape)
