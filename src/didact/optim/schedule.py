"""Learning-rate schedules: a factor of the learning rate for each step, from 0 to total - 1.  Gaba 2.5.

A factor depends on the step alone, so that a resumed run needs no state of its schedule. Use one at a time: the code of
Gaba 2.5.3 attaches three to one optimizer, and they multiply.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, floor, pi

from didact.errors import UsageError, look_up


@dataclass(frozen=True)
class Schedule:
    """schedule(step, total) -> factor; momentum(step, total) -> value, or None to leave it unchanged."""

    def __call__(self, step: int, total: int) -> float:
        raise NotImplementedError

    def momentum(self, step: int, total: int) -> float | None:
        return None


@dataclass(frozen=True)
class Constant(Schedule):
    """1."""

    def __call__(self, step: int, total: int) -> float:
        return 1.0


@dataclass(frozen=True)
class StepDecay(Schedule):
    """γ^⌊t / every⌋; `every` below 1 is a fraction of the total.  Gaba 2.5.1."""

    gamma: float = 0.1
    every: float = 1 / 3

    def __post_init__(self) -> None:
        if not self.every > 0:
            raise UsageError(f"every must be a number of steps, or a fraction of them, above 0, got {self.every:g}")

    def __call__(self, step: int, total: int) -> float:
        every = self.every if self.every >= 1 else self.every * total
        return float(self.gamma ** floor(step / every + 1e-9))  # 0.55 * 100 is a hair above 55


@dataclass(frozen=True)
class Cosine(Schedule):
    """f + (1 - f) (1 + cos(π t / T)) / 2.  Loshchilov and Hutter 2017, eq. 5, without restarts; Gaba 2.5.2."""

    final: float = 0.0

    def __call__(self, step: int, total: int) -> float:
        return _cosine_interpolate(1.0, self.final, step / total)


@dataclass(frozen=True)
class WarmupCosine(Schedule):
    """(t + 1) / T_w while t < T_w = warmup × T, then a cosine over the rest.  Gaba 2.5.3.

    t / T_w, as in the notes, would waste the first batch on a step of size zero.
    """

    warmup: float = 0.05
    final: float = 0.0

    def __post_init__(self) -> None:
        _check_share(self.warmup)

    def __call__(self, step: int, total: int) -> float:
        warmup_steps = round(self.warmup * total)
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        return _cosine_interpolate(1.0, self.final, (step - warmup_steps) / max(total - warmup_steps, 1))


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Cosine up from 1/start to 1, then down to 1/(start × end); momentum in the opposite direction.  Smith and Topin
    2018.

    As torch's OneCycleLR. The learning rate is the peak; both halves are cosines (the heading of Gaba 2.5.3 says
    linear).
    """

    warmup: float = 0.3
    start: float = 25.0
    end: float = 1e4
    low: float = 0.85
    high: float = 0.95

    def __post_init__(self) -> None:
        _check_share(self.warmup)

    def __call__(self, step: int, total: int) -> float:
        return self._interpolate(1 / self.start, 1.0, 1 / (self.start * self.end), step, total)

    def momentum(self, step: int, total: int) -> float | None:
        return self._interpolate(self.high, self.low, self.high, step, total)

    def _interpolate(self, first: float, peak: float, last: float, step: int, total: int) -> float:
        peak_step = self.warmup * total - 1  # the step of the peak; it need not be whole
        if step <= peak_step and peak_step > 0:
            return _cosine_interpolate(first, peak, step / peak_step)
        return _cosine_interpolate(peak, last, (step - peak_step) / (total - 1 - peak_step))


def _cosine_interpolate(a: float, b: float, share: float) -> float:
    """From a to b along half a cosine; b ever after."""
    return b + (a - b) * (1 + cos(pi * min(share, 1.0))) / 2


def _check_share(warmup: float) -> None:
    if not 0 <= warmup < 1:
        raise UsageError(f"warmup is a fraction of the steps, at least 0 and below 1, got {warmup:g}")


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": Constant,
    "step_decay": StepDecay,
    "cosine": Cosine,
    "warmup_cosine": WarmupCosine,
    "one_cycle": OneCycle,
}


def make_schedule(name: str) -> Schedule:
    """The schedule of that name with its defaults."""
    return look_up("schedule", name, SCHEDULES)()
