"""Backpropagation by hand: the delta recursion of an MLP, derived on paper (Gaba 2.2.1, Van Schependom 2.4).

    forward     z_l = W_l h_{l−1} + b_l,   h_l = σ(z_l),   h_0 = x
    backward    δ_L = ∂L/∂h_L ⊙ σ′(z_L)             element-wise activations (Gaba: any; softmax is not one)
                δ_L = p − y                          softmax with cross-entropy
                δ_l = (W_{l+1}ᵀ δ_{l+1}) ⊙ σ′(z_l)
                ∂L/∂W_l = δ_l h_{l−1}ᵀ,   ∂L/∂b_l = δ_l

The examples of a batch are rows: W h becomes h Wᵀ, and the sum over the batch is part of the products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Layers = list[tuple[Array, Array]]  # (W_l, b_l), W_l of shape (n_l, n_{l−1})


@dataclass(frozen=True)
class Activation:
    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]


RELU = Activation(lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(z.dtype))
TANH = Activation(np.tanh, lambda z: 1 - np.tanh(z) ** 2)
SIGMOID = Activation(lambda z: 1 / (1 + np.exp(-z)), lambda z: 1 / (2 + np.exp(z) + np.exp(-z)))  # σ(1 − σ)
IDENTITY = Activation(lambda z: z, np.ones_like)


def forward(
    layers: Layers, x: Array, hidden: Activation, last: Activation = IDENTITY
) -> tuple[list[Array], list[Array]]:
    """All z_l and all h_l: backward needs every one of them again, which is why training needs memory."""
    zs, hs = [], [x]
    for l, (W, b) in enumerate(layers, start=1):
        zs.append(hs[-1] @ W.T + b)
        hs.append((last if l == len(layers) else hidden).value(zs[-1]))
    return zs, hs


def backward(layers: Layers, zs: list[Array], hs: list[Array], delta: Array, hidden: Activation) -> Layers:
    """(∂L/∂W_l, ∂L/∂b_l) for every layer, from δ_L."""
    grads: Layers = []
    for l in reversed(range(len(layers))):
        grads.append((delta.T @ hs[l], delta.sum(0)))
        if l:
            W, _ = layers[l]
            delta = (delta @ W) * hidden.slope(zs[l - 1])
    return grads[::-1]


def output_delta(dL_dh: Array, z: Array, last: Activation) -> Array:
    """δ_L = ∂L/∂h_L ⊙ σ′(z_L), for an element-wise activation."""
    return dL_dh * last.slope(z)


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max(1, keepdims=True))
    p: Array = e / e.sum(1, keepdims=True)
    return p


def softmax_delta(z: Array, y: Array) -> Array:
    """δ_L = (p − y)/N for the mean cross-entropy of N examples, y one-hot."""
    return (softmax(z) - y) / len(z)


@dataclass(frozen=True)
class Epoch:
    epoch: int
    loss: float
    accuracy: float


def make_separable_data(seed: int = 42) -> tuple[Array, NDArray[np.int64], np.random.RandomState]:
    """1000 points x ~ N(0, I) in 20 dimensions, label [x_0 + x_1 > 0] (Gaba 2.7), and the generator after them."""
    random = np.random.RandomState(seed)  # the course's own generator, for the same numbers
    x = random.randn(1000, 20)
    return x, (x[:, 0] + x[:, 1] > 0).astype(np.int64), random


def manual_mlp(epochs: int = 100, lr: float = 0.1, hidden: int = 64, seed: int = 42) -> Iterator[Epoch]:
    """The 20-64-2 network of Gaba 2.7, without any engine: ReLU, He initialization, full-batch gradient descent.

    The course writes log(p + 1e-8); so do we here, for the same printed loss. The delta is that of log p.
    """
    x, label, random = make_separable_data(seed)
    y = np.eye(2)[label]
    layers = [(random.randn(m, n) * np.sqrt(2 / n), np.zeros(m)) for n, m in ((20, hidden), (hidden, 2))]
    for epoch in range(epochs):
        zs, hs = forward(layers, x, RELU)
        p = softmax(zs[-1])
        yield Epoch(epoch, float(-np.mean(np.sum(y * np.log(p + 1e-8), 1))), float((p.argmax(1) == label).mean()))
        grads = backward(layers, zs, hs, softmax_delta(zs[-1], y), RELU)
        layers = [(W - lr * dW, b - lr * db) for (W, b), (dW, db) in zip(layers, grads, strict=True)]
