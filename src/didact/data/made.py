"""Sets that are made on the spot, always the same: `seed` says how they are split, never what they hold."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from didact.data.assemble import assemble
from didact.data.columns import Category
from didact.data.core import Data
from didact.data.fetch import SOURCES as SOURCES
from didact.data.fetch import source
from didact.data.table import TableEncoder

Array = NDArray[np.float64]

MADE = 2019  # seeds whatever is drawn here; chosen for noise near its stated deviation all along the sine
OURS = "made by didact"


@source(kind="table", task="binary", licence=OURS)
def spirals(seed: int = 0) -> Data:
    """2,000 points on two interleaved spirals, which no line separates."""
    return points("spirals", *two_spirals(1000, noise=0.02), labels=("first", "second"), seed=seed)


@source(kind="table", task="binary", licence=OURS)
def moons(seed: int = 0) -> Data:
    """2,000 noisy points on two half moons that reach into each other."""
    return points("moons", *two_moons(1000, noise=0.15), labels=("upper", "lower"), seed=seed)


@source(kind="table", task="binary", licence=OURS)
def separable(seed: int = 0) -> Data:
    """1,000 points of 20 numbers; the label is whether the first two add up to more than 0 (Gaba 2.7)."""
    x = np.random.default_rng(42).standard_normal((1000, 20))
    return points("separable", x, (x[:, 0] + x[:, 1] > 0).astype(np.int64), labels=("no", "yes"), seed=seed)


@source(kind="table", task="regression", licence=OURS)
def sine(seed: int = 0) -> Data:
    """y = sin(x) + 0.1 e, 1,000 points on [-pi, pi]: a curve to approximate."""
    x, y = noisy_sine(1000, np.full(1000, 0.1))
    return numbers("sine", x, y, names=("x",), seed=seed)


@source(kind="table", task="regression", licence=OURS)
def sine_hetero(seed: int = 0) -> Data:
    """y = sin(x) + s(x) e, 1,000 points, s growing from 0.05 to 0.45 along [-pi, pi]: noise to be learned too."""
    x, y = noisy_sine(1000, sine_deviation(abscissae(1000)))
    return numbers("sine_hetero", x, y, names=("x",), seed=seed)


@source(kind="table", task="regression", licence=OURS)
def sparse_linear(seed: int = 0) -> Data:
    """y = w.x + 0.5 e, 400 points of 100 features, of which 10 matter (Gaba 3.13, exercise 3.2)."""
    w, rng = sparse_truth(), np.random.default_rng(MADE)
    x = rng.standard_normal((400, len(w)))
    y = x @ w + 0.5 * rng.standard_normal(len(x))
    names = [f"x{j}" for j in range(len(w))]
    relevant = ", ".join(f"{names[j]} ({w[j]:+.2f})" for j in np.flatnonzero(w))
    return numbers("sparse_linear", x, y, names=names, seed=seed, notes=[f"what matters (weight): {relevant}"])


@source(kind="table", task="multiclass", licence=OURS)
def modular(seed: int = 0) -> Data:
    """All 961 sums a + b modulo 31: each number is a symbol of its own, so that nothing says how large it is."""
    symbols = tuple(str(k) for k in range(31))
    encoder = TableEncoder((Category("a", symbols), Category("b", symbols)), "sum")
    a, b, y = modular_sums(len(symbols))
    eye = torch.eye(len(symbols))
    return assemble(
        "modular", "table", {"x": torch.cat([eye[a], eye[b]], 1), "y": y},
        task="multiclass", labels=symbols, names=encoder.names, target="sum", encoder=encoder, seed=seed,
    )


def modular_sums(p: int) -> tuple[Tensor, Tensor, Tensor]:
    """a, b and (a + b) mod p of all p² pairs."""
    a, b = torch.cartesian_prod(torch.arange(p), torch.arange(p)).unbind(1)
    return a, b, (a + b) % p


def two_spirals(n: int, *, noise: float) -> tuple[Array, NDArray[np.int64]]:
    """r (cos 3 pi r, sin 3 pi r) + noise, r = sqrt(u): dense alike in and out; the second arm is -1 times the first."""
    rng = np.random.default_rng(MADE)
    r = np.sqrt(rng.uniform(size=n))
    arm = r[:, None] * np.stack([np.cos(3 * np.pi * r), np.sin(3 * np.pi * r)], 1)   # (n, 2)
    x = np.concatenate([arm, -arm])
    return x + noise * rng.standard_normal(x.shape), np.repeat([0, 1], n)


def two_moons(n: int, *, noise: float) -> tuple[Array, NDArray[np.int64]]:
    """(cos t, sin t) and (1 - cos t, 1/2 - sin t) for t in [0, pi], n points each, + noise."""
    t = np.linspace(0, np.pi, n)
    x = np.concatenate([np.stack([np.cos(t), np.sin(t)], 1), np.stack([1 - np.cos(t), 0.5 - np.sin(t)], 1)])
    return x + noise * np.random.default_rng(MADE).standard_normal(x.shape), np.repeat([0, 1], n)


def abscissae(n: int) -> Array:
    """n points drawn evenly from [-pi, pi]."""
    return np.random.default_rng(MADE).uniform(-np.pi, np.pi, n)


def noisy_sine(n: int, deviation: Array) -> tuple[Array, Array]:
    """y = sin(x) + deviation e.  -> (n, 1), (n,)"""
    x = abscissae(n)
    return x[:, None], np.sin(x) + deviation * np.random.default_rng(MADE + 1).standard_normal(n)


def sine_deviation(x: Array) -> Array:
    """s(x) = 1/20 + 2/5 (x + pi) / (2 pi): the truth behind `sine_hetero`, for judging a predicted deviation."""
    return 0.05 + 0.4 * (x + np.pi) / (2 * np.pi)


def sparse_truth() -> Array:
    """The weights behind `sparse_linear`: 100, ten of them between 1 and 2 or -2 and -1, the rest zero."""
    rng = np.random.default_rng(MADE + 1)
    w = np.zeros(100)
    relevant = rng.permutation(100)[:10]
    w[relevant] = rng.choice([-1.0, 1.0], 10) * rng.uniform(1, 2, 10)
    return w


def points(name: str, x: Array, y: NDArray[np.int64], *, labels: Sequence[str], seed: int) -> Data:
    """Two classes of points."""
    names = tuple(f"x{j + 1}" for j in range(x.shape[1]))
    return assemble(
        name, "table",
        {"x": torch.from_numpy(x).float(), "y": torch.from_numpy(y)},
        task="binary", labels=labels, names=names, target="class",
        encoder=TableEncoder.numeric(names, "class"), seed=seed,
    )


def numbers(name: str, x: Array, y: Array, *, names: Sequence[str], seed: int, notes: Sequence[str] = ()) -> Data:
    """A number to be told from numbers."""
    return assemble(
        name, "table",
        {"x": torch.from_numpy(x).float(), "y": torch.from_numpy(y).float()},
        task="regression", names=names, encoder=TableEncoder.numeric(names), seed=seed, notes=notes,
    )
