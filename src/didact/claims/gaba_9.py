"""Gaba, chapter 9: variational autoencoders."""

import re
from itertools import product

import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from didact.claims.compare import Asked, Inside, NeverMore, Rising, Same
from didact.claims.core import claim, statements
from didact.claims.gaba_8 import normal_points
from didact.claims.tools import Pair, gradients, parameters


def discrete_model() -> tuple[Tensor, Tensor, Tensor]:
    """p(x, z) at one x for five values of z, the prior p(z), and twenty encoders q(z|x)."""
    prior, likelihood = torch.randn(5).softmax(0), torch.rand(5)
    return prior * likelihood, prior, torch.randn(20, 5).softmax(1)


@claim("C9.1", Same())
def gap_of_the_bound() -> Pair:
    """log p(x) = Σ q log(p(x, z)/q) + KL(q ‖ p(z|x)), for twenty q over five values of z"""
    joint, _, q = discrete_model()
    posterior = joint / joint.sum()
    elbo, gap = (q * (joint / q).log()).sum(1), (q * (q / posterior).log()).sum(1)
    return elbo + gap, joint.sum().log().expand(20)


@claim("C9.2", NeverMore())
def bound_and_equality() -> Pair:
    """E_q log p(x|z) − KL(q ‖ p(z)) ≤ log p(x) for twenty q, and log p(x) ≤ the same at q = p(z|x)"""
    joint, prior, q = discrete_model()
    q = torch.cat([q, (joint / joint.sum())[None]])
    elbo = (q * (joint / prior).log()).sum(1) - (q * (q / prior).log()).sum(1)
    top = joint.sum().log()
    return [elbo, top], [top.expand(21), elbo[-1]]


@claim("C9.3", Same())
def reparameterised_gradient() -> Pair:
    """∇E f(μ + σε) = E ∇f(μ + σε) for f = sin, whose mean is sin(μ) e^{−σ²/2}"""
    ε, w = normal_points()
    μ, σ = torch.tensor(0.7, requires_grad=True), torch.tensor(0.9, requires_grad=True)
    inside = [(w * torch.cos(μ + σ * ε)).sum(), (w * torch.cos(μ + σ * ε) * ε).sum()]
    return inside, gradients(μ.sin() * (-(σ**2) / 2).exp(), μ, σ)


@claim("C9.4", Same())
def divergence_from_the_prior() -> Pair:
    """½ Σ(σ² + μ² − 1 − log σ²), against torch's KL(N(μ, σ²) ‖ N(0, 1))"""
    μ, σ = torch.randn(20), torch.rand(20) + 0.1
    return 0.5 * (σ**2 + μ**2 - 1 - (σ**2).log()), kl_divergence(Normal(μ, σ), Normal(torch.zeros(20), torch.ones(20)))


@claim("C9.5", Same())
def divergence_of_normals() -> Pair:
    """½[log |Σ₂|/|Σ₁| − d + Tr(Σ₂⁻¹Σ₁) + (μ₂ − μ₁)ᵀΣ₂⁻¹(μ₂ − μ₁)], against torch's, and against 9.18 for N(0, I)"""
    def general(μ1: Tensor, S1: Tensor, μ2: Tensor, S2: Tensor) -> Tensor:
        P, d = S2.inverse(), μ2 - μ1
        return 0.5 * ((S2.det() / S1.det()).log() - len(d) + (P @ S1).trace() + d @ P @ d)

    A, B, μ1, μ2, σ = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4), torch.randn(4), torch.rand(4) + 0.2
    S1, S2 = A @ A.T, B @ B.T
    theirs = kl_divergence(MultivariateNormal(μ1, S1), MultivariateNormal(μ2, S2))
    ours = general(μ1, S1, μ2, S2), general(μ1, torch.diag(σ**2), torch.zeros(4), torch.eye(4))
    return list(ours), [theirs, 0.5 * (σ**2 + μ1**2 - 1 - (σ**2).log()).sum()]


@claim("C9.6", Rising())
def importance_weighted_bound() -> list[Tensor]:
    """ELBO = L_1 < L_2 < L_3 < L_5 < log p(x), each E over all samples of K values of z"""
    joint, _, q = discrete_model()
    q, w = q[0], joint / q[0]
    found = []
    for K in (1, 2, 3, 5):
        z = torch.tensor(list(product(range(5), repeat=K)))
        found.append((q[z].prod(1) * w[z].mean(1).log()).sum())
    return [*found, joint.sum().log()]


@claim("C9.7", Same())
def straight_through() -> Pair:
    """∂L/∂z_e through z_e + (z_q − z_e).detach() = ∂L/∂z_q"""
    z_e, codes = torch.randn(7, 3, requires_grad=True), torch.randn(5, 3)
    z_q = codes[torch.cdist(z_e, codes).argmin(1)].requires_grad_()
    v = torch.randn(3)
    copied = gradients(((z_e + (z_q - z_e).detach()) @ v).sin().sum(), z_e)
    return copied, gradients((z_q @ v).sin().sum(), z_q)


@claim("C9.8", Asked())
def size_of_the_vae() -> int:
    """784 – 512 – (20, 20), 20 – 512 – 784"""
    return sum(parameters(nn.Linear(n, m)) for n, m in ((784, 512), (512, 20), (512, 20), (20, 512), (512, 784)))


@claim("C9.10", Inside(106.58 - 0.105, 106.58 + 0.105))
def base_row_and_loss() -> float:
    """reconstruction + KL of the table's base row; each of the three numbers is rounded, which may add up to 0.105"""
    reconstruction, divergence = (float(n) for n in re.findall(r"[\d.]+", statements()["C9.10"].stated)[:2])
    return reconstruction + divergence


@claim("C9.13", NeverMore(), right="for some β another row of the table has the lower R + β·KL, so that row was not the minimum")
def rows_as_minima() -> Pair:
    """R_i + β_i KL_i ≤ R_j + β_i KL_j for every pair of rows of table 9.1"""
    rows = [tuple(map(float, cell.split("/"))) for cell in statements()["C9.12"].stated.split()]
    betas = (0.5, 1.0, 2.0, 4.0, 10.0)
    pairs = [(i, j) for i in range(5) for j in range(5) if i != j]
    own = [rows[i][0] + betas[i] * rows[i][1] for i, _ in pairs]
    return own, [rows[j][0] + betas[i] * rows[j][1] for i, j in pairs]
