"""Van Schependom: the summary's formulas, chapter by chapter."""

import math
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact.claims import gaba_2, gaba_3, gaba_4, gaba_8, gaba_9
from didact.claims.compare import Cases, Corrected, Exactly, Inside, NeverMore, Same, Sampled
from didact.claims.core import claim
from didact.claims.gaba_5 import lstm_step
from didact.claims.gaba_11 import pieces
from didact.claims.tools import Pair, count_products, gradients, parameters
from didact.layers.attention import attention
from didact.layers.geometry import Window, receptive_field
from didact.layers.initialise import initialise
from didact.layers.stack import stack
from didact.models.mlp import MLP


@claim("CV01", Same())
def parameters_of_k_layers() -> Pair:
    """D₀D + D + (K − 1)(D² + D) + D D_L + D_L, against didact's own MLP"""
    cases = [(5, 7, 1, 3), (20, 64, 3, 10), (784, 32, 5, 1)]
    formula = [D0 * D + D + (K - 1) * (D**2 + D) + D * DL + DL for D0, D, K, DL in cases]
    return formula, [parameters(MLP(features=D0, hidden=(D,) * K, outputs=DL)) for D0, D, K, DL in cases]


@claim("CV02", Same())
def parameters_of_k_layers_on_a_line() -> Pair:
    """3D + 1 + (K − 1) D(D + 1), against didact's own MLP with one input and one output"""
    cases = [(4, 1), (16, 3), (50, 6)]
    return [3 * D + 1 + (K - 1) * D * (D + 1) for D, K in cases], [
        parameters(MLP(features=1, hidden=(D,) * K, outputs=1)) for D, K in cases
    ]


@claim("CV03", Same())
def regions_of_a_shallow_network() -> Pair:
    """pieces of Σ c_d ReLU(x − d/(D + 1)) on [0, 1], every slope its own, against D + 1"""
    counts = []
    for D in range(1, 9):
        x = torch.linspace(0, 1, 64 * (D + 1) + 1)
        counts.append(pieces(sum(((1.5**d) * torch.relu(x - d / (D + 1)) for d in range(1, D + 1)), torch.zeros(()))))
    return counts, range(2, 10)


@claim("CV06", Same())
def products_of_densities() -> Pair:
    """∏ N(μ_d, σ_d²) = N(μ, diag σ²), ∏ Bernoulli, and −log ∏ π_k^{y_k} = cross-entropy, as torch's distributions have them"""
    μ, σ, y = torch.randn(4), torch.rand(4) + 0.1, torch.randn(4)
    normal = torch.exp(-((y - μ) ** 2) / (2 * σ**2)) / (σ * math.sqrt(2 * math.pi))
    joint = torch.distributions.MultivariateNormal(μ, torch.diag(σ**2)).log_prob(y)
    p, b = torch.rand(6), torch.randint(2, (6,)).double()
    z, k = torch.randn(5), torch.tensor(3)
    ours = [normal.log().sum(), (p**b * (1 - p) ** (1 - b)).prod().log(), -(z.softmax(0) ** F.one_hot(k, 5)).prod().log()]
    return ours, [joint, -F.binary_cross_entropy(p, b, reduction="sum"), F.cross_entropy(z, k)]


@claim("CV07", Same(1e-6), right="φ̂ = argmin of −Σ log p: the minus belongs inside")
def sign_of_the_likelihood() -> Corrected:
    """−argmin_φ Σ log p(y|φ) for 7 heads in 10 throws, against argmax ∏ p; mended: argmin −Σ log p"""
    φ = torch.linspace(0.01, 0.99, 99)
    log_p = 7 * φ.log() + 3 * (1 - φ).log()
    best = φ[log_p.exp().argmax()]
    return Corrected((-φ[log_p.argmin()], best), (φ[(-log_p).argmin()], best))


@claim("CV08", Same())
def adam() -> Pair:
    """m̂/(√v̂ + ε) with bias correction over 20 steps, against torch.optim.Adam"""
    grads, θ, m, v = torch.randn(20, 5), torch.zeros(5), torch.zeros(5), torch.zeros(5)
    for t, g in enumerate(grads, start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        θ = θ - 1e-3 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    return θ, gaba_3.adam_steps(torch.zeros(5), list(grads), 1e-3)


@claim("CV09", Same(1e-4), condition="the first step, or gradients that stay what they are; noisy ones give smaller steps")
def equal_steps() -> Cases:
    """how far Adam moves in directions with gradients 100, 1 and 0.01, against η: the first step, and the last of 50 noisy ones"""
    scale, η = torch.tensor([100.0, 1.0, 0.01]), 1e-3
    noisy = list(torch.randn(50, 3) * scale)
    after = partial(gaba_3.adam_steps, torch.zeros(3), η=η)
    last = (after(noisy) - after(noisy[:-1])).abs()
    return Cases((after([scale]).abs(), torch.full((3,), η)), (last, torch.full((3,), η)))


@claim("CV10", Same(), right="φ − (η/m) Σ ∂ℓ_i: the learning rate and the mean are missing")
def step_of_sgd() -> Corrected:
    """φ − Σ_{i∈B} ∂ℓ_i against torch's SGD on the mean loss of the batch, η = 0.1; mended: φ − (η/m) Σ"""
    g, φ = gaba_2.example_gradients(8), torch.randn(4)
    theirs = gaba_3.after_one_step(torch.optim.SGD, φ, g.mean(0), lr=0.1)
    return Corrected((φ - g.sum(0), theirs), (φ - 0.1 / 8 * g.sum(0), theirs))


claim("CV11", Same())(gaba_2.backpropagation)


@claim("CV12", Inside(0.9, 1.1), condition="from the second layer on; the first turns the inputs' variance into (1 − 1/π) of it")
def variance_under_he() -> Cases:
    """Var h_l / Var h_{l−1} of ReLU layers with σ² = 2/D_in: layers 2 to 5, and layer 1; means over 20 networks of width 400"""
    ratios = []
    for _ in range(20):
        net, h = stack((400,) * 6, "relu"), torch.randn(100, 400)
        initialise(net, "he_normal")
        variances = [h.var()]
        with torch.no_grad():
            for layer in net:
                h = layer(h)
                if isinstance(layer, nn.ReLU):
                    variances.append(h.var())
        ratios.append(torch.stack([b / a for a, b in pairwise(variances)]))
    mean = torch.stack(ratios).mean(0)
    return Cases(mean[1:], mean[0])


@claim("CV13", Sampled())
def variance_of_xavier() -> tuple[Tensor, Tensor, float]:
    """the variance of 600,000 weights that torch's xavier_normal_ draws, against 2/(D_in + D_out)"""
    w = nn.init.xavier_normal_(torch.empty(1000, 600))
    return w.var(), w.var() * math.sqrt(2 / w.numel()), 2 / 1600


claim("CV14", Same())(gaba_3.bias_and_variance)


@claim("CV15", Same())
def gradients_of_penalties() -> Pair:
    """∂(λ/2)‖φ‖²/∂φ_j = λφ_j,  ∂λ‖φ‖₁/∂φ_j = λ sign φ_j"""
    φ, λ = torch.randn(9, requires_grad=True), 0.3
    return [λ * φ, λ * φ.sign()], gradients(λ / 2 * φ.square().sum(), φ) + gradients(λ * φ.abs().sum(), φ)


claim("CV16", Same())(gaba_3.batch_norm_forward)


@claim("CV17", Same(), right="units are kept with probability 1 − ρ, so the factor is 1 − ρ; for the page's ρ = 0.5 the two agree")
def factor_at_test_time() -> Corrected:
    """the mean of five units over all 32 masks, each unit deleted with probability ρ = 0.2, against ρ h; mended: (1 − ρ) h"""
    ρ, h = 0.2, torch.randn(5)
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 5)                             # all 32
    chance = ((1 - ρ) ** masks * ρ ** (1 - masks)).prod(1)
    mean = (chance[:, None] * masks * h).sum(0)
    return Corrected((ρ * h, mean), ((1 - ρ) * h, mean))


claim("CV18", Same())(gaba_3.subnetworks_of_dropout)


@claim("CV19", Same())
def jacobian_of_a_residual_block() -> Pair:
    """∂(h + f(h))/∂h = I + ∂f/∂h"""
    f, h = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 5)), torch.randn(5)
    return jacobian(lambda h: h + f(h), h), torch.eye(5) + jacobian(f, h)


claim("CV20", Same())(gaba_4.convolution_of_many_channels)


def shifted() -> tuple[nn.Sequential, Tensor, Tensor]:
    """Two convolutions without a border, an image, and the image moved by (2, 3)."""
    conv = partial(nn.Conv2d, kernel_size=3, padding=1, padding_mode="circular")
    x = torch.randn(1, 1, 8, 9)
    return nn.Sequential(conv(1, 4), nn.ReLU(), conv(4, 2)), x, x.roll((2, 3), (2, 3))


@claim("CV21", Same())
def equivariance_of_convolutions() -> Pair:
    """f(t(x)) = t(f(x))"""
    f, x, moved = shifted()
    return f(moved), f(x).roll((2, 3), (2, 3))


@claim("CV22", Same(), right="a dense layer has a weight for each place; global pooling makes the answer invariant")
def invariance_of_dense_layers() -> Corrected:
    """dense(f(t(x))) = dense(f(x)); mended: mean over all places instead of the dense layer"""
    f, x, moved = shifted()
    dense = nn.Sequential(nn.Flatten(), nn.Linear(2 * 8 * 9, 5))
    return Corrected((dense(f(moved)), dense(f(x))), (f(moved).mean((2, 3)), f(x).mean((2, 3))))


@claim("CV23", Same())
def effective_kernel() -> Pair:
    """(k − 1)d + 1, against the pixels between the outermost taps of a dilated convolution"""
    cases, seen = [(3, 1), (3, 4), (5, 2), (2, 7)], []
    for k, d in cases:
        x = torch.randn(1, 1, 40, requires_grad=True)
        (g,) = gradients(F.conv1d(x, torch.ones(1, 1, k), dilation=d)[0, 0, 0], x)
        taps = g[0, 0].nonzero()
        seen.append(int(taps.max() - taps.min()) + 1)
    return [(k - 1) * d + 1 for k, d in cases], seen


def doubled(layers: int) -> list[Window]:
    return [Window(3, dilation=2**l) for l in range(layers)]


@claim("CV24", Same())
def growth_of_the_receptive_field() -> Pair:
    """R_l = R_{l−1} + k̃_l − 1 with k = 3 and d = 1, 2, 4, … is 2^{l+1} − 1: exponential"""
    fields, R = [], 1
    for w in doubled(8):
        R += (w.kernel - 1) * w.dilation
        fields.append(R)
    return [*fields, *fields], [*(receptive_field(doubled(l)) for l in range(1, 9)), *(2 ** (l + 1) - 1 for l in range(1, 9))]


@claim("CV25", Same(), right="linear in d, hence exponential in the layer where d doubles: k̃ − 1 doubles at each")
def growth_of_the_effective_kernel() -> Corrected:
    """k̃_l = (k − 1) 2^l + 1: its steps from layer to layer all equal; mended: k̃ − 1 doubles"""
    k = torch.tensor([float((w.kernel - 1) * w.dilation + 1) for w in doubled(6)])
    steps = k.diff()
    return Corrected((steps[1:], steps[:-1]), (k[1:] - 1, 2 * (k[:-1] - 1)))


def widths(dilation: int) -> tuple[list[int], list[int], list[int]]:
    """Output widths by the formula with the effective size, by that with w_f, and as conv1d answers."""
    cases = [(w, p, k, s) for w in (20, 33) for p in (0, 2) for k in (2, 3, 5) for s in (1, 2, 3)]
    effective = [(w + 2 * p - ((k - 1) * dilation + 1)) // s + 1 for w, p, k, s in cases]
    plain = [(w + 2 * p - k) // s + 1 for w, p, k, s in cases]
    conv = partial(F.conv1d, dilation=dilation)
    return effective, plain, [conv(torch.zeros(1, 1, w), torch.zeros(1, 1, k), stride=s, padding=p).shape[-1] for w, p, k, s in cases]


@claim("CV26", Same())
def output_width() -> Pair:
    """⌊(w + 2p − w̃_f)/s + 1⌋, against conv1d with dilations 1, 2, 3"""
    found = [widths(d) for d in (1, 2, 3)]
    return [f[0] for f in found], [f[2] for f in found]


@claim("CV27", Same(), condition="dilation 1; else the effective size belongs into the formula, as the text beside it says")
def output_width_as_displayed() -> Cases:
    """⌊(w + 2p − w_f)/s + 1⌋, against conv1d without and with dilation"""
    return Cases(widths(1)[1:], widths(2)[1:])


@claim("CV28", Same())
def parameters_of_a_convolution() -> Pair:
    """C_i C_o w_f h_f + C_o"""
    cases = [(3, 16, 3, 3), (8, 4, 1, 5), (64, 64, 7, 7)]
    return [i * o * w * h + o for i, o, w, h in cases], [parameters(nn.Conv2d(i, o, (h, w))) for i, o, w, h in cases]


@claim("CV29", Same(), right="each output channel has a kernel of its own; weights are shared across places")
def sharing_of_kernels() -> Corrected:
    """weights of nn.Conv2d(3, 8, 5): as many as one kernel that all output channels share; mended: eight kernels, whatever the image"""
    n = nn.Conv2d(3, 8, 5, bias=False).weight.numel()
    return Corrected((3 * 5 * 5, n), (8 * 3 * 5 * 5, n))


@claim("CV30", Exactly((6, 6, 256)))
def pooled_size() -> tuple[int, ...]:
    """13 × 13 × 256 behind a 2 × 2 max pooling, which halves and drops the odd row"""
    c, h, w = F.max_pool2d(torch.zeros(1, 256, 13, 13), 2).shape[1:]
    return h, w, c


@claim("CV31", Exactly(0))
def parameters_of_softmax() -> int:
    """e^{z_d}/Σ e^{z_j} has nothing to learn"""
    return parameters(nn.Softmax(dim=1))


@claim("CV32", Exactly((("B", "T", "h"), ("L", "B", "h"), ("B", "T", "h"), ("L", "B", "h"), ("L", "B", "h"))))
def shapes_of_recurrent_layers() -> tuple[tuple[str, ...], ...]:
    """z and h of nn.RNN, then z, h and c of nn.LSTM, two layers, batch first"""
    names, x = {5: "B", 7: "T", 11: "h", 2: "L"}, torch.zeros(5, 7, 3)
    z, h = nn.RNN(3, 11, 2, batch_first=True)(x)
    y, (k, c) = nn.LSTM(3, 11, 2, batch_first=True)(x)
    return tuple(tuple(names[n] for n in t.shape) for t in (z, h, y, k, c))


@claim("CV33", Same())
def gates_of_the_lstm() -> Pair:
    """f, i, C̃, C, o, h of the table, against nn.LSTMCell"""
    cell, x, h, c = nn.LSTMCell(3, 4), torch.randn(3), torch.randn(4), torch.randn(4)
    return list(lstm_step(x, h, c, cell)[:2]), [t[0] for t in cell(x[None], (h[None], c[None]))]


def heads(x: Tensor, P: int) -> Tensor:
    """B × T × D -> B × P × T × D_h."""
    split: Tensor = x.unflatten(-1, (P, -1))
    return split.transpose(1, 2)


@claim("CV34", Exactly(((2, 4, 7, 6), (2, 4, 7, 7))))
def shapes_of_heads() -> tuple[tuple[int, ...], ...]:
    """B × T × D → B × P × T × D_h, scores B × P × T × T, with B = 2, T = 7, D = 24, P = 4"""
    q = heads(torch.randn(2, 7, 24), 4)
    return tuple(q.shape), tuple((q @ q.mT).shape)


@claim("CV35", Same(), right="each head divides by √D_h = √(D/P), the width of its own keys")
def scale_of_heads() -> Corrected:
    """softmax(Q_p K_pᵀ/√D) V_p joined, against nn.MultiheadAttention with the same projections; mended: √(D/P)"""
    layer, x = nn.MultiheadAttention(24, 4, bias=False, batch_first=True), torch.randn(2, 7, 24)
    q, k, v = (heads(y, 4) for y in (x @ layer.in_proj_weight.T).chunk(3, dim=-1))
    theirs = layer(x, x, x)[0]

    def joined(scale: float) -> Tensor:
        y = ((q @ k.mT / scale).softmax(-1) @ v).transpose(1, 2).flatten(2)
        out: Tensor = layer.out_proj(y)
        return out

    return Corrected((joined(math.sqrt(24)), theirs), (joined(math.sqrt(6)), theirs))


@claim("CV36", Same())
def layer_norm() -> Pair:
    """(x − μ)/σ with 1/D in both, against torch's layer norm with ε = 0"""
    x = torch.randn(5, 9)
    return (x - x.mean(1, keepdim=True)) / x.std(1, correction=0, keepdim=True), F.layer_norm(x, (9,), eps=0.0)


@claim("CV37", Same(), right="self-attention is equivariant: shuffled tokens give shuffled answers")
def order_of_tokens() -> Corrected:
    """self-attention of shuffled tokens against that of the tokens; mended: against its shuffled answers"""
    x, order = torch.randn(6, 4), torch.tensor([3, 0, 5, 1, 4, 2])
    plain, mixed = attention(x, x, x)[0], attention(x[order], x[order], x[order])[0]
    return Corrected((mixed, plain), (mixed, plain[order]))


@claim("CV38", Same(), right="lower-triangular with its diagonal: a token sees itself")
def causal_attention_matrix() -> Corrected:
    """A with −∞ above the diagonal, against its strictly lower part; mended: its lower part with the diagonal"""
    scores = torch.randn(6, 6) + torch.full((6, 6), -torch.inf).triu(1)
    A = scores.softmax(1)
    return Corrected((A, A.tril(-1)), (A, A.tril()))


@claim("CV39", Same())
def cost_in_the_length() -> Pair:
    """products of QKᵀ: B T² D, four times as many for twice the tokens"""
    def cost(B: int, T: int, D: int) -> int:
        q = torch.randn(B, T, D)
        return count_products(lambda: q @ q.mT)

    return [cost(2, 8, 16), cost(2, 16, 16)], [2 * 8**2 * 16, 4 * 2 * 8**2 * 16]


claim("CV40", Same())(gaba_9.gap_of_the_bound)


@claim("CV41", NeverMore())
def jensen() -> Pair:
    """E log f ≤ log E f for twenty positive f on six values"""
    p, f = torch.randn(20, 6).softmax(1), torch.rand(20, 6) + 1e-3
    return (p * f.log()).sum(1), (p * f).sum(1).log()


@claim("CV43", Same(), right="the marginal is that of the generated samples; then a generator that repeats itself scores exactly 1")
def inception_score() -> Corrected:
    """the score of a generator that always gives one answer, with p_test(y) uniform, against 1; mended: with its own marginal"""
    p = torch.randn(10).softmax(0).expand(40, 10)
    scores = [gaba_8.divergence(p, q).mean().exp() for q in (torch.full((10,), 0.1), p.mean(0))]
    return Corrected((scores[0], 1.0), (scores[1], 1.0))


@claim("CV44", Same(), right="FID is the square of W2")
def distance_of_fid() -> Corrected:
    """|μ − μ′|² + (σ − σ′)², the FID of normals on a line, against W2 of 200,001 of their quantiles; mended: against W2²"""
    normal, u = torch.distributions.Normal, (torch.arange(200_001) + 0.5) / 200_001
    a, b = normal(0.3, 1.2), normal(2.0, 1.2)
    squared = (a.icdf(u) - b.icdf(u)).square().mean()
    fid = (a.mean - b.mean) ** 2 + (a.stddev - b.stddev) ** 2
    return Corrected((fid, squared.sqrt()), (fid, squared))


@claim("CV45", Same())
def leaky_relu() -> Pair:
    """max(αz, z) for α = 0.01, 0.1, 0.5, against torch"""
    z = torch.randn(100)
    return [torch.maximum(α * z, z) for α in (0.01, 0.1, 0.5)], [F.leaky_relu(z, α) for α in (0.01, 0.1, 0.5)]


@claim("CV46", Exactly(((4, 6), (4, 5))))
def shapes_of_cross_attention() -> tuple[tuple[int, ...], ...]:
    """A is T × S and the output T × D_v, with T = 4, S = 6, D_k = 3, D_v = 5"""
    y, a = attention(torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 5))
    return tuple(a.shape), tuple(y.shape)


@claim("CV47", Same())
def mean_squared_error() -> Pair:
    """(1/N) Σ ‖f − y‖² over N = 8 samples of 3 outputs is three times nn.MSELoss, which averages over outputs too"""
    f, y = torch.randn(8, 3), torch.randn(8, 3)
    return (f - y).square().sum() / 8, 3 * F.mse_loss(f, y)
