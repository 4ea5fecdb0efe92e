"""Van Schependom: the summary's formulas, chapter by chapter."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact.claims import gaba_2, gaba_3, gaba_4, gaba_9, groudiev_4
from didact.claims.compare import Cases, Corrected, Exactly, Inside, NeverMore, Same, Sampled, Told
from didact.claims.core import claim
from didact.claims.gaba_11 import pieces, relus
from didact.claims.groudiev_1 import own, walk
from didact.claims.groudiev_4 import lstm_step
from didact.claims.tools import Pair, count_products, gradients, parameters
from didact.layers import cells, masks
from didact.layers.activation import activation
from didact.layers.attention import SelfAttention, attention
from didact.layers.block import halve
from didact.layers.convolution import SameConv2d, dilated
from didact.layers.geometry import Window, footprint, receptive_field
from didact.layers.initialise import initialise
from didact.layers.norms import PreNorm
from didact.layers.recurrent import Recurrent, weights
from didact.layers.stack import stack
from didact.metrics.generative import frechet, inception_score
from didact.models.mlp import MLP
from didact.objectives.elbo import importance_bound, kl_to_standard
from didact.objectives.likelihoods import Bernoulli, Bernoullis, Categorical
from didact.objectives.regressions import Heteroscedastic
from didact.optim.proximal import soft_threshold
from didact.scratch.activation import leaky_relu as scratch_leaky_relu
from didact.scratch.dropout import dropout
from didact.scratch.losses import mse_loss
from didact.scratch.normalise import layer_norm as scratch_layer_norm
from didact.scratch.optim import SGD, Adam


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


@claim("CV03", Same(),
       remark="D different joints make D + 1 regions, equal ones fewer; pre-activations are affine, and not piecewise linear")
def regions_of_a_shallow_network() -> Pair:
    """pieces on [0, 1] of didact's network of one layer, Σ c_d ReLU(x − d/(D + 1)), every slope its own, against D + 1"""
    counts = []
    for D in range(1, 9):
        x = torch.linspace(0, 1, 64 * (D + 1) + 1)
        counts.append(pieces(relus(x, [1.0] * D, [-d / (D + 1) for d in range(1, D + 1)], [1.5**d for d in range(1, D + 1)])))
    return counts, range(2, 10)


@claim("CV06", Same())
def products_of_densities() -> Pair:
    """−log of ∏ N(μ_d, σ_d²), of ∏ p^b (1 − p)^(1 − b) and of ∏ π_k^{y_k}, against didact's likelihoods: normal, of labels, of classes"""
    μ, σ, y = torch.randn(4), torch.rand(4) + 0.1, torch.randn(4)
    normal = torch.exp(-((y - μ) ** 2) / (2 * σ**2)) / (σ * math.sqrt(2 * math.pi))
    p, b = torch.rand(6), torch.randint(2, (6,)).double()
    z, k = torch.randn(5), torch.tensor(3)
    stated = [-normal.prod().log(), -(p**b * (1 - p) ** (1 - b)).prod().log(), -(z.softmax(0) ** F.one_hot(k, 5)).prod().log()]
    labels = 6 * Bernoullis(6).loss(p.logit()[None], b[None])                    # its loss is the mean over labels
    return stated, [Heteroscedastic().loss(torch.stack([μ, 2 * σ.log()], dim=1), y).sum(), labels, Categorical(5).loss(z[None], k[None])]


@claim("CV07", Same(1e-6), right="φ̂ = argmin of −Σ log p: the minus belongs inside")
def sign_of_the_likelihood() -> Corrected:
    """−argmin_φ Σ log p(y|φ) for 7 heads in 10 throws, p by didact's likelihood, against 0.7; mended: argmin −Σ log p"""
    φ, y = torch.linspace(0.01, 0.99, 99), torch.tensor([1.0] * 7 + [0.0] * 3)
    nll = torch.stack([Bernoulli().loss(f.logit().expand(10, 1), y).sum() for f in φ])
    return Corrected((-φ[(-nll).argmin()], y.mean()), (φ[nll.argmin()], y.mean()))


@claim("CV08", Same(), remark="from the gradient of a mini-batch; the page has the loss of a single example")
def adam() -> Pair:
    """m̂/(√v̂ + ε) with bias correction over 20 steps, against didact's Adam"""
    grads, θ, m, v = torch.randn(20, 5), torch.zeros(5), torch.zeros(5), torch.zeros(5)
    for t, g in enumerate(grads, start=1):
        m, v = 0.9 * m + (1 - 0.9) * g, 0.999 * v + (1 - 0.999) * g**2
        θ = θ - 1e-3 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    return θ, walk(partial(Adam, lr=1e-3), grads)[-1]


@claim("CV09", Same(1e-4), condition="the first step, or constant gradients; with varying ones the steps differ")
def equal_steps() -> Cases:
    """how far didact's Adam moves in directions with gradients 100, 1 and 0.01, against η: the first step and the 50th of equal ones, and
    the last of 50 noisy ones"""
    scale, η = torch.tensor([100.0, 1.0, 0.01]), 1e-3
    steady, noisy = (walk(partial(Adam, lr=η), g) for g in (scale.expand(50, 3), torch.randn(50, 3) * scale))
    stated = torch.full((3,), η)
    return Cases(([-steady[0], steady[-2] - steady[-1]], [stated, stated]), ((noisy[-1] - noisy[-2]).abs(), stated))


@claim("CV10", Same(), right="φ − (η/m) Σ ∂ℓ_i: the learning rate and the mean are missing")
def step_of_sgd() -> Corrected:
    """φ − Σ_{i∈B} ∂ℓ_i against didact's SGD on the mean loss of a batch of 8, η = 0.1, and its engine's gradient; mended: φ − (η/m) Σ"""
    X, y, start = torch.randn(8, 4), torch.randn(8), torch.randn(4)
    φ = own(start, grad=True)
    mse_loss(own(X) @ φ, y.numpy()).backward()
    SGD([φ], lr=0.1).step()
    total = (2 * (X @ start - y)[:, None] * X).sum(0)                            # Σ ∂ℓ_i of ℓ_i = (x_i·φ − y_i)²
    return Corrected((start - total, φ.data), (start - 0.1 / 8 * total, φ.data))


claim("CV11", Same())(gaba_2.backpropagation)


@claim("CV12", Inside(0.9, 1.1), condition="from the second layer on; the first leaves (1 − 1/π) of the variance of inputs of mean 0")
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
    """the variance of 600,000 weights that didact draws after Xavier, against 2/(D_in + D_out)"""
    layer = nn.Linear(600, 1000)
    initialise(layer, "xavier_normal")
    w = layer.weight.detach()
    return w.var(), w.var() * math.sqrt(2 / w.numel()), 2 / (600 + 1000)


claim("CV14", Same())(gaba_3.bias_and_variance)


@claim("CV15", Same())
def gradients_of_penalties() -> Pair:
    """∂(λ/2)‖φ‖²/∂φ_j = λφ_j,  ∂λ‖φ‖₁/∂φ_j = λ sign φ_j, by PyTorch's engine, and the steps that didact's weight decay and its soft
    threshold take for them, over η"""
    φ, λ, η = torch.randn(9, requires_grad=True), 0.3, 0.01
    θ = own(φ, grad=True)
    θ.grad = np.zeros(9)
    SGD([θ], lr=η, weight_decay=λ).step()
    at = φ.detach()
    stated = [λ * at, λ * at.sign()]
    exact = gradients(λ / 2 * φ.square().sum(), φ) + gradients(λ * φ.abs().sum(), φ)
    return stated * 2, [*exact, (at - torch.from_numpy(θ.data)) / η, (at - soft_threshold(at, η * λ)) / η]


claim("CV16", Same())(gaba_3.batch_norm_forward)


@claim("CV17", Same(), right="units are kept with probability 1 − ρ, so the factor is 1 − ρ; for the page's ρ = 0.5 the two agree")
def factor_at_test_time() -> Corrected:
    """the mean of five units over all 32 masks, each unit deleted with probability ρ = 0.2, against ρ h; mended: h over the factor by which
    didact's dropout raises what it keeps, which is 1/(1 − ρ)"""
    ρ, h = 0.2, torch.randn(5)
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 5)                             # all 32
    chance = ((1 - ρ) ** masks * ρ ** (1 - masks)).prod(1)
    mean = (chance[:, None] * masks * h).sum(0)
    raised = float(dropout(own(torch.ones(100)), ρ, np.random.default_rng(0)).data.max())
    return Corrected((ρ * h, mean), (h / raised, mean))


claim("CV18", Same())(gaba_3.subnetworks_of_dropout)


@claim("CV19", Same())
def jacobian_of_a_residual_block() -> Pair:
    """∂(h + f(h))/∂h of didact's residual block, without a norm, = I + ∂f/∂h"""
    f, h = stack((5, 8, 5), "tanh"), torch.randn(5)
    return jacobian(PreNorm(f, nn.Identity()), h), torch.eye(5) + jacobian(f, h)


claim("CV20", Same())(gaba_4.convolution_of_many_channels)


@claim("CV21", Same(), remark="with stride 1 and away from the borders, or with wrapped ones; stride s needs shifts by multiples of s")
def equivariance_of_convolutions() -> Pair:
    """f(t(x)) = t(f(x)) for two of didact's convolutions with a ReLU between, of stride 1 and with wrapped borders, t a
    move by two rows and three columns"""
    there, _, follows = gaba_4.moved()
    return there, follows


@claim("CV22", Same(), right="a dense layer has a weight for each place; global pooling makes the answer invariant")
def invariance_of_dense_layers() -> Corrected:
    """dense(f(t(x))) = dense(f(x)), f two convolutions without a border and dense didact's network, t a move by (2, 3); mended: the mean
    over all places instead"""
    conv = partial(nn.Conv2d, kernel_size=3, padding=1, padding_mode="circular")
    f, x, dense = nn.Sequential(conv(1, 4), nn.ReLU(), conv(4, 2)), torch.randn(1, 1, 8, 9), MLP(2 * 8 * 9, 5, hidden=(7,))
    here, there = f(x), f(x.roll((2, 3), (2, 3)))
    return Corrected((dense(there), dense(here)), (there.mean((2, 3)), here.mean((2, 3))))


@claim("CV23", Same())
def effective_kernel() -> Pair:
    """(k − 1)d + 1, against the pixels between the outermost that didact's dilated convolution sees, and its receptive field"""
    cases, seen = [(3, 1), (3, 4), (5, 2), (7, 3)], []
    for k, d in cases:
        rows = footprint(dilated(1, 1, k, dilation=d), torch.randn(1, 1, 41, 41)).sum(1).nonzero()
        seen.append(int(rows.max() - rows.min()) + 1)
    return [(k - 1) * d + 1 for k, d in cases] * 2, seen + [receptive_field([Window(k, dilation=d)]) for k, d in cases]


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
    return Corrected(Told((steps[1:], steps[:-1]), {"k̃": k, "its steps": steps}),
                     Told((k[1:] - 1, 2 * (k[:-1] - 1)), {"k̃ − 1 over that of the layer before": (k[1:] - 1) / (k[:-1] - 1)}))


def widths(dilation: int) -> tuple[list[int], list[int], list[int]]:
    """Output widths by the formula with the effective size, by that with w_f, and as didact's windows have it."""
    cases = [(w, p, k, s) for w in (20, 33) for p in (0, 2) for k in (2, 3, 5) for s in (1, 2, 3)]
    effective = [(w + 2 * p - ((k - 1) * dilation + 1)) // s + 1 for w, p, k, s in cases]
    plain = [(w + 2 * p - k) // s + 1 for w, p, k, s in cases]
    return effective, plain, [Window(k, s, p, dilation).size(w) for w, p, k, s in cases]


@claim("CV26", Same())
def output_width() -> Pair:
    """⌊(w + 2p − w̃_f)/s + 1⌋, against didact's windows with dilations 1, 2, 3"""
    found = [widths(d) for d in (1, 2, 3)]
    return [f[0] for f in found], [f[2] for f in found]


@claim("CV27", Same(), condition="dilation 1; else the effective size belongs in the formula, as the text beside it says")
def output_width_as_displayed() -> Cases:
    """⌊(w + 2p − w_f)/s + 1⌋, against didact's windows without and with dilation"""
    return Cases(widths(1)[1:], widths(2)[1:])


@claim("CV28", Same())
def parameters_of_a_convolution() -> Pair:
    """C_i C_o w_f h_f + C_o, against didact's layer"""
    cases = [(3, 16, 3, 3), (8, 4, 1, 5), (64, 64, 7, 7)]
    return [i * o * w * h + o for i, o, w, h in cases], [parameters(SameConv2d(i, o, (h, w))) for i, o, w, h in cases]


@claim("CV29", Same(), right="each output channel has a kernel of its own; weights are shared across places")
def sharing_of_kernels() -> Corrected:
    """weights of didact's convolution of 3 to 8 channels: as many as one kernel 5 × 5 that all output channels share; mended: eight of
    them, whatever the image"""
    n = parameters(SameConv2d(3, 8, 5, bias=False))
    return Corrected((3 * 5 * 5, n), (8 * 3 * 5 * 5, n))


@claim("CV30", Exactly((6, 6, 256)))
def pooled_size() -> tuple[int, ...]:
    """13 × 13 × 256 behind didact's 2 × 2 max pooling, which halves and drops the odd row"""
    c, h, w = halve("max")(torch.zeros(1, 256, 13, 13)).shape[1:]
    return h, w, c


@claim("CV31", Exactly(0))
def parameters_of_softmax() -> int:
    """what a softmax for ten classes adds to didact's network of 20 inputs: e^{z_d}/Σ e^{z_j}, its likelihood of classes, has nothing to
    learn"""
    net, classes = MLP(20, 10, hidden=()), Categorical(10)
    assert torch.allclose(classes.probabilities(net(torch.randn(5, 20))).sum(1), torch.ones(()))
    return parameters(nn.ModuleList([net, classes])) - (20 * 10 + 10)


@claim("CV32", Exactly((("B", "T", "h"), ("L", "B", "h"), ("B", "T", "h"), ("L", "B", "h"), ("L", "B", "h"))))
def shapes_of_recurrent_layers() -> tuple[tuple[str, ...], ...]:
    """z and h of didact's RNN, then z, h and c of its LSTM, two layers, batch first: nn.RNN and nn.LSTM inside"""
    names, x = {5: "B", 7: "T", 11: "h", 2: "L"}, torch.zeros(5, 7, 3)
    z, (h,) = Recurrent("rnn", 3, 11, layers=2)(x)
    y, (k, c) = Recurrent("lstm", 3, 11, layers=2)(x)
    return tuple(tuple(names[n] for n in t.shape) for t in (z, h, y, k, c))


@claim("CV33", Same())
def gates_of_the_lstm() -> Pair:
    """f, i, C̃, C, o, h of the table, against didact's LSTM, by its equations and by the fused layer"""
    layer, x, zero = Recurrent("lstm", 3, 4, init="random"), torch.randn(3), torch.zeros(4)
    w, h, c = weights(layer.rnn, 0), torch.randn(4), torch.randn(4)
    ours, _ = cells.lstm_step(x, (h, c), w)
    _, fused = layer(x[None, None])
    return [*lstm_step(x, h, c, w), *lstm_step(x, zero, zero, w)], [*ours, *(s[0, 0] for s in fused)]


@claim("CV34", Exactly(((2, 4, 7, 6), (2, 4, 7, 7))))
def shapes_of_heads() -> tuple[tuple[int, ...], ...]:
    """didact's self-attention: B × T × D → B × P × T × D_h, weights B × P × T × T, with B = 2, T = 7, D = 24, P = 4"""
    layer, x = SelfAttention(24, 4), torch.randn(2, 7, 24)
    return tuple(layer.project(x)[0].shape), tuple(layer.look(x)[1].shape)


@claim("CV35", Same(), right="each head divides by √D_h = √(D/P), the width of its own keys")
def scale_of_heads() -> Corrected:
    """softmax(Q_p K_pᵀ/√D) V_p joined, against didact's self-attention, on PyTorch's kernel, with the same projections; mended: √(D/P)"""
    layer, x = SelfAttention(24, 4), torch.randn(2, 7, 24)
    q, k, v = layer.project(x)

    def joined(scale: float) -> Tensor:
        return layer.join((q @ k.mT / scale).softmax(-1) @ v)

    return Corrected((joined(math.sqrt(24)), layer(x)), (joined(math.sqrt(24 / 4)), layer(x)))


@claim("CV36", Same())
def layer_norm() -> Pair:
    """(x − μ)/σ with 1/D in both, against the layer norm of didact's engine with ε = 0"""
    x = torch.randn(5, 9)
    return (x - x.mean(1, keepdim=True)) / x.std(1, correction=0, keepdim=True), scratch_layer_norm(own(x), (9,), eps=0.0).data


claim("CV37", Same(), right="self-attention is equivariant: shuffled tokens give shuffled answers")(groudiev_4.invariance_of_self_attention)


@claim("CV38", Same(), right="lower-triangular with its diagonal: a token sees itself")
def causal_attention_matrix() -> Corrected:
    """the weights of didact's causal attention, against their strictly lower part; mended: their lower part with the diagonal"""
    q, k = torch.randn(6, 4), torch.randn(6, 4)
    _, A = attention(q, k, k, masks.causal(6))
    return Corrected((A, A.tril(-1)), (A, A.tril()))


@claim("CV39", Same(), remark="of the attention alone; the projections before it cost B·T·D² more")
def cost_in_the_length() -> Pair:
    """products of didact's attention, QKᵀ and AV: 2 B T² D, four times as many for twice the tokens"""
    def cost(B: int, T: int, D: int) -> int:
        q = torch.randn(B, T, D)
        return count_products(lambda: attention(q, q, q))

    return [cost(2, 8, 16), cost(2, 16, 16)], [2 * 2 * 8**2 * 16, 4 * 2 * 2 * 8**2 * 16]


@claim("CV40", Same(), remark="a bound, and reached at q = p(z|x), so not strict; raising it lowers the KL for φ alone, θ fixed")
def identity_and_bound() -> Told:
    """ELBO + KL(q ‖ p(z|x)) = log p(x) for 21 normal q, the last of them p(z|x), with didact's likelihoods and divergences; and that each
    ELBO ≤ log p(x)"""
    q, top = gaba_9.encoders(), gaba_9.evidence()
    elbo, gap = gaba_9.fit(*q) - kl_to_standard(*q), gaba_9.gap(*q)
    below = (elbo <= top + 1e-9).double()
    return Told(([elbo + gap, below], [top.expand(21), torch.ones(21)]), {
        "log p(x)": top, "ELBO of one q": elbo[0], "its KL": gap[0], "ELBO of q = p(z|x)": elbo[-1]})


@claim("CV41", NeverMore())
def jensen() -> Told:
    """E log f ≤ log E f for twenty positive f on six values, and by didact's log-mean of six weights; equal where f is one number"""
    p, f = torch.randn(20, 6).softmax(1), torch.rand(20, 6) + 1e-3
    mean, same = importance_bound(f.log().T), torch.rand(6)
    inside, outside = (p * f.log()).sum(1), (p * f).sum(1).log()
    compared = [inside, f.log().mean(1), importance_bound(same.log().expand(4, 6))], [outside, mean, same.log()]
    return Told(compared, {"E log f of three": inside[:3], "log E f": outside[:3]})


@claim("CV43", Same(), right="the marginal is that of the generated samples; then a generator that repeats itself scores exactly 1")
def inception_score_of_one_answer() -> Corrected:
    """exp E KL(p(y|x) ‖ p_test(y)), p_test uniform, of a generator that always gives one answer against 1, the least score, and of one that
    varies against didact's score; mended: with the generator's own marginal"""
    same, varied = torch.randn(10).softmax(0).expand(40, 10), torch.randn(40, 10).softmax(1)

    def score(p: Tensor, marginal: Tensor) -> Tensor:
        return (p * (p / marginal).log()).sum(1).mean().exp()

    uniform, ours = torch.full((10,), 0.1), [inception_score(same), inception_score(varied)]
    printed, own = ([score(p, uniform if test else p.mean(0)) for p in (same, varied)] for test in (True, False))
    return Corrected((printed, [1.0, ours[1]]), (own + ours, [1.0, ours[1], 1.0, own[1]]))


@claim("CV44", Same(1e-4), right="FID is the square of W2")
def distance_of_fid() -> Corrected:
    """didact's FID of two samples on a line, 20,001 quantiles of N(0.3, 1.2²) and of N(2, 0.5²), against W2, the root mean square distance
    of their quantiles; mended: against W2²"""
    normal, u = torch.distributions.Normal, (torch.arange(20_001) + 0.5) / 20_001
    a, b = normal(0.3, 1.2).icdf(u), normal(2.0, 0.5).icdf(u)
    fid, squared = frechet(a[:, None], b[:, None]), (a - b).square().mean()
    return Corrected((fid, squared.sqrt()), (fid, squared))


@claim("CV45", Same())
def leaky_relu() -> Pair:
    """max(αz, z) for α = 0.01, 0.1, 0.5, against didact's engine, and for 0.01 its layer"""
    z = torch.randn(100)
    ours = [scratch_leaky_relu(own(z), α).data for α in (0.01, 0.1, 0.5)]
    return [torch.maximum(α * z, z) for α in (0.01, 0.1, 0.5, 0.01)], [*ours, activation("leaky_relu")(z)]


@claim("CV46", Exactly(((4, 6), (4, 5))))
def shapes_of_cross_attention() -> tuple[tuple[int, ...], ...]:
    """A is T × S and the output T × D_v, with T = 4, S = 6, D_k = 3, D_v = 5"""
    y, a = attention(torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 5))
    return tuple(a.shape), tuple(y.shape)


@claim("CV47", Same())
def mean_squared_error() -> Pair:
    """(1/N) Σ ‖f − y‖² over N = 8 samples of 3 outputs is three times didact's mean of squares, which averages over outputs too"""
    f, y = torch.randn(8, 3), torch.randn(8, 3)
    return (f - y).square().sum() / 8, 3 * float(mse_loss(own(f), y.numpy()).data)
