"""Fleuret, chapter 3: training."""

import math
from itertools import combinations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import didact.models  # noqa: F401 (registers the presets)
from didact import scratch
from didact.claims.forms import Conditional, CorrectedClaim, Display, Equal, Printed
from didact.claims.gaba import chapter_02 as gaba_2
from didact.claims.helpers import Pair, compute_gradients, count_multiplications
from didact.claims.registry import claim
from didact.layers.mlp import make_mlp_layers
from didact.models.tabular.mlp import MLP
from didact.objectives.distributions.classification import Categorical
from didact.registry import create_model
from didact.scratch import modules
from didact.scratch.optim import SGD


@claim("CF06", Equal())
def softmax_and_cross_entropy() -> Pair:
    """−(1/N) Σ log(exp f_y/Σ_k exp f_k), against didact's loss"""
    f, y = torch.randn(20, 5), torch.randint(5, (20,))
    return -(f[torch.arange(20), y].exp() / f.exp().sum(1)).log().mean(), Categorical(5).mean_loss(f, y)


@claim("CF07", Equal())
def triplet_term() -> Pair:
    """max(0, 1 − f(a,c) + f(a,b)) and its gradients by didact's engine, for a thousand pairs, against PyTorch's ranking
    loss of margin 1; and > 0 exactly where f(a,c) < 1 + f(a,b)"""
    fac, fab = (2 * torch.randn(1000, requires_grad=True) for _ in range(2))
    ranking_losses = F.margin_ranking_loss(fac, fab, torch.ones(1000), margin=1.0, reduction="none")
    scratch_scores = [scratch.tensor(f.detach().numpy(), requires_grad=True) for f in (fac, fab)]
    term = scratch.maximum(1.0 - scratch_scores[0] + scratch_scores[1], 0.0)
    slopes = [g.data for g in scratch.grad(term.sum(), scratch_scores)]
    return [ranking_losses, *compute_gradients(ranking_losses.sum(), fac, fab), (fac < 1 + fab).double()], [
        term.data,
        *slopes,
        (term.data > 0).astype(float),
    ]


@claim("CF08", Equal())
def decay_as_a_prior() -> Pair:
    """the gradient of λ‖w‖², added by didact's weight decay of 2λ, = that of −log N(w; 0, 1/(2λ))"""
    w, λ = torch.randn(6, requires_grad=True), 0.4
    prior = -torch.distributions.Normal(0.0, math.sqrt(1 / (2 * λ))).log_prob(w).sum()
    scratch_w = scratch.tensor(w.detach().numpy(), requires_grad=True)
    return compute_gradients(prior, w)[0], SGD([scratch_w], weight_decay=2 * λ).add_weight_decay(scratch_w, np.zeros(6))


@claim(
    "CF09", Equal(), condition="divided by its own number of terms, B; the partial sum of (1/N) Σ has the mean (B/N) ∇L"
)
def partial_sums_of_the_gradient() -> Conditional:
    """the mean over all subsets of B = 3 of N = 6 examples of Σ ∇ℓ_n, ∇ℓ_n by didact's objective, over B, against
    didact's gradient on all six; and the same over N"""
    N, B, full_gradient = 6, 3, gaba_2.minibatch_gradient(range(6))
    g = torch.stack([gaba_2.minibatch_gradient([n]) for n in range(N)])
    total = torch.stack([g[list(subset)].sum(0) for subset in combinations(range(N), B)]).mean(0)

    def compare_with_gradient(mean: Tensor) -> Display:
        return Display(
            (mean, full_gradient),
            {"mean as a fraction of the gradient": (mean @ full_gradient) / (full_gradient @ full_gradient)},
        )

    return Conditional(compare_with_gradient(total / B), compare_with_gradient(total / N))


@claim("CF10", Equal(), correction="f = f_D ∘ … ∘ f_1, as in the figure")
def order_of_composition() -> CorrectedClaim:
    """f_1(f_2(f_3(x))) against x^(d) = f_d(x^(d−1)), d = 1, 2, 3, didact's chain; corrected: f_3(f_2(f_1(x)))"""
    (f1, f2, f3), x = (
        [modules.Sequential(modules.Linear(4, 4, rng=i), modules.Tanh()) for i in range(3)],
        scratch.tensor([[0.5, -1, 2, 0]]),
    )
    h = modules.Sequential(f1, f2, f3)(x)
    return CorrectedClaim((f1(f2(f3(x))).data, h.data), (f3(f2(f1(x))).data, h.data))


@claim("CF11", Equal(), correction="the Jacobian is that of f_d, at x^(d−1)")
def backward_through_a_layer() -> CorrectedClaim:
    """∇ at x^(1) from ∇ at x^(2) by the Jacobian of f_1 = tanh W_1, diag(1 − f²) W, against didact's engine; corrected:
    by that of f_2"""
    W1, W2, x0 = (scratch.tensor(torch.randn(*n).numpy(), requires_grad=True) for n in ((4, 4), (4, 4), (4,)))
    x1 = (W1 @ x0).tanh()
    x2 = (W2 @ x1).tanh()
    gradient_after, gradient_before = (g.data for g in scratch.grad((x2**3).sum(), (x2, x1)))
    J1, J2 = ((1 - x.data**2)[:, None] * W.data for x, W in ((x1, W1), (x2, W2)))
    return CorrectedClaim((gradient_after @ J1, gradient_before), (gradient_after @ J2, gradient_before))


@claim("CF12", Printed("2", "2"))
def cost_of_the_backward_pass() -> list[float]:
    """multiplications of the backward over those of the forward pass of didact's MLP, ten layers of 64: two for each
    where the input requires a gradient too, one for the first layer where it does not"""
    net = MLP(64, 64, hidden=(64,) * 9)

    def ratio(x: Tensor) -> float:
        forward = count_multiplications(lambda: net(x).detach())
        return (count_multiplications(lambda: net(x).sum().backward()) - forward) / forward

    return [ratio(torch.randn(8, 64, requires_grad=requires_grad)) for requires_grad in (True, False)]


@claim(
    "CF14",
    Printed("14e6", "1.6e9", "12e9"),
    correction="a thousand times fewer: a book of 250 pages of 2000 characters is half a megabyte",
)
def books_of_a_corpus() -> list[float]:
    """8 GB, 825 GB and 6 TB over 250 · 2000 bytes"""
    return [size / (250 * 2000) for size in (8e9, 825e9, 6e12)]


@claim("CF42", Equal())
def causal_model() -> Pair:
    """fraction of the logits of didact's small GPT at t = 0 … 7 that change with the token at s: all for t ≥ s, none
    before, against 1 and 0"""
    net, ids = create_model("gpt_small", vocab_size=20).eval(), torch.randint(20, (1, 8))
    with torch.no_grad():
        logits, changed_shares = net(ids)[0], []
        for s in range(8):
            changed_ids = ids.clone()
            changed_ids[0, s] = (ids[0, s] + 1) % 20
            changed_shares.append(((net(changed_ids)[0] - logits).abs() > 1e-9).double().mean(1))
    return torch.stack(changed_shares, dim=1), torch.ones(8, 8).tril()


@claim("CF13", Equal())
def memory_of_training() -> Pair:
    """tensors that didact's stack of 4, 8, 16 layers saves for its backward pass: the input and one per layer; with 4
    checkpoints 4, for one more forward pass: multiplications over those of a forward pass, 3 and 4"""
    def cost(depth: int, num_checkpoints: int) -> tuple[float, int]:
        layers, saved_tensors = make_mlp_layers((32,) * (depth + 1), "tanh"), dict[int, Tensor]()

        def save_tensor(t: Tensor) -> Tensor:
            if not isinstance(t, nn.Parameter) and t._base is None:     # weights are in memory anyway
                saved_tensors[id(t)] = t
            return t

        def forward_backward() -> None:
            h, size = torch.randn(8, 32, requires_grad=True), len(layers) // num_checkpoints
            with torch.autograd.graph.saved_tensors_hooks(save_tensor, lambda t: t):
                for segment in (layers[i : i + size] for i in range(0, len(layers), size)):
                    h = segment(h) if num_checkpoints == 1 else checkpoint(segment, h, use_reentrant=False)
            h.sum().backward()

        return count_multiplications(forward_backward) / count_multiplications(
            lambda: layers(torch.randn(8, 32)).detach()
        ), len(saved_tensors)

    costs, checkpointed_cost = [cost(depth, 1) for depth in (4, 8, 16)], cost(16, 4)
    return [*(n for _, n in costs), checkpointed_cost[1], costs[2][0], checkpointed_cost[0]], [
        4 + 1,
        8 + 1,
        16 + 1,
        4,
        3,
        4,
    ]
