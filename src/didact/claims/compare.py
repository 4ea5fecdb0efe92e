"""What a course states, as data: each form knows when a computed value agrees, and which values it must refuse.

    Exactly(235_146)       counts, shapes, texts                    refused: one more, one less, another text
    Printed("0.0689")      right within half a unit of the last digit that is printed        refused: 0.0703, 0.0675
    About(7e10, 0.02, "…") rough by its own words, which say why and how far
    Same()                 left = right, up to rounding             refused: left 2 % off
    Differ()               left ≠ right                             refused: left = right
    NeverMore()            left ≤ right everywhere                  refused: left above right by 2 % at one place
    Inside(0, 1)           every number in the interval
    Rising()               every number above the one before
    Sampled()              (estimate, its standard error, expected value), five standard errors at most: one false alarm in a million
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from math import ceil, inf
from typing import Any

import numpy as np
import torch


def floats(value: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers of any kind (tensors, arrays, lists of them) as one flat array."""
    if isinstance(value, torch.Tensor):
        return value.detach().double().cpu().numpy().ravel()
    if isinstance(value, list | tuple):
        return np.concatenate([floats(v) for v in value]) if value else np.zeros(0)
    return np.asarray(value, dtype=np.float64).ravel()


FEW = 6   # numbers that a reader takes in at a glance


def short(x: float, digits: int = 4) -> str:
    """235,146 · 0.1778 · 2.656e-05."""
    if float(x).is_integer() and abs(x) < 1e15:
        return f"{int(x):,}"
    return f"{x:.{digits}g}" if 1e-4 <= abs(x) < 1e6 else f"{x:.{digits - 1}e}"


def listed(values: Sequence[float], digits: int = 4) -> str:
    if len(values) > 2 and len(set(values)) == 1:
        return f"each {short(values[0], digits)}"
    shown = [short(v, digits) for v in values[:9]]
    return ", ".join(shown) + (", …" if len(values) > 9 else "")


@dataclass(frozen=True)
class Stated:
    """The form of a statement. `numeric` forms carry a value that can be exchanged for another one."""

    numeric = False

    def agrees(self, computed: Any) -> bool:
        raise NotImplementedError

    def show(self, computed: Any) -> str:
        return listed(floats(computed).tolist())

    def refused(self, computed: Any) -> Iterator[Any]:
        """Near misses of the computed value, all of which must disagree where the value itself agrees."""
        raise NotImplementedError

    def turned(self) -> "Iterator[Stated]":
        """The same statement with a wrong number in it: two per cent off, or one for counts."""
        return iter(())

    def as_if(self, computed: Any) -> "Stated":
        """What the course would have had to state."""
        return self


@dataclass(frozen=True)
class Exactly(Stated):
    """Counts, shapes, words: equal or not."""

    value: Any
    numeric = True

    def agrees(self, computed: Any) -> bool:
        return bool(plain(computed) == plain(self.value))

    def show(self, computed: Any) -> str:
        return words(plain(computed))

    def refused(self, computed: Any) -> Iterator[Any]:
        yield from (other.value for other in self.as_if(computed).turned() if isinstance(other, Exactly))

    def turned(self) -> Iterator[Stated]:
        yield from (Exactly(v) for v in others(plain(self.value)))

    def as_if(self, computed: Any) -> "Stated":
        return Exactly(computed)


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return plain(value.tolist())
    return tuple(plain(v) for v in value) if isinstance(value, list | tuple) else value


def words(value: Any) -> str:
    if isinstance(value, tuple):
        inner = [words(v) for v in value]
        return f"({', '.join(inner)})" if all(isinstance(v, int | float | str) for v in value) else "; ".join(inner)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return short(value) if isinstance(value, int | float) else str(value)


def others(value: Any) -> Iterator[Any]:
    """Every value that differs in one place: a count by one, a text by a letter."""
    if isinstance(value, tuple):
        for i, v in enumerate(value):
            yield from ((*value[:i], other, *value[i + 1 :]) for other in others(v))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + side * (0.02 * value if isinstance(value, float) and value else 1) for side in (1, -1))
    else:
        yield f"{value}?"


@dataclass(frozen=True, init=False)
class Printed(Stated):
    """Numbers as the page prints them: each is right within half a unit of its last digit."""

    digits: tuple[str, ...]
    numeric = True

    def __init__(self, *digits: str):
        object.__setattr__(self, "digits", digits)

    def agrees(self, computed: Any) -> bool:
        found = floats(computed)
        assert len(found) == len(self.digits), f"{len(self.digits)} numbers are stated, {len(found)} computed"
        return all(abs(Decimal(float(x)) - Decimal(d)) <= half_unit(d) for x, d in zip(found, self.digits, strict=True))

    def show(self, computed: Any) -> str:
        """With one digit more than the page has, so that rounding can be followed."""
        return listed(floats(computed).tolist(), max(4, *(1 + len(Decimal(d).as_tuple().digits) for d in self.digits)))

    def refused(self, computed: Any) -> Iterator[Any]:
        found = floats(computed)
        for i, d in enumerate(self.digits):  # one more unit than rounding allows, whatever the digits
            step = max(2 * float(half_unit(d)), 0.02 * abs(float(d)))
            yield from (np.where(np.arange(len(found)) == i, found + side * step, found) for side in (1, -1))

    def turned(self) -> Iterator[Stated]:
        """In the digits that are printed; where two per cent would not be seen in them, by one unit of the last."""
        for i, d in enumerate(self.digits):
            off = unit(d) * max(1, ceil(abs(Decimal(d)) * Decimal("0.02") / unit(d)))
            yield from (Printed(*self.digits[:i], str(Decimal(d) + side * off), *self.digits[i + 1 :]) for side in (1, -1))

    def as_if(self, computed: Any) -> "Stated":
        """With as many decimals as the page has."""
        return Printed(*(str(round(Decimal(x) / unit(d)) * unit(d)) for x, d in zip(floats(computed).tolist(), self.digits, strict=True)))


def unit(printed: str) -> Decimal:
    """Of the last digit: 0.0689 -> 0.0001."""
    return Decimal(1).scaleb(int(Decimal(printed).as_tuple().exponent))


def half_unit(printed: str) -> Decimal:
    """0.0689 -> 0.00005; rounding may fall on either side of a tie, so a hair more."""
    return unit(printed) * Decimal("0.5000001")


@dataclass(frozen=True)
class About(Stated):
    """Numbers that the page gives in round figures (≈ 150M, about 1.5B): each right within a share of itself, and why so much."""

    value: float | tuple[float, ...]
    within: float
    why: str
    numeric = True

    def agrees(self, computed: Any) -> bool:
        found, said = floats(computed), floats(self.value)
        assert len(found) == len(said), f"{len(said)} numbers are stated, {len(found)} computed"
        return bool((np.abs(found - said) <= self.within * np.abs(said)).all())

    def refused(self, computed: Any) -> Iterator[Any]:
        yield from (other.value for other in self.as_if(computed).turned() if isinstance(other, About))

    def turned(self) -> Iterator[Stated]:
        """Two per cent off; where more is allowed, the nearest figure that no value could agree with beside this one."""
        said, off = floats(self.value), max(0.02, 2.001 * self.within / (1 - self.within))
        for i, side in product(range(len(said)), (1, -1)):
            other = np.where(np.arange(len(said)) == i, said * (1 + side * off), said)
            yield About(tuple(other.tolist()), self.within, self.why)

    def as_if(self, computed: Any) -> "Stated":
        return About(tuple(floats(computed).tolist()), self.within, self.why)


@dataclass(frozen=True)
class Same(Stated):
    """left = right: the largest difference, in units of the largest number at the right; of lists of arrays, array by array."""

    within: float = 1e-9

    def agrees(self, computed: Any) -> bool:
        return self.error(computed) <= self.within

    def error(self, computed: Any) -> float:
        return max(float(np.abs(left - right).max() / scale(right)) for left, right in sides(computed))

    def show(self, computed: Any) -> str:
        """Both sides where they are few, else the pair that is furthest apart in units of its array."""
        pairs, error = sides(computed), self.error(computed)
        left, right = (np.concatenate(side) for side in zip(*pairs, strict=True))
        if error <= self.within:
            far = f"at most {error:.0e} apart" if error else "equal"
            return f"{listed(right.tolist())} on both sides" if right.size <= FEW else f"{right.size:,} numbers on both sides, {far}"
        if right.size <= FEW:
            both = listed(left.tolist()), listed(right.tolist())
            return " against ".join(both) + f", {error:.1e} apart" * (both[0] == both[1])
        worst = int(np.argmax(np.concatenate([np.abs(a - b) / scale(b) for a, b in pairs])))
        a, b = short(float(left[worst])), short(float(right[worst]))
        return f"{a} against {b}{f', {error:.1e} apart' * (a == b)}, the furthest apart of {right.size:,}"

    def refused(self, computed: Any) -> Iterator[Any]:
        for left, right in sides(computed):
            yield left + 0.02 * scale(right), right
            yield left + 0.02 * scale(right) * (np.arange(left.size) == left.size // 2), right
            if np.abs(left).max() > 0.5 * scale(right):
                yield 1.02 * left, right


def sides(computed: Any) -> list[tuple[Any, Any]]:
    """left and right as arrays: several pairs where both are lists of arrays, so that a small array is not lost beside a large one."""
    left, right = computed
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        parts = [(floats(a), floats(b)) for a, b in zip(left, right, strict=True)]
        if all(a.size == b.size for a, b in parts) and any(a.size > 1 for a, _ in parts):
            return parts
    left, right = floats(left), floats(right)
    assert left.shape == right.shape, f"{left.shape} numbers are compared with {right.shape}"
    return [(left, right)]


def scale(right: Any) -> float:
    return float(np.abs(right).max()) or 1.0


@dataclass(frozen=True)
class Differ(Same):
    """left ≠ right, by more than rounding could explain."""

    within: float = 1e-3

    def agrees(self, computed: Any) -> bool:
        return self.error(computed) > self.within

    def refused(self, computed: Any) -> Iterator[Any]:
        _, right = computed
        yield right, right


@dataclass(frozen=True)
class NeverMore(Stated):
    """left ≤ right, number by number."""

    within: float = 1e-9

    def agrees(self, computed: Any) -> bool:
        left, right = map(floats, computed)
        return bool((left <= right + self.within * scale(right)).all())

    def show(self, computed: Any) -> str:
        """The pair that comes nearest to breaking it, or that breaks it most, in units of its own right side where there is one."""
        left, right = map(floats, computed)
        i = int(((left - right) / np.where(right, np.abs(right), 1)).argmax())
        sign, far = ("≤", "tightest") if self.agrees(computed) else (">", "furthest apart")
        return f"{short(float(left[i]))} {sign} {short(float(right[i]))}" + f", the {far} of {left.size:,}" * (left.size > 1)

    def refused(self, computed: Any) -> Iterator[Any]:
        left, right = map(floats, computed)
        for i in (0, left.size // 2):
            yield np.where(np.arange(left.size) == i, right + 0.02 * scale(right), left), right


@dataclass(frozen=True)
class Inside(Stated):
    """low ≤ x ≤ high for every number, or < where the interval is open."""

    low: float = -inf
    high: float = inf
    open: bool = False

    def agrees(self, computed: Any) -> bool:
        x = floats(computed)
        return bool(((self.low < x) & (x < self.high) if self.open else (self.low <= x) & (x <= self.high)).all())

    def show(self, computed: Any) -> str:
        x = floats(computed)
        ends = dict.fromkeys(short(float(end)) for end in (x.min(), x.max()))
        return f"{' … '.join(ends)} {'in' if self.agrees(computed) else 'not in'} {self.interval}"

    @property
    def interval(self) -> str:
        """[0, 1], (0, 1) or [0, ∞)."""
        low = f"{'(' if self.open or self.low == -inf else '['}{'−∞' if self.low == -inf else short(self.low)}"
        return f"{low}, {'∞' if self.high == inf else short(self.high)}{')' if self.open or self.high == inf else ']'}"

    def refused(self, computed: Any) -> Iterator[Any]:
        for end, side in ((self.low, -1), (self.high, 1)):
            if abs(end) < inf:
                yield np.append(floats(computed), end + side * 0.02 * (abs(end) or 1))


@dataclass(frozen=True)
class Rising(Stated):
    """Each number above the one before."""

    def agrees(self, computed: Any) -> bool:
        return bool((np.diff(floats(computed)) > 0).all())

    def show(self, computed: Any) -> str:
        """From a little before the place where it first falls, if it does."""
        x = floats(computed)
        falls = np.flatnonzero(np.diff(x) <= 0)
        start = max(0, int(falls[0]) - 3) if falls.size else 0
        return "…, " * (start > 0) + listed(x[start:].tolist())

    def refused(self, computed: Any) -> Iterator[Any]:
        yield floats(computed)[::-1]


@dataclass(frozen=True)
class Sampled(Stated):
    """An estimate with its standard error, and the value that it estimates by what the course says."""

    sigmas: float = 5.0

    def agrees(self, computed: Any) -> bool:
        mean, error, expected = map(floats, computed)
        return bool((np.abs(mean - expected) <= self.sigmas * error).all())

    def show(self, computed: Any) -> str:
        """The estimate that is furthest off, in its standard errors."""
        mean, error, expected = np.broadcast_arrays(*map(floats, computed))
        i = int((np.abs(mean - expected) / np.maximum(error, 1e-300)).argmax())
        of = f", the furthest off of {mean.size:,}" * (mean.size > 1)
        return f"{short(float(mean[i]))} ± {error[i]:.1g}, expected {short(float(expected[i]))}{of}"

    def refused(self, computed: Any) -> Iterator[Any]:
        mean, error, expected = map(floats, computed)
        yield from ((mean, error, expected + side * (0.02 * np.abs(expected) + (expected == 0))) for side in (1, -1))


@dataclass(frozen=True)
class Cases:
    """A statement that needs a condition: what comes out under it, and what comes out without."""

    under: Any
    otherwise: Any


@dataclass(frozen=True)
class Corrected:
    """A statement that is wrong as it stands, and the same with the mistake mended: the second must agree."""

    stated: Any
    mended: Any


@dataclass(frozen=True)
class Told:
    """A computed value that is compared, and the numbers of the computation that a reader is shown in its place, by name.

    For what is compared in a form that no page has: differences, logarithms, a row of yes and no.
    """

    value: Any
    numbers: Mapping[str, Any]

    @property
    def words(self) -> str:
        """sigmoid 0.23, ReLU 1; with several numbers of a name, a semicolon parts the names."""
        parts = {name: listed(floats(n).tolist()) if isinstance(n, list | tuple | torch.Tensor | np.ndarray) else words(plain(n))
                 for name, n in self.numbers.items()}
        return ("; " if any(", " in part for part in parts.values()) else ", ").join(f"{name} {part}" for name, part in parts.items())


def bare(result: Any) -> Any:
    """What is compared, without what is shown in its place."""
    if isinstance(result, Cases):
        return Cases(bare(result.under), bare(result.otherwise))
    if isinstance(result, Corrected):
        return Corrected(bare(result.stated), bare(result.mended))
    return result.value if isinstance(result, Told) else result
