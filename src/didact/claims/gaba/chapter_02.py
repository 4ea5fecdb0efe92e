"""Gaba, chapter 2: backpropagation, optimizers, schedules."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

from didact import scratch
from didact.claims.forms import (
    Conditional,
    CorrectedClaim,
    Display,
    Equal,
    Increasing,
    InInterval,
    LessOrEqual,
    Printed,
)
from didact.claims.helpers import Pair, compute_gradients, count_multiplications, count_parameters, total_variance
from didact.claims.registry import claim
from didact.models.tabular.mlp import MLP
from didact.objectives.distributions.classification import Categorical
from didact.objectives.supervised import Classify
from didact.optim import schedule
from didact.optim.lion import Lion
from didact.scratch.gradients import by_hand
from didact.scratch.gradients.numerical import central_difference
from didact.scratch.losses import cross_entropy
from didact.scratch.optim import SGD, Adam, clip_norm, update_average


def minibatch_gradient(rows: Sequence[int]) -> Tensor:
    """Gradient of didact's objective on some of six examples, all parameters of a small network in one vector."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        objective = Classify(MLP(4, 3, hidden=(5,), activation="tanh"), Categorical(3))
        batch = {"x": torch.randn(6, 4), "y": torch.randint(3, (6,))}
    index = torch.tensor(rows)
    return torch.cat(
        [
            g.flatten()
            for g in compute_gradients(objective({k: v[index] for k, v in batch.items()}), *objective.parameters())
        ]
    )


@claim("C2.1", Equal())
def minibatch_gradient_is_unbiased() -> Pair:
    """the mean of didact's gradient over all subsets B of size 3 = (1/N) Σ ∇ℓ_i, its gradient on all six"""
    batches = torch.stack([minibatch_gradient(b) for b in combinations(range(6), 3)])
    return batches.mean(0), minibatch_gradient(range(6))


@claim(
    "C2.2",
    Equal(),
    condition="examples sampled with replacement; for subsets, as on the page, it is the smaller σ²/B · (N − B)/(N − "
    "1)",
)
def variance_of_minibatches() -> Conditional:
    """Var g_B = σ²/B over all batches of 1, 2, 3 examples, sampled with and without replacement"""
    g = torch.stack([minibatch_gradient([i]) for i in range(6)])
    σ2 = total_variance(g)
    variances = [
        [total_variance(torch.stack([g[list(b)].mean(0) for b in batches])) for batches in batch_lists]
        for batch_lists in (
            [product(range(6), repeat=B) for B in (1, 2, 3)],
            [combinations(range(6), B) for B in (1, 2, 3)],
        )
    ]
    stated = [σ2 / B for B in (1, 2, 3)]
    return Conditional((variances[0], stated), (variances[1], stated))


def _gradients_by_hand_and_autograd(hidden: by_hand.Activation, f: Callable[[Tensor], Tensor]) -> Pair:
    """Every ∂L/∂W and ∂L/∂b of a network 5 – 7 – 6 – 3 with softmax and cross-entropy, by the recursion and by
    PyTorch."""
    sizes = ((7, 5), (6, 7), (3, 6))
    layers = [(torch.randn(*s, requires_grad=True), torch.randn(s[0], requires_grad=True)) for s in sizes]
    x, y = torch.randn(11, 5), F.one_hot(torch.randint(3, (11,)), 3)
    h = x
    for l, (W, b) in enumerate(layers):
        z = h @ W.T + b
        h = f(z) if l < 2 else z
    theirs = compute_gradients(F.cross_entropy(h, y.double()), *(p for layer in layers for p in layer))
    arrays = [(W.detach().numpy(), b.detach().numpy()) for W, b in layers]
    zs, hs = by_hand.forward(arrays, x.numpy(), hidden)
    ours = by_hand.backward(arrays, zs, hs, by_hand.softmax_delta(zs[-1], y.numpy()), hidden)
    return [p for layer in ours for p in layer], theirs


@claim("C2.3", Equal())
def backpropagation() -> Pair:
    """δ_l = (W_{l+1}ᵀ δ_{l+1}) ⊙ σ′(z_l),  ∂L/∂W_l = δ_l h_{l−1}ᵀ,  ∂L/∂b_l = δ_l"""
    return _gradients_by_hand_and_autograd(by_hand.SIGMOID, torch.sigmoid)


@claim("C2.4", Equal(), condition="an element-wise output activation; softmax needs its full Jacobian")
def output_delta() -> Conditional:
    """didact's δ_L = ∂L/∂h_L ⊙ σ′(z_L) against ∂L/∂z: a sigmoid output with squared error, and softmax with
    cross-entropy"""
    z, y = torch.randn(1, 5, requires_grad=True), F.one_hot(torch.tensor([2]), 5).double()

    def both(h: Tensor, loss: Callable[[Tensor], Tensor], last: by_hand.Activation) -> Pair:
        dL_dh, dL_dz = compute_gradients(loss(h), h, z)
        return by_hand.output_delta(dL_dh.numpy(), z.detach().numpy(), last), dL_dz

    softmax = by_hand.Activation(by_hand.softmax, lambda z: by_hand.softmax(z) * (1 - by_hand.softmax(z)))
    return Conditional(
        both(z.sigmoid(), lambda h: (h - y).square().sum(), by_hand.SIGMOID),
        both(z.softmax(1), lambda h: -(y * h.log()).sum(), softmax),
    )


def _backward_forward_ratio(width: int, L: int) -> float:
    """Multiplications of the backward pass of didact's MLP of L layers over those of its forward pass."""
    net, x = MLP(features=width, hidden=(width,) * (L - 1), outputs=width), torch.randn(8, width)
    forward = count_multiplications(lambda: net(x).detach())
    forward_backward = count_multiplications(lambda: net(x).sum().backward())
    return (forward_backward - forward) / forward


@claim(
    "C2.5",
    InInterval(0.95, 1.05),
    condition="the same order, |θ|: with L layers backward takes (2L − 1)/L times the multiplications of forward, up "
    "to twice",
)
def cost_of_backpropagation() -> Conditional:
    """multiplications of backward over those of forward: how the ratio grows from width 16 to 64 to 256; and the ratio
    itself for L layers"""
    growth = [b / a for a, b in pairwise(_backward_forward_ratio(width, 3) for width in (16, 64, 256))]
    ratios = [_backward_forward_ratio(16, L) for L in (2, 3, 10, 50)]
    return Conditional(Display(growth, {"backward over forward from width 16 to 64 to 256: times": growth}),
                 Display(ratios, {"backward over forward with 2, 3, 10, 50 layers:": ratios}))


@cache
def _autograd_example() -> tuple[list[float], list[float]]:
    """x = (2, 3), w = (1, −1), L = (σ(x·w) − 1)², by didact's own engine"""
    x, w = scratch.tensor([2.0, 3.0], requires_grad=True), scratch.tensor([1.0, -1.0], requires_grad=True)
    dx, dw = scratch.grad(((x @ w).sigmoid() - 1) ** 2, (x, w))
    return dx.data.tolist(), dw.data.tolist()


@claim("C2.6", Printed("-0.0689", "0.0689"), correction="the printed program gives the computed values")
def gradient_of_the_input() -> list[float]:
    """∂L/∂x = 2(y − 1) y (1 − y) w, with y = σ(x·w)"""
    return _autograd_example()[0]


@claim(
    "C2.7",
    Printed("-0.1378", "0.2067"),
    correction="∂L/∂w is a multiple of x = (2, 3): both entries have the same sign",
)
def gradient_of_the_weights() -> list[float]:
    """∂L/∂w = 2(y − 1) y (1 − y) x, with y = σ(x·w)"""
    return _autograd_example()[1]


@claim("C2.8", Equal())
def bias_correction() -> Pair:
    """m_t/(1 − βᵗ) = g for a constant gradient g, at each of the first 50 steps"""
    g, state = np.array([0.3, -2.0, 1e-4]), dict[str, Any]()
    return [update_average(state, "m", g, 0.9) / (1 - 0.9**t) for t in range(1, 51)], [g] * 50


@claim("C2.9", Equal(1e-6), correction="Adam, as its paper defines it, has ε outside the root: η m̂/(√v̂ + ε)")
def adam_and_epsilon() -> CorrectedClaim:
    """the first step for g = 1, 1e-3, 1e-6 by η m̂/√(v̂ + ε), against didact's Adam and torch's; corrected: η m̂/(√v̂ +
    ε)"""
    g, η, ε = torch.tensor([1.0, 1e-3, 1e-6]), 1e-3, 1e-8
    θ, scratch_θ = torch.zeros(3, requires_grad=True), scratch.tensor([0.0] * 3, requires_grad=True)
    θ.grad, scratch_θ.grad = g.clone(), g.numpy()
    torch.optim.Adam([θ], lr=η, eps=ε).step()
    Adam([scratch_θ], lr=η, eps=ε).step()
    steps = [-torch.from_numpy(scratch_θ.data), -θ]
    return CorrectedClaim(([η * g / (g**2 + ε).sqrt()] * 2, steps), ([η * g / (g.abs() + ε)] * 2, steps))


@claim("C2.10", Equal(1e-6), correction="it is a sum: v tends to g/(1 − μ); the average is (1 − μ) v")
def momentum_as_an_average() -> CorrectedClaim:
    """the buffer v ← μ v + g of didact's SGD after 300 equal gradients, against their average g; corrected: (1 − μ)
    v"""
    g, μ, θ = np.array([1.0, -3.0]), 0.9, scratch.tensor([0.0, 0.0], requires_grad=True)
    sgd = SGD([θ], lr=0.1, momentum=μ)
    for _ in range(300):
        θ.grad = g.copy()
        sgd.step()
    v = sgd.states[0]["v"]
    return CorrectedClaim((v, g), ((1 - μ) * v, g))


def scheduler_rates(
    schedule: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler], steps: int, lr: float = 1e-3
) -> list[float]:
    """The learning rate at each step of a PyTorch scheduler."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler, rates = schedule(optimizer), []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return rates


@claim("C2.11", Equal())
def step_decay() -> Pair:
    """η_t = η_0 γ^⌊t/T⌋, γ = 0.1 and T = 30, against didact's schedule and torch's"""
    stated, ours = [1e-3 * 0.1 ** (t // 30) for t in range(100)], schedule.StepDecay(gamma=0.1, every=30)
    return [stated, stated], [
        [1e-3 * ours(t, 100) for t in range(100)],
        scheduler_rates(lambda o: lr_scheduler.StepLR(o, 30, 0.1), 100),
    ]


@claim("C2.12", Equal())
def cosine_annealing() -> Pair:
    """η_t = η_min + ½(η_max − η_min)(1 + cos(πt/T)), η from 1e-3 to 1e-6 and T = 100, against didact's schedule and
    torch's"""
    stated, ours = (
        [1e-6 + 0.5 * (1e-3 - 1e-6) * (1 + math.cos(math.pi * t / 100)) for t in range(100)],
        schedule.Cosine(final=1e-3),
    )
    theirs = scheduler_rates(lambda o: lr_scheduler.CosineAnnealingLR(o, 100, eta_min=1e-6), 100)
    return [stated, stated], [[1e-3 * ours(t, 100) for t in range(100)], theirs]


@claim(
    "C2.13",
    Equal(),
    condition="a warm-up along half a cosine, as in OneCycleLR; the linear warm-up of the heading is another schedule",
)
def one_cycle_warms_up_and_decays() -> Conditional:
    """torch's OneCycleLR over 200 steps against didact's cycle, half a cosine up and half a cosine down; and with a
    linear warm-up"""
    theirs, cycle = (
        scheduler_rates(lambda o: lr_scheduler.OneCycleLR(o, 1e-3, total_steps=200), 200),
        schedule.OneCycle(),
    )
    ours, peak_step = [1e-3 * cycle(t, 200) for t in range(200)], round(cycle.warmup * 200) - 1
    linear_warmup = np.linspace(ours[0], ours[peak_step], peak_step + 1).tolist() + ours[peak_step + 1 :]
    return Conditional((ours, theirs), (linear_warmup, theirs))


@claim("C2.14", Printed("1e-3"), correction="use one scheduler: the factors of two that are stepped together multiply")
def rate_of_the_printed_loop() -> CorrectedClaim:
    """the largest learning rate in 10 epochs of 469 batches: three schedulers built, two stepped at each batch;
    corrected: didact's cycle alone"""
    optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=1e-3, weight_decay=0.01)
    lr_scheduler.StepLR(optimizer, 30, 0.1)
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, 100, eta_min=1e-6)
    cycle = lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=4690)
    largest_rate = 0.0
    for _ in range(4689):
        optimizer.step()
        cycle.step()
        cosine.step()
        largest_rate = max(largest_rate, float(optimizer.param_groups[0]["lr"]))
    return CorrectedClaim(largest_rate, max(1e-3 * schedule.OneCycle()(t, 4690) for t in range(4690)))


def _nearest_rotation(W: Tensor) -> Tensor:
    """An orthogonal matrix, all of its singular values 1, by QR decomposition."""
    Q: Tensor = torch.linalg.qr(W).Q
    return Q


def _jacobian_product_norms(
    weight_scale: float,
    z: float,
    z_std: float,
    normalize: Callable[[Tensor], Tensor] = _nearest_rotation,
    depth: int = 30,
) -> list[Tensor]:
    """‖∏ diag(σ′(z_k)) W_k‖ over 1 … depth layers of four units: W_k Gaussian, scaled to ‖W_k‖ = 1, times
    `weight_scale`, z_k near z."""
    J, norms = torch.eye(4), []
    for _ in range(depth):
        W, z_k = weight_scale * normalize(torch.randn(4, 4)), z + z_std * torch.randn(4)
        J = torch.from_numpy(by_hand.SIGMOID.slope(z_k.numpy()))[:, None] * W @ J
        norms.append(torch.linalg.matrix_norm(J, 2))
    return norms


@claim(
    "C2.15",
    LessOrEqual(),
    condition="‖W‖ ≤ 1 for this bound, ‖W‖ < 4 for decay: the weights are factors of the product too",
)
def product_of_derivatives() -> Conditional:
    """‖∏ diag(σ′(z_k)) W_k‖ ≤ (1/4)^k, for ‖W‖ = 1 at z = 0 and at random z, and for ‖W‖ = 5 at z = 0"""
    bound = [0.25**k for k in range(1, 31)]
    return Conditional(
        ([_jacobian_product_norms(1.0, 0.0, spread) for spread in (0.0, 1.0, 3.0)], [bound] * 3),
        (_jacobian_product_norms(5.0, 0.0, 0.0), bound),
    )


@claim(
    "C2.16",
    Increasing(),
    condition="every σ′(z) near its maximum and every singular value of W above 4; ‖W‖ > 4 is necessary but not "
    "sufficient",
)
def exploding_product() -> Conditional:
    """‖∏ diag(σ′(z_k)) W_k‖ for ‖W‖ = 5 > 1/σ′_max, layer by layer: W = 5 × rotations with z near 0; z near 2; and
    Gaussian W with z = 0"""
    growing, saturated = _jacobian_product_norms(5.0, 0.0, 0.1), _jacobian_product_norms(5.0, 2.0, 0.1)
    gaussian = _jacobian_product_norms(5.0, 0.0, 0.0, lambda W: W / torch.linalg.matrix_norm(W, 2))
    return Conditional(Display(growing, {"after 10, 20, 30 layers:": growing[9::10]}),
                 Display([*saturated, *gaussian], {"z near 2:": saturated[9::10], "W Gaussian:": gaussian[9::10]}))


@claim("C2.17", Equal(1e-6))
def clipped_norm() -> Pair:
    """‖g‖ of two tensors after didact's clipping and torch's: c = 1 where it was larger, unchanged where it was
    smaller"""
    norms = []
    for size in (100.0, 2.0, 0.5):
        g = F.normalize(torch.randn(8), dim=0) * size
        ours = [scratch.tensor(chunk.numpy(), requires_grad=True) for chunk in g.split(3)]
        for p, chunk in zip(ours, g.split(3), strict=True):
            p.grad = chunk.numpy().copy()
        clip_norm(ours, 1.0)
        θ = torch.zeros(8, requires_grad=True)
        θ.grad = g.clone()
        nn.utils.clip_grad_norm_([θ], max_norm=1.0)
        norms += [math.sqrt(sum(float((p.grad**2).sum()) for p in ours if p.grad is not None)), θ.grad.norm()]
    return norms, [1.0, 1.0, 1.0, 1.0, 0.5, 0.5]


@cache
def _run_printed_program() -> dict[int, tuple[float, float]]:
    """Loss and accuracy of the program of 2.7 by epoch, with the seed that it sets."""
    return {e.epoch: (e.loss, e.accuracy) for e in by_hand.manual_mlp(epochs=81, lr=0.1, hidden=64, seed=42)}


_PROGRAM_GIVES_VALUES = "the printed program, with its seed, gives the computed values"


@claim("C2.18", Printed("0.7234", "0.4930"), correction=_PROGRAM_GIVES_VALUES)
def epoch_0() -> tuple[float, float]:
    """loss and accuracy of the 20 – 64 – 2 network before its first step"""
    return _run_printed_program()[0]


@claim("C2.19", Printed("0.2156", "0.9240"), correction=_PROGRAM_GIVES_VALUES)
def epoch_20() -> tuple[float, float]:
    """loss and accuracy after 20 steps of gradient descent, η = 0.1"""
    return _run_printed_program()[20]


@claim("C2.20", Printed("0.1052", "0.9670"), correction=_PROGRAM_GIVES_VALUES)
def epoch_40() -> tuple[float, float]:
    """loss and accuracy after 40 steps"""
    return _run_printed_program()[40]


@claim("C2.21", Printed("0.0614", "0.9810"), correction=_PROGRAM_GIVES_VALUES)
def epoch_60() -> tuple[float, float]:
    """loss and accuracy after 60 steps"""
    return _run_printed_program()[60]


@claim("C2.22", Printed("0.0402", "0.9880"), correction=_PROGRAM_GIVES_VALUES)
def epoch_80() -> tuple[float, float]:
    """loss and accuracy after 80 steps"""
    return _run_printed_program()[80]


@claim("C2.23", Equal())
def hand_written_gradients() -> Pair:
    """δ_2 = (p − y)/N, δ_1 = (δ_2 W_2) ⊙ [z_1 > 0], against PyTorch's engine"""
    return _gradients_by_hand_and_autograd(by_hand.RELU, torch.relu)


@claim("C2.24", Equal(1e-7))
def central_differences() -> Pair:
    """(L(w + ε) − L(w − ε))/2ε for each of 104 weights of a 4 – 7 – 6 – 3 MLP with ReLU, against the gradient by
    didact's hand-written recursion and by its own differences"""
    sizes, ε = ((7, 4), (7,), (6, 7), (6,), (3, 6), (3,)), 1e-5
    w, x, y = torch.randn(sum(map(math.prod, sizes))).numpy(), torch.randn(9, 4).numpy(), torch.randint(3, (9,)).numpy()

    def layers(w: Any) -> by_hand.Layers:
        chunks = np.split(w, np.cumsum([math.prod(s) for s in sizes])[:-1])
        arrays = [chunk.reshape(s) for chunk, s in zip(chunks, sizes, strict=True)]
        return list(zip(arrays[::2], arrays[1::2], strict=True))

    def loss_at(w: Any) -> float:
        zs, _ = by_hand.forward(layers(w), x, by_hand.RELU)
        return float(cross_entropy(scratch.tensor(zs[-1]), y).item())

    stated = np.array([(loss_at(w + ε * unit) - loss_at(w - ε * unit)) / (2 * ε) for unit in np.eye(len(w))])
    zs, hs = by_hand.forward(layers(w), x, by_hand.RELU)
    ours = by_hand.backward(layers(w), zs, hs, by_hand.softmax_delta(zs[-1], np.eye(3)[y]), by_hand.RELU)
    return [stated, stated], [
        np.concatenate([p.ravel() for layer in ours for p in layer]),
        central_difference(loss_at, w),
    ]


@claim("C2.29", LessOrEqual())
def memory_of_lion_and_adam() -> Display:
    """optimizer state per weight: twice that of didact's Lion (one average) against that of Adam (two)"""
    numbers_per_weight = []
    for optimizer_class in (Lion, torch.optim.Adam):
        net = MLP(features=20, hidden=(16,), outputs=3)
        optimizer = optimizer_class(net.parameters(), lr=1e-3)
        net(torch.randn(5, 20)).sum().backward()
        optimizer.step()
        state_tensors = [
            v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor) and v.ndim
        ]
        numbers_per_weight.append(sum(v.numel() for v in state_tensors) / count_parameters(net))
    lion, adam = numbers_per_weight
    return Display((2 * lion, adam), {"averages stored per weight: Lion": lion, "Adam": adam})
