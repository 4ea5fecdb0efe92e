"""Lhotte, chapter 6: convolutions and pooling."""

from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from didact import metrics, scratch
from didact.claims.forms import CorrectedClaim, Display, Equal, Exactly
from didact.claims.helpers import Pair, compute_gradients
from didact.claims.registry import claim
from didact.layers.conv.norm_pool import make_pool2d
from didact.models.tabular.mlp import MLP
from didact.scratch import modules
from didact.scratch.pooling import avg_pool, max_pool


@claim("CL23", Exactly(10_000))
def neuron_on_an_image() -> int:
    """distinct gradients of one unit of didact's MLP by an image of 100 × 100 pixels, one per weight"""
    x = torch.rand(1, 1, 100, 100, requires_grad=True)
    first = MLP(100 * 100, 1, hidden=(1,), activation="tanh")
    (g,) = compute_gradients(first(x.flatten(1)).sum(), x)
    return len(g.unique())


@claim("CL24", Exactly((432, 16, 448, (16, 16, 16))))
def convolution() -> tuple[Any, ...]:
    """weights, biases, their sum and the output of didact's Conv2d(3, 16, 3, padding=1) on 3 × 16 × 16"""
    conv = modules.Conv2d(3, 16, 3, padding=1)
    weight, bias = (p.size for p in conv.parameters())
    return weight, bias, weight + bias, tuple(conv(scratch.tensor(np.zeros((1, 3, 16, 16), np.float32))).shape[1:])


@claim("CL25", Exactly((3, 16, 16)))
def max_pooling() -> tuple[int, ...]:
    """didact's 2 × 2 max pooling of 3 × 32 × 32"""
    return tuple(make_pool2d("max")(torch.zeros(1, 3, 32, 32)).shape[1:])


@claim("CL26", Equal(), correction="nn.AvgPool2d(32) or nn.AdaptiveAvgPool2d(1); the listing uses max pooling")
def global_average_pooling() -> CorrectedClaim:
    """max pooling by 32 of 3 × 32 × 32 against the mean of each channel; corrected: average pooling by 32; both
    didact's"""
    x = torch.randn(1, 3, 32, 32)
    scratch_x, mean = scratch.tensor(x.numpy()), x.mean((2, 3))
    return CorrectedClaim((max_pool(scratch_x, 32).data, mean), (avg_pool(scratch_x, 32).data, mean))


@claim("CL27", Exactly(((16, 16, 16), (32, 8, 8), (10,))))
def tiny_conv_net() -> tuple[tuple[int, ...], ...]:
    """the listing in didact's engine: twice [conv 3 × 3 padding 1, ReLU, pooling 2] with 16 and 32 channels on 3 × 32 ×
    32, then all 32 · 8 · 8 numbers to ten classes"""
    x, pool, shapes = scratch.tensor(np.zeros((1, 3, 32, 32), np.float32)), modules.MaxPool2d(2, 2), []
    for conv in (modules.Conv2d(3, 16, 3, padding=1), modules.Conv2d(16, 32, 3, padding=1)):
        x = pool(conv(x).relu())
        shapes.append(tuple(x.shape[1:]))
    scores = modules.Linear(32 * 8 * 8, 10)(modules.Flatten()(x))
    return (*shapes, tuple(scores.shape[1:]))


@claim("CL28", Exactly((0.99, 1.0, 0.0, 0.99, (0, 0))))
def metrics_of_always_yes() -> Display:
    """accuracy, recall of yes and of no, precision of yes, for 99 yes and 1 no, didact's metrics; for precision of no,
    correct over predicted, 0/0, which is nan in torch and 0 in didact's metric"""
    y, predictions = torch.cat([torch.ones(99), torch.zeros(1)]).long(), torch.ones(100).long()
    counts = metrics.confusion_matrix(predictions, y, 2)
    recall, precision = metrics.recall(counts), metrics.precision(counts)
    accuracy, num_correct_no, num_predicted_no = (
        metrics.accuracy(F.one_hot(predictions, 2).double(), y),
        counts[0, 0],
        counts[:, 0].sum(),
    )
    compared = (
        *(round(float(v), 6) for v in (accuracy, recall[1], recall[0], precision[1])),
        (int(num_correct_no), int(num_predicted_no)),
    )
    return Display(compared, {"accuracy": accuracy, "recall": recall.flip(0), "precision of yes": precision[1],
                           "of no, 0/0,": num_correct_no / num_predicted_no, "by didact's metric": precision[0]})


@claim("CL47", Equal())
def derivative_of_a_maximum() -> Pair:
    """∂max(a, b) by didact's own engine: 1 for the larger, 0 for the other"""
    a, b = (scratch.tensor(torch.randn(20).numpy(), requires_grad=True) for _ in range(2))
    ours = [g.data for g in scratch.grad(scratch.maximum(a, b).sum(), (a, b))]
    return [(a.data > b.data).astype(float), (b.data > a.data).astype(float)], ours
