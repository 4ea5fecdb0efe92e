"""Fleuret, chapters 1 to 3: foundations, efficient computation, training."""

import math
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from didact import scratch
from didact.claims import gaba_2
from didact.claims.compare import Conditional, CorrectedClaim, Equal, Exactly, Printed, ShownAs
from didact.claims.core import claim
from didact.claims.tools import Pair, compute_gradients, count_multiplications
from didact.data.images.image_folder import ImageEncoder
from didact.models.tabular.mlp import MLP
from didact.objectives.distributions.classification import Categorical
from didact.registry import create_model
from didact.scratch import modules
from didact.scratch.losses import mse_loss
from didact.scratch.optim import SGD


@claim("CF01", Equal())
def normal_equations() -> Pair:
    """the w of ΦᵀΦ w = Φᵀy for six Gaussian kernels, against torch's least squares; and ∇ of didact's squared error
    there, against 0"""
    x, y = torch.linspace(-1, 1, 30), torch.randn(30)
    Φ = torch.exp(-((x[:, None] - torch.linspace(-1, 1, 6)) ** 2) / 0.1)
    w = torch.linalg.solve(Φ.T @ Φ, Φ.T @ y)
    leaf = scratch.tensor(w.numpy(), requires_grad=True)
    (g,) = scratch.grad(mse_loss(scratch.tensor(Φ.numpy()) @ leaf, y.numpy()), (leaf,))
    return [w, torch.from_numpy(g.data)], [torch.linalg.lstsq(Φ, y[:, None]).solution, torch.zeros(6)]


def _save_and_read_images(number: int, width: int, height: int) -> Tensor:
    """So many images of that size, as didact reads them from files."""
    from PIL import Image

    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.png" for i in range(number)]
        for file in files:
            Image.new("RGB", (width, height)).save(file)
        return torch.stack([ImageEncoder((3, 1, 1)).open_full_size(file) for file in files])


@claim("CF03", Exactly((50, 3, 24, 32)))
def batch_of_pictures() -> tuple[int, ...]:
    """fifty pictures 32 pixels wide and 24 high, channels first"""
    return tuple(_save_and_read_images(50, 32, 24).shape)


@claim("CF04", Exactly((5, 3)), correction="H is the height and W the width")
def axes_of_an_image() -> ShownAs:
    """(H, W) of a picture 5 pixels wide and 3 high, read as (width, height)"""
    width, height = 5, 3
    H, W = _save_and_read_images(1, width, height).shape[2:]
    return ShownAs((H, W), {"width": width, "height": height, "H": H, "W": W})


@claim("CF05", Exactly((True, True, True, False)))
def views_without_copies() -> ShownAs:
    """do a transpose, a part and a reshaped tensor share the tensor's memory, in didact's engine; does a reshaped
    transpose"""
    x = scratch.tensor(torch.randn(4, 6).numpy())
    shared = tuple(bool(np.shares_memory(x.data, y.data)) for y in (x.T, x[1:3, ::2], x.reshape(24), x.T.reshape(24)))
    names = ("memory shared by a transpose", "by a part", "by a reshaped tensor", "by a reshaped transpose")
    return ShownAs(shared, dict(zip(names, shared, strict=True)))


@claim("CF06", Equal())
def softmax_and_cross_entropy() -> Pair:
    """−(1/N) Σ log(exp f_y/Σ_k exp f_k), against didact's loss"""
    f, y = torch.randn(20, 5), torch.randint(5, (20,))
    return -(f[torch.arange(20), y].exp() / f.exp().sum(1)).log().mean(), Categorical(5).mean_loss(f, y)


@claim("CF07", Equal())
def triplet_term() -> Pair:
    """max(0, 1 − f(a,c) + f(a,b)) by didact's engine, for a thousand pairs, and its slopes, are PyTorch's ranking
    loss of margin 1 and its
    slopes; and > 0 just where f(a,c) < 1 + f(a,b)"""
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
    """the gradient of λ‖w‖², what didact's weight decay of 2λ adds, = that of −log N(w; 0, 1/(2λ))"""
    w, λ = torch.randn(6, requires_grad=True), 0.4
    prior = -torch.distributions.Normal(0.0, math.sqrt(1 / (2 * λ))).log_prob(w).sum()
    scratch_w = scratch.tensor(w.detach().numpy(), requires_grad=True)
    return compute_gradients(prior, w)[0], SGD([scratch_w], weight_decay=2 * λ).add_weight_decay(scratch_w, np.zeros(6))


@claim(
    "CF09", Equal(), condition="divided by its own number of terms, B; the bare part of (1/N) Σ has the mean (B/N) ∇L"
)
def partial_sums_of_the_gradient() -> Conditional:
    """the mean over all subsets of B = 3 of N = 6 examples of Σ ∇ℓ_n, ∇ℓ_n by didact's objective, over B, against
    didact's gradient on all
    six; and the same over N"""
    N, B, full_gradient = 6, 3, gaba_2.minibatch_gradient(range(6))
    g = torch.stack([gaba_2.minibatch_gradient([n]) for n in range(N)])
    total = torch.stack([g[list(subset)].sum(0) for subset in combinations(range(N), B)]).mean(0)

    def compare_with_gradient(mean: Tensor) -> ShownAs:
        return ShownAs(
            (mean, full_gradient),
            {"mean as a share of the gradient": (mean @ full_gradient) / (full_gradient @ full_gradient)},
        )

    return Conditional(compare_with_gradient(total / B), compare_with_gradient(total / N))


@claim("CF10", Equal(), correction="f = f_D ∘ … ∘ f_1, as the figure has it")
def order_of_composition() -> CorrectedClaim:
    """f_1(f_2(f_3(x))) against x^(d) = f_d(x^(d−1)), d = 1, 2, 3, didact's chain; mended: f_3(f_2(f_1(x)))"""
    (f1, f2, f3), x = (
        [modules.Sequential(modules.Linear(4, 4, rng=i), modules.Tanh()) for i in range(3)],
        scratch.tensor([[0.5, -1, 2, 0]]),
    )
    h = modules.Sequential(f1, f2, f3)(x)
    return CorrectedClaim((f1(f2(f3(x))).data, h.data), (f3(f2(f1(x))).data, h.data))


@claim("CF11", Equal(), correction="the Jacobian is that of f_d, at x^(d−1)")
def backward_through_a_layer() -> CorrectedClaim:
    """∇ at x^(1) from ∇ at x^(2) by the Jacobian of f_1 = tanh W_1, diag(1 − f²) W, against didact's engine;
    mended: by that of f_2"""
    W1, W2, x0 = (scratch.tensor(torch.randn(*n).numpy(), requires_grad=True) for n in ((4, 4), (4, 4), (4,)))
    x1 = (W1 @ x0).tanh()
    x2 = (W2 @ x1).tanh()
    gradient_after, gradient_before = (g.data for g in scratch.grad((x2**3).sum(), (x2, x1)))
    J1, J2 = ((1 - x.data**2)[:, None] * W.data for x, W in ((x1, W1), (x2, W2)))
    return CorrectedClaim((gradient_after @ J1, gradient_before), (gradient_after @ J2, gradient_before))


@claim("CF12", Printed("2", "2"))
def cost_of_the_backward_pass() -> list[float]:
    """products of the backward over those of the forward pass of didact's MLP, ten layers of 64: two for each,
    where the input wants a
    gradient too; one for the first, where it does not"""
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
    """how many of the logits of didact's small GPT at t = 0 … 7 change with the token at s: all for t ≥ s, none
    before, against 1 and 0"""
    net, ids = create_model("gpt_small", vocab_size=20).eval(), torch.randint(20, (1, 8))
    with torch.no_grad():
        logits, changed_shares = net(ids)[0], []
        for s in range(8):
            changed_ids = ids.clone()
            changed_ids[0, s] = (ids[0, s] + 1) % 20
            changed_shares.append(((net(changed_ids)[0] - logits).abs() > 1e-9).double().mean(1))
    return torch.stack(changed_shares, dim=1), torch.ones(8, 8).tril()
