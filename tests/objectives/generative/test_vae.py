"""The bound against a model whose evidence is known: z ~ N(0, I), x = W z + σ e, hence x ~ N(0, W Wᵀ + σ² I)."""

from math import log

import pytest
import torch
from torch import distributions, nn

from didact.objectives.distributions.pixels import Bernoulli, Categorical, Gaussian, make_pixel_distribution
from didact.objectives.generative.vae import VAEObjective, iwae_bound, kl_gaussians, kl_standard_normal, log_normal

SIGMA = 0.6


class LinearVAE(nn.Module):
    """Decodes by W, whose columns are orthogonal: the posterior has no correlations. `off` moves q away from it."""

    latent_dim, num_classes = 3, 0

    def __init__(self, offset=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.offset = offset
        self.w = nn.Parameter(torch.linalg.qr(torch.randn(8, 3))[0] * torch.tensor([0.5, 1.0, 2.0]))

    def encode(self, x, y=None):
        precision = 1 + self.w.square().sum(0) / SIGMA**2
        return x.flatten(1) @ self.w / SIGMA**2 / precision + self.offset, -precision.log().expand(
            len(x), 3
        ) + self.offset

    def decode(self, z, y=None):
        return (z @ self.w.T).unflatten(1, (1, 2, 4))


def make_objective(offset=0.0, **keywords):
    likelihood = Gaussian()
    nn.init.constant_(likelihood.log_variance, 2 * log(SIGMA))
    return VAEObjective(LinearVAE(offset), likelihood, **keywords)


def make_images(n=50):
    torch.manual_seed(1)
    w = LinearVAE().w.detach()
    x = (torch.randn(n, 3) @ w.T + SIGMA * torch.randn(n, 8)).unflatten(1, (1, 2, 4))
    evidence = distributions.MultivariateNormal(torch.zeros(8), w @ w.T + SIGMA**2 * torch.eye(8)).log_prob(
        x.flatten(1)
    )
    return {"x": x, "row": torch.arange(n)}, evidence


def test_kl_standard_normal_matches_torch():
    torch.manual_seed(0)
    mu, log_variance = torch.randn(5, 3), torch.randn(5, 3)
    q = distributions.Normal(mu, (0.5 * log_variance).exp())
    expected = distributions.kl_divergence(q, distributions.Normal(torch.zeros(5, 3), torch.ones(5, 3)))
    torch.testing.assert_close(kl_standard_normal(mu, log_variance), expected)


def test_kl_gaussians_matches_torch():
    torch.manual_seed(0)
    mu, to_mu = torch.randn(2, 4, 3, dtype=torch.float64)
    a, b = torch.randn(2, 4, 3, 3, dtype=torch.float64)
    s, to_s = (m @ m.mT + 0.1 * torch.eye(3) for m in (a, b))
    p, q = distributions.MultivariateNormal(mu, s), distributions.MultivariateNormal(to_mu, to_s)
    torch.testing.assert_close(kl_gaussians(mu, s, to_mu, to_s), distributions.kl_divergence(p, q))
    diagonal = torch.diag_embed(torch.rand(4, 3, dtype=torch.float64))     # and it reduces to the one above
    reduced = kl_standard_normal(mu, diagonal.diagonal(dim1=-2, dim2=-1).log()).sum(-1)
    torch.testing.assert_close(
        kl_gaussians(mu, diagonal, torch.zeros(4, 3).double(), torch.eye(3).double().expand(4, 3, 3)), reduced
    )


def test_log_normal_matches_torch():
    z, mu, v = torch.randn(3, 4, 5)
    torch.testing.assert_close(log_normal(z, mu, v), distributions.Normal(mu, (0.5 * v).exp()).log_prob(z).sum(-1))


def test_elbo_at_the_posterior_equals_the_evidence():
    batch, evidence = make_images()
    outputs = make_objective(num_samples=2).evaluate_batch(batch)
    torch.testing.assert_close(-outputs["loss"], evidence, atol=1e-4, rtol=1e-4)   # p(x, z) / p(z | x) = p(x) for any z


def test_elbo_gap_is_the_kl_to_the_posterior():
    batch, evidence = make_images()
    model, exact = make_objective(offset=0.4), make_objective()
    torch.manual_seed(0)
    repeated_batch = {name: column.repeat_interleave(4000, 0) for name, column in batch.items()}
    bound = -model.loss(repeated_batch)["loss"]
    (mu, v), (to_mu, to_v) = model.network.encode(batch["x"]), exact.network.encode(batch["x"])
    gap = kl_gaussians(mu, torch.diag_embed(v.exp()), to_mu, torch.diag_embed(to_v.exp())).mean()
    assert gap > 0.5 and bound < evidence.mean()
    # log p(x) = ELBO + KL(q ‖ p(z | x))
    assert (evidence.mean() - bound).item() == pytest.approx(gap.item(), rel=0.02)


def test_iwae_bound_tightens_with_more_samples():
    batch, evidence = make_images(20)
    repeated_batch = {name: column.repeat_interleave(400, 0) for name, column in batch.items()}
    bounds = []
    with torch.no_grad():
        for k in (1, 2, 8, 64, 512):
            torch.manual_seed(0)
            bounds.append(
                -make_objective(offset=0.4, num_samples=k).loss(repeated_batch if k < 512 else batch)["loss"].item()
            )
    assert bounds == sorted(bounds) and bounds[-1] > bounds[0] + 0.5
    assert bounds[-1] == pytest.approx(evidence.mean().item(), abs=0.05)


def test_iwae_bound_of_one_weight_is_its_logarithm():
    log_w = torch.randn(1, 5)
    assert torch.equal(iwae_bound(log_w), log_w[0])
    torch.testing.assert_close(iwae_bound(torch.tensor([[0.0], [log(3.0)]])), torch.tensor([log(2.0)]))


def test_vae_beta_weights_the_kl_and_free_bits_clamp_it():
    batch, _ = make_images()
    parts = {}
    for name, keywords in {"plain": {}, "beta": {"beta": 4.0}, "free": {"free_bits": 100.0}}.items():
        torch.manual_seed(0)
        parts[name] = {k: v.item() for k, v in make_objective(**keywords).loss(batch).items()}
    reconstruction, kl = parts["plain"]["reconstruction"], parts["plain"]["kl"]
    assert parts["plain"]["loss"] == pytest.approx(reconstruction + kl)
    assert parts["beta"]["loss"] == pytest.approx(reconstruction + 4 * kl)
    assert parts["free"]["loss"] == pytest.approx(reconstruction + 3 * 100) and parts["free"]["kl"] == pytest.approx(kl)


def test_vae_kl_weight_rises_during_warmup():
    model = make_objective(beta=2.0, kl_warmup=4)
    batch, kl_weights = make_images()[0], []
    for _ in range(6):
        # micro-batches and evaluation are no steps
        model.loss(batch)
        kl_weights.append(float(model.kl_weight()))
        model.after_step()
    assert kl_weights == [0, 0.5, 1, 1.5, 2, 2]
    assert "steps_taken" in model.state_dict()                            # so that a resumed run continues from there


@torch.no_grad()
def test_vae_evaluation_is_independent_of_batching():
    batch, _ = make_images(70)
    model = make_objective(offset=0.2)
    full_outputs = model.evaluate_batch(batch)
    outputs_by_batch = [model.evaluate_batch({k: v[i : i + 9] for k, v in batch.items()}) for i in range(0, 70, 9)]
    for name in full_outputs:
        torch.testing.assert_close(torch.cat([c[name] for c in outputs_by_batch]), full_outputs[name])
    scores = model.compute_metrics(full_outputs)
    assert scores["elbo"] == pytest.approx(-scores["reconstruction"] - scores["kl"]) and scores["active_units"] == 3


@pytest.mark.parametrize("name", ["bernoulli", "gaussian", "categorical"])
def test_pixel_distributions_match_torch(name):
    torch.manual_seed(0)
    likelihood, x = make_pixel_distribution(name, levels=5), torch.randint(5, (4, 2, 3, 6)) / 4
    out = torch.randn(4, 2 * likelihood.num_outputs, 3, 6)
    if isinstance(likelihood, Bernoulli):
        x = x.round()
        expected, mean = distributions.Bernoulli(logits=out).log_prob(x), out.sigmoid()
    elif isinstance(likelihood, Gaussian):
        expected, mean = distributions.Normal(out, (0.5 * likelihood.log_variance).exp()).log_prob(x), out.clamp(0, 1)
    else:
        assert isinstance(likelihood, Categorical)
        p = distributions.Categorical(logits=out.unflatten(1, (5, 2)).movedim(1, -1))
        expected, mean = p.log_prob(4 * x), (p.probs * torch.arange(5)).sum(-1) / 4
    torch.testing.assert_close(likelihood.nll(out, x), -expected.flatten(1).sum(1))
    torch.testing.assert_close(likelihood.mean(out), mean)
