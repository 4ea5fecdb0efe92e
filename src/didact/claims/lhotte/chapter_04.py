"""Lhotte, chapter 4: optimization and training tricks."""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from didact import metrics, scratch
from didact.claims.forms import Conditional, Display, Equal, Exactly, WithinStandardErrors
from didact.claims.gaba.chapter_02 import scheduler_rates
from didact.claims.helpers import Pair, count_parameters
from didact.claims.registry import claim
from didact.models.tabular.mlp import MLP
from didact.objectives.distributions.classification import Categorical
from didact.optim.schedule import StepDecay
from didact.scratch import modules


@claim(
    "CL16",
    Exactly(((100, 0.1), (200, 0.1)) * 2),
    condition="more epochs than step_size: the 50 of the listing never reach 100",
)
def decays_of_the_loop() -> Conditional:
    """epochs at which StepLR(step_size=100, gamma=0.1) lowers the rate, and by what factor, didact's and torch's: in
    250 epochs, and in the listing's 50"""
    def decays(epochs: int) -> Display:
        ours = [StepDecay(gamma=0.1, every=100)(t, epochs) for t in range(epochs + 1)]
        theirs = scheduler_rates(lambda o: torch.optim.lr_scheduler.StepLR(o, 100, 0.1), epochs + 1, lr=0.1)
        decay_steps = [
            (t, round(b / a, 9)) for lr in (ours, theirs) for t, (a, b) in enumerate(pairwise(lr), 1) if b != a
        ]
        epochs_shown = [t for t in (0, 99, 100, 199, 200, epochs) if t <= epochs]
        return Display(tuple(decay_steps), {"epoch": epochs_shown, "rate": [theirs[t] for t in epochs_shown]})

    return Conditional(decays(250), decays(50))


@claim("CL18", WithinStandardErrors())
def dropout() -> tuple[Tensor, Tensor, float]:
    """E[y] = x: the mean of a million outputs of didact's dropout, p = 0.4, at x = 2.5; in eval mode it is the
    identity"""
    layer, x = modules.Dropout(0.4, rng=0), scratch.tensor(np.full(1_000_000, 2.5))
    y = torch.from_numpy(layer(x).data)
    layer.eval()
    assert np.array_equal(layer(x).data, x.data)
    return y.mean(), y.std() / 1000, 2.5


@claim("CL19", Exactly("Expected floating point type for target with class probabilities, got Long"),
       remark="for integers only: one-hot rows of floats are accepted, contrary to the heading")
def one_hot_targets() -> str:
    """the error message for integer one-hot targets, from CrossEntropyLoss, through didact's own objective"""
    try:
        Categorical(3).mean_loss(torch.randn(4, 3), F.one_hot(torch.tensor([0, 1, 2, 0]), 3))
    except RuntimeError as error:
        return str(error).strip()
    return "no error"


@claim("CL20", Exactly((0, 2)))
def random_labels() -> tuple[int, int]:
    """the least and the largest of a thousand torch.randint(0, 3, …), counted by didact's confusion matrix of four
    classes"""
    y = torch.randint(0, 3, (1000,))
    labels_found = metrics.confusion_matrix(y, y, 4).sum(1).nonzero()
    return int(labels_found.min()), int(labels_found.max())


@claim("CL21", Equal())
def softmax_sums_to_one() -> Pair:
    """didact's probabilities, e^z/Σ e^z: they sum to 1, and none is below 0"""
    z = 10 * torch.randn(20, 5)
    p = Categorical(5).probabilities(z)
    return [z.exp() / z.exp().sum(1, keepdim=True), torch.ones(20), torch.zeros(20, 5)], [p, p.sum(1), p.clamp(max=0)]


@claim("CL17", Equal())
def regularized_net() -> Pair:
    """widths in didact's Linear(100, 100), batch norm, ReLU, dropout, Linear(100, 10), and its parameters, by hand"""
    net, widths = MLP(100, 10, hidden=(100,), norm="batch", dropout=0.5), [100]
    for layer in (net.hidden, net.head):
        layer.register_forward_hook(lambda _m, _i, y: widths.append(y.shape[1]))
    net(torch.randn(7, 100))
    return [100, 100, 10, 100 * 100 + 100 + 2 * 100 + 100 * 10 + 10], [*widths, count_parameters(net)]
