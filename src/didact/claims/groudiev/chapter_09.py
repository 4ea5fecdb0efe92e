"""Groudiev, chapter 9: autoregressive models."""

import math

import torch
from torch import Tensor

from didact.claims.forms import CorrectedClaim, Display, Equal
from didact.claims.gaba import chapter_09 as gaba_9
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.layers.conv.masked_conv import MaskedConv2d
from didact.models.text.gpt import GPT
from didact.objectives.distributions.regression import Heteroscedastic
from didact.objectives.generative.vae import log_normal


@claim("CE74", Equal())
def bayes() -> Pair:
    """p(z|x) = p(x|z) p(z)/p(x) at fifty z, all by didact's normal densities of the latent variable, of the
    observation, and of both"""
    z = torch.linspace(-3, 3, 50)[:, None]
    mean, variance = gaba_9.POSTERIOR
    log_likelihood = log_normal(gaba_9.X - gaba_9.A * z, 0.0, math.log(gaba_9.V))
    return (log_likelihood + log_normal(z) - gaba_9.log_evidence()).exp(), log_normal(z, mean, math.log(variance)).exp()


@claim("CE75", Equal(1e-6), correction="minimize −Σ log f: the printed sign selects the least likely parameters")
def sign_of_the_loss() -> CorrectedClaim:
    """the σ in [0.5, 3] that minimizes Σ log f_σ(x), didact's normal density, for data N(0, 1.5²), against √(mean x²);
    corrected: −Σ log f"""
    x, σ = 1.5 * torch.randn(200), torch.linspace(0.5, 3, 251)
    density = Heteroscedastic()
    nll = torch.stack(
        [density.loss(torch.stack([torch.zeros(200), (2 * s.log()).expand(200)], dim=1), x).sum() for s in σ]
    )
    closed_form = σ[(σ - x.square().mean().sqrt()).abs().argmin()]

    def compare_with_best(σ_at_minimum: Tensor) -> Display:
        return Display((σ_at_minimum, closed_form), {"least at σ =": σ_at_minimum, "√(mean x²) =": closed_form})

    return CorrectedClaim(compare_with_best(σ[(-nll).argmin()]), compare_with_best(σ[nll.argmin()]))


@claim("CE76", Equal())
def chain_rule() -> Pair:
    """p(x₁, x₂, x₃) = p(x₁) p(x₂|x₁) p(x₃|x₁, x₂): the products of the predictions of didact's GPT over all 27
    sequences sum to 1, and its p(x₂|x₁) is that of the joint distribution"""
    net, x = (
        GPT(3, context_length=4, embed_dim=12, num_layers=1, num_heads=2).eval(),
        torch.cartesian_prod(*[torch.arange(3)] * 3),
    )
    # all start with the same token
    shifted_tokens = torch.cat([torch.zeros(27, 1, dtype=torch.long), x[:, :2]], dim=1)
    # (27, 3, 3)
    probabilities = net(shifted_tokens).softmax(-1)
    joint = probabilities.gather(2, x[..., None]).prod(1).view(3, 3, 3)
    return [joint.sum(), joint.sum(2) / joint.sum((1, 2))[:, None]], [torch.ones(()), probabilities[::9, 1]]


@claim("CE77", Equal())
def masked_convolution() -> Pair:
    """pixels with a gradient at the middle of a 7 × 7 image through didact's masked 5 × 5 convolution (type A): above
    and to the left"""
    layer, x = MaskedConv2d(1, 1, (5, 5), "A"), torch.randn(1, 1, 7, 7, requires_grad=True)
    (g,) = torch.autograd.grad(layer(x)[0, 0, 3, 3], x)
    visible = torch.zeros(7, 7)
    visible[1:3, 1:6], visible[3, 1:3] = 1, 1
    return (g[0, 0] != 0).double(), visible
