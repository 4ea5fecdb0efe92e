"""Van Schependom, chapter 3: initialization and regularization."""

import math
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from didact.claims.forms import Conditional, CorrectedClaim, Equal, InInterval, WithinStandardErrors
from didact.claims.gaba import chapter_03 as gaba_3
from didact.claims.groudiev.chapter_03 import to_scratch
from didact.claims.helpers import Pair, compute_gradients
from didact.claims.registry import claim
from didact.layers.init import init_weights
from didact.layers.mlp import make_mlp_layers
from didact.optim.proximal import soft_threshold
from didact.scratch.dropout import dropout
from didact.scratch.optim import SGD


@claim(
    "CV12",
    InInterval(0.9, 1.1),
    condition="from the second layer on; the first keeps only (1 − 1/π) of the variance of inputs of mean 0",
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
    """the variance of 600,000 weights of didact's Xavier initialization, against 2/(D_in + D_out)"""
    layer = nn.Linear(600, 1000)
    init_weights(layer, "xavier_normal", activation="linear")
    w = layer.weight.detach()
    return w.var(), w.var() * math.sqrt(2 / w.numel()), 2 / (600 + 1000)


claim("CV14", Equal())(gaba_3.bias_and_variance)


@claim("CV15", Equal())
def gradients_of_penalties() -> Pair:
    """∂(λ/2)‖φ‖²/∂φ_j = λφ_j,  ∂λ‖φ‖₁/∂φ_j = λ sign φ_j, by PyTorch's engine, and the steps of didact's weight decay
    and its soft threshold, over η"""
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
    """the mean of five units over all 32 masks, each unit deleted with probability ρ = 0.2, against ρ h; corrected: h
    over the factor by which didact's dropout scales the units it keeps, 1/(1 − ρ)"""
    ρ, h = 0.2, torch.randn(5)
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 5)                             # all 32
    probability = ((1 - ρ) ** masks * ρ ** (1 - masks)).prod(1)
    mean = (probability[:, None] * masks * h).sum(0)
    dropout_scale = float(dropout(to_scratch(torch.ones(100)), ρ, np.random.default_rng(0)).data.max())
    return CorrectedClaim((ρ * h, mean), (h / dropout_scale, mean))


claim("CV18", Equal())(gaba_3.subnetworks_of_dropout)
