"""Groudiev, chapters 7 to 12: theory, decisions, generative models."""

import math
from functools import partial
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact.claims import gaba_8, gaba_9
from didact.claims.compare import Conditional, CorrectedClaim, Equal, Exactly, Increasing, LessOrEqual, ShownAs
from didact.claims.core import claim
from didact.claims.gaba_8 import random_distributions
from didact.claims.tools import Pair, count_parameters, elementwise_derivative
from didact.layers.adaptive_norm import ConditionalBatchNorm2d
from didact.layers.conv.masked_conv import MaskedConv2d
from didact.layers.coupling import AffineCoupling
from didact.layers.init import activation_gain, he_uniform
from didact.layers.mlp import make_mlp_layers
from didact.models.generative.realnvp import RealNVP
from didact.models.generative.vae import VAE
from didact.models.tabular.mlp import MLP
from didact.models.text.gpt import GPT
from didact.objectives.distributions.regression import Heteroscedastic
from didact.objectives.generative.gan import discriminator_loss
from didact.objectives.generative.vae import kl_standard_normal, log_normal
from didact.scratch.gradients.dual import Dual, jvp
from didact.scratch.init import xavier_normal, xavier_uniform


@claim("CE59", Equal())
def derivative_of_a_composition() -> Pair:
    """the derivative at 0 of f∘…∘f, L = 1 … 12 times, for f(x) = c sin x with c = 0.7, by didact's dual numbers,
    and of as many of its
    layers tanh(c x), against c^L"""
    def compose_sines(x: Dual, L: int) -> Dual:
        for _ in range(L):
            x = 0.7 * x.sin()
        return x

    def layer_derivative(L: int) -> Tensor:
        net = make_mlp_layers((1,) * (L + 1), "tanh")
        for p in net.parameters():
            nn.init.constant_(p, 0.7 if p.ndim == 2 else 0.0)
        return elementwise_derivative(net, torch.zeros(1))

    depths = range(1, 13)
    return [float(jvp(partial(compose_sines, L=L), 0.0, 1.0)[1]) for L in depths] + [
        layer_derivative(L) for L in depths
    ], [0.7**L for L in depths] * 2


@claim("CE62", Equal(5e-3))
def variance_of_a_uniform_law() -> ShownAs:
    """didact's He initialisation for ReLU draws from U(−r, r): its largest of a million weights over r = √(6/d),
    and their variance over
    r²/3 = 2/d, for d = 10 and 256"""
    d = torch.tensor([10.0, 256.0])
    weights = [he_uniform(torch.empty(1_000_000 // n, n), activation_gain("relu")) for n in (10, 256)]
    r, largest_weights, V = (
        (6 / d).sqrt(),
        torch.stack([w.abs().max() for w in weights]),
        torch.stack([w.var() for w in weights]),
    )
    value = [largest_weights / r, V / (r**2 / 3), V / (2 / d)], [torch.ones(2)] * 3
    return ShownAs(value, {"largest weight": largest_weights, "r": r, "variance": V, "r²/3": r**2 / 3, "2/d": 2 / d})


@claim(
    "CE63", Equal(), condition="the widths are averaged, 2/((d + d′)/2); the mean of 2/d and 2/d′ itself is 1/d + 1/d′"
)
def average_heuristic() -> Conditional:
    """4/(d + d′) for widths of 784 and 10, and the square of what didact's engine, drawing after Xavier with a
    ReLU's gain √2, multiplies
    NumPy's normal numbers of the same seed by: against 2 over the mean of the widths, and against the mean of 2/d
    and 2/d′"""
    d, d_out = 784, 10
    scales = xavier_normal((d_out, d), 0, gain=math.sqrt(2), dtype=np.float64) / np.random.default_rng(0).normal(
        size=(d_out, d)
    )
    V = [4 / (d + d_out), *(scales**2).flatten()]
    return Conditional((V, np.full(len(V), 2 / ((d + d_out) / 2))), (V, np.full(len(V), (2 / d + 2 / d_out) / 2)))


@claim("CE64", Equal(1e-3))
def bound_of_xavier() -> Pair:
    """r = √(6c²/(d + d′)), against the largest of 800,000 weights that didact's engine draws after Xavier with gain
    c = 5/3"""
    c, d, d_out = 5 / 3, 800, 1000
    return math.sqrt(6 * c**2 / (d + d_out)), np.abs(xavier_uniform((d_out, d), 0, gain=c, dtype=np.float64)).max()


@claim("CE67", LessOrEqual())
def lipschitz_constant() -> Pair:
    """‖J(x)‖ at fifty points of didact's ReLU network ≤ the product of its layers' spectral norms; as large as that
    where each layer
    stretches what the one before gives, all units on"""
    net, aligned_net = MLP(5, 3, hidden=(9, 7)), MLP(5, 3, hidden=(9, 7))
    u = [F.normalize(torch.rand(n), dim=0) for n in (5, 9, 7, 3)]
    for layer, input_direction, output_direction in zip(
        (aligned_net.hidden[0], aligned_net.hidden[2], aligned_net.head), u, u[1:], strict=False
    ):
        layer.weight.data = 1.5 * torch.outer(output_direction, input_direction)

    def product_of_norms(net: MLP) -> float:
        return math.prod(
            float(torch.linalg.matrix_norm(m.weight.detach(), 2)) for m in net.modules() if isinstance(m, nn.Linear)
        )

    def jacobian_norm(net: MLP, x: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.matrix_norm(jacobian(lambda x: net(x[None])[0], x), 2)
        return norm

    jacobian_norms = [jacobian_norm(net, torch.randn(5)) for _ in range(50)]
    return [*jacobian_norms, product_of_norms(aligned_net)], [product_of_norms(net)] * 50 + [
        jacobian_norm(aligned_net, u[0])
    ]


@claim("CE69", Increasing())
def remainder_of_the_linearisation() -> list[Tensor]:
    """‖g(x + ε) − g(x) − Jε‖/‖ε‖ of didact's network for ‖ε‖ = 1e-5, 1e-4, …, 0.1: it tends to 0"""
    g, x, u = make_mlp_layers((4, 8, 3), "tanh"), torch.randn(4), F.normalize(torch.randn(4), dim=0)
    J = jacobian(g, x)
    return [(g(x + s * u) - g(x) - s * J @ u).norm().detach() / s for s in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)]


@claim("CE70", Equal(), correction="the exponent is k − t − 1, so that the next reward counts fully")
def discounted_return() -> CorrectedClaim:
    """Σ_{k>t} γ^{k−t−a} R_k with the action a = 2 in the exponent, against R_{t+1} + γ G_{t+1}; mended: k − t − 1"""
    R, γ = torch.randn(12), 0.9

    def G(t: int, a: int) -> Tensor:
        return sum((γ ** (k - t - a) * R[k] for k in range(t + 1, 12)), torch.zeros(()))

    recursive = torch.zeros(())
    for r in R.flip(0)[:-3]:
        recursive = r + γ * recursive
    return CorrectedClaim((G(2, 2), recursive), (G(2, 1), recursive))


def _solve_grid_world(n: int = 5) -> tuple[Tensor, list[list[int]]]:
    """Values after 60 sweeps of v ← max_a(−1 + v(s′)), γ = 1, 0 in two opposite corners; and where each action
    leads."""
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    next_states = [
        [min(n - 1, max(0, r + dr)) * n + min(n - 1, max(0, c + dc)) for dr, dc in moves]
        for r in range(n)
        for c in range(n)
    ]
    v = torch.zeros(n * n)
    for _ in range(60):
        v = (-1 + v[torch.tensor(next_states)]).amax(1)
        v[[0, -1]] = 0.0
    return v, next_states


@claim("CE71", Equal())
def values_of_the_grid() -> Pair:
    """optimal values of the 5 × 5 grid with reward −1 and γ = 1 against minus the steps to the nearer corner"""
    v, _ = _solve_grid_world()
    return v, [-min(r + c, 8 - r - c) for r in range(5) for c in range(5)]


@claim("CE72", Equal())
def bellman_iteration() -> Pair:
    """q ← r + γ max q′ from 0, 400 times, against the solution of v = max_a(r + γPv) by exhausting all 3⁴ policies"""
    P, r, γ = torch.randn(4, 3, 4).softmax(2), torch.randn(4, 3), 0.9
    q = torch.zeros(4, 3)
    for _ in range(400):
        q = r + γ * P @ q.amax(1)
    s = torch.arange(4)
    policies = [torch.tensor(p) for p in product(range(3), repeat=4)]
    values = torch.stack([torch.linalg.solve(torch.eye(4) - γ * P[s, p], r[s, p]) for p in policies])
    return q.amax(1), values.amax(0)


@claim("CE74", Equal())
def bayes() -> Pair:
    """p(z|x) = p(x|z) p(z)/p(x) at fifty z, all by didact's normal densities: of a code, of what is seen of it, and
    of both together"""
    z = torch.linspace(-3, 3, 50)[:, None]
    mean, variance = gaba_9.POSTERIOR
    log_likelihood = log_normal(gaba_9.X - gaba_9.A * z, 0.0, math.log(gaba_9.V))
    return (log_likelihood + log_normal(z) - gaba_9.log_evidence()).exp(), log_normal(z, mean, math.log(variance)).exp()


@claim("CE75", Equal(1e-6), correction="minimise −Σ log f: the printed sign picks the least likely parameters")
def sign_of_the_loss() -> CorrectedClaim:
    """the σ in [0.5, 3] that minimises Σ log f_σ(x), didact's normal density, for data N(0, 1.5²), against √(mean
    x²); mended: −Σ log f"""
    x, σ = 1.5 * torch.randn(200), torch.linspace(0.5, 3, 251)
    density = Heteroscedastic()
    nll = torch.stack(
        [density.loss(torch.stack([torch.zeros(200), (2 * s.log()).expand(200)], dim=1), x).sum() for s in σ]
    )
    closed_form = σ[(σ - x.square().mean().sqrt()).abs().argmin()]

    def compare_with_best(σ_at_minimum: Tensor) -> ShownAs:
        return ShownAs((σ_at_minimum, closed_form), {"least at σ =": σ_at_minimum, "√(mean x²) =": closed_form})

    return CorrectedClaim(compare_with_best(σ[(-nll).argmin()]), compare_with_best(σ[nll.argmin()]))


@claim("CE76", Equal())
def chain_rule() -> Pair:
    """p(x₁, x₂, x₃) = p(x₁) p(x₂|x₁) p(x₃|x₁, x₂): of all 27 sequences the products of what didact's GPT says add
    up to 1, and its
    p(x₂|x₁) is what the joint law gives"""
    net, x = (
        GPT(3, context_length=4, embed_dim=12, num_layers=1, num_heads=2).eval(),
        torch.cartesian_prod(*[torch.arange(3)] * 3),
    )
    # a first token that all share
    shifted_tokens = torch.cat([torch.zeros(27, 1, dtype=torch.long), x[:, :2]], dim=1)
    # (27, 3, 3)
    probabilities = net(shifted_tokens).softmax(-1)
    joint = probabilities.gather(2, x[..., None]).prod(1).view(3, 3, 3)
    return [joint.sum(), joint.sum(2) / joint.sum((1, 2))[:, None]], [torch.ones(()), probabilities[::9, 1]]


@claim("CE77", Equal())
def masked_convolution() -> Pair:
    """pixels with a gradient at the middle of a 7 × 7 image through didact's 5 × 5 convolution masked from its
    centre on: above and to the
    left"""
    layer, x = MaskedConv2d(1, 1, (5, 5), "A"), torch.randn(1, 1, 7, 7, requires_grad=True)
    (g,) = torch.autograd.grad(layer(x)[0, 0, 3, 3], x)
    visible = torch.zeros(7, 7)
    visible[1:3, 1:6], visible[3, 1:3] = 1, 1
    return (g[0, 0] != 0).double(), visible


claim("CE78", LessOrEqual())(gaba_9.bound_and_equality)


@claim("CE79", LessOrEqual(), correction="the divergence is to the prior: KL(q ‖ p(z))")
def last_line_of_the_proof() -> CorrectedClaim:
    """E_q log p(x|z) − KL(q ‖ p(z|x)) ≤ log p(x) for 21 normal q, didact's likelihood and divergences; mended: KL(q
    ‖ p(z))"""
    q, log_px = gaba_9.make_encoders(), gaba_9.log_evidence().expand(21)
    log_likelihood = gaba_9.expected_log_likelihood(*q)
    return CorrectedClaim(
        (log_likelihood - gaba_9.kl_to_posterior(*q), log_px), (log_likelihood - kl_standard_normal(*q), log_px)
    )


@claim("CE80", LessOrEqual(), correction="KL(q(z|x) ‖ p(z)): p_θ(x) is a number, not a distribution over z")
def argument_of_the_divergence() -> CorrectedClaim:
    """E_q log p(x|z) − E_q log(q/p(x)) ≤ log p(x) for z ~ N(0, 1), x = 0.8 z + noise of variance 0.05, at x = 1.3
    and q = p(z|x), by
    didact's normal densities; mended: KL(q ‖ p(z))"""
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


@claim("CE85", Equal(), correction="1 for real and 0 for fake, as the objective of §11.3 has it")
def labels_of_the_game() -> CorrectedClaim:
    """binary cross-entropy with label 0 for real and 1 for fake against −log D(x) − log(1 − D(G(z))); mended: 1 and
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
    """didact's layer, and its 2 C numbers for each label, against γ^y (x − μ)/√(σ² + ε) + β^y with moments of the
    whole batch"""
    layer, x, y = ConditionalBatchNorm2d(3, 5), torch.randn(8, 3, 4, 4), torch.randint(5, (8,))
    with torch.no_grad():
        nn.init.normal_(layer.gamma.weight)
        nn.init.normal_(layer.beta.weight)
    normalized = (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()
    γ, β = (table.weight[:, :, None, None] for table in (layer.gamma, layer.beta))
    by_hand = torch.stack([γ[k] * v + β[k] for v, k in zip(normalized, y, strict=True)])
    return [layer(x, y), torch.tensor([count_parameters(layer)] * 2)], [by_hand, torch.tensor([5 * 2 * 3] * 2)]


@claim("CE81", Equal(), correction="the σ_j², entries of the covariance, are not squared again")
def divergence_of_the_encoder() -> CorrectedClaim:
    """½ Σ(1 + log Σ_j² − μ_j² − Σ_j²) with Σ the covariance, against −KL by didact; mended: with standard deviations"""
    μ, σ = torch.randn(6), torch.rand(6) + 0.2
    exact = -kl_standard_normal(μ, 2 * σ.log()).sum()

    def formula(s: Tensor) -> Tensor:
        return 0.5 * (1 + (s**2).log() - μ**2 - s**2).sum()

    return CorrectedClaim((formula(σ**2), exact), (formula(σ), exact))


claim("CE82", Equal(1e-6))(gaba_8.best_discriminator)


@claim("CE83", Equal())
def value_at_the_best_discriminator() -> ShownAs:
    """V(D*, G) = 2 JSD(p, q) − log 4, the left side by didact's losses, for twenty pairs and for q = p, where it is
    −log 4"""
    p, q = random_distributions(20), random_distributions(20)
    V, value_at_p = gaba_8.gan_value((p / q).log(), p, q), gaba_8.gan_value((p / p).log(), p, p)
    value = [V, value_at_p], [2 * gaba_8.jensen_shannon(p, q) - math.log(4), torch.full((20,), -math.log(4))]
    return ShownAs(
        value, {"V of the first pair": V[0], "2 JSD − log 4": value[1][0][0], "V where q is p": value_at_p[0]}
    )


@claim("CE84", Equal(), correction="the second numerator is p_G")
def second_expectation() -> CorrectedClaim:
    """E_data log(p/(p + g)) + E_G log(p/(p + g)) against didact's game at its best discriminator; mended: log(g/(p
    + g))"""
    p, g = random_distributions(20), random_distributions(20)
    value = gaba_8.gan_value((p / g).log(), p, g)
    first = (p * (p / (p + g)).log()).sum(1)
    stated, corrected = (first + (g * (numerator / (p + g)).log()).sum(1) for numerator in (p, g))
    return CorrectedClaim((stated, value), (corrected, value))


claim("CE86", Equal(1e-6))(gaba_8.saturation_of_the_generator)


def _make_coupling() -> AffineCoupling:
    """didact's layer on six numbers, of which the first three stay."""
    return AffineCoupling(torch.tensor([1, 1, 1, 0, 0, 0]), make_mlp_layers((6, 8, 12), "tanh"))


@claim("CE88", Equal(1e-6))
def inverse_of_a_coupling() -> Pair:
    """didact's coupling layer is (x₁, x₂ e^s + t), and (y₁, (y₂ − t) e^{−s}) of what it answers is x, as is its own
    way back"""
    layer, x = _make_coupling(), torch.randn(9, 6)
    y, _ = layer(x)
    s, t = (v[:, 3:] for v in layer._scale_and_shift(x))
    forward_result, inverse_result = (
        torch.cat([x[:, :3], x[:, 3:] * s.exp() + t], dim=1),
        torch.cat([y[:, :3], (y[:, 3:] - t) * (-s).exp()], dim=1),
    )
    return [forward_result, inverse_result, layer.inverse(y)], [y, x, x]


@claim("CE89", Equal(1e-5))
def determinant_of_a_coupling() -> Pair:
    """log |det J| of didact's coupling layer = Σ s_j, which is what it says itself; the block of J above the
    diagonal is 0"""
    layer, x = _make_coupling(), torch.randn(6)
    J = jacobian(lambda x: layer(x[None])[0][0], x)
    exact = J.det().abs().log()
    return [exact, exact, J[:3, 3:]], [layer._scale_and_shift(x[None])[0].sum(), layer(x[None])[1], torch.zeros(3, 3)]


@claim("CE90", Equal(1e-3))
def change_of_variables() -> Pair:
    """∫ p_z(f(x)) |det J_f(x)| dx = 1: for f(x) = x + ½ tanh x and a normal p_z, and over the plane for didact's
    RealNVP"""
    x = torch.linspace(-12, 12, 10_001)
    p = log_normal((x + 0.5 * x.tanh())[:, None]).exp() * elementwise_derivative(lambda x: x + 0.5 * x.tanh(), x)
    axis = torch.linspace(-12, 12, 301)
    with torch.no_grad():
        density = RealNVP(shape=(2,), hidden=8, num_couplings=4)(torch.cartesian_prod(axis, axis)).exp().view(301, 301)
    return [torch.trapezoid(p, x), torch.trapezoid(torch.trapezoid(density, axis), axis)], [1.0, 1.0]


@claim("CE91", Exactly(784))
def pixels_of_a_digit() -> int:
    """numbers of an image of didact's VAE for MNIST: inputs of its encoder, which its decoder gives back from codes
    of 20"""
    net = VAE(shape=(1, 28, 28), widths=(512,), latent_dim=20)
    return net.decode(torch.zeros(1, 20)).numel()


@claim("CE94", Equal(1e-6))
def coupling_without_shuffling() -> Pair:
    """scale and translation of a second pass through didact's coupling layer: those of the first, since x₁ does not
    change, so that two
    passes are (x₁, (x₂ e^s + t) e^s + t)"""
    layer, x = _make_coupling(), torch.randn(5, 6)
    y, _ = layer(x)
    y_twice, _ = layer(y)
    s, t = (v[:, 3:] for v in layer._scale_and_shift(x))
    stated_twice = torch.cat([x[:, :3], (x[:, 3:] * s.exp() + t) * s.exp() + t], dim=1)
    return [*layer._scale_and_shift(y), y_twice], [*layer._scale_and_shift(x), stated_twice]


@claim(
    "CE68", LessOrEqual(), condition="a function of one variable; over flat triangles the interpolation can be steeper"
)
def interpolation_is_no_steeper() -> Conditional:
    """the steepest piece of the interpolation of sin(5x) − x² at 3 … 40 points ≤ its largest slope on [0, 2], as
    steep, with 2,000 points,
    up to a thousandth; and the plane that interpolates sin(πx)/π at (0, 0), (1, 0), (0.5, 0.1) ≤ its largest slope
    on [0, 1]"""
    def f(x: Tensor) -> Tensor:
        return (5 * x).sin() - x**2       # steepest downhill

    def g(x: Tensor) -> Tensor:
        return (math.pi * x).sin() / math.pi

    largest_f_slope, largest_g_slope = (
        elementwise_derivative(f, torch.linspace(0, 2, 20_001)).abs().max(),
        elementwise_derivative(g, torch.linspace(0, 1, 20_001)).abs().max(),
    )
    nodes = [torch.linspace(0, 2, n) for n in (*range(3, 41), 2000)]
    segment_slopes = [(f(x).diff() / x.diff()).abs().max() for x in nodes]
    compared = [*segment_slopes, 0.999 * largest_f_slope], [largest_f_slope] * len(nodes) + [segment_slopes[-1]]
    corners = torch.tensor([[0.0, 0, 1], [1, 0, 1], [0.5, 0.1, 1]])                     # x, y, 1
    triangle_slope = torch.linalg.solve(corners, g(corners[:, 0]))[:2].norm()
    numbers = {
        "slope through 3, 10 and 40 points": [segment_slopes[n - 3] for n in (3, 10, 40)],
        "of the target": largest_f_slope,
    }
    return Conditional(
        ShownAs(compared, numbers),
        ShownAs(
            (triangle_slope, largest_g_slope),
            {"slope over the triangle": triangle_slope, "of the target": largest_g_slope},
        ),
    )


@claim("CE73", Equal(), correction="r + γ max_{a′} q*(s′, a′), which is q*(s, a); r + γ q*(s, a) counts r twice")
def optimal_action() -> CorrectedClaim:
    """the action with the largest r + γ q*(s, a) against the one with the largest return, of two with rewards 1 and
    0 that lead to states
    worth 0 and 1.2, γ = 0.9; mended: r + γ max q*(s′, ·)"""
    # rewards of a′ in s′, where all ends
    r, γ, next_rewards = torch.tensor([1.0, 0.0]), 0.9, torch.tensor([[-1.0, 0.0], [1.2, 0.3]])
    q = (r[:, None] + γ * next_rewards).amax(1)

    def score_choice(scores: Tensor) -> ShownAs:
        return ShownAs(
            (scores.argmax(), q.argmax()),
            {"scores of the two actions": scores, "return of the chosen": q[scores.argmax()], "best": q.max()},
        )

    return CorrectedClaim(score_choice(r + γ * q), score_choice(r + γ * next_rewards.amax(1)))
