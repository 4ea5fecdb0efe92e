"""Gaba, chapter 9: variational autoencoders."""

import math
import re

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from didact.claims.forms import Equal, InInterval, LessOrEqual
from didact.claims.gaba.chapter_08 import gauss_hermite
from didact.claims.helpers import Pair, compute_gradients, count_parameters
from didact.claims.registry import answer, claim, load_statements
from didact.layers.vector_quantizer import VectorQuantizer, straight_through
from didact.objectives.generative.vae import iwae_bound, kl_gaussians, kl_standard_normal, log_normal
from didact.registry import create_model

# z ~ N(0, 1), x | z ~ N(A z, V), and one observed x: then p(x) and p(z | x) are known
A, V, X = 0.8, 0.5, 1.3
_EVIDENCE_VARIANCE = A**2 + V                                          # the variance of x
POSTERIOR = (A * X / _EVIDENCE_VARIANCE, V / _EVIDENCE_VARIANCE)                 # mean and variance of z, given x


def make_encoders() -> tuple[Tensor, Tensor]:
    """μ and log σ² of twenty q(z | x), and of the posterior as the last."""
    mean, variance = POSTERIOR
    return torch.cat([torch.randn(20), torch.tensor([mean])]), torch.cat(
        [torch.randn(20), torch.tensor([math.log(variance)])]
    )


def log_evidence() -> Tensor:
    """log p(x)"""
    return log_normal(torch.tensor([X]), 0.0, math.log(_EVIDENCE_VARIANCE))


def expected_log_likelihood(μ: Tensor, log_variance: Tensor) -> Tensor:
    """E_q log p(x | z), with z = μ + σε."""
    ε, w = gauss_hermite()
    z = μ[:, None] + (0.5 * log_variance).exp()[:, None] * ε
    return (w * log_normal((X - A * z)[..., None], 0.0, math.log(V))).sum(1)


def kl_to_posterior(μ: Tensor, log_variance: Tensor) -> Tensor:
    """KL(q ‖ p(z | x))"""
    mean, variance = (torch.full((len(μ), 1), v) for v in POSTERIOR)
    return kl_gaussians(μ[:, None], log_variance.exp()[:, None, None], mean, variance[..., None])


@claim("C9.1", Equal())
def gap_of_the_bound() -> Pair:
    """log p(x) = E_q log p(x|z) − KL(q ‖ p(z)) + KL(q ‖ p(z|x)), with didact's likelihoods and divergences, for 21
    normal q"""
    q = make_encoders()
    return expected_log_likelihood(*q) - kl_standard_normal(*q) + kl_to_posterior(*q), log_evidence().expand(21)


@claim("C9.2", LessOrEqual())
def bound_and_equality() -> Pair:
    """E_q log p(x|z) − KL(q ‖ p(z)) ≤ log p(x) for 21 normal q, by didact's likelihood and divergence, and log p(x) ≤
    the same at p(z|x)"""
    q, log_px = make_encoders(), log_evidence()
    elbo = expected_log_likelihood(*q) - kl_standard_normal(*q)
    return [elbo, log_px], [log_px.expand(21), elbo[-1]]


@claim("C9.3", Equal())
def reparameterized_gradient() -> Pair:
    """∇E f(μ + σε) = E ∇f(μ + σε) for f = sin, whose mean is sin(μ) e^{−σ²/2}, and for the log-likelihood, whose mean
    is a parabola in μ"""
    ε, w = gauss_hermite()
    μ, σ = torch.tensor(0.7, requires_grad=True), torch.tensor(0.9, requires_grad=True)
    gradients_inside = [(w * torch.cos(μ + σ * ε)).sum(), (w * torch.cos(μ + σ * ε) * ε).sum()]
    gradients_through = compute_gradients(expected_log_likelihood(μ[None], 2 * σ.log()[None]).sum(), μ, σ)
    mean = -((X - A * μ) ** 2 + A**2 * σ**2) / (2 * V)
    return gradients_inside + gradients_through, compute_gradients(
        μ.sin() * (-(σ**2) / 2).exp(), μ, σ
    ) + compute_gradients(mean, μ, σ)


@claim("C9.4", Equal())
def divergence_from_the_prior() -> Pair:
    """½ Σ(σ² + μ² − 1 − log σ²), against didact's KL(N(μ, σ²) ‖ N(0, 1)) and torch's"""
    μ, σ = torch.randn(20), torch.rand(20) + 0.1
    stated = 0.5 * (σ**2 + μ**2 - 1 - (σ**2).log())
    return [stated] * 2, [
        kl_standard_normal(μ, 2 * σ.log()),
        kl_divergence(Normal(μ, σ), Normal(torch.zeros(20), torch.ones(20))),
    ]


@claim("C9.5", Equal())
def divergence_of_normals() -> Pair:
    """½[log |Σ₂|/|Σ₁| − d + Tr(Σ₂⁻¹Σ₁) + (μ₂ − μ₁)ᵀΣ₂⁻¹(μ₂ − μ₁)], against didact's and torch's; for N(0, I) against
    didact's of 9.18"""
    def general(μ1: Tensor, S1: Tensor, μ2: Tensor, S2: Tensor) -> Tensor:
        P, d = S2.inverse(), μ2 - μ1
        return 0.5 * ((S2.det() / S1.det()).log() - len(d) + (P @ S1).trace() + d @ P @ d)

    R, S, μ1, μ2, σ = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4), torch.randn(4), torch.rand(4) + 0.2
    S1, S2 = R @ R.T, S @ S.T
    theirs = kl_divergence(MultivariateNormal(μ1, S1), MultivariateNormal(μ2, S2))
    stated, reduced = general(μ1, S1, μ2, S2), general(μ1, torch.diag(σ**2), torch.zeros(4), torch.eye(4))
    return [stated, stated, reduced], [kl_gaussians(μ1, S1, μ2, S2), theirs, kl_standard_normal(μ1, 2 * σ.log()).sum()]


def _importance_weighted_elbo(joint: Tensor, q: Tensor, K: int) -> Tensor:
    """E log 1/K Σ w_k for two values of z: a sum over how many of the K samples are the second, with binomial
    probabilities."""
    num_second = torch.arange(K + 1)
    # (K, K + 1): each column one outcome of the K samples
    samples = (torch.arange(K)[:, None] >= K - num_second).long()
    probability = torch.distributions.Binomial(K, q[1]).log_prob(num_second.double()).exp()
    L: Tensor = (probability * iwae_bound((joint / q).log()[samples])).sum()
    return L


@claim("C9.6", LessOrEqual())
def importance_weighted_bound() -> Pair:
    """ELBO = L_1 ≤ L_2 ≤ L_4 … ≤ L_512 ≤ log p(x) by didact's bound, for two values of z; all equal at the posterior;
    and log p − L_K for large K is Var(w/p)/2K, its leading term, within 2 %"""
    joint, q = torch.tensor([0.1, 0.3]), torch.tensor([0.6, 0.4])
    sizes, log_px = [2**n for n in range(10)], joint.sum().log()
    L = torch.stack([_importance_weighted_elbo(joint, q, K) for K in sizes])
    bound_at_posterior = torch.stack([_importance_weighted_elbo(joint, joint / joint.sum(), K) for K in sizes[:3]])
    elbo = (q * (joint / q).log()).sum()
    spread = (q * (joint / q / joint.sum() - 1).square()).sum() / 2
    largest_sizes = torch.tensor(sizes[-3:])
    return [elbo, L[0], L[:-1], L[-1], log_px.expand(3), (log_px - L[-3:]) * largest_sizes, 0.98 * spread.expand(3)], [
        L[0], elbo, L[1:], log_px, bound_at_posterior, 1.02 * spread.expand(3), (log_px - L[-3:]) * largest_sizes]


@claim("C9.7", Equal())
def straight_through_copies() -> Pair:
    """∂L/∂z_e through didact's quantizer, z_e + sg(z_q − z_e), = ∂L/∂z_q, z_q the nearest of five codes at each
    position"""
    z_e, layer, v = torch.randn(2, 3, 4, 4, requires_grad=True), VectorQuantizer(5, 3), torch.randn(3)
    z_q = layer(z_e)[0].detach().requires_grad_()
    copied_gradient = compute_gradients(torch.einsum("bdhw,d->bhw", straight_through(z_e, z_q), v).sin().sum(), z_e)
    return copied_gradient, compute_gradients(torch.einsum("bdhw,d->bhw", z_q, v).sin().sum(), z_q)


@answer("C9.8")
def size_of_the_vae() -> int:
    """parameters of didact's VAE as the program of 9.8 has it: 784 – 512 – (20, 20), 20 – 512 – 784"""
    return count_parameters(create_model("vae", shape=(1, 28, 28)))


@claim("C9.10", InInterval(106.58 - 0.105, 106.58 + 0.105))
def base_row_and_loss() -> float:
    """reconstruction + KL of the table's base row; each of the three numbers is rounded, which may add up to 0.105"""
    reconstruction, divergence = (float(n) for n in re.findall(r"[\d.]+", load_statements()["C9.10"].stated)[:2])
    return reconstruction + divergence


@claim(
    "C9.13",
    LessOrEqual(),
    correction="for some β another row of the table has the lower R + β·KL, so that row was not the minimum",
)
def rows_as_minima() -> Pair:
    """R_i + β_i KL_i ≤ R_j + β_i KL_j for every pair of rows of table 9.1"""
    rows = [tuple(map(float, cell.split("/"))) for cell in load_statements()["C9.12"].stated.split()]
    betas = (0.5, 1.0, 2.0, 4.0, 10.0)
    pairs = [(i, j) for i in range(5) for j in range(5) if i != j]
    own_losses = [rows[i][0] + betas[i] * rows[i][1] for i, _ in pairs]
    return own_losses, [rows[j][0] + betas[i] * rows[j][1] for i, j in pairs]
