"""Van Schependom, chapters 1 to 4: networks, optimisation, initialisation and regularisation, diagnostics."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact.claims import gaba_2, gaba_3
from didact.claims.compare import Conditional, CorrectedClaim, Equal, InInterval, WithinStandardErrors
from didact.claims.core import claim
from didact.claims.gaba_11 import count_linear_pieces, relu_network
from didact.claims.groudiev_1 import optimizer_path, to_scratch
from didact.claims.tools import Pair, compute_gradients, count_parameters
from didact.layers.activation import make_activation
from didact.layers.init import init_weights
from didact.layers.mlp import make_mlp_layers
from didact.layers.norm import PreNorm
from didact.models.tabular.mlp import MLP
from didact.objectives.distributions.classification import Bernoulli, Categorical, MultiLabelBernoulli
from didact.objectives.distributions.regression import Heteroscedastic
from didact.optim.proximal import soft_threshold
from didact.scratch.activation import leaky_relu as scratch_leaky_relu
from didact.scratch.dropout import dropout
from didact.scratch.losses import mse_loss
from didact.scratch.optim import SGD, Adam


@claim("CV01", Equal())
def parameters_of_k_layers() -> Pair:
    """D₀D + D + (K − 1)(D² + D) + D D_L + D_L, against didact's own MLP"""
    cases = [(5, 7, 1, 3), (20, 64, 3, 10), (784, 32, 5, 1)]
    formula = [D0 * D + D + (K - 1) * (D**2 + D) + D * DL + DL for D0, D, K, DL in cases]
    return formula, [count_parameters(MLP(features=D0, hidden=(D,) * K, outputs=DL)) for D0, D, K, DL in cases]


@claim("CV02", Equal())
def parameters_of_k_layers_on_a_line() -> Pair:
    """3D + 1 + (K − 1) D(D + 1), against didact's own MLP with one input and one output"""
    cases = [(4, 1), (16, 3), (50, 6)]
    return [3 * D + 1 + (K - 1) * D * (D + 1) for D, K in cases], [
        count_parameters(MLP(features=1, hidden=(D,) * K, outputs=1)) for D, K in cases
    ]


@claim(
    "CV03",
    Equal(),
    remark="D different joints make D + 1 regions, equal ones fewer; pre-activations are affine, and not piecewise "
           "linear",
)
def regions_of_a_shallow_network() -> Pair:
    """pieces on [0, 1] of didact's network of one layer, Σ c_d ReLU(x − d/(D + 1)), every slope its own, against D
    + 1"""
    counts = []
    for D in range(1, 9):
        x = torch.linspace(0, 1, 64 * (D + 1) + 1)
        counts.append(
            count_linear_pieces(
                relu_network(x, [1.0] * D, [-d / (D + 1) for d in range(1, D + 1)], [1.5**d for d in range(1, D + 1)])
            )
        )
    return counts, range(2, 10)


@claim("CV06", Equal())
def products_of_densities() -> Pair:
    """−log of ∏ N(μ_d, σ_d²), of ∏ p^b (1 − p)^(1 − b) and of ∏ π_k^{y_k}, against didact's likelihoods: normal, of
    labels, of classes"""
    μ, σ, y = torch.randn(4), torch.rand(4) + 0.1, torch.randn(4)
    normal = torch.exp(-((y - μ) ** 2) / (2 * σ**2)) / (σ * math.sqrt(2 * math.pi))
    p, b = torch.rand(6), torch.randint(2, (6,)).double()
    z, k = torch.randn(5), torch.tensor(3)
    stated = [
        -normal.prod().log(),
        -(p**b * (1 - p) ** (1 - b)).prod().log(),
        -(z.softmax(0) ** F.one_hot(k, 5)).prod().log(),
    ]
    # its loss is the mean over labels
    labels = 6 * MultiLabelBernoulli(6).loss(p.logit()[None], b[None])
    return stated, [
        Heteroscedastic().loss(torch.stack([μ, 2 * σ.log()], dim=1), y).sum(),
        labels,
        Categorical(5).loss(z[None], k[None]),
    ]


@claim("CV07", Equal(1e-6), correction="φ̂ = argmin of −Σ log p: the minus belongs inside")
def sign_of_the_likelihood() -> CorrectedClaim:
    """−argmin_φ Σ log p(y|φ) for 7 heads in 10 throws, p by didact's likelihood, against 0.7; mended: argmin −Σ log
    p"""
    φ, y = torch.linspace(0.01, 0.99, 99), torch.tensor([1.0] * 7 + [0.0] * 3)
    nll = torch.stack([Bernoulli().loss(f.logit().expand(10, 1), y).sum() for f in φ])
    return CorrectedClaim((-φ[(-nll).argmin()], y.mean()), (φ[nll.argmin()], y.mean()))


@claim("CV08", Equal(), remark="from the gradient of a mini-batch; the page has the loss of a single example")
def adam() -> Pair:
    """m̂/(√v̂ + ε) with bias correction over 20 steps, against didact's Adam"""
    grads, θ, m, v = torch.randn(20, 5), torch.zeros(5), torch.zeros(5), torch.zeros(5)
    for t, g in enumerate(grads, start=1):
        m, v = 0.9 * m + (1 - 0.9) * g, 0.999 * v + (1 - 0.999) * g**2
        θ = θ - 1e-3 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    return θ, optimizer_path(partial(Adam, lr=1e-3), grads)[-1]


@claim("CV09", Equal(1e-4), condition="the first step, or constant gradients; with varying ones the steps differ")
def equal_steps() -> Conditional:
    """how far didact's Adam moves in directions with gradients 100, 1 and 0.01, against η: the first step and the
    50th of equal ones, and
    the last of 50 noisy ones"""
    scale, η = torch.tensor([100.0, 1.0, 0.01]), 1e-3
    steady_path, noisy_path = (
        optimizer_path(partial(Adam, lr=η), g) for g in (scale.expand(50, 3), torch.randn(50, 3) * scale)
    )
    stated = torch.full((3,), η)
    return Conditional(
        ([-steady_path[0], steady_path[-2] - steady_path[-1]], [stated, stated]),
        ((noisy_path[-1] - noisy_path[-2]).abs(), stated),
    )


@claim("CV10", Equal(), correction="φ − (η/m) Σ ∂ℓ_i: the learning rate and the mean are missing")
def step_of_sgd() -> CorrectedClaim:
    """φ − Σ_{i∈B} ∂ℓ_i against didact's SGD on the mean loss of a batch of 8, η = 0.1, and its engine's gradient;
    mended: φ − (η/m) Σ"""
    X, y, start = torch.randn(8, 4), torch.randn(8), torch.randn(4)
    φ = to_scratch(start, grad=True)
    mse_loss(to_scratch(X) @ φ, y.numpy()).backward()
    SGD([φ], lr=0.1).step()
    total = (2 * (X @ start - y)[:, None] * X).sum(0)                            # Σ ∂ℓ_i of ℓ_i = (x_i·φ − y_i)²
    return CorrectedClaim((start - total, φ.data), (start - 0.1 / 8 * total, φ.data))


claim("CV11", Equal())(gaba_2.backpropagation)


@claim(
    "CV12",
    InInterval(0.9, 1.1),
    condition="from the second layer on; the first leaves (1 − 1/π) of the variance of inputs of mean 0",
)
def variance_under_he() -> Conditional:
    """Var h_l / Var h_{l−1} of ReLU layers with σ² = 2/D_in: layers 2 to 5, and layer 1; means over 20 networks of
    width 400"""
    ratios = []
    for _ in range(20):
        net, h = make_mlp_layers((400,) * 6, "relu"), torch.randn(100, 400)
        init_weights(net, "he_normal")
        variances = [h.var()]
        with torch.no_grad():
            for layer in net:
                h = layer(h)
                if isinstance(layer, nn.ReLU):
                    variances.append(h.var())
        ratios.append(torch.stack([b / a for a, b in pairwise(variances)]))
    mean = torch.stack(ratios).mean(0)
    return Conditional(mean[1:], mean[0])


@claim("CV13", WithinStandardErrors())
def variance_of_xavier() -> tuple[Tensor, Tensor, float]:
    """the variance of 600,000 weights that didact draws after Xavier, against 2/(D_in + D_out)"""
    layer = nn.Linear(600, 1000)
    init_weights(layer, "xavier_normal", activation="linear")
    w = layer.weight.detach()
    return w.var(), w.var() * math.sqrt(2 / w.numel()), 2 / (600 + 1000)


claim("CV14", Equal())(gaba_3.bias_and_variance)


@claim("CV15", Equal())
def gradients_of_penalties() -> Pair:
    """∂(λ/2)‖φ‖²/∂φ_j = λφ_j,  ∂λ‖φ‖₁/∂φ_j = λ sign φ_j, by PyTorch's engine, and the steps that didact's weight
    decay and its soft
    threshold take for them, over η"""
    φ, λ, η = torch.randn(9, requires_grad=True), 0.3, 0.01
    θ = to_scratch(φ, grad=True)
    θ.grad = np.zeros(9)
    SGD([θ], lr=η, weight_decay=λ).step()
    φ_detached = φ.detach()
    stated = [λ * φ_detached, λ * φ_detached.sign()]
    exact = compute_gradients(λ / 2 * φ.square().sum(), φ) + compute_gradients(λ * φ.abs().sum(), φ)
    return stated * 2, [
        *exact,
        (φ_detached - torch.from_numpy(θ.data)) / η,
        (φ_detached - soft_threshold(φ_detached, η * λ)) / η,
    ]


claim("CV16", Equal())(gaba_3.batch_norm_forward)


@claim(
    "CV17",
    Equal(),
    correction="units are kept with probability 1 − ρ, so the factor is 1 − ρ; for the page's ρ = 0.5 the two agree",
)
def factor_at_test_time() -> CorrectedClaim:
    """the mean of five units over all 32 masks, each unit deleted with probability ρ = 0.2, against ρ h; mended: h
    over the factor by which
    didact's dropout raises what it keeps, which is 1/(1 − ρ)"""
    ρ, h = 0.2, torch.randn(5)
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 5)                             # all 32
    probability = ((1 - ρ) ** masks * ρ ** (1 - masks)).prod(1)
    mean = (probability[:, None] * masks * h).sum(0)
    dropout_scale = float(dropout(to_scratch(torch.ones(100)), ρ, np.random.default_rng(0)).data.max())
    return CorrectedClaim((ρ * h, mean), (h / dropout_scale, mean))


claim("CV18", Equal())(gaba_3.subnetworks_of_dropout)


@claim("CV19", Equal())
def jacobian_of_a_residual_block() -> Pair:
    """∂(h + f(h))/∂h of didact's residual block, without a norm, = I + ∂f/∂h"""
    f, h = make_mlp_layers((5, 8, 5), "tanh"), torch.randn(5)
    return jacobian(PreNorm(f, nn.Identity()), h), torch.eye(5) + jacobian(f, h)


@claim("CV45", Equal())
def leaky_relu() -> Pair:
    """max(αz, z) for α = 0.01, 0.1, 0.5, against didact's engine, and for 0.01 its layer"""
    z = torch.randn(100)
    ours = [scratch_leaky_relu(to_scratch(z), α).data for α in (0.01, 0.1, 0.5)]
    return [torch.maximum(α * z, z) for α in (0.01, 0.1, 0.5, 0.01)], [*ours, make_activation("leaky_relu")(z)]


@claim("CV47", Equal())
def mean_squared_error() -> Pair:
    """(1/N) Σ ‖f − y‖² over N = 8 samples of 3 outputs is three times didact's mean of squares, which averages over
    outputs too"""
    f, y = torch.randn(8, 3), torch.randn(8, 3)
    return (f - y).square().sum() / 8, 3 * float(mse_loss(to_scratch(f), y.numpy()).data)
