"""Learning-rate schedules (Gaba 2.5, Lhotte 4.3): η as a function of the step t = 0, 1, 2 …

A schedule is a plain function; the loop calls it and sets `optimizer.lr`. One schedule drives one optimizer: the
listing of Gaba 2.5.3 attaches three at once, whose factors multiply (M12).
"""

from math import cos, pi


def _cosine_interpolate(a: float, b: float, fraction: float) -> float:
    """From a (fraction = 0) to b (fraction = 1) along half a cosine."""
    return b + 0.5 * (a - b) * (1 + cos(pi * fraction))


def step_decay(t: int, *, lr: float, every: int, gamma: float = 0.1) -> float:
    """η γ^⌊t/T⌋.  Gaba 2.5.1. Lhotte's T = 100 in a training of 50 epochs never decays."""
    return lr * float(gamma ** (t // every))


def cosine(t: int, *, lr: float, total: int, floor: float = 0.0) -> float:
    """η_min + ½ (η − η_min)(1 + cos(π t/T)).  Gaba 2.5.2."""
    return _cosine_interpolate(lr, floor, t / total)


def warmup_cosine(t: int, *, lr: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """η t/T_w up to T_w, then the cosine over the remaining steps. Gaba 2.5.3."""
    return lr * t / warmup if t < warmup else _cosine_interpolate(lr, floor, (t - warmup) / (total - warmup))


def one_cycle(t: int, *, lr: float, total: int, rise: float = 0.3, start: float = 25.0, end: float = 1e4) -> float:
    """From η/start up to η over the first `rise` of the steps, then down to η/(start·end), both along a cosine.

    Gaba 2.5.3 calls the rise linear; PyTorch's is this one. It also takes the momentum down and up again, from 0.95 to
    0.85 and back: `one_cycle_momentum`.
    """
    return _one_cycle_value(t, lr / start, lr, lr / start / end, total=total, rise=rise)


def one_cycle_momentum(t: int, *, total: int, rise: float = 0.3, low: float = 0.85, high: float = 0.95) -> float:
    """High where the learning rate is low, and low where it is high."""
    return _one_cycle_value(t, high, low, high, total=total, rise=rise)


def _one_cycle_value(t: int, first: float, top: float, last: float, *, total: int, rise: float) -> float:
    """first → top → last; a rise of a single step starts at the top."""
    peak = rise * total - 1
    return (
        _cosine_interpolate(first, top, t / peak)
        if t <= peak and peak > 0
        else _cosine_interpolate(top, last, (t - peak) / (total - 1 - peak))
    )
