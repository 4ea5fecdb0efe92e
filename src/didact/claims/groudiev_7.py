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
from didact.claims.compare import Cases, Corrected, Exactly, NeverMore, Rising, Same, Told
from didact.claims.core import claim
from didact.claims.gaba_8 import distributions
from didact.claims.tools import Pair, parameters, slope
from didact.layers.adain import ConditionalBatchNorm2d
from didact.layers.coupling import Coupling
from didact.layers.initialise import gain, he_uniform
from didact.layers.masked_conv import MaskedConv2d
from didact.layers.stack import stack
from didact.models.gpt import GPT
from didact.models.mlp import MLP
from didact.models.realnvp import RealNVP
from didact.models.vae import VAE
from didact.objectives.adversarial import tell_apart
from didact.objectives.elbo import kl_to_standard, log_normal
from didact.objectives.regressions import Heteroscedastic
from didact.scratch.initialise import xavier_normal, xavier_uniform
from didact.scratch.ways.dual import Dual, jvp


@claim("CE59", Same())
def derivative_of_a_composition() -> Pair:
    """the derivative at 0 of f∘…∘f, L = 1 … 12 times, for f(x) = c sin x with c = 0.7, by didact's dual numbers, and of as many of its
    layers tanh(c x), against c^L"""
    def composed(x: Dual, L: int) -> Dual:
        for _ in range(L):
            x = 0.7 * x.sin()
        return x

    def layers(L: int) -> Tensor:
        net = stack((1,) * (L + 1), "tanh")
        for p in net.parameters():
            nn.init.constant_(p, 0.7 if p.ndim == 2 else 0.0)
        return slope(net, torch.zeros(1))

    depths = range(1, 13)
    return [float(jvp(partial(composed, L=L), 0.0, 1.0)[1]) for L in depths] + [layers(L) for L in depths], [0.7**L for L in depths] * 2


@claim("CE62", Same(5e-3))
def variance_of_a_uniform_law() -> Told:
    """didact's He initialisation for ReLU draws from U(−r, r): its largest of a million weights over r = √(6/d), and their variance over
    r²/3 = 2/d, for d = 10 and 256"""
    d = torch.tensor([10.0, 256.0])
    drawn = [he_uniform(torch.empty(1_000_000 // n, n), gain("relu")) for n in (10, 256)]
    r, largest, V = (6 / d).sqrt(), torch.stack([w.abs().max() for w in drawn]), torch.stack([w.var() for w in drawn])
    value = [largest / r, V / (r**2 / 3), V / (2 / d)], [torch.ones(2)] * 3
    return Told(value, {"largest weight": largest, "r": r, "variance": V, "r²/3": r**2 / 3, "2/d": 2 / d})


@claim("CE63", Same(), condition="the widths are averaged, 2/((d + d′)/2); the mean of 2/d and 2/d′ itself is 1/d + 1/d′")
def average_heuristic() -> Cases:
    """4/(d + d′) for widths of 784 and 10, and the square of what didact's engine, drawing after Xavier with a ReLU's gain √2, multiplies
    NumPy's normal numbers of the same seed by: against 2 over the mean of the widths, and against the mean of 2/d and 2/d′"""
    d, other = 784, 10
    drawn = xavier_normal((other, d), 0, gain=math.sqrt(2), dtype=np.float64) / np.random.default_rng(0).normal(size=(other, d))
    V = [4 / (d + other), *(drawn**2).flatten()]
    return Cases((V, np.full(len(V), 2 / ((d + other) / 2))), (V, np.full(len(V), (2 / d + 2 / other) / 2)))


@claim("CE64", Same(1e-3))
def bound_of_xavier() -> Pair:
    """r = √(6c²/(d + d′)), against the largest of 800,000 weights that didact's engine draws after Xavier with gain c = 5/3"""
    c, d, other = 5 / 3, 800, 1000
    return math.sqrt(6 * c**2 / (d + other)), np.abs(xavier_uniform((other, d), 0, gain=c, dtype=np.float64)).max()


@claim("CE67", NeverMore())
def lipschitz_constant() -> Pair:
    """‖J(x)‖ at fifty points of didact's ReLU network ≤ the product of its layers' spectral norms; as large as that where each layer
    stretches what the one before gives, all units on"""
    net, turned = MLP(5, 3, hidden=(9, 7)), MLP(5, 3, hidden=(9, 7))
    u = [F.normalize(torch.rand(n), dim=0) for n in (5, 9, 7, 3)]
    for layer, before, behind in zip((turned.hidden[0], turned.hidden[2], turned.head), u, u[1:], strict=False):
        layer.weight.data = 1.5 * torch.outer(behind, before)

    def product_of_norms(net: MLP) -> float:
        return math.prod(float(torch.linalg.matrix_norm(m.weight.detach(), 2)) for m in net.modules() if isinstance(m, nn.Linear))

    def steep(net: MLP, x: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.matrix_norm(jacobian(lambda x: net(x[None])[0], x), 2)
        return norm

    seen = [steep(net, torch.randn(5)) for _ in range(50)]
    return [*seen, product_of_norms(turned)], [product_of_norms(net)] * 50 + [steep(turned, u[0])]


@claim("CE69", Rising())
def remainder_of_the_linearisation() -> list[Tensor]:
    """‖g(x + ε) − g(x) − Jε‖/‖ε‖ of didact's network for ‖ε‖ = 1e-5, 1e-4, …, 0.1: it tends to 0"""
    g, x, u = stack((4, 8, 3), "tanh"), torch.randn(4), F.normalize(torch.randn(4), dim=0)
    J = jacobian(g, x)
    return [(g(x + s * u) - g(x) - s * J @ u).norm().detach() / s for s in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)]


@claim("CE70", Same(), right="the exponent is k − t − 1, so that the next reward counts fully")
def discounted_return() -> Corrected:
    """Σ_{k>t} γ^{k−t−a} R_k with the action a = 2 in the exponent, against R_{t+1} + γ G_{t+1}; mended: k − t − 1"""
    R, γ = torch.randn(12), 0.9

    def G(t: int, a: int) -> Tensor:
        return sum((γ ** (k - t - a) * R[k] for k in range(t + 1, 12)), torch.zeros(()))

    recursive = torch.zeros(())
    for r in R.flip(0)[:-3]:
        recursive = r + γ * recursive
    return Corrected((G(2, 2), recursive), (G(2, 1), recursive))


def grid_world(n: int = 5) -> tuple[Tensor, list[list[int]]]:
    """Values after 60 sweeps of v ← max_a(−1 + v(s′)), γ = 1, 0 in two opposite corners; and where each action leads."""
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    leads = [[min(n - 1, max(0, r + dr)) * n + min(n - 1, max(0, c + dc)) for dr, dc in moves] for r in range(n) for c in range(n)]
    v = torch.zeros(n * n)
    for _ in range(60):
        v = (-1 + v[torch.tensor(leads)]).amax(1)
        v[[0, -1]] = 0.0
    return v, leads


@claim("CE71", Same())
def values_of_the_grid() -> Pair:
    """optimal values of the 5 × 5 grid with reward −1 and γ = 1 against minus the steps to the nearer corner"""
    v, _ = grid_world()
    return v, [-min(r + c, 8 - r - c) for r in range(5) for c in range(5)]


@claim("CE72", Same())
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


@claim("CE74", Same())
def bayes() -> Pair:
    """p(z|x) = p(x|z) p(z)/p(x) at fifty z, all by didact's normal densities: of a code, of what is seen of it, and of both together"""
    z = torch.linspace(-3, 3, 50)[:, None]
    mean, variance = gaba_9.POSTERIOR
    given = log_normal(gaba_9.X - gaba_9.A * z, 0.0, math.log(gaba_9.V))
    return (given + log_normal(z) - gaba_9.evidence()).exp(), log_normal(z, mean, math.log(variance)).exp()


@claim("CE75", Same(1e-6), right="minimise −Σ log f: the printed sign picks the least likely parameters")
def sign_of_the_loss() -> Corrected:
    """the σ in [0.5, 3] that minimises Σ log f_σ(x), didact's normal density, for data N(0, 1.5²), against √(mean x²); mended: −Σ log f"""
    x, σ = 1.5 * torch.randn(200), torch.linspace(0.5, 3, 251)
    density = Heteroscedastic()
    nll = torch.stack([density.loss(torch.stack([torch.zeros(200), (2 * s.log()).expand(200)], dim=1), x).sum() for s in σ])
    best = σ[(σ - x.square().mean().sqrt()).abs().argmin()]

    def beside(chosen: Tensor) -> Told:
        return Told((chosen, best), {"least at σ =": chosen, "√(mean x²) =": best})

    return Corrected(beside(σ[(-nll).argmin()]), beside(σ[nll.argmin()]))


@claim("CE76", Same())
def chain_rule() -> Pair:
    """p(x₁, x₂, x₃) = p(x₁) p(x₂|x₁) p(x₃|x₁, x₂): of all 27 sequences the products of what didact's GPT says add up to 1, and its
    p(x₂|x₁) is what the joint law gives"""
    net, x = GPT(3, context=4, dim=12, layers=1, heads=2).eval(), torch.cartesian_prod(*[torch.arange(3)] * 3)
    begun = torch.cat([torch.zeros(27, 1, dtype=torch.long), x[:, :2]], dim=1)                 # a first token that all share
    says = net(begun).softmax(-1)                                                              # (27, 3, 3)
    joint = says.gather(2, x[..., None]).prod(1).view(3, 3, 3)
    return [joint.sum(), joint.sum(2) / joint.sum((1, 2))[:, None]], [torch.ones(()), says[::9, 1]]


@claim("CE77", Same())
def masked_convolution() -> Pair:
    """pixels with a gradient at the middle of a 7 × 7 image through didact's 5 × 5 convolution masked from its centre on: above and to the
    left"""
    layer, x = MaskedConv2d(1, 1, (5, 5), "A"), torch.randn(1, 1, 7, 7, requires_grad=True)
    (g,) = torch.autograd.grad(layer(x)[0, 0, 3, 3], x)
    before = torch.zeros(7, 7)
    before[1:3, 1:6], before[3, 1:3] = 1, 1
    return (g[0, 0] != 0).double(), before


claim("CE78", NeverMore())(gaba_9.bound_and_equality)


@claim("CE79", NeverMore(), right="the divergence is to the prior: KL(q ‖ p(z))")
def last_line_of_the_proof() -> Corrected:
    """E_q log p(x|z) − KL(q ‖ p(z|x)) ≤ log p(x) for 21 normal q, didact's likelihood and divergences; mended: KL(q ‖ p(z))"""
    q, top = gaba_9.encoders(), gaba_9.evidence().expand(21)
    fit = gaba_9.fit(*q)
    return Corrected((fit - gaba_9.gap(*q), top), (fit - kl_to_standard(*q), top))


@claim("CE80", NeverMore(), right="KL(q(z|x) ‖ p(z)): p_θ(x) is a number, not a distribution over z")
def argument_of_the_divergence() -> Corrected:
    """E_q log p(x|z) − E_q log(q/p(x)) ≤ log p(x) for z ~ N(0, 1), x = 0.8 z + noise of variance 0.05, at x = 1.3 and q = p(z|x), by
    didact's normal densities; mended: KL(q ‖ p(z))"""
    a, noise, x = 0.8, 0.05, torch.tensor([1.3])
    variance = a**2 + noise
    μ, log_variance = a * x / variance, torch.tensor([noise / variance]).log()
    ε, w = gaba_8.normal_points()
    z = (μ + (0.5 * log_variance).exp() * ε)[:, None]
    fit, log_q = (w @ log_p for log_p in (log_normal(x - a * z, 0.0, math.log(noise)), log_normal(z, μ, log_variance)))
    top = log_normal(x, 0.0, math.log(variance))
    return Corrected((fit - (log_q - top), top), (fit - kl_to_standard(μ, log_variance), top))


@claim("CE85", Same(), right="1 for real and 0 for fake, as the objective of §11.3 has it")
def labels_of_the_game() -> Corrected:
    """binary cross-entropy with label 0 for real and 1 for fake against −log D(x) − log(1 − D(G(z))); mended: 1 and 0"""
    real, fake = torch.randn(20), torch.randn(20)
    bce = partial(F.binary_cross_entropy_with_logits, reduction="none")
    game, ones, zeros = tell_apart(real, fake), torch.ones(20), torch.zeros(20)
    return Corrected((bce(real, zeros) + bce(fake, ones), game), (bce(real, ones) + bce(fake, zeros), game))


@claim("CE87", Same())
def conditional_batch_norm() -> Pair:
    """didact's layer, and its 2 C numbers for each label, against γ^y (x − μ)/√(σ² + ε) + β^y with moments of the whole batch"""
    layer, x, y = ConditionalBatchNorm2d(3, 5), torch.randn(8, 3, 4, 4), torch.randint(5, (8,))
    with torch.no_grad():
        nn.init.normal_(layer.gamma.weight)
        nn.init.normal_(layer.beta.weight)
    normed = (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()
    γ, β = (table.weight[:, :, None, None] for table in (layer.gamma, layer.beta))
    by_hand = torch.stack([γ[k] * v + β[k] for v, k in zip(normed, y, strict=True)])
    return [layer(x, y), torch.tensor([parameters(layer)] * 2)], [by_hand, torch.tensor([5 * 2 * 3] * 2)]


@claim("CE81", Same(), right="the σ_j², entries of the covariance, are not squared again")
def divergence_of_the_encoder() -> Corrected:
    """½ Σ(1 + log Σ_j² − μ_j² − Σ_j²) with Σ the covariance, against −KL by didact; mended: with standard deviations"""
    μ, σ = torch.randn(6), torch.rand(6) + 0.2
    exact = -kl_to_standard(μ, 2 * σ.log()).sum()

    def formula(s: Tensor) -> Tensor:
        return 0.5 * (1 + (s**2).log() - μ**2 - s**2).sum()

    return Corrected((formula(σ**2), exact), (formula(σ), exact))


claim("CE82", Same(1e-6))(gaba_8.best_discriminator)


@claim("CE83", Same())
def value_at_the_best_discriminator() -> Told:
    """V(D*, G) = 2 JSD(p, q) − log 4, the left side by didact's losses, for twenty pairs and for q = p, where it is −log 4"""
    p, q = distributions(20), distributions(20)
    V, least = gaba_8.game_value((p / q).log(), p, q), gaba_8.game_value((p / p).log(), p, p)
    value = [V, least], [2 * gaba_8.jensen_shannon(p, q) - math.log(4), torch.full((20,), -math.log(4))]
    return Told(value, {"V of the first pair": V[0], "2 JSD − log 4": value[1][0][0], "V where q is p": least[0]})




@claim("CE84", Same(), right="the second numerator is p_G")
def second_expectation() -> Corrected:
    """E_data log(p/(p + g)) + E_G log(p/(p + g)) against didact's game at its best discriminator; mended: log(g/(p + g))"""
    p, g = distributions(20), distributions(20)
    value = gaba_8.game_value((p / g).log(), p, g)
    first = (p * (p / (p + g)).log()).sum(1)
    stated, mended = (first + (g * (top / (p + g)).log()).sum(1) for top in (p, g))
    return Corrected((stated, value), (mended, value))


claim("CE86", Same(1e-6))(gaba_8.saturation_of_the_generator)


def coupling() -> Coupling:
    """didact's layer on six numbers, of which the first three stay."""
    return Coupling(torch.tensor([1, 1, 1, 0, 0, 0]), stack((6, 8, 12), "tanh"))


@claim("CE88", Same(1e-6))
def inverse_of_a_coupling() -> Pair:
    """didact's coupling layer is (x₁, x₂ e^s + t), and (y₁, (y₂ − t) e^{−s}) of what it answers is x, as is its own way back"""
    layer, x = coupling(), torch.randn(9, 6)
    y, _ = layer(x)
    s, t = (v[:, 3:] for v in layer.bend(x))
    forth, back = torch.cat([x[:, :3], x[:, 3:] * s.exp() + t], dim=1), torch.cat([y[:, :3], (y[:, 3:] - t) * (-s).exp()], dim=1)
    return [forth, back, layer.inverse(y)], [y, x, x]


@claim("CE89", Same(1e-5))
def determinant_of_a_coupling() -> Pair:
    """log |det J| of didact's coupling layer = Σ s_j, which is what it says itself; the block of J above the diagonal is 0"""
    layer, x = coupling(), torch.randn(6)
    J = jacobian(lambda x: layer(x[None])[0][0], x)
    exact = J.det().abs().log()
    return [exact, exact, J[:3, 3:]], [layer.bend(x[None])[0].sum(), layer(x[None])[1], torch.zeros(3, 3)]


@claim("CE90", Same(1e-3))
def change_of_variables() -> Pair:
    """∫ p_z(f(x)) |det J_f(x)| dx = 1: for f(x) = x + ½ tanh x and a normal p_z, and over the plane for didact's RealNVP"""
    x = torch.linspace(-12, 12, 10_001)
    p = log_normal((x + 0.5 * x.tanh())[:, None]).exp() * slope(lambda x: x + 0.5 * x.tanh(), x)
    side = torch.linspace(-12, 12, 301)
    with torch.no_grad():
        plane = RealNVP(shape=(2,), hidden=8, steps=4)(torch.cartesian_prod(side, side)).exp().view(301, 301)
    return [torch.trapezoid(p, x), torch.trapezoid(torch.trapezoid(plane, side), side)], [1.0, 1.0]


@claim("CE91", Exactly(784))
def pixels_of_a_digit() -> int:
    """numbers of an image of didact's VAE for MNIST: inputs of its encoder, which its decoder gives back from codes of 20"""
    net = VAE(shape=(1, 28, 28), widths=(512,), latent=20)
    return net.decode(torch.zeros(1, 20)).numel()


@claim("CE94", Same(1e-6))
def coupling_without_shuffling() -> Pair:
    """scale and translation of a second pass through didact's coupling layer: those of the first, since x₁ does not change, so that two
    passes are (x₁, (x₂ e^s + t) e^s + t)"""
    layer, x = coupling(), torch.randn(5, 6)
    y, _ = layer(x)
    again, _ = layer(y)
    s, t = (v[:, 3:] for v in layer.bend(x))
    twice = torch.cat([x[:, :3], (x[:, 3:] * s.exp() + t) * s.exp() + t], dim=1)
    return [*layer.bend(y), again], [*layer.bend(x), twice]


@claim("CE68", NeverMore(), condition="a function of one variable; over flat triangles the interpolation can be steeper")
def interpolation_is_no_steeper() -> Cases:
    """the steepest piece of the interpolation of sin(5x) − x² at 3 … 40 points ≤ its largest slope on [0, 2], as steep, with 2,000 points,
    up to a thousandth; and the plane that interpolates sin(πx)/π at (0, 0), (1, 0), (0.5, 0.1) ≤ its largest slope on [0, 1]"""
    def f(x: Tensor) -> Tensor:
        return (5 * x).sin() - x**2       # steepest downhill

    def g(x: Tensor) -> Tensor:
        return (math.pi * x).sin() / math.pi

    steepest, other = slope(f, torch.linspace(0, 2, 20_001)).abs().max(), slope(g, torch.linspace(0, 1, 20_001)).abs().max()
    nodes = [torch.linspace(0, 2, n) for n in (*range(3, 41), 2000)]
    pieces = [(f(x).diff() / x.diff()).abs().max() for x in nodes]
    line = [*pieces, 0.999 * steepest], [steepest] * len(nodes) + [pieces[-1]]
    corners = torch.tensor([[0.0, 0, 1], [1, 0, 1], [0.5, 0.1, 1]])                     # x, y, 1
    plane = torch.linalg.solve(corners, g(corners[:, 0]))[:2].norm()
    told = {"slope through 3, 10 and 40 points": [pieces[n - 3] for n in (3, 10, 40)], "of the target": steepest}
    return Cases(Told(line, told), Told((plane, other), {"slope over the triangle": plane, "of the target": other}))


@claim("CE73", Same(), right="r + γ max_{a′} q*(s′, a′), which is q*(s, a); r + γ q*(s, a) counts r twice")
def optimal_action() -> Corrected:
    """the action with the largest r + γ q*(s, a) against the one with the largest return, of two with rewards 1 and 0 that lead to states
    worth 0 and 1.2, γ = 0.9; mended: r + γ max q*(s′, ·)"""
    r, γ, after = torch.tensor([1.0, 0.0]), 0.9, torch.tensor([[-1.0, 0.0], [1.2, 0.3]])     # rewards of a′ in s′, where all ends
    q = (r[:, None] + γ * after).amax(1)

    def chosen(by: Tensor) -> Told:
        return Told((by.argmax(), q.argmax()), {"scores of the two actions": by, "return of the chosen": q[by.argmax()], "best": q.max()})

    return Corrected(chosen(r + γ * q), chosen(r + γ * after.amax(1)))
