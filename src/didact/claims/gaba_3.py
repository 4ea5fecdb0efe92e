"""Gaba, chapter 3: regularisation and normalisation."""

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.claims.compare import Asked, Cases, Corrected, Differ, Exactly, Inside, NeverMore, Same, Sampled
from didact.claims.core import claim, statements
from didact.claims.tools import Pair, gradients
from didact.data.augment import CutMix
from didact.layers.droppath import survival
from didact.optim.proximal import elastic_net
from didact.scratch import tensor
from didact.scratch.normalise import layer_norm


@claim("C3.1", Same())
def bias_and_variance() -> Pair:
    """E(y − f̂)² = bias² + variance + σ², over all 2⁵ training sets of a line fitted to 5 points with noise ±σ, and both test noises"""
    σ, x = 0.7, torch.linspace(-1, 1, 5)
    f, at = torch.sin(3 * x), torch.tensor(0.4)
    design, point = torch.stack([torch.ones(5), x], dim=1), torch.stack([torch.ones(()), at])
    fits = torch.stack([point @ torch.linalg.lstsq(design, (f + σ * torch.tensor(s))[:, None]).solution[:, 0]
                        for s in product((-1.0, 1.0), repeat=5)])
    true = torch.sin(3 * at)
    error = torch.stack([(true + e - fits).square().mean() for e in (-σ, σ)]).mean()
    return error, (true - fits.mean()) ** 2 + fits.var(correction=0) + σ**2


def after_one_step(optimizer: type[torch.optim.Optimizer], θ: Tensor, g: Tensor, **keywords: Any) -> Tensor:
    w = θ.clone().requires_grad_()
    w.grad = g.clone()
    optimizer([w], **keywords).step()
    return w.detach()


@claim("C3.2", Same())
def l2_is_a_shrinking_step() -> Pair:
    """θ − η(∇L + λθ) = (1 − ηλ)θ − η∇L, the left side by torch.optim.SGD"""
    θ, g, η, λ = torch.randn(9), torch.randn(9), 0.1, 0.3
    return after_one_step(torch.optim.SGD, θ, g, lr=η, weight_decay=λ), (1 - η * λ) * θ - η * g


@claim("C3.3", Same())
def expectation_of_dropout() -> Pair:
    """E[m h] = (1 − p) h, over all masks of 6 units with their probabilities"""
    h, p = torch.randn(6), 0.3
    masks = torch.tensor(list(product((0.0, 1.0), repeat=6)))
    chance = torch.where(masks > 0, 1 - p, p).prod(1)
    return chance @ (masks * h), (1 - p) * h


@claim("C3.4", Sampled())
def inverted_dropout_keeps_the_mean() -> tuple[Tensor, Tensor, float]:
    """E[m h/(1 − p)] = h: the mean of a million outputs of nn.Dropout, h = 1.7, p = 0.4"""
    y = nn.Dropout(0.4)(torch.full((1_000_000,), 1.7))
    return y.mean(), y.std() / 1000, 1.7


@claim("C3.5", Same())
def batch_norm_forward() -> Pair:
    """x̂ = (x − μ_B)/√(σ_B² + ε) with 1/m in σ_B², y = γ x̂ + β, against nn.BatchNorm1d"""
    x, norm = torch.randn(12, 5), nn.BatchNorm1d(5)
    γ, β = nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    μ = x.sum(0) / 12
    σ2 = (x - μ).square().sum(0) / 12
    return γ * (x - μ) / (σ2 + norm.eps).sqrt() + β, norm(x)


@claim("C3.6", Same())
def batch_norm_backward() -> Pair:
    """∂L/∂γ, ∂L/∂β and ∂L/∂x of equations 3.15 to 3.20, against PyTorch's engine"""
    x, norm, δ, m = torch.randn(12, 5, requires_grad=True), nn.BatchNorm1d(5), torch.randn(12, 5), 12
    γ, ε = nn.init.normal_(norm.weight), norm.eps
    theirs = gradients((norm(x) * δ).sum(), norm.weight, norm.bias, x)
    μ, σ2 = x.mean(0), x.var(0, correction=0)
    x_hat = (x - μ) / (σ2 + ε).sqrt()
    dx_hat = δ * γ                                                                          # 3.17
    dσ2 = (dx_hat * (x - μ) * -0.5 * (σ2 + ε) ** -1.5).sum(0)                               # 3.18
    dμ = (dx_hat * -1 / (σ2 + ε).sqrt()).sum(0)                                             # 3.19
    dx = dx_hat / (σ2 + ε).sqrt() + dσ2 * 2 * (x - μ) / m + dμ / m                          # 3.20
    return [(δ * x_hat).sum(0), δ.sum(0), dx], theirs


@claim("C3.7", Same())
def layer_norm_forward() -> Pair:
    """γ ⊙ (x − μ)/√(σ² + ε) + β over the features of each example: didact's own engine against nn.LayerNorm"""
    x, norm = torch.randn(4, 7), nn.LayerNorm(7)
    γ, β = nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    ours = layer_norm(tensor(x.numpy()), (7,), tensor(γ.detach().numpy()), tensor(β.detach().numpy()))
    return ours.data, norm(x)


@claim("C3.8", Same(1e-6))
def kept_area_of_cutmix() -> Pair:
    """λ = 1 − r_w r_h/(W H): the share of the first image's pixels, and the share of its label, in 64 mixed pairs"""
    shade = torch.arange(64.0)[:, None, None, None].expand(64, 1, 24, 20)
    mixed = CutMix(alpha=1.0, classes=64)({"x": shade, "y": torch.arange(64)}, torch.Generator().manual_seed(0))
    own = (mixed["x"] == shade).double().mean(dim=(1, 2, 3))
    return own, mixed["y"].diagonal()


@claim("C3.9", Same())
def descent_on_a_quadratic() -> Pair:
    """θ_T = (I − (I − ηH)^T) θ*, against 40 steps from 0 on ½(θ − θ*)ᵀH(θ − θ*)"""
    A, best, η, T = torch.randn(5, 5), torch.randn(5), 0.02, 40
    H = A @ A.T
    θ = torch.zeros(5)
    for _ in range(T):
        θ = θ - η * H @ (θ - best)
    return (torch.eye(5) - torch.linalg.matrix_power(torch.eye(5) - η * H, T)) @ best, θ


@claim("C3.10", Same(0.015), condition="directions with ηTh far below 1 (or far above); near 1 the two shrink by quite different factors")
def early_stopping_as_l2() -> Cases:
    """1 − (1 − ηh)^T ≈ h/(h + λ) with λ = 1/(ηT), for curvatures h with ηTh ≤ 0.02, and with ηTh from 1 to 3"""
    η, T = 1e-3, 1000

    def both(s: Tensor) -> Pair:
        h = s / (η * T)
        return 1 - (1 - η * h) ** T, h / (h + 1 / (η * T))

    return Cases(both(torch.linspace(0.001, 0.02, 20)), both(torch.linspace(1, 3, 20)))


@claim("C3.11", Same(), right="g_t = ∇L + λθ already holds the penalty: equations 3.28 and 3.29 add it a second time")
def penalty_of_adam_with_l2() -> Corrected:
    """what enters the moments, less ∇L, against λθ: g_t + λθ with g_t = ∇L + λθ; mended: g_t alone"""
    θ, gradient, λ = torch.randn(6), torch.randn(6), 0.1
    g = gradient + λ * θ
    return Corrected((g + λ * θ - gradient, λ * θ), (g - gradient, λ * θ))


@claim("C3.12", NeverMore(), condition="gradients above 1: where they are small, the division by √v̂ makes the penalty larger")
def penalty_is_attenuated() -> Cases:
    """how far the penalty λθ moves Adam's first step, over ηλθ: ≤ 1 for gradients of 30, and for gradients of 0.001"""
    θ, η, λ = torch.tensor([0.5, 1.0, 2.0]), 1e-3, 0.1

    def moved(size: float) -> Pair:
        g = torch.full((3,), size)
        settled = [g] * 19  # in one step alone Adam keeps the sign and forgets the size
        with_penalty, without = (adam_steps(θ, [*settled, last], η) for last in (g + λ * θ, g))
        return (without - with_penalty).abs() / (η * λ * θ), torch.ones(3)

    return Cases(moved(30.0), moved(0.001))


def adam_steps(θ: Tensor, gradients_: list[Tensor], η: float) -> Tensor:
    w = θ.clone().requires_grad_()
    adam = torch.optim.Adam([w], lr=η)
    for g in gradients_:
        w.grad = g.clone()
        adam.step()
    return w.detach()


@claim("C3.13", Differ())
def adam_with_l2_is_not_adamw() -> Pair:
    """one step of Adam with L2 and of AdamW from the same weights and gradients: how far each moves"""
    θ, g = torch.tensor([1.0, 1.0]), torch.tensor([10.0, 0.01])
    adam, adamw = (after_one_step(o, θ, g, lr=0.1, weight_decay=0.3) for o in (torch.optim.Adam, torch.optim.AdamW))
    return adam - θ, adamw - θ


@claim("C3.14", Same())
def smoothed_labels() -> Pair:
    """cross-entropy with targets (1 − α) y + α/K, against torch's label_smoothing"""
    z, y, α, K = torch.randn(20, 6), torch.randint(6, (20,)), 0.1, 6
    targets = (1 - α) * F.one_hot(y, K) + α / K
    return -(targets * z.log_softmax(1)).sum(1).mean(), F.cross_entropy(z, y, label_smoothing=α)


@claim("C3.15", Same())
def survival_probability() -> Pair:
    """p_l = 1 − (l/L)(1 − p_L) runs on a straight line from 1 at the input to p_L at block L: didact's own rule"""
    return [survival(l, 12, 0.5) for l in range(13)], torch.linspace(1, 0.5, 13)


@claim("C3.16", Exactly(((0.3, 1e-4), True, True)))
def reading_of_the_grid() -> tuple[tuple[float, float], bool, bool]:
    """from the printed grid: its best cell; whether wd = 1e-2 is the worst of every row, and p = 0.7 of every column"""
    rows = [[float(v) for v in statements()[f"C3.{n}"].stated.split()] for n in range(17, 22)]
    dropout, decay = (0.0, 0.1, 0.3, 0.5, 0.7), (0.0, 1e-5, 1e-4, 1e-3, 1e-2)
    grid = torch.tensor(rows)
    best = int(grid.argmax())
    return (dropout[best // 5], decay[best % 5]), bool((grid.argmin(1) == 4).all()), bool((grid.argmin(0) == 4).all())


@claim("C3.22", Same())
def subnetworks_of_dropout() -> Pair:
    """the number of different networks that n droppable units leave, n = 1 … 10, against 2ⁿ"""
    seen = [len({tuple(row) for row in torch.bernoulli(torch.full((60 * 2**n, n), 0.5)).long().tolist()}) for n in range(1, 11)]
    return seen, [2**n for n in range(1, 11)]


@claim("C3.23", Same(), condition="a softmax right behind the dropped units; behind a further layer it only approximates")
def geometric_mean_of_subnetworks() -> Cases:
    """the normalised geometric mean of softmax(W(m ⊙ h)) over all masks = softmax((1 − p) W h), and with a ReLU layer between"""
    h, W, V, p = torch.randn(8), torch.randn(4, 8), torch.randn(4, 4), 0.3
    masks = torch.tensor(list(product((0.0, 1.0), repeat=8)))
    chance = torch.where(masks > 0, 1 - p, p).prod(1)

    def both(layer: Callable[[Tensor], Tensor]) -> Pair:
        averaged = (chance @ layer((masks * h) @ W.T).log_softmax(1)).softmax(0)
        return averaged, layer((1 - p) * h @ W.T).softmax(0)

    return Cases(both(lambda z: z), both(lambda z: z.relu() @ V.T))


@claim("C3.24", Same(), right="with θ ← (1 − λ_wd) θ − η∇L it is λ_wd = η λ_L2; with (1 − ηλ_wd), as on the page before, the two are equal")
def decay_and_l2_for_sgd() -> Corrected:
    """(1 − λ_wd) θ − η∇L with λ_wd = λ_L2/η, against a step of SGD with the L2 penalty; mended: λ_wd = η λ_L2"""
    θ, g, η, λ = torch.randn(7), torch.randn(7), 0.1, 0.02
    l2 = after_one_step(torch.optim.SGD, θ, g, lr=η, weight_decay=λ)
    return Corrected(((1 - λ / η) * θ - η * g, l2), ((1 - η * λ) * θ - η * g, l2))


@claim("C3.26", Inside(low=1))
def exact_zeros_of_l1() -> int:
    """weights that are exactly 0 after proximal steps on a regression where 3 of 20 inputs matter"""
    x, true = torch.randn(80, 20), torch.cat([torch.tensor([2.0, -1.5, 1.0]), torch.zeros(17)])
    layer = nn.Linear(20, 1, bias=False)
    optimizer = elastic_net(layer.parameters(), lambda p: torch.optim.SGD(p, lr=0.05), l1=0.2)
    y = x @ true + 0.1 * torch.randn(80)
    for _ in range(400):
        optimizer.zero_grad()
        F.mse_loss(layer(x)[:, 0], y).backward()
        optimizer.step()
    return int((layer.weight == 0).sum())


@claim("C3.27", Exactly((True, True, False, False)))
def layer_norm_knows_no_batch() -> tuple[bool, ...]:
    """is the first example's output the same in another batch, and in train and eval mode: layer norm, then batch norm"""
    x, other = torch.randn(6, 5), torch.randn(6, 5)
    other[0] = x[0]
    found = []
    for norm in (nn.LayerNorm(5), nn.BatchNorm1d(5)):
        train, elsewhere = norm(x), norm(other)
        found += [torch.equal(train[0], elsewhere[0]), torch.equal(train, norm.eval()(x))]
    return tuple(found)


@claim("C3.25", Asked())
def best_degree() -> int:
    """the degree of 1, 3, 5, 9, 15 with the least mean squared error against sin πx: 10 points, noise 0.3, 100 sets; 15 by least norm"""
    x, grid = 2 * torch.rand(100, 10) - 1, torch.linspace(-1, 1, 200)
    y, errors = (torch.pi * x).sin() + 0.3 * torch.randn(100, 10), {}
    for degree in (1, 3, 5, 9, 15):
        w = torch.linalg.pinv(x[..., None] ** torch.arange(degree + 1)) @ y[..., None]
        fits = (grid[:, None] ** torch.arange(degree + 1)) @ w                                  # (100, 200, 1)
        errors[degree] = float((fits[..., 0] - (torch.pi * grid).sin()).square().mean(1).median())
    return min(errors, key=lambda degree: errors[degree])
