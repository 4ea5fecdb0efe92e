"""Van Schependom, chapter 8: generative models."""

from collections.abc import Callable

import torch
from torch import Tensor

from didact.claims.forms import Conditional, CorrectedClaim, Display, Equal, LessOrEqual
from didact.claims.gaba import chapter_09 as gaba_9
from didact.claims.helpers import compute_gradients
from didact.claims.registry import claim
from didact.metrics.generative import gaussian_frechet_distance, inception_score
from didact.objectives.generative.vae import iwae_bound, kl_standard_normal, log_normal


@claim(
    "CV40",
    Equal(),
    remark="the bound is reached at q = p(z|x), so it is not strict; raising it over φ lowers the KL, for fixed θ only",
)
def identity_and_bound() -> Display:
    """ELBO + KL(q ‖ p(z|x)) = log p(x) for 21 normal q, the last of them p(z|x), with didact's likelihoods and
    divergences; and that each ELBO ≤ log p(x)"""
    q, log_px = gaba_9.make_encoders(), gaba_9.log_evidence()
    elbo, gap = gaba_9.expected_log_likelihood(*q) - kl_standard_normal(*q), gaba_9.kl_to_posterior(*q)
    is_below = (elbo <= log_px + 1e-9).double()
    return Display(([elbo + gap, is_below], [log_px.expand(21), torch.ones(21)]), {
        "log p(x)": log_px, "ELBO of one q": elbo[0], "its KL": gap[0], "ELBO of q = p(z|x)": elbo[-1]})


@claim("CV41", LessOrEqual())
def jensen() -> Display:
    """E log f ≤ log E f for twenty positive f on six values, and by didact's log-mean of six weights; equal where f is
    constant"""
    p, f = torch.randn(20, 6).softmax(1), torch.rand(20, 6) + 1e-3
    mean, constant = iwae_bound(f.log().T), torch.rand(6)
    mean_of_logs, log_of_means = (p * f.log()).sum(1), (p * f).sum(1).log()
    compared = (
        [mean_of_logs, f.log().mean(1), iwae_bound(constant.log().expand(4, 6))],
        [log_of_means, mean, constant.log()],
    )
    return Display(compared, {"E log f of three": mean_of_logs[:3], "log E f": log_of_means[:3]})


@claim(
    "CV43",
    Equal(),
    correction="the marginal is that of the generated samples; a generator that repeats itself then scores exactly 1",
)
def inception_score_of_one_answer() -> CorrectedClaim:
    """exp E KL(p(y|x) ‖ p_test(y)), p_test uniform, of a generator that always generates the same against 1, the least
    score, and of one that varies against didact's score; corrected: with the generator's own marginal"""
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
    """didact's FID of two samples on a line, 20,001 quantiles of N(0.3, 1.2²) and of N(2, 0.5²), against W2, the root
    mean square distance of their quantiles; corrected: against W2²"""
    normal, u = torch.distributions.Normal, (torch.arange(20_001) + 0.5) / 20_001
    a, b = normal(0.3, 1.2).icdf(u), normal(2.0, 0.5).icdf(u)
    fid, squared = gaussian_frechet_distance(a[:, None], b[:, None]), (a - b).square().mean()
    return CorrectedClaim((fid, squared.sqrt()), (fid, squared))


@claim(
    "CV42",
    LessOrEqual(),
    condition="an f that varies slowly on the scale of σ: for sin 20z the score-function gradient has less variance",
)
def variance_of_two_gradients() -> Conditional:
    """Var ∂f(μ + ε)/∂μ against Var f(z) ∂log q(z)/∂μ, q didact's normal density, both gradients of E f(z) for z ~ N(1,
    1), with means that agree within five standard errors: f = z², and f = sin 20z"""
    ε = torch.randn(200_000)

    def both(f: Callable[[Tensor], Tensor]) -> Display:
        μ = torch.ones(200_000, requires_grad=True)
        (path_gradient,) = compute_gradients(f(μ + ε).sum(), μ)
        z = (μ + ε).detach()
        (score,) = compute_gradients(log_normal(z[:, None], μ[:, None]).sum(), μ)
        score_gradient = f(z) * score
        mean_difference, error = (
            (path_gradient.mean() - score_gradient.mean()).abs(),
            ((path_gradient.var() + score_gradient.var()) / len(ε)).sqrt(),
        )
        return Display(
            ([path_gradient.var(), mean_difference], [score_gradient.var(), 5 * error]),
            {"variance reparameterized": path_gradient.var(), "by the score": score_gradient.var()},
        )

    return Conditional(both(torch.square), both(lambda z: (20 * z).sin()))
