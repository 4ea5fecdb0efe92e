"""Optimizers: what to do with a gradient (Gaba 2.1, 2.4, 3.9; Groudiev 3.5; Van Schependom 2.3).

Each class gives its direction d(g); the step is the same for all:  θ ← θ − η d(g).  `lr` is η and may change between
steps. The formulas are PyTorch's; a line says where a course writes another.
"""

from collections.abc import Iterable

import numpy as np

from didact.scratch.autograd.tensor import Array, ScratchError, Tensor, no_grad

State = dict[str, Array]


class Optimizer:
    """θ ← θ − η d(g + λθ): `weight_decay` λ adds the gradient of (λ/2)‖θ‖² (Groudiev's γ‖θ‖² is twice that)."""

    def __init__(self, params: Iterable[Tensor], lr: float, *, weight_decay: float = 0.0):
        self.params = list(params)
        if not self.params:
            raise ScratchError(f"{type(self).__name__}: there are no parameters to train")
        self.lr, self.weight_decay = lr, weight_decay
        self.states: list[State] = [{} for _ in self.params]
        self.steps = [0] * len(self.params)  # counted for each parameter: one without a gradient makes no step

    def zero_grad(self) -> None:
        for p in self.params:
            p.grad = None

    def step(self) -> None:
        with no_grad():
            for i, p in enumerate(self.params):
                if p.grad is not None:
                    self.steps[i] += 1
                    g = self.add_weight_decay(p, p.grad)
                    p.add_(self.direction(g, self.states[i], self.steps[i]), alpha=-self.lr)

    def add_weight_decay(self, p: Tensor, g: Array) -> Array:
        return g + self.weight_decay * p.data if self.weight_decay else g

    def direction(self, g: Array, s: State, t: int) -> Array:
        raise NotImplementedError


class SGD(Optimizer):
    """d = g.  With `momentum` μ: v ← μ v + g, d = v; with `nesterov`: d = g + μ v.

    v sums gradients up (to g/(1 − μ)); it is not an average. Groudiev 3.5.1 keeps η inside v, the same while η is
    constant; his Nesterov takes the gradient at the look-ahead point, the same path in that point's coordinates.
    """

    def __init__(self, params: Iterable[Tensor], lr: float = 1e-3, *, momentum: float = 0.0, nesterov: bool = False,
                 weight_decay: float = 0.0):
        super().__init__(params, lr, weight_decay=weight_decay)
        if nesterov and not momentum:
            raise ScratchError("SGD: nesterov needs a momentum")
        self.momentum, self.nesterov = momentum, nesterov

    def direction(self, g: Array, s: State, t: int) -> Array:
        if not self.momentum:
            return g
        v = s.setdefault("v", np.zeros_like(g))
        v *= self.momentum
        v += g
        return g + self.momentum * v if self.nesterov else v


class GD(SGD):
    """θ ← θ − η∇L(θ), the gradient of the whole dataset: SGD whose batch is everything."""

    def __init__(self, params: Iterable[Tensor], lr: float = 1e-3):
        super().__init__(params, lr)


class AdaGrad(Optimizer):
    """s ← s + g²,  d = g/(√s + ε).  Groudiev 3.5.3 writes √(s + ε)."""

    def __init__(self, params: Iterable[Tensor], lr: float = 1e-2, *, eps: float = 1e-10, weight_decay: float = 0.0):
        super().__init__(params, lr, weight_decay=weight_decay)
        self.eps = eps

    def direction(self, g: Array, s: State, t: int) -> Array:
        total = s.setdefault("s", np.zeros_like(g))
        total += g * g
        return _over_root(g, total, 1.0, self.eps)


class RMSProp(Optimizer):
    """s ← α s + (1 − α) g²,  d = g/(√s + ε).

    Gaba 2.4.2 and Groudiev 3.5.4 write √(s + ε); the course's α is 0.9, PyTorch's 0.99.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-2,
        *,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr, weight_decay=weight_decay)
        self.alpha, self.eps = alpha, eps

    def direction(self, g: Array, s: State, t: int) -> Array:
        return _over_root(g, update_average(s, "s", g * g, self.alpha), 1.0, self.eps)


class Adam(Optimizer):
    """m ← β₁m + (1 − β₁)g,  v ← β₂v + (1 − β₂)g²,  d = m̂/(√v̂ + ε) with m̂ = m/(1 − β₁ᵗ), v̂ = v/(1 − β₂ᵗ).

    The averages start at 0; dividing by 1 − βᵗ undoes that. Gaba 2.4.3 writes √(v̂ + ε), which at ε = 1e-8 stops steps
    of small gradients.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr, weight_decay=weight_decay)
        self.betas, self.eps = betas, eps

    def second_moment(self, g: Array, s: State) -> Array:
        return update_average(s, "v", g * g, self.betas[1])

    def direction(self, g: Array, s: State, t: int) -> Array:
        m = update_average(s, "m", g, self.betas[0])
        v = self.second_moment(g, s)
        d = _over_root(m, v, 1 - self.betas[1] ** t, self.eps)
        d /= 1 - self.betas[0] ** t
        return d


class AMSGrad(Adam):
    """Adam with the largest v so far, so that the effective learning rate never grows.

    Groudiev 3.5.6 has no bias corrections; PyTorch keeps them.
    """

    def second_moment(self, g: Array, s: State) -> Array:
        v = super().second_moment(g, s)
        top = s.setdefault("top", np.zeros_like(g))
        return np.maximum(top, v, out=top)


class AdamW(Adam):
    """θ ← (1 − ηλ) θ − η m̂/(√v̂ + ε): decoupled weight decay, the same for every weight. Gaba eq. 3.31-3.33."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ):
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def add_weight_decay(self, p: Tensor, g: Array) -> Array:
        if self.weight_decay:
            p.mul_(1 - self.lr * self.weight_decay)
        return g


def update_average(s: State, key: str, value: Array, beta: float) -> Array:
    """Exponential moving average, a ← β a + (1 − β) value, stored in the state."""
    a = s.setdefault(key, np.zeros_like(value))
    a *= beta
    a += (1 - beta) * value
    return a


def _over_root(m: Array, v: Array, correction: float, eps: float) -> Array:
    """m / (√(v/correction) + ε), the ε outside the root."""
    root = np.sqrt(v, out=np.empty_like(v))
    root /= correction**0.5
    root += eps
    return np.divide(m, root, out=root)


def clip_norm(params: Iterable[Tensor], limit: float) -> float:
    """Gradient clipping: g ← g · min(1, c/(‖g‖ + 1e-6)), ‖g‖ over all parameters together; returns ‖g‖.

    Gaba 5.4.2; the 1e-6 is PyTorch's.
    """
    grads = [p.grad for p in params if p.grad is not None]
    norm = float(np.sqrt(sum(float(np.vdot(g, g)) for g in grads)))
    share = limit / (norm + 1e-6)
    if share < 1:
        for g in grads:
            g *= share
    return norm
