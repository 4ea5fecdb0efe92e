"""Dropout: train a thinned network, a different one for each batch (Gaba 3.4, Lhotte 4.4)."""

import numpy as np

from didact.scratch.autograd.tensor import ScratchError, Tensor


def dropout(x: Tensor, p: float, rng: np.random.Generator, training: bool = True) -> Tensor:
    """y = m/(1 − p) ⊙ x with m ~ Bernoulli(1 − p), so that E[y] = x;  dx = m/(1 − p) ⊙ dy.  The identity in eval mode.

    p is the probability of dropping a value, as in PyTorch. Van Schependom 3.3.3 scales at test time instead, and by p
    where 1 − p is right.
    """
    if not 0 <= p <= 1:
        raise ScratchError(f"dropout: p is a probability, got {p}")
    if not training or p == 0:
        return x
    keep = rng.random(x.shape, np.float32) >= p
    return x * Tensor(keep * x.dtype.type(0 if p == 1 else 1 / (1 - p)))
