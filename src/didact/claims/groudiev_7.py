"""Groudiev, chapters 7 to 12: theory, decisions, generative models."""

import math
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact.claims import gaba_8, gaba_9
from didact.claims.compare import Cases, Corrected, Exactly, NeverMore, Rising, Same
from didact.claims.core import claim
from didact.claims.gaba_8 import distributions, divergence
from didact.claims.tools import Pair, parameters, slope
from didact.layers.adain import ConditionalBatchNorm2d
from didact.models.vae import VAE
from didact.objectives.adversarial import tell_apart


@claim("CE59", Same())
def derivative_of_a_composition() -> Pair:
    """the derivative of f∘…∘f, L = 1 … 12 times, for f(x) = c x with c = 0.7, against c^L"""
    def composed(x: Tensor, L: int) -> Tensor:
        for _ in range(L):
            x = 0.7 * x
        return x

    return [slope(partial(composed, L=L), torch.ones(1)) for L in range(1, 13)], [0.7**L for L in range(1, 13)]


@claim("CE62", Same())
def variance_of_a_uniform_law() -> Pair:
    """U(−r, r) has variance r²/3, which is 2/d for r = √(6/d)"""
    d = torch.tensor([10.0, 256, 784])
    r = (6 / d).sqrt()
    return [torch.distributions.Uniform(-r, r).variance, r**2 / 3], [2 / d, 2 / d]


@claim("CE63", Same(), condition="layers of equal width; else 4/(d + d′) is below the average of 2/d and 2/d′")
def average_heuristic() -> Cases:
    """4/(d + d′) against the mean of 2/d and 2/d′: equal widths, and 784 with 10"""
    def both(d: float, other: float) -> Pair:
        return 4 / (d + other), (2 / d + 2 / other) / 2

    return Cases(both(256, 256), both(784, 10))


@claim("CE64", Same(1e-3))
def bound_of_xavier() -> Pair:
    """r = √(6c²/(d + d′)): the largest of 800,000 weights that torch's xavier_uniform_ draws with gain c = 5/3"""
    w, c = nn.init.xavier_uniform_(torch.empty(1000, 800), gain=5 / 3), 5 / 3
    return w.abs().max(), math.sqrt(6 * c**2 / 1800)


@claim("CE67", NeverMore())
def lipschitz_constant() -> Pair:
    """‖J(x)‖ at fifty points of a ReLU network ≤ the product of its layers' spectral norms"""
    net = nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 3))
    bound = math.prod(float(torch.linalg.matrix_norm(m.weight.detach(), 2)) for m in net if isinstance(m, nn.Linear))
    seen = [torch.linalg.matrix_norm(jacobian(net, torch.randn(5)), 2) for _ in range(50)]
    return seen, [bound] * 50


@claim("CE69", Rising())
def remainder_of_the_linearisation() -> list[Tensor]:
    """‖g(x + ε) − g(x) − Jε‖/‖ε‖ for ‖ε‖ = 1e-5, 1e-4, …, 0.1: it tends to 0"""
    g, x, u = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(4), F.normalize(torch.randn(4), dim=0)
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
    """Values after 60 sweeps of v ← max_a(−1 + v(s′)), 0 in two opposite corners; and where each action leads."""
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    leads = [[min(n - 1, max(0, r + dr)) * n + min(n - 1, max(0, c + dc)) for dr, dc in moves] for r in range(n) for c in range(n)]
    v = torch.zeros(n * n)
    for _ in range(60):
        v = (-1 + v[torch.tensor(leads)]).amax(1)
        v[[0, -1]] = 0.0
    return v, leads


@claim("CE71", Same())
def values_of_the_grid() -> Pair:
    """optimal values of the 5 × 5 grid with reward −1 against minus the steps to the nearer corner"""
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
    """p(x|y) = p(y|x) p(x)/p(y), from a joint table"""
    joint = torch.rand(4, 5)
    joint = joint / joint.sum()
    x, y = joint.sum(1), joint.sum(0)
    return (joint / x[:, None]) * x[:, None] / y, joint / y


@claim("CE75", Same(1e-6), right="minimise −Σ log f: the printed sign picks the least likely parameters")
def sign_of_the_loss() -> Corrected:
    """the σ that minimises Σ log f_σ(x) for normal data, against the one of largest likelihood; mended: −Σ log f"""
    x, σ = 1.5 * torch.randn(200), torch.linspace(0.5, 3, 251)
    log_f = torch.distributions.Normal(0.0, σ[:, None]).log_prob(x).sum(1)
    best = σ[(log_f - log_f.max()).exp().argmax()]
    return Corrected((σ[log_f.argmin()], best), (σ[(-log_f).argmin()], best))


@claim("CE76", Same())
def chain_rule() -> Pair:
    """p(x₁, x₂, x₃) = p(x₁) p(x₂|x₁) p(x₃|x₁, x₂), for a random joint law"""
    joint = torch.rand(3, 4, 2)
    joint = joint / joint.sum()
    one, two = joint.sum((1, 2)), joint.sum(2)
    return one[:, None, None] * (two / one[:, None])[..., None] * (joint / two[..., None]), joint


@claim("CE77", Same())
def masked_convolution() -> Pair:
    """pixels with a gradient at the middle of a 7 × 7 image through a 5 × 5 kernel masked from its centre on: above and to the left"""
    mask = torch.ones(5, 5)
    mask[2, 2:], mask[3:] = 0, 0
    x = torch.randn(1, 1, 7, 7, requires_grad=True)
    (g,) = torch.autograd.grad(F.conv2d(x, (torch.rand(5, 5) + 0.1)[None, None] * mask, padding=2)[0, 0, 3, 3], x)
    seen = (g[0, 0] != 0).double()
    before = torch.zeros(7, 7)
    before[1:3, 1:6], before[3, 1:3] = 1, 1
    return seen, before


claim("CE78", NeverMore())(gaba_9.bound_and_equality)


@claim("CE79", NeverMore(), right="the divergence is to the prior: KL(q ‖ p(z))")
def last_line_of_the_proof() -> Corrected:
    """E_q log p(x|z) − KL(q ‖ p(z|x)) ≤ log p(x) for twenty q; mended: KL(q ‖ p(z))"""
    joint, prior, q = gaba_9.discrete_model()
    q = torch.cat([q, (joint / joint.sum())[None], (prior * (joint / prior) ** 3 / (prior * (joint / prior) ** 3).sum())[None]])
    fit, top = (q * (joint / prior).log()).sum(1), joint.sum().log().expand(22)
    return Corrected((fit - divergence(q, joint / joint.sum()), top), (fit - divergence(q, prior), top))


@claim("CE80", Same(), right="KL(q(z|x) ‖ p(z)): p_θ(x) is a number, not a distribution over z")
def argument_of_the_divergence() -> Corrected:
    """E_q log p(x|z) − Σ_z q log(q/p(x)) + KL(q ‖ p(z|x)) against log p(x), twenty q on a small model; mended: q/p(z)"""
    joint, prior, q = gaba_9.discrete_model()
    fit, evidence = (q * (joint / prior).log()).sum(1), joint.sum()
    gap, top = divergence(q, joint / evidence), evidence.log().expand(len(q))
    return Corrected((fit - (q * (q / evidence).log()).sum(1) + gap, top), (fit - divergence(q, prior) + gap, top))


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
    """½ Σ(1 + log Σ_j² − μ_j² − Σ_j²) with Σ the covariance, against −KL by torch; mended: with standard deviations"""
    μ, σ = torch.randn(6), torch.rand(6) + 0.2
    normal = torch.distributions.Normal
    exact = -torch.distributions.kl_divergence(normal(μ, σ), normal(torch.zeros(6), torch.ones(6))).sum()

    def formula(s: Tensor) -> Tensor:
        return 0.5 * (1 + (s**2).log() - μ**2 - s**2).sum()

    return Corrected((formula(σ**2), exact), (formula(σ), exact))


claim("CE82", Same(1e-6))(gaba_8.best_discriminator)
claim("CE83", Same())(gaba_8.value_of_the_game)


@claim("CE84", Same(), right="the second numerator is p_G")
def second_expectation() -> Corrected:
    """E_data log(p/(p + g)) + E_G log(p/(p + g)) against −log 4 + 2 JSD; mended: log(g/(p + g))"""
    p, g = distributions(20), distributions(20)
    right = -math.log(4) + 2 * gaba_8.jensen_shannon(p, g)
    first = (p * (p / (p + g)).log()).sum(1)
    stated, mended = (first + (g * (top / (p + g)).log()).sum(1) for top in (p, g))
    return Corrected((stated, right), (mended, right))


claim("CE86", Rising())(gaba_8.saturation_of_the_generator)


class Coupling(nn.Module):
    """y = (x₁, x₂ e^{s(x₁)} + t(x₁)), three numbers each."""

    def __init__(self) -> None:
        super().__init__()
        self.s, self.t = (nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat([x1, x2 * self.s(x1).exp() + self.t(x1)], dim=-1)

    def inverse(self, y: Tensor) -> Tensor:
        y1, y2 = y.chunk(2, dim=-1)
        return torch.cat([y1, (y2 - self.t(y1)) * (-self.s(y1)).exp()], dim=-1)


@claim("CE88", Same())
def inverse_of_a_coupling() -> Pair:
    """(y₁, (y₂ − t(y₁)) e^{−s(y₁)}) gives x back"""
    layer, x = Coupling(), torch.randn(9, 6)
    return layer.inverse(layer(x)), x


@claim("CE89", Same())
def determinant_of_a_coupling() -> Pair:
    """log |det J| = Σ s_j, and the block of J above the diagonal is 0"""
    layer, x = Coupling(), torch.randn(6)
    J = jacobian(layer, x)
    return [J.det().abs().log(), J[:3, 3:]], [layer.s(x[:3]).sum(), torch.zeros(3, 3)]


@claim("CE90", Same(1e-6))
def change_of_variables() -> Pair:
    """∫ p_z(f(x)) |f′(x)| dx = 1 for f(x) = x + ½ tanh x and a normal p_z"""
    x = torch.linspace(-12, 12, 100_001)
    p = torch.distributions.Normal(0.0, 1.0).log_prob(x + 0.5 * x.tanh()).exp()
    return torch.trapezoid(p * slope(lambda x: x + 0.5 * x.tanh(), x), x), 1.0


@claim("CE91", Exactly(784))
def pixels_of_a_digit() -> int:
    """inputs of the first layer of didact's VAE for 28 × 28 images; its codes have 20 numbers"""
    net = VAE(shape=(1, 28, 28), widths=(512,), latent=20)
    assert net.encode(torch.zeros(2, 1, 28, 28))[0].shape == (2, 20)
    return next(m.in_features for m in net.modules() if isinstance(m, nn.Linear))


@claim("CE94", Same())
def coupling_without_shuffling() -> Pair:
    """scale and translation of a second pass through the same coupling layer: those of the first, since x₁ does not change"""
    layer, x = Coupling(), torch.randn(5, 6)
    y = layer(x)
    return [layer.s(y[:, :3]), layer.t(y[:, :3])], [layer.s(x[:, :3]), layer.t(x[:, :3])]


@claim("CE68", NeverMore())
def interpolation_is_no_steeper() -> Pair:
    """the steepest piece of the interpolation of sin(5x) + x² at 3 … 40 points ≤ its largest slope on [0, 2]"""
    fine = torch.linspace(0, 2, 20_001)
    steepest = slope(lambda x: (5 * x).sin() + x**2, fine).abs().max()
    nodes = [torch.linspace(0, 2, n) for n in range(3, 41)]
    pieces = [((((5 * x).sin() + x**2).diff() / x.diff()).abs().max()) for x in nodes]
    return pieces, [steepest] * len(nodes)


@claim("CE73", Same(1e-6), right="the value of what follows: r + γ max_{a′} q*(s′, a′)")
def optimal_action() -> Corrected:
    """q*(s, a) against r + γ q*(s, a), for four states and three actions that lead to known states; mended: r + γ max q*(s′, ·)"""
    leads, r, γ, q = torch.randint(4, (4, 3)), torch.randn(4, 3), 0.9, torch.zeros(4, 3)
    for _ in range(400):
        q = r + γ * q.amax(1)[leads]
    return Corrected((r + γ * q, q), (r + γ * q.amax(1)[leads], q))
