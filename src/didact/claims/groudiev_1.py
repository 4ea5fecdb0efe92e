"""Groudiev, chapters 1 to 3: gradients, PyTorch, losses, optimizers."""

import math
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact import metrics
from didact.claims import gaba_1, gaba_2
from didact.claims.compare import Cases, Corrected, Exactly, Rising, Same
from didact.claims.core import claim
from didact.claims.gaba_3 import after_one_step
from didact.claims.tools import Pair, gradients, parameters
from didact.registry import create
from didact.scratch import tensor
from didact.scratch.ways.numerical import forward_difference
from didact.scratch.ways.symbolic import swell


@claim("CE01", Same(), right="1[y ≠ y′] counts mistakes: it is the 0–1 loss, and accuracy is 1 less its mean")
def accuracy() -> Corrected:
    """the mean of 1[y ≠ y′] against didact's accuracy; mended: 1 minus it"""
    scores, y = torch.randn(50, 4), torch.randint(4, (50,))
    loss = (scores.argmax(1) != y).double().mean()
    return Corrected((loss, metrics.accuracy(scores, y)), (1 - loss, metrics.accuracy(scores, y)))


@claim("CE02", Same(), right="the minus sign is missing: −(y log ŷ + (1 − y) log(1 − ŷ))")
def logistic_loss() -> Corrected:
    """y log ŷ + (1 − y) log(1 − ŷ) against torch's binary cross-entropy; mended: with a minus"""
    p, y = torch.rand(20), torch.randint(2, (20,)).double()
    printed, theirs = y * p.log() + (1 - y) * (1 - p).log(), F.binary_cross_entropy(p, y, reduction="none")
    return Corrected((printed, theirs), (-printed, theirs))


@claim("CE03", Exactly((3.0, 3.0, -4.0, -4.0, -4.0)))
def worked_graph() -> tuple[float, ...]:
    """q = x + y, f = q z at (−2, 5, −4): q, ∂f/∂z, ∂f/∂q, ∂f/∂y, ∂f/∂x, by didact's own engine"""
    x, y, z = (tensor(v, requires_grad=True) for v in (-2.0, 5.0, -4.0))
    q = x + y
    (q * z).backward()
    again = tensor(q.data, requires_grad=True)
    (again * z.detach()).backward()
    return tuple(float(v) for v in (q.data, z.grad, again.grad, y.grad, x.grad))  # type: ignore[arg-type]


@claim("CE04", Rising())
def round_off() -> list[float]:
    """error of (f(x + h) − f(x))/h for sin at 1: with h = 1e-8, and with h = 1e-14"""
    exact = torch.tensor(1.0).cos().item()
    return [abs(float(forward_difference(lambda x: torch.from_numpy(x).sin().sum().item(), [1.0], h)[0]) - exact) for h in (1e-8, 1e-14)]


@claim("CE05", Rising())
def swell_of_expressions() -> list[float]:
    """symbols in the derivative of the logistic map iterated n times over those of n − 1, above 1.9 for n = 9 and 10"""
    rows = swell(10)
    return [1.9, min(b.unsimplified / a.unsimplified for a, b in pairwise(rows[7:]))]


claim("CE06", Same())(gaba_1.derivative_of_the_sigmoid)


@claim("CE07", Same())
def chain_of_jacobians() -> Pair:
    """the Jacobian of Wx is W, and J_{f∘g}(a) = J_f(g(a)) J_g(a)"""
    W, a = torch.randn(4, 3), torch.randn(3)
    f, g = nn.Sequential(nn.Linear(4, 5), nn.Tanh()), nn.Sequential(nn.Linear(3, 4), nn.Sigmoid())
    whole = jacobian(lambda x: f(g(x)), a)
    return [jacobian(lambda x: W @ x, a), whole], [W, jacobian(f, g(a).detach()) @ jacobian(g, a)]


@claim("CE08", Exactly("torch.int64"), right="torch.tensor takes a dtype; torch.Tensor is the class of one type of numbers")
def tensor_with_a_type() -> str:
    """torch.Tensor([1, 2], dtype=torch.int64).dtype"""
    try:
        return str(torch.Tensor([1, 2], dtype=torch.int64).dtype)  # type: ignore[call-overload]
    except TypeError as error:
        return f"TypeError: {str(error).splitlines()[0]}"


@claim("CE09", Exactly("a copy"), right="detach shares the numbers; detach().clone() copies them")
def detached() -> str:
    """where x.detach() keeps its numbers"""
    x = torch.randn(3, requires_grad=True)
    return "the same memory" if x.detach().data_ptr() == x.data_ptr() else "a copy"


@claim("CE10", Exactly(((1, 3, 2), (6,), (1, 2, 3))))
def views() -> tuple[tuple[int, ...], ...]:
    """view(1, 3, −1), view(−1) and unsqueeze(0) of a 2 × 3 tensor"""
    x = torch.zeros(2, 3)
    return tuple(tuple(y.shape) for y in (x.view(1, 3, -1), x.view(-1), x.unsqueeze(0)))


@claim("CE11", Exactly("an error"), right="sizes are matched from the right and 1 is stretched: broadcasting")
def sizes_that_differ() -> str:
    """a 2 × 3 tensor plus one of 3 numbers"""
    try:
        return f"a tensor of {tuple((torch.zeros(2, 3) + torch.zeros(3)).shape)}"
    except RuntimeError:
        return "an error"


@claim("CE12", Exactly("a warning"))
def target_of_another_shape() -> str:
    """nn.MSELoss of predictions [N, 1] and targets [N]"""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        nn.MSELoss()(torch.zeros(5, 1), torch.zeros(5))
    return "a warning" if any("target size" in str(w.message) for w in seen) else "nothing"


@claim("CE13", Same(), right="nn.MSELoss divides by the number of elements")
def squared_error() -> Corrected:
    """‖x − y‖² against nn.MSELoss; mended: over its 12 elements"""
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    return Corrected(((x - y).square().sum(), nn.MSELoss()(x, y)), ((x - y).square().sum() / 12, nn.MSELoss()(x, y)))


@claim("CE14", Same())
def likelihood_and_squares() -> Pair:
    """the θ of a line of 4001 that has the largest normal likelihood, and the one of least squares"""
    x, θ = torch.randn(30), torch.linspace(-1, 4, 4001)
    y = 1.7 * x + 0.3 * torch.randn(30)
    residual = y - θ[:, None] * x
    likelihood = torch.distributions.Normal(0.0, 0.3).log_prob(residual).sum(1)
    return θ[likelihood.argmax()], θ[residual.square().mean(1).argmin()]


@claim("CE15", Same())
def cross_entropy() -> Pair:
    """CrossEntropyLoss = NLLLoss ∘ LogSoftmax = −log softmax_y"""
    z, y = torch.randn(20, 5), torch.randint(5, (20,))
    composed = nn.NLLLoss()(nn.LogSoftmax(dim=1)(z), y)
    return [composed, -z.softmax(1)[torch.arange(20), y].log().mean()], [nn.CrossEntropyLoss()(z, y)] * 2


@claim("CE16", Exactly((False, True)))
def dangerous_softmax() -> tuple[bool, bool]:
    """is −log softmax_y of the logits (0, 1000) finite, and is CrossEntropyLoss"""
    z, y = torch.tensor([[0.0, 1000.0]]), torch.tensor([0])
    return bool((-z.softmax(1).log()[0, 0]).isfinite()), bool(F.cross_entropy(z, y).isfinite())


@claim("CE17", Same(), right="log P = g_k + constant, that is P ∝ exp g_k")
def log_probabilities() -> Corrected:
    """log P(k)/g_k the same for all k; mended: log P(k) − g_k the same for all k"""
    g = torch.tensor([0.5, 1.0, 2.5, -1.0])
    ratio, difference = g.log_softmax(0) / g, g.log_softmax(0) - g
    return Corrected((ratio, ratio[:1].expand(4)), (difference, difference[:1].expand(4)))


@claim("CE18", Exactly(138_357_544))
def parameters_of_vgg16() -> int:
    """all layers, for 224 × 224 images and 1000 classes"""
    with torch.device("meta"):  # counted without being drawn
        return parameters(create("vgg16"))


@claim("CE19", Same(), right="θ − η∇L_i(θ): the gradient, not the loss")
def step_without_a_gradient() -> Corrected:
    """θ − η L_i(θ) against torch's SGD; mended: θ − η∇L_i(θ)"""
    θ, η = torch.randn(4, requires_grad=True), 0.1
    loss = (θ.square().sum() - 1) ** 2
    (g,) = gradients(loss, θ)
    theirs = after_one_step(torch.optim.SGD, θ.detach(), g, lr=η)
    return Corrected((θ - η * loss, theirs), (θ - η * g, theirs))


def momentum(grads: Tensor, γ: float, rates: Tensor) -> list[Tensor]:
    """v_{t+1} = γ v_t + η_t ∇_t from v_0 = 0."""
    v, found = torch.zeros(grads.shape[1]), []
    for g, η in zip(grads, rates, strict=True):
        v = γ * v + η * g
        found.append(v)
    return found


@claim("CE25", Same(), right="the old velocity is multiplied k + 1 times: γ^{k+1} v_{t−k}")
def unrolled_momentum() -> Corrected:
    """γᵏ v_{t−k} + η Σ_{i≤k} γⁱ∇_{t−i} against v_{t+1}, k = 3; mended: γ^{k+1}"""
    g, γ, η, t, k = torch.randn(10, 4), 0.8, 0.1, 8, 3
    v = [torch.zeros(4), *momentum(g, γ, torch.full((10,), η))]
    tail = η * sum((γ**i * g[t - i] for i in range(k + 1)), torch.zeros(4))
    return Corrected((γ**k * v[t - k] + tail, v[t + 1]), (γ ** (k + 1) * v[t - k] + tail, v[t + 1]))


@claim("CE26", Same())
def closed_form_of_momentum() -> Pair:
    """v_{t+1} = η Σ_{i≤t} γ^{t−i}∇_i from v_0 = 0"""
    g, γ, η, t = torch.randn(10, 4), 0.8, 0.1, 9
    return η * sum((γ ** (t - i) * g[i] for i in range(t + 1)), torch.zeros(4)), momentum(g, γ, torch.full((10,), η))[-1]


@claim("CE27", Same(), condition="a constant learning rate; with a schedule the two part, because η inside the buffer remembers old rates")
def two_conventions_of_momentum() -> Cases:
    """θ with η inside the buffer against torch's SGD, over 20 steps: η constant, and η halved after 10"""
    g = torch.randn(20, 4)

    def both(rates: Tensor) -> Pair:
        θ = torch.zeros(4, requires_grad=True)
        sgd = torch.optim.SGD([θ], lr=1.0, momentum=0.9)
        for step, rate in zip(g, rates.tolist(), strict=True):
            sgd.param_groups[0]["lr"], θ.grad = rate, step.clone()
            sgd.step()
        return -torch.stack(momentum(g, 0.9, rates)).sum(0), θ

    return Cases(both(torch.full((20,), 0.1)), both(torch.cat([torch.full((10,), 0.1), torch.full((10,), 0.05)])))


@claim("CE28", Same())
def nesterov() -> Pair:
    """θ_t − γ v_t of the course's rule, with its gradients at that point, follows torch's SGD(nesterov=True) over 15 steps"""
    A, γ, η = torch.diag(torch.tensor([1.0, 4.0])), 0.9, 0.05
    θ, v = torch.tensor([1.0, -2.0]), torch.zeros(2)
    w = θ.clone().requires_grad_()
    sgd, ours, theirs = torch.optim.SGD([w], lr=η, momentum=γ, nesterov=True), [], []
    for _ in range(15):
        v = γ * v + η * A @ (θ - γ * v)
        θ = θ - v
        w.grad = A @ w.detach()
        sgd.step()
        ours.append(θ - γ * v)
        theirs.append(w.detach().clone())
    return ours, theirs


def first_step(make: Callable[[list[Tensor]], torch.optim.Optimizer], g: Tensor) -> Tensor:
    """How far an optimizer goes in its first step."""
    θ = torch.zeros(len(g), requires_grad=True)
    θ.grad = g.clone()
    make([θ]).step()
    return -θ.detach()


LARGE, SMALL = torch.tensor([1.0, 30.0, -2.0], dtype=torch.float64), torch.tensor([1e-3, 1e-5, -1e-4], dtype=torch.float64)
OUTSIDE = "gradients far above √ε = 1e-4; PyTorch adds ε outside the root, and small gradients then still count"


@claim("CE29", Same(1e-6), condition=OUTSIDE)
def adagrad() -> Cases:
    """the first step η g/√(s + ε), ε = 1e-8, against torch's Adagrad: gradients above 1, and below 0.001"""
    make = partial(torch.optim.Adagrad, lr=0.01, eps=1e-8)
    return Cases(*((0.01 * g / (g**2 + 1e-8).sqrt(), first_step(make, g)) for g in (LARGE, SMALL)))


@claim("CE30", Same(1e-6), condition=OUTSIDE)
def rmsprop() -> Cases:
    """the first step η g/√(s + ε) with s = 0.1 g², against torch's RMSprop: gradients above 1, and below 0.001"""
    make = partial(torch.optim.RMSprop, lr=0.001, alpha=0.9, eps=1e-8)
    return Cases(*((0.001 * g / (0.1 * g**2 + 1e-8).sqrt(), first_step(make, g)) for g in (LARGE, SMALL)))


claim("CE31", Same())(gaba_2.bias_correction)


@claim("CE32", Same(1e-6), condition="late steps, where 1 − βᵗ is 1; PyTorch keeps Adam's corrections before, the paper has none")
def amsgrad() -> Cases:
    """a step m/(√max v + ε) from given m, v and max v, against torch's Adam(amsgrad=True): step 100,000, and step 3"""
    g, m, v, top = torch.randn(4), torch.randn(4), torch.rand(4), torch.rand(4)
    m1, v1 = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    stated = 0.01 * m1 / (torch.maximum(top, v1).sqrt() + 1e-8)

    def theirs(t: float) -> Tensor:
        w = torch.zeros(4, requires_grad=True)
        w.grad = g.clone()
        adam = torch.optim.Adam([w], lr=0.01, amsgrad=True)
        state = {"step": torch.tensor(t - 1), "exp_avg": m.clone(), "exp_avg_sq": v.clone(), "max_exp_avg_sq": top.clone()}
        adam.state[w] = state
        adam.step()
        return -w.detach()

    return Cases((stated, theirs(100_000.0)), (stated, theirs(3.0)))


SMOOTHER = "; with Lipschitz gradients, as assumed there, a grid comes within t^(−2/d)"


@claim("CE24", Same(1e-6), condition=f"a bounded slope is all that is known{SMOOTHER}")
def worst_case_of_a_grid() -> Cases:
    """how the least value on an even grid of t points in [0, 1]^d falls with t, for the worst place c of the minimum, d = 1, 2, 3, against
    −1/d: of ‖θ − c‖, and of ‖θ − c‖²"""
    def exponent(power: int, d: int) -> float:
        few, many = (float(torch.cdist(grid(n, d), torch.zeros(1, d)).pow(power).min()) for n in (4, 8))   # a corner is farthest away
        return math.log(many / few) / math.log(8**d / 4**d)

    def grid(n: int, d: int) -> Tensor:
        side = (torch.arange(n) + 0.5) / n
        return torch.cartesian_prod(*[side] * d).reshape(-1, d)

    stated = [-1 / d for d in (1, 2, 3)]
    return Cases(*(([exponent(power, d) for d in (1, 2, 3)], stated) for power in (1, 2)))
