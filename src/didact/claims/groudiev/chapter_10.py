"""Groudiev, chapter 10: autoencoders."""

import math

import torch
from torch import Tensor

from didact.claims.forms import CorrectedClaim, Equal, Exactly, LessOrEqual
from didact.claims.gaba import chapter_08 as gaba_8
from didact.claims.gaba import chapter_09 as gaba_9
from didact.claims.registry import claim
from didact.models.generative.vae import VAE
from didact.objectives.generative.vae import kl_standard_normal, log_normal


@claim("CE79", LessOrEqual(), correction="the divergence is to the prior: KL(q ‖ p(z))")
def last_line_of_the_proof() -> CorrectedClaim:
    """E_q log p(x|z) − KL(q ‖ p(z|x)) ≤ log p(x) for 21 normal q, didact's likelihood and divergences; corrected: KL(q
    ‖ p(z))"""
    q, log_px = gaba_9.make_encoders(), gaba_9.log_evidence().expand(21)
    log_likelihood = gaba_9.expected_log_likelihood(*q)
    return CorrectedClaim(
        (log_likelihood - gaba_9.kl_to_posterior(*q), log_px), (log_likelihood - kl_standard_normal(*q), log_px)
    )


@claim("CE80", LessOrEqual(), correction="KL(q(z|x) ‖ p(z)): p_θ(x) is a number, not a distribution over z")
def argument_of_the_divergence() -> CorrectedClaim:
    """E_q log p(x|z) − E_q log(q/p(x)) ≤ log p(x) for z ~ N(0, 1), x = 0.8 z + noise of variance 0.05, at x = 1.3 and q
    = p(z|x), by didact's normal densities; corrected: KL(q ‖ p(z))"""
    a, noise, x = 0.8, 0.05, torch.tensor([1.3])
    variance = a**2 + noise
    μ, log_variance = a * x / variance, torch.tensor([noise / variance]).log()
    ε, w = gaba_8.gauss_hermite()
    z = (μ + (0.5 * log_variance).exp() * ε)[:, None]
    log_likelihood, log_q = (
        w @ log_p for log_p in (log_normal(x - a * z, 0.0, math.log(noise)), log_normal(z, μ, log_variance))
    )
    log_px = log_normal(x, 0.0, math.log(variance))
    return CorrectedClaim(
        (log_likelihood - (log_q - log_px), log_px), (log_likelihood - kl_standard_normal(μ, log_variance), log_px)
    )


@claim("CE81", Equal(), correction="the entries of the covariance are the σ_j²; they are not squared again")
def divergence_of_the_encoder() -> CorrectedClaim:
    """½ Σ(1 + log Σ_j² − μ_j² − Σ_j²) with Σ the covariance, against −KL by didact; corrected: with standard
    deviations"""
    μ, σ = torch.randn(6), torch.rand(6) + 0.2
    exact = -kl_standard_normal(μ, 2 * σ.log()).sum()

    def formula(s: Tensor) -> Tensor:
        return 0.5 * (1 + (s**2).log() - μ**2 - s**2).sum()

    return CorrectedClaim((formula(σ**2), exact), (formula(σ), exact))


@claim("CE91", Exactly(784))
def pixels_of_a_digit() -> int:
    """pixels of an image in didact's VAE for MNIST, as reconstructed by its decoder from a latent vector of dimension
    20"""
    net = VAE(shape=(1, 28, 28), widths=(512,), latent_dim=20)
    return net.decode(torch.zeros(1, 20)).numel()
