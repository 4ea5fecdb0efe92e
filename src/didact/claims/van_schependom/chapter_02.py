"""Van Schependom, chapter 2: training and optimization."""

from functools import partial

import torch

from didact.claims.forms import Conditional, CorrectedClaim, Equal
from didact.claims.gaba import chapter_02 as gaba_2
from didact.claims.groudiev.chapter_03 import optimizer_path, to_scratch
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.objectives.distributions.classification import Bernoulli
from didact.scratch.losses import mse_loss
from didact.scratch.optim import SGD, Adam


@claim("CV07", Equal(1e-6), correction="φ̂ = argmin of −Σ log p: the minus belongs inside the argmin")
def sign_of_the_likelihood() -> CorrectedClaim:
    """−argmin_φ Σ log p(y|φ) for 7 heads in 10 throws, p by didact's likelihood, against 0.7; corrected: argmin −Σ log
    p"""
    φ, y = torch.linspace(0.01, 0.99, 99), torch.tensor([1.0] * 7 + [0.0] * 3)
    nll = torch.stack([Bernoulli().loss(f.logit().expand(10, 1), y).sum() for f in φ])
    return CorrectedClaim((-φ[(-nll).argmin()], y.mean()), (φ[nll.argmin()], y.mean()))


@claim("CV08", Equal(), remark="with the gradient of a mini-batch; the page has the loss of a single example")
def adam() -> Pair:
    """m̂/(√v̂ + ε) with bias correction over 20 steps, against didact's Adam"""
    grads, θ, m, v = torch.randn(20, 5), torch.zeros(5), torch.zeros(5), torch.zeros(5)
    for t, g in enumerate(grads, start=1):
        m, v = 0.9 * m + (1 - 0.9) * g, 0.999 * v + (1 - 0.999) * g**2
        θ = θ - 1e-3 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    return θ, optimizer_path(partial(Adam, lr=1e-3), grads)[-1]


@claim("CV09", Equal(1e-4), condition="the first step, or constant gradients; with varying gradients the steps differ")
def equal_steps() -> Conditional:
    """the step of didact's Adam in directions with gradients 100, 1 and 0.01, against η: the first and the 50th step
    with equal gradients, and the last of 50 with noisy ones"""
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
    corrected: φ − (η/m) Σ"""
    X, y, start = torch.randn(8, 4), torch.randn(8), torch.randn(4)
    φ = to_scratch(start, grad=True)
    mse_loss(to_scratch(X) @ φ, y.numpy()).backward()
    SGD([φ], lr=0.1).step()
    total = (2 * (X @ start - y)[:, None] * X).sum(0)                            # Σ ∂ℓ_i of ℓ_i = (x_i·φ − y_i)²
    return CorrectedClaim((start - total, φ.data), (start - 0.1 / 8 * total, φ.data))


claim("CV11", Equal())(gaba_2.backpropagation)


@claim("CV47", Equal())
def mean_squared_error() -> Pair:
    """(1/N) Σ ‖f − y‖² over N = 8 samples of 3 outputs is three times didact's mean squared error, which averages over
    outputs too"""
    f, y = torch.randn(8, 3), torch.randn(8, 3)
    return (f - y).square().sum() / 8, 3 * float(mse_loss(to_scratch(f), y.numpy()).data)
