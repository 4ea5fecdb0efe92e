"""Groudiev, chapter 3: optimization and loss functions."""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from didact import scratch
from didact.claims.forms import Conditional, CorrectedClaim, Display, Equal, Exactly
from didact.claims.helpers import Pair, compute_gradients, count_parameters
from didact.claims.registry import claim
from didact.objectives.distributions.classification import Categorical
from didact.objectives.distributions.regression import Heteroscedastic, Normal
from didact.registry import create_model
from didact.scratch import losses
from didact.scratch.optim import SGD, AdaGrad, AMSGrad, Optimizer, RMSProp, update_average


def to_scratch(x: Tensor, *, grad: bool = False) -> scratch.Tensor:
    """The same numbers as a tensor of didact's own engine."""
    return scratch.tensor(x.detach().numpy().copy(), requires_grad=grad)


def optimizer_path(
    make_optimizer: Callable[[list[scratch.Tensor]], Optimizer], grads: Tensor, rates: Sequence[float] = ()
) -> list[Tensor]:
    """Parameters of one of didact's optimizers after each of these gradients, from 0."""
    θ = to_scratch(torch.zeros(grads.shape[1]), grad=True)
    optimizer, positions = make_optimizer([θ]), []
    for t, g in enumerate(grads):
        optimizer.lr, θ.grad = rates[t] if len(rates) else optimizer.lr, g.numpy().copy()
        optimizer.step()
        positions.append(torch.from_numpy(θ.data.copy()))
    return positions


@claim(
    "CE08",
    Exactly("torch.int64"),
    correction="torch.tensor takes a dtype; torch.Tensor(…) takes none and gives the default float type",
)
def tensor_with_a_type() -> str:
    """torch.Tensor([1, 2], dtype=torch.int64).dtype"""
    try:
        return str(torch.Tensor([1, 2], dtype=torch.int64).dtype)  # type: ignore[call-overload]
    except TypeError as error:
        return f"TypeError: {str(error).partition(' - ')[0]}"


@claim("CE09", Exactly("a copy"), correction="detach shares the memory; detach().clone() copies it")
def memory_of_a_detached_tensor() -> str:
    """whether x.detach() shares its memory with x or copies it"""
    x = torch.randn(3, requires_grad=True)
    return "the same memory" if x.detach().data_ptr() == x.data_ptr() else "a copy"


@claim("CE10", Exactly(((1, 3, 2), (6,), (1, 2, 3))))
def views() -> tuple[tuple[int, ...], ...]:
    """view(1, 3, −1), view(−1) and unsqueeze(0) of a 2 × 3 tensor"""
    x = torch.zeros(2, 3)
    return tuple(tuple(y.shape) for y in (x.view(1, 3, -1), x.view(-1), x.unsqueeze(0)))


@claim("CE11", Exactly("an error"), correction="sizes are matched from the right and 1 is expanded: broadcasting")
def sizes_that_differ() -> str:
    """a 2 × 3 tensor plus one of 3 numbers"""
    try:
        return f"a tensor of {tuple((torch.zeros(2, 3) + torch.zeros(3)).shape)}"
    except RuntimeError:
        return "an error"


@claim("CE12", Exactly("a warning"), remark="where the predictions are [N, 1]; with both [N] the loss is right")
def target_of_another_shape() -> Display:
    """nn.MSELoss of five predictions [N, 1] and their targets, [N, 1] as they should be and [N]"""
    x, y, mse = torch.randn(5, 1), torch.randn(5, 1), nn.MSELoss()
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        mixed_loss = mse(x, y[:, 0])
    has_warning = any("target size" in str(w.message) for w in caught_warnings)
    return Display(
        "a warning" if has_warning else "nothing",
        {"loss with targets [N, 1]": mse(x, y), "with [N]": mixed_loss, "warned": has_warning},
    )


@claim("CE13", Equal(), condition="reduction='sum'; the default divides by the number of elements")
def squared_error() -> Conditional:
    """‖x − y‖² of one pair of three numbers against nn.MSELoss and didact's own: with reduction='sum', and by
    default"""
    x, y = torch.randn(1, 3), torch.randn(1, 3)

    def both(**reduction: Any) -> Pair:
        return [(x - y).square().sum()] * 2, [
            nn.MSELoss(**reduction)(x, y),
            float(losses.mse_loss(to_scratch(x), y.numpy(), **reduction).data),
        ]

    return Conditional(both(reduction="sum"), both())


@claim("CE14", Equal(), remark="the last line lacks the sum over the examples: exp(−Σ_i ℓ_i/(2σ²))")
def likelihood_and_squares() -> Pair:
    """the θ on a grid of 801 with the largest normal likelihood, by didact's density of standard deviation 0.3, and the
    one with the least mean squared error, against the one nearest to Σxy/Σx²"""
    x, θ = torch.randn(30), torch.linspace(-1, 4, 801)
    y = 1.7 * x + 0.3 * torch.randn(30)
    log_variance, density, squares = torch.full((30,), 2 * math.log(0.3)), Heteroscedastic(), Normal()
    nll = torch.stack([density.mean_loss(torch.stack([t * x, log_variance], dim=1), y) for t in θ])
    mse = torch.stack([squares.mean_loss((t * x)[:, None], y) for t in θ])
    closed_form = θ[(θ - (x * y).sum() / (x * x).sum()).abs().argmin()]
    return [θ[nll.argmin()], θ[mse.argmin()]], [closed_form, closed_form]


@claim("CE15", Equal())
def cross_entropy() -> Pair:
    """NLLLoss ∘ LogSoftmax of didact's engine, and −log softmax_y, against didact's cross-entropy and
    nn.CrossEntropyLoss"""
    z, y = torch.randn(20, 5), torch.randint(5, (20,))
    composed = losses.nll_loss(to_scratch(z).log_softmax(1), y.numpy()).data
    by_hand = -(z.exp()[torch.arange(20), y] / z.exp().sum(1)).log().mean()
    return [float(composed), by_hand] * 2, [Categorical(5).mean_loss(z, y)] * 2 + [nn.CrossEntropyLoss()(z, y)] * 2


@claim("CE16", Exactly((False, True)))
def dangerous_softmax() -> Display:
    """for the logits (0, 1000) and class 0: is the gradient of −log of didact's probabilities finite, and is that of
    its cross-entropy, PyTorch's, softmax(z) − y = (−1, 1)"""
    z, y, classes = torch.tensor([[0.0, 1000.0]], requires_grad=True), torch.tensor([0]), Categorical(2)
    (softmax_gradient,) = compute_gradients(-classes.probabilities(z).log()[0, 0], z)
    (cross_entropy_gradient,) = compute_gradients(classes.mean_loss(z, y), z)
    value = bool(softmax_gradient.isfinite().all()), cross_entropy_gradient.tolist() == [[-1.0, 1.0]]
    return Display(
        value, {"gradient through the softmax": softmax_gradient, "of the cross-entropy": cross_entropy_gradient}
    )


@claim("CE17", Equal(), correction="log P = g_k + constant, that is P ∝ exp g_k")
def log_probabilities() -> CorrectedClaim:
    """log P(k)/g_k the same for all k, P by didact's likelihood of classes; corrected: log P(k) − g_k the same for all
    k, −log Σ exp g"""
    g = torch.tensor([0.5, 1.0, 2.5, -1.0])
    log_p = Categorical(4).log_p(g)
    return CorrectedClaim((log_p / g, (log_p / g)[:1].expand(4)), (log_p - g, -g.exp().sum().log().expand(4)))


@claim("CE18", Exactly(138_357_544))
def parameters_of_vgg16() -> int:
    """all layers, for 224 × 224 images and 1000 classes"""
    with torch.device("meta"):  # counted without being allocated
        return count_parameters(create_model("vgg16"))


@claim("CE19", Equal(), correction="θ − η∇L_i(θ): the gradient, not the loss")
def step_without_a_gradient() -> CorrectedClaim:
    """θ − η L_i(θ) against didact's SGD on L = (‖θ‖² − 1)², its gradient by didact's engine; corrected: θ − η ∇L, which
    is 4(‖θ‖² − 1) θ"""
    start, η = torch.randn(4), 0.1
    θ = to_scratch(start, grad=True)
    loss = (θ.square().sum() - 1) ** 2
    loss.backward()
    SGD([θ], lr=η).step()
    corrected = start - η * 4 * (start.square().sum() - 1) * start
    return CorrectedClaim((start - η * float(loss.data), θ.data), (corrected, θ.data))


def _velocities(grads: Tensor, γ: float, η: float) -> list[Tensor]:
    """v_0 = 0, v_1, …: the steps of didact's SGD with momentum γ, η inside as the course has it."""
    path = [torch.zeros(grads.shape[1]), *optimizer_path(partial(SGD, lr=η, momentum=γ), grads)]
    return [path[0], *(a - b for a, b in pairwise(path))]


@claim("CE25", Equal(), correction="the old velocity is multiplied k + 1 times: γ^{k+1} v_{t−k}")
def unrolled_momentum() -> CorrectedClaim:
    """γᵏ v_{t−k} + η Σ_{i≤k} γⁱ∇_{t−i} against v_{t+1}, the step of didact's SGD, k = 3; corrected: γ^{k+1}"""
    g, γ, η, t, k = torch.randn(10, 4), 0.8, 0.1, 8, 3
    v = _velocities(g, γ, η)
    tail = η * sum((γ**i * g[t - i] for i in range(k + 1)), torch.zeros(4))
    return CorrectedClaim((γ**k * v[t - k] + tail, v[t + 1]), (γ ** (k + 1) * v[t - k] + tail, v[t + 1]))


@claim("CE26", Equal())
def closed_form_of_momentum() -> Pair:
    """v_{t+1} = η Σ_{i≤t} γ^{t−i}∇_i from v_0 = 0, against the step of didact's SGD"""
    g, γ, η, t = torch.randn(10, 4), 0.8, 0.1, 9
    return η * sum((γ ** (t - i) * g[i] for i in range(t + 1)), torch.zeros(4)), _velocities(g, γ, η)[-1]


@claim(
    "CE27",
    Equal(),
    condition="a constant learning rate; with a schedule the two differ, because η inside the buffer keeps old rates",
)
def two_conventions_of_momentum() -> Conditional:
    """θ with η inside the buffer, v ← γ v + η∇, against didact's SGD and torch's, over 20 steps: η constant, and η
    halved after 10"""
    g, γ = torch.randn(20, 4), 0.9

    def both(rates: list[float]) -> Pair:
        v, stated, θ = torch.zeros(4), torch.zeros(4), torch.zeros(4, requires_grad=True)
        sgd = torch.optim.SGD([θ], lr=1.0, momentum=γ)
        for step, rate in zip(g, rates, strict=True):
            v = γ * v + rate * step
            stated = stated - v
            sgd.param_groups[0]["lr"], θ.grad = rate, step.clone()
            sgd.step()
        return [stated, stated], [optimizer_path(partial(SGD, lr=1.0, momentum=γ), g, rates)[-1], θ]

    return Conditional(both([0.1] * 20), both([0.1] * 10 + [0.05] * 10))


@claim("CE28", Equal(), condition="a constant learning rate; and torch's parameter is the look-ahead point θ − γv")
def nesterov() -> Conditional:
    """θ_t − γ v_t of the course's rule, with its gradients at that point, against didact's SGD with nesterov, and
    torch's, over 15 steps: η constant, and η halved after 7"""
    A, γ = torch.diag(torch.tensor([1.0, 4.0])), 0.9

    def both(rates: list[float]) -> Display:
        θ, v, stated_path, found_paths = torch.tensor([1.0, -2.0]), torch.zeros(2), [], []
        w, u = θ.clone().requires_grad_(), to_scratch(θ, grad=True)
        sgd, scratch_sgd = (
            torch.optim.SGD([w], lr=1.0, momentum=γ, nesterov=True),
            SGD([u], lr=1.0, momentum=γ, nesterov=True),
        )
        for η in rates:
            v = γ * v + η * A @ (θ - γ * v)
            θ = θ - v
            sgd.param_groups[0]["lr"] = scratch_sgd.lr = η
            w.grad, u.grad = A @ w.detach(), A.numpy() @ u.data
            sgd.step()
            scratch_sgd.step()
            stated_path += [θ - γ * v] * 2
            found_paths += [w.detach().clone(), torch.from_numpy(u.data.copy())]
        return Display(
            (stated_path, found_paths), {"θ − γv after 15 steps": θ - γ * v, "torch's parameter": w, "θ itself": θ}
        )

    return Conditional(both([0.05] * 15), both([0.05] * 7 + [0.025] * 8))


_LARGE, _SMALL = (
    torch.tensor([1.0, 30.0, -2.0], dtype=torch.float64),
    torch.tensor([1e-3, 1e-5, -1e-4], dtype=torch.float64),
)


@claim("CE29", Equal(1e-6), correction="AdaGrad, as its paper defines it, has ε outside the root: η g/(√s + ε)")
def adagrad() -> CorrectedClaim:
    """two steps η g/√(s + ε), s the sum of squares, η = 0.01, ε = 1e-8, against didact's AdaGrad and torch's, gradients
    from 1e-5 to 30; corrected: η g/(√s + ε), as Duchi et al. 2011, fig. 1, have it: δ + ‖g_{1:t}‖"""
    g, θ = torch.cat([_LARGE, _SMALL]), torch.zeros(6, requires_grad=True)
    grads, theirs = torch.stack([g, 2 * g]), torch.optim.Adagrad([θ], lr=0.01, eps=1e-8)
    for step in grads:
        θ.grad = step.clone()
        theirs.step()
    results = [optimizer_path(partial(AdaGrad, lr=0.01, eps=1e-8), grads)[-1], θ]
    eps_inside = -0.01 * (g / (g**2 + 1e-8).sqrt() + 2 * g / (5 * g**2 + 1e-8).sqrt())
    eps_outside = -0.01 * (g / (g.abs() + 1e-8) + 2 * g / ((5 * g**2).sqrt() + 1e-8))
    return CorrectedClaim(([eps_inside, eps_inside], results), ([eps_outside, eps_outside], results))


@claim(
    "CE30",
    Equal(1e-6),
    condition="gradients far above √ε = 1e-4, if ε is outside the root as in PyTorch; the original RMSProp has no ε",
)
def rmsprop() -> Conditional:
    """the first step η g/√(s + ε) with s = (1 − γ) g², γ = 0.9, η = 0.001, against didact's RMSProp, which is
    PyTorch's: gradients above 1, and below 0.001"""
    def both(g: Tensor) -> Pair:
        return -0.001 * g / ((1 - 0.9) * g**2 + 1e-8).sqrt(), optimizer_path(
            partial(RMSProp, lr=0.001, alpha=0.9, eps=1e-8), g[None]
        )[-1]

    return Conditional(both(_LARGE), both(_SMALL))


@claim("CE31", Equal(), condition="a gradient with a constant mean; otherwise m̂ lags behind it")
def bias_correction() -> Conditional:
    """m̂_t = m_t/(1 − βᵗ) of the mean gradients (m̂ is linear in them) against the mean at step t, up to t = 10, β =
    0.9, by didact's moving average: a constant mean of 2, and a mean of t"""
    def both(means: list[float]) -> Display:
        state, β = dict[str, Any](), 0.9
        m = [float(update_average(state, "m", np.array([g]), β)[0] / (1 - β**t)) for t, g in enumerate(means, start=1)]
        return Display((m, means), {"m̂ after ten steps": m[-1], "mean of the gradient": means[-1]})

    return Conditional(both([2.0] * 10), both([float(t) for t in range(1, 11)]))


@claim("CE32", Equal())
def amsgrad() -> Pair:
    """twenty steps m/(√v̂ + ε), v̂ = max(v̂, v), as in Reddi et al. 2018, from m = v = 0, against didact's AMSGrad from
    step 10⁵ on, where its bias corrections 1 − βᵗ, PyTorch's, are 1"""
    grads, θ, m, v, v_max = torch.randn(20, 4), torch.zeros(4), torch.zeros(4), torch.zeros(4), torch.zeros(4)
    scratch_θ = to_scratch(θ, grad=True)
    optimizer = AMSGrad([scratch_θ], lr=0.01)
    optimizer.steps = [100_000]
    for g in grads:
        m, v = 0.9 * m + (1 - 0.9) * g, 0.999 * v + (1 - 0.999) * g**2
        v_max = torch.maximum(v_max, v)
        θ = θ - 0.01 * m / (v_max.sqrt() + 1e-8)
        scratch_θ.grad = g.numpy().copy()
        optimizer.step()
    return θ, scratch_θ.data


@claim(
    "CE24",
    Equal(1e-6),
    correction="t^(−1/d) is for a bounded slope; for β-smooth functions on a bounded domain a grid reaches t^(−2/d)",
)
def worst_case_of_a_grid() -> CorrectedClaim:
    """exponent with which the least value on an even grid of t points in [0, 1]^d falls with t, for the worst minimum
    c, d = 1, 2, 3, against −1/d: for the smooth ‖θ − c‖²; corrected: for ‖θ − c‖, of which only the slope is bounded"""
    def exponent(power: int, d: int) -> float:
        # a corner is farthest away
        error_small_grid, error_large_grid = (
            float(torch.cdist(grid(n, d), torch.zeros(1, d)).pow(power).min()) for n in (4, 8)
        )
        return math.log(error_large_grid / error_small_grid) / math.log(8**d / 4**d)

    def grid(n: int, d: int) -> Tensor:
        side = (torch.arange(n) + 0.5) / n
        return torch.cartesian_prod(*[side] * d).reshape(-1, d)

    stated = [-1 / d for d in (1, 2, 3)]
    return CorrectedClaim(*(([exponent(power, d) for d in (1, 2, 3)], stated) for power in (2, 1)))
