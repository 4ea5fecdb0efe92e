"""Synthetic tables, always the same: the argument `seed` is that of the split alone."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from didact.data.build import Examples, build_data
from didact.data.core import Data
from didact.data.datasets.download import register_dataset
from didact.data.tables.columns import CategoricalColumn
from didact.data.tables.table import TableEncoder

Array = NDArray[np.float64]

_SEED = 2019  # of all samples; chosen for noise near its stated standard deviation all along the sine
_LICENSE = "made by didact"


@register_dataset(kind="table", task="binary", license=_LICENSE)
def spirals(seed: int = 0) -> Data:
    """2,000 points on two interleaved spirals, which no line separates."""
    return _build_classification("spirals", *make_spirals(1000, noise=0.02), class_names=("first", "second"), seed=seed)


@register_dataset(kind="table", task="binary", license=_LICENSE)
def moons(seed: int = 0) -> Data:
    """2,000 noisy points on two interleaving half moons."""
    return _build_classification("moons", *make_moons(1000, noise=0.15), class_names=("upper", "lower"), seed=seed)


@register_dataset(kind="table", task="binary", license=_LICENSE)
def separable(seed: int = 0) -> Data:
    """1,000 points of 20 numbers; the label is whether the first two add up to more than 0 (Gaba 2.7)."""
    x = np.random.default_rng(42).standard_normal((1000, 20))
    return _build_classification(
        "separable", x, (x[:, 0] + x[:, 1] > 0).astype(np.int64), class_names=("no", "yes"), seed=seed
    )


@register_dataset(kind="table", task="regression", license=_LICENSE)
def sine(seed: int = 0) -> Data:
    """y = sin(x) + 0.1 e, 1,000 points on [-pi, pi]: a curve to approximate."""
    x, y = _sample_noisy_sine(1000, np.full(1000, 0.1))
    return _build_regression("sine", x, y, feature_names=("x",), seed=seed)


@register_dataset(kind="table", task="regression", license=_LICENSE)
def sine_hetero(seed: int = 0) -> Data:
    """y = sin(x) + s(x) e, 1,000 points, s growing from 0.05 to 0.45 along [-pi, pi]: heteroscedastic noise."""
    x, y = _sample_noisy_sine(1000, sine_std(_sample_x(1000)))
    return _build_regression("sine_hetero", x, y, feature_names=("x",), seed=seed)


@register_dataset(kind="table", task="regression", license=_LICENSE)
def sparse_linear(seed: int = 0) -> Data:
    """y = w.x + 0.5 e, 400 points of 100 features, of which 10 matter (Gaba 3.13, exercise 3.2)."""
    w, rng = sparse_weights(), np.random.default_rng(_SEED)
    x = rng.standard_normal((400, len(w)))
    y = x @ w + 0.5 * rng.standard_normal(len(x))
    names = [f"x{j}" for j in range(len(w))]
    relevant = ", ".join(f"{names[j]} ({w[j]:+.2f})" for j in np.flatnonzero(w))
    return _build_regression(
        "sparse_linear", x, y, feature_names=names, seed=seed, notes=[f"relevant features (weight): {relevant}"]
    )


@register_dataset(kind="table", task="multiclass", license=_LICENSE)
def modular(seed: int = 0) -> Data:
    """All 961 sums a + b modulo 31, the numbers one-hot encoded: nothing says how large they are."""
    symbols = tuple(str(k) for k in range(31))
    encoder = TableEncoder((CategoricalColumn("a", symbols), CategoricalColumn("b", symbols)), "sum")
    a, b, y = make_modular_sums(len(symbols))
    eye = torch.eye(len(symbols))
    return build_data(
        Examples(
            "modular",
            "table",
            {"x": torch.cat([eye[a], eye[b]], 1), "y": y},
            task="multiclass",
            class_names=symbols,
            feature_names=encoder.feature_names,
            target="sum",
            encoder=encoder,
        ),
        seed=seed,
    )


def make_modular_sums(p: int) -> tuple[Tensor, Tensor, Tensor]:
    """a, b and (a + b) mod p of all p² pairs."""
    a, b = torch.cartesian_prod(torch.arange(p), torch.arange(p)).unbind(1)
    return a, b, (a + b) % p


def make_spirals(n: int, *, noise: float) -> tuple[Array, NDArray[np.int64]]:
    """r (cos 3 pi r, sin 3 pi r) + noise, r = sqrt(u): of even density; the second arm is -1 times the first."""
    rng = np.random.default_rng(_SEED)
    r = np.sqrt(rng.uniform(size=n))
    arm = r[:, None] * np.stack([np.cos(3 * np.pi * r), np.sin(3 * np.pi * r)], 1)   # (n, 2)
    x = np.concatenate([arm, -arm])
    return x + noise * rng.standard_normal(x.shape), np.repeat([0, 1], n)


def make_moons(n: int, *, noise: float) -> tuple[Array, NDArray[np.int64]]:
    """(cos t, sin t) and (1 - cos t, 1/2 - sin t) for t in [0, pi], n points each, + noise."""
    t = np.linspace(0, np.pi, n)
    x = np.concatenate([np.stack([np.cos(t), np.sin(t)], 1), np.stack([1 - np.cos(t), 0.5 - np.sin(t)], 1)])
    return x + noise * np.random.default_rng(_SEED).standard_normal(x.shape), np.repeat([0, 1], n)


def _sample_x(n: int) -> Array:
    """n points x ~ U(-pi, pi)."""
    return np.random.default_rng(_SEED).uniform(-np.pi, np.pi, n)


def _sample_noisy_sine(n: int, std: Array) -> tuple[Array, Array]:
    """y = sin(x) + std e.  -> (n, 1), (n,)"""
    x = _sample_x(n)
    return x[:, None], np.sin(x) + std * np.random.default_rng(_SEED + 1).standard_normal(n)


def sine_std(x: Array) -> Array:
    """s(x) = 1/20 + 2/5 (x + pi) / (2 pi): the true standard deviation of `sine_hetero`."""
    return 0.05 + 0.4 * (x + np.pi) / (2 * np.pi)


def sparse_weights() -> Array:
    """The true weights of `sparse_linear`: 100, ten of them between 1 and 2 or -2 and -1, the rest zero."""
    rng = np.random.default_rng(_SEED + 1)
    w = np.zeros(100)
    relevant = rng.permutation(100)[:10]
    w[relevant] = rng.choice([-1.0, 1.0], 10) * rng.uniform(1, 2, 10)
    return w


def _build_classification(name: str, x: Array, y: NDArray[np.int64], *, class_names: Sequence[str], seed: int) -> Data:
    """Points of two classes."""
    feature_names = tuple(f"x{j + 1}" for j in range(x.shape[1]))
    return build_data(
        Examples(
            name,
            "table",
            {"x": torch.from_numpy(x).float(), "y": torch.from_numpy(y)},
            task="binary",
            class_names=class_names,
            feature_names=feature_names,
            target="class",
            encoder=TableEncoder.numeric(feature_names, "class"),
        ),
        seed=seed,
    )


def _build_regression(
    name: str, x: Array, y: Array, *, feature_names: Sequence[str], seed: int, notes: Sequence[str] = ()
) -> Data:
    """A regression."""
    return build_data(
        Examples(
            name,
            "table",
            {"x": torch.from_numpy(x).float(), "y": torch.from_numpy(y).float()},
            task="regression",
            feature_names=feature_names,
            encoder=TableEncoder.numeric(feature_names),
            notes=notes,
        ),
        seed=seed,
    )
