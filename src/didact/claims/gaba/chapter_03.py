"""Gaba, chapter 3: regularization and normalization."""

from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact import scratch
from didact.claims.forms import Conditional, CorrectedClaim, Display, Equal, Exactly, LessOrEqual, WithinStandardErrors
from didact.claims.helpers import Pair, compute_gradients
from didact.claims.registry import answer, claim, load_statements
from didact.data.images.augment import CutMix
from didact.layers.drop_path import DropPath, block_survival_probability
from didact.layers.dropout import dropout_enabled
from didact.metrics.regression import rmse
from didact.models.tabular.mlp import MLP
from didact.models.vision.resnet import ResNet
from didact.objectives.distributions.classification import Categorical
from didact.optim.proximal import elastic_net
from didact.scratch.modules import BatchNorm1d, Dropout, LayerNorm
from didact.scratch.norm import layer_norm
from didact.scratch.optim import GD, SGD, Adam, AdamW, Optimizer


@claim("C3.1", Equal())
def bias_and_variance() -> Pair:
    """E(y − f̂)² = bias² + variance + σ², over all 2⁵ training sets of a line fitted to 5 points with noise ±σ, and
    both test noises"""
    σ, x = 0.7, torch.linspace(-1, 1, 5)
    f, test_x = torch.sin(3 * x), torch.tensor(0.4)
    design, point = torch.stack([torch.ones(5), x], dim=1), torch.stack([torch.ones(()), test_x])
    fits = torch.stack([point @ torch.linalg.lstsq(design, (f + σ * torch.tensor(s))[:, None]).solution[:, 0]
                        for s in product((-1.0, 1.0), repeat=5)])
    true = torch.sin(3 * test_x)
    error = rmse(fits.repeat(2), true + σ * torch.tensor([-1.0, 1.0]).repeat_interleave(32)) ** 2
    return error, (true - fits.mean()) ** 2 + fits.var(correction=0) + σ**2


def _weights_after(optimizer: type[Optimizer], θ: Tensor, *steps: Tensor, **keywords: Any) -> Tensor:
    """The weights after these gradients, by one of didact's own optimizers."""
    w = scratch.tensor(θ.numpy(), requires_grad=True)
    scratch_optimizer = optimizer([w], **keywords)
    for g in steps:
        w.grad = g.numpy().copy()
        scratch_optimizer.step()
    return torch.from_numpy(w.data)


@claim("C3.2", Equal())
def l2_is_a_shrinking_step() -> Pair:
    """θ − η(∇L + λθ) = (1 − ηλ)θ − η∇L, the left side by didact's SGD"""
    θ, g, η, λ = torch.randn(9), torch.randn(9), 0.1, 0.3
    return _weights_after(SGD, θ, g, lr=η, weight_decay=λ), (1 - η * λ) * θ - η * g


@claim("C3.3", Equal())
def expectation_of_dropout() -> Pair:
    """E[m h] = (1 − p) h, over all masks of 6 units with their probabilities"""
    h, p = torch.randn(6), 0.3
    masks = torch.tensor(list(product((0.0, 1.0), repeat=6)))
    probability = torch.where(masks > 0, 1 - p, p).prod(1)
    return probability @ (masks * h), (1 - p) * h


@claim("C3.4", WithinStandardErrors())
def inverted_dropout_keeps_the_mean() -> tuple[list[Tensor], list[Tensor], list[float]]:
    """E[m h/(1 − p)] = h: the means of a million outputs of didact's dropout and of nn.Dropout, h = 1.7, p = 0.4"""
    h = torch.full((1_000_000,), 1.7)
    outputs = [torch.from_numpy(Dropout(0.4, rng=0)(scratch.tensor(h.numpy())).data), nn.Dropout(0.4)(h)]
    return [y.mean() for y in outputs], [y.std() / 1000 for y in outputs], [1.7, 1.7]


@claim("C3.5", Equal())
def batch_norm_forward() -> Pair:
    """x̂ = (x − μ_B)/√(σ_B² + ε) with 1/m in σ_B², y = γ x̂ + β, against didact's own layer"""
    x, norm = torch.randn(12, 5), BatchNorm1d(5, dtype=np.float64)
    γ, β = torch.randn(5), torch.randn(5)
    norm.load_state_dict({**norm.state_dict(), "weight": γ, "bias": β})
    μ = x.sum(0) / 12
    σ2 = (x - μ).square().sum(0) / 12
    return γ * (x - μ) / (σ2 + norm.eps).sqrt() + β, norm(scratch.tensor(x.numpy())).data


@claim("C3.6", Equal())
def batch_norm_backward() -> Pair:
    """∂L/∂γ, ∂L/∂β and ∂L/∂x of equations 3.15 to 3.20, against the engines of didact and of PyTorch"""
    x, norm, δ, m = torch.randn(12, 5, requires_grad=True), nn.BatchNorm1d(5), torch.randn(12, 5), 12
    γ, ε = nn.init.normal_(norm.weight), norm.eps
    theirs = compute_gradients((norm(x) * δ).sum(), norm.weight, norm.bias, x)
    scratch_norm, scratch_x = BatchNorm1d(5, dtype=np.float64), scratch.tensor(x.detach().numpy(), requires_grad=True)
    scratch_norm.load_state_dict(norm.state_dict())
    ours = scratch.grad((scratch_norm(scratch_x) * δ.numpy()).sum(), (*scratch_norm.parameters(), scratch_x))
    μ, σ2 = x.mean(0), x.var(0, correction=0)
    x_hat = (x - μ) / (σ2 + ε).sqrt()
    dx_hat = δ * γ                                                                          # 3.17
    dσ2 = (dx_hat * (x - μ) * -0.5 * (σ2 + ε) ** -1.5).sum(0)                               # 3.18
    dμ = (dx_hat * -1 / (σ2 + ε).sqrt()).sum(0)                                             # 3.19
    dx = dx_hat / (σ2 + ε).sqrt() + dσ2 * 2 * (x - μ) / m + dμ / m                          # 3.20
    return [(δ * x_hat).sum(0), δ.sum(0), dx] * 2, [*(g.data for g in ours), *theirs]


@claim("C3.7", Equal())
def layer_norm_forward() -> Pair:
    """γ ⊙ (x − μ)/√(σ² + ε) + β over the features of each example, against didact's own engine and nn.LayerNorm"""
    x, norm = torch.randn(4, 7), nn.LayerNorm(7)
    γ, β = nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    μ = x.mean(1, keepdim=True)
    stated = γ * (x - μ) / ((x - μ).square().mean(1, keepdim=True) + norm.eps).sqrt() + β
    ours = layer_norm(
        scratch.tensor(x.numpy()), (7,), scratch.tensor(γ.detach().numpy()), scratch.tensor(β.detach().numpy())
    )
    return [stated, stated], [torch.from_numpy(ours.data), norm(x)]


@claim("C3.8", Equal(1e-6))
def remaining_area_of_cutmix() -> Pair:
    """λ = 1 − r_w r_h/(W H), with the sides of the pasted box in pixels, against the weight of the first label in 64
    images mixed by didact"""
    shade = torch.arange(64.0)[:, None, None, None].expand(64, 1, 24, 20)
    mixed_batch = CutMix(alpha=1.0, num_classes=64)(
        {"x": shade, "y": torch.arange(64)}, torch.Generator().manual_seed(0)
    )
    pasted = (mixed_batch["x"] != shade)[:, 0]
    r_h, r_w = pasted.any(2).sum(1), pasted.any(1).sum(1)
    return 1 - r_w * r_h / (20 * 24), mixed_batch["y"].diagonal()


def _descend_quadratic(H: Tensor, optimum: Tensor, η: float, T: int) -> Any:
    """θ after T steps of didact's gradient descent from 0 on ½(θ − θ*)ᵀH(θ − θ*)."""
    θ = scratch.tensor(np.zeros(len(optimum)), requires_grad=True)
    gd = GD([θ], lr=η)
    for _ in range(T):
        gd.zero_grad()
        offset = θ - optimum.numpy()
        (0.5 * (offset @ H.numpy()) @ offset).backward()
        gd.step()
    return θ.data


@claim("C3.9", Equal())
def descent_on_a_quadratic() -> Pair:
    """θ_T = (I − (I − ηH)^T) θ*, against 40 steps of didact's gradient descent from 0 on ½(θ − θ*)ᵀH(θ − θ*)"""
    A, optimum, η, T = torch.randn(5, 5), torch.randn(5), 0.02, 40
    H = A @ A.T
    return (torch.eye(5) - torch.linalg.matrix_power(torch.eye(5) - η * H, T)) @ optimum, _descend_quadratic(
        H, optimum, η, T
    )


@claim(
    "C3.10",
    Equal(0.015),
    condition="directions with s = ηTh far below or far above 1: descent reaches 1 − e^−s of θ*, L2 s/(1 + s); in "
    "between they differ by up to about 0.2",
)
def early_stopping_as_l2() -> Conditional:
    """200 steps of didact's gradient descent to θ* = 1 ≈ h/(h + λ) with λ = 1/(ηT), for curvatures h with ηTh ≤ 0.02, ≥
    100, and from 1 to 10"""
    η, T = 5e-3, 200
    s = torch.cat([torch.linspace(0.001, 0.02, 20), torch.linspace(100, 190, 20), torch.linspace(1, 10, 19)])
    h = s / (η * T)
    early_stopped, penalized = (
        torch.from_numpy(_descend_quadratic(torch.diag(h), torch.ones(59), η, T)),
        h / (h + 1 / (η * T)),
    )
    stopped_groups, penalized_groups = early_stopped.split((20, 20, 19)), penalized.split((20, 20, 19))

    def describe_direction(i: int) -> dict[str, list[Tensor]]:
        return {f"descent and L2 at ηTh = {s[i]:.3g}:": [early_stopped[i], penalized[i]]}

    return Conditional(
        Display(
            (list(stopped_groups[:2]), list(penalized_groups[:2])), describe_direction(19) | describe_direction(20)
        ),
        Display((stopped_groups[2], penalized_groups[2]), describe_direction(43)),
    )


@claim(
    "C3.11",
    Equal(),
    correction="g_t = ∇L + λθ already contains the penalty: equations 3.28 and 3.29 add it a second time",
)
def penalty_of_adam_with_l2() -> CorrectedClaim:
    """the gradient that enters the moments minus ∇L, against λθ: with λθ added to g_t = ∇L + λθ; corrected: the g_t of
    didact's Adam alone"""
    θ, gradient, λ = scratch.tensor(torch.randn(6).numpy(), requires_grad=True), torch.randn(6).numpy(), 0.1
    g = Adam([θ], weight_decay=λ).add_weight_decay(θ, gradient)
    return CorrectedClaim((g + λ * θ.data - gradient, λ * θ.data), (g - gradient, λ * θ.data))


@claim(
    "C3.12",
    LessOrEqual(),
    condition="√v̂ above 1: where the gradients are smaller, the division by it makes the penalty larger",
)
def penalty_is_attenuated() -> Conditional:
    """how far the penalty λθ shrinks θ = 0.5, 1, 2 in 200 steps of didact's Adam, over 200 ηλθ: ≤ 1 for alternating
    gradients of ±3, and for ±0.3"""
    θ, η, λ = torch.tensor([0.5, 1.0, 2.0]), 1e-3, 0.1

    def penalty_share(size: float) -> Display:
        g = torch.full((3,), size)
        with_penalty, without = (
            _weights_after(Adam, θ, *[g, -g] * 100, lr=η, weight_decay=decay) for decay in (λ, 0.0)
        )
        share = (without - with_penalty) / (200 * η * λ * θ)
        return Display((share, torch.ones(3)), {f"penalty over ηλθ, gradients of ±{size:g}:": share})

    return Conditional(penalty_share(3.0), penalty_share(0.3))


@claim("C3.13", Exactly((False, True)))
def adam_with_l2_is_not_adamw() -> Display:
    """is a step with the penalty λθ in the gradient the same as one with the weights shrunk by 1 − ηλ: didact's Adam,
    and its SGD"""
    θ, g, η, λ = torch.tensor([1.0, 1.0]), torch.tensor([10.0, 0.01]), 0.1, 0.3
    adam, adamw, sgd = (_weights_after(o, θ, g, lr=η, weight_decay=λ) for o in (Adam, AdamW, SGD))
    same = torch.allclose(adam, adamw), torch.allclose(sgd, (1 - η * λ) * θ - η * g)
    return Display(same, {"the same step: Adam": same[0], "SGD": same[1]})


@claim("C3.14", Equal())
def smoothed_labels() -> Pair:
    """cross-entropy with targets (1 − α) y + α/K, against didact's smoothing"""
    z, y, α, K = torch.randn(20, 6), torch.randint(6, (20,)), 0.1, 6
    targets = (1 - α) * F.one_hot(y, K) + α / K
    return -(targets * z.log_softmax(1)).sum(1), Categorical(K, label_smoothing=α).loss(z, y)


@claim("C3.15", Equal(1e-6))
def survival_probability() -> Pair:
    """p_l = 1 − (l/L)(1 − p_L) with p_L = 0.5, against didact's rule, and against 1 − p of the drop paths in its
    network of L = 12 blocks"""
    stated = [1 - (l / 12) * (1 - 0.5) for l in range(1, 13)]
    blocks = ResNet(depths=(3, 3, 3, 3), width=4, drop_path=0.5)
    block_survival = [1 - m.p for m in blocks.modules() if isinstance(m, DropPath)]
    return [stated, stated], [[block_survival_probability(l, 12, 0.5) for l in range(1, 13)], block_survival]


@claim("C3.16", Exactly(((0.3, 1e-4), True, True)),
       remark="true of the printed grid; the grid measured here differs: didact reproduce 3.11 --saved")
def reading_of_the_grid() -> tuple[tuple[float, float], bool, bool]:
    """from the printed grid: its best cell; whether wd = 1e-2 is the worst of every row, and p = 0.7 of every column"""
    rows = [[float(v) for v in load_statements()[f"C3.{n}"].stated.split()] for n in range(17, 22)]
    dropout, decay = (0.0, 0.1, 0.3, 0.5, 0.7), (0.0, 1e-5, 1e-4, 1e-3, 1e-2)
    grid = torch.tensor(rows)
    best = int(grid.argmax())
    return (dropout[best // 5], decay[best % 5]), bool((grid.argmin(1) == 4).all()), bool((grid.argmin(0) == 4).all())


@claim("C3.22", Equal())
def subnetworks_of_dropout() -> Pair:
    """distinct outputs of didact's MLP for one input with dropout before its last layer, n = 1 … 8 hidden units,
    against 2ⁿ"""
    output_counts = []
    for n in range(1, 9):
        net, x = MLP(3, 1, hidden=(n,), activation="tanh", dropout=0.5), torch.randn(3)
        with torch.no_grad(), dropout_enabled(net):
            # rows may differ by rounding
            output_counts.append(len(net(x.expand(60 * 2**n, 3)).round(decimals=9).unique()))
    return output_counts, [2**n for n in range(1, 9)]


@claim("C3.23", Equal())
def geometric_mean_of_subnetworks() -> Pair:
    """the normalized geometric mean of softmax(W(m ⊙ h)) over all masks = softmax((1 − p) W h): exact for dropout right
    before the softmax, as with the one hidden layer of the exercise, approximate with more layers in between"""
    h, W, p = torch.randn(8), torch.randn(4, 8), 0.3
    masks = torch.tensor(list(product((0.0, 1.0), repeat=8)))
    probability = torch.where(masks > 0, 1 - p, p).prod(1)
    return (probability @ Categorical(4).log_p((masks * h) @ W.T)).softmax(0), ((1 - p) * h @ W.T).softmax(0)


@claim(
    "C3.24",
    Equal(),
    correction="with θ ← (1 − λ_wd) θ − η∇L it is λ_wd = η λ_L2; with (1 − ηλ_wd) θ, as in equations 3.4 and 3.33, "
    "both λ are equal",
)
def decay_and_l2_for_sgd() -> CorrectedClaim:
    """(1 − λ_wd) θ − η∇L with λ_wd = λ_L2/η, against a step of didact's SGD with the L2 penalty; corrected: λ_wd = η
    λ_L2"""
    θ, g, η, λ = torch.randn(7), torch.randn(7), 0.1, 0.02
    l2 = _weights_after(SGD, θ, g, lr=η, weight_decay=λ)
    return CorrectedClaim(((1 - λ / η) * θ - η * g, l2), ((1 - η * λ) * θ - η * g, l2))


@claim("C3.26", Exactly((True, False)))
def exact_zeros_of_l1() -> Display:
    """is any weight exactly 0 after didact's proximal steps on a regression where 3 of 20 inputs matter: with an L1
    penalty, and with an L2 penalty"""
    x, true_weights = torch.randn(80, 20), torch.cat([torch.tensor([2.0, -1.5, 1.0]), torch.zeros(17)])
    y, has_zeros = x @ true_weights + 0.1 * torch.randn(80), []
    for penalty in ({"l1": 0.2}, {"l2": 0.2}):
        layer = nn.Linear(20, 1, bias=False)
        optimizer = elastic_net(layer.parameters(), lambda p: torch.optim.SGD(p, lr=0.05), **penalty)
        for _ in range(100):
            optimizer.zero_grad()
            F.mse_loss(layer(x)[:, 0], y).backward()
            optimizer.step()
        has_zeros.append(bool((layer.weight == 0).any()))
    return Display(tuple(has_zeros), dict(zip(("exact zeros with L1", "with L2"), has_zeros, strict=True)))


def is_output_unchanged(norm: LayerNorm | BatchNorm1d) -> list[bool]:
    """Whether the first example's output is the same in another batch, and all outputs in training and eval mode."""
    x, other_batch = torch.randn(6, 5), torch.randn(6, 5)
    other_batch[0] = x[0]
    train, other_output = (norm(scratch.tensor(batch.numpy())).data for batch in (x, other_batch))
    norm.eval()
    return [np.allclose(train[0], other_output[0]), np.allclose(train, norm(scratch.tensor(x.numpy())).data)]


@claim("C3.27", Exactly((True, True, False, False)))
def layer_norm_is_independent_of_the_batch() -> Display:
    """is the first example's output the same in another batch, and are all in training and eval mode: didact's layer
    norm, then its batch norm"""
    layer, batch = (
        is_output_unchanged(LayerNorm(5, dtype=np.float64)),
        is_output_unchanged(BatchNorm1d(5, dtype=np.float64)),
    )
    names = [
        f"{norm} norm the same in {setting}"
        for norm in ("layer", "batch")
        for setting in ("another batch", "eval mode")
    ]
    return Display((*layer, *batch), dict(zip(names, layer + batch, strict=True)))


@answer("C3.25")
def best_degree() -> Display:
    """the degree among 1, 3, 5, 9, 15 with the least bias² + variance against sin πx, averaged over [−1, 1]: 100
    datasets of ten evenly spaced points (the course leaves the spacing open), noise 0.3; degree 15 by least norm"""
    x, grid = torch.linspace(-1, 1, 10), torch.linspace(-1, 1, 200)
    y, errors = (torch.pi * x).sin() + 0.3 * torch.randn(100, 10), {}
    for degree in (1, 3, 5, 9, 15):
        w = torch.linalg.pinv(x[:, None] ** torch.arange(degree + 1)) @ y.T                     # (degree + 1, 100)
        fits = (grid[:, None] ** torch.arange(degree + 1)) @ w                                  # (200, 100)
        bias, variance = fits.mean(1) - (torch.pi * grid).sin(), fits.var(1, correction=0)
        errors[degree] = float((bias.square() + variance).mean())
    return Display(min(errors, key=lambda degree: errors[degree]), {f"degree {d}": e for d, e in errors.items()})
