"""Groudiev, chapter 11: generative adversarial networks."""

import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from didact.claims.forms import CorrectedClaim, Display, Equal, LessOrEqual
from didact.claims.gaba import chapter_08 as gaba_8
from didact.claims.gaba import chapter_09 as gaba_9
from didact.claims.gaba.chapter_08 import random_distributions
from didact.claims.helpers import Pair, count_parameters
from didact.claims.registry import claim
from didact.layers.adaptive_norm import ConditionalBatchNorm2d
from didact.objectives.generative.gan import discriminator_loss

claim("CE78", LessOrEqual())(gaba_9.bound_and_equality)


@claim("CE85", Equal(), correction="1 for real and 0 for fake, as the objective of §11.3 has it")
def labels_of_the_game() -> CorrectedClaim:
    """binary cross-entropy with label 0 for real and 1 for fake against −log D(x) − log(1 − D(G(z))); corrected: 1 and
    0"""
    real, fake = torch.randn(20), torch.randn(20)
    bce = partial(F.binary_cross_entropy_with_logits, reduction="none")
    discriminator_losses, ones, zeros = discriminator_loss(real, fake), torch.ones(20), torch.zeros(20)
    return CorrectedClaim(
        (bce(real, zeros) + bce(fake, ones), discriminator_losses),
        (bce(real, ones) + bce(fake, zeros), discriminator_losses),
    )


@claim("CE87", Equal())
def conditional_batch_norm() -> Pair:
    """didact's layer, and its 2 C parameters for each label, against γ^y (x − μ)/√(σ² + ε) + β^y with the statistics of
    the whole batch"""
    layer, x, y = ConditionalBatchNorm2d(3, 5), torch.randn(8, 3, 4, 4), torch.randint(5, (8,))
    with torch.no_grad():
        nn.init.normal_(layer.gamma.weight)
        nn.init.normal_(layer.beta.weight)
    normalized = (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()
    γ, β = (table.weight[:, :, None, None] for table in (layer.gamma, layer.beta))
    by_hand = torch.stack([γ[k] * v + β[k] for v, k in zip(normalized, y, strict=True)])
    return [layer(x, y), torch.tensor([count_parameters(layer)] * 2)], [by_hand, torch.tensor([5 * 2 * 3] * 2)]


claim("CE82", Equal(1e-6))(gaba_8.best_discriminator)


@claim("CE83", Equal())
def value_at_the_best_discriminator() -> Display:
    """V(D*, G) = 2 JSD(p, q) − log 4, the left side by didact's losses, for twenty pairs and for q = p, where it is
    −log 4"""
    p, q = random_distributions(20), random_distributions(20)
    V, value_at_p = gaba_8.gan_value((p / q).log(), p, q), gaba_8.gan_value((p / p).log(), p, p)
    value = [V, value_at_p], [2 * gaba_8.jensen_shannon(p, q) - math.log(4), torch.full((20,), -math.log(4))]
    return Display(
        value, {"V of the first pair": V[0], "2 JSD − log 4": value[1][0][0], "V at q = p": value_at_p[0]}
    )


@claim("CE84", Equal(), correction="the second numerator is p_G")
def second_expectation() -> CorrectedClaim:
    """E_data log(p/(p + g)) + E_G log(p/(p + g)) against didact's game at its best discriminator; corrected: log(g/(p +
    g))"""
    p, g = random_distributions(20), random_distributions(20)
    value = gaba_8.gan_value((p / g).log(), p, g)
    first = (p * (p / (p + g)).log()).sum(1)
    stated, corrected = (first + (g * (numerator / (p + g)).log()).sum(1) for numerator in (p, g))
    return CorrectedClaim((stated, value), (corrected, value))


claim("CE86", Equal(1e-6))(gaba_8.saturation_of_the_generator)
