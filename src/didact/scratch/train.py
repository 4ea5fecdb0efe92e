"""The training loop: forward, loss, backward, step (Groudiev 3.6, Lhotte 3.3.2)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from didact.scratch.autograd.tensor import Array, Tensor, no_grad
from didact.scratch.init import Rng
from didact.scratch.module import Module
from didact.scratch.optim import Optimizer, clip_norm

Batch = tuple[Array, Array]


def train(model: Module, batches: Iterable[Batch], loss: Callable[[Any, Array], Tensor], optimizer: Optimizer, *,
          schedule: Callable[[int], float] | None = None, clip: float | None = None) -> list[float]:
    """θ ← θ − η d(∇ loss(model(x), y)) for every batch; returns the losses."""
    model.train()
    losses = []
    for t, (x, y) in enumerate(batches):
        if schedule:
            optimizer.lr = schedule(t)
        optimizer.zero_grad()
        value = loss(model(Tensor(x)), y)
        value.backward()
        if clip:
            clip_norm(optimizer.params, clip)
        optimizer.step()
        losses.append(float(value.item()))
    return losses


def shuffle_batches(x: Array, y: Array, *, batch_size: int, epochs: int = 1, rng: Rng = None) -> Iterator[Batch]:
    """Every example once an epoch, in a new order each time; the last batch may be smaller."""
    generator = np.random.default_rng(rng)
    for _ in range(epochs):
        order = generator.permutation(len(x))
        for start in range(0, len(x), batch_size):
            indices = order[start : start + batch_size]
            yield x[indices], y[indices]


def accuracy(model: Module, x: Array, y: Array) -> float:
    """Accuracy: the fraction of examples whose largest logit is that of their class, in eval mode."""
    model.eval()
    with no_grad():
        scores = model(Tensor(x))
    return float((scores.data.argmax(1) == y).mean())
