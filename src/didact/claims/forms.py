"""Forms of a statement: each knows which computed values agree with it, and which it must refuse.

    Exactly(235_146)       counts, shapes, texts                    refused: one more, one less, another text
    Printed("0.0689")      right within half a unit of the last printed digit        refused: 0.0703, 0.0675
    Approximately(7e10, 0.02, "…")    round figures, with the reason and the tolerance
    Equal()                left = right, up to rounding             refused: left 2 % off
    NotEqual()             left ≠ right                             refused: left = right
    LessOrEqual()          left ≤ right everywhere                  refused: one entry of left 2 % above right
    InInterval(0, 1)       every number in the interval
    Increasing()           every number above the one before
    WithinStandardErrors() (estimate, its standard error, expected value), at most five standard errors apart:
                           one false alarm in a million
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from math import ceil, inf
from typing import Any

import numpy as np
import torch


def to_float_array(value: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers of any kind (tensors, arrays, lists of them) as one flat array."""
    if isinstance(value, torch.Tensor):
        return value.detach().double().cpu().numpy().ravel()
    if isinstance(value, list | tuple):
        return np.concatenate([to_float_array(v) for v in value]) if value else np.zeros(0)
    return np.asarray(value, dtype=np.float64).ravel()


_MAX_LISTED_NUMBERS = 6   # numbers that are listed one by one


def format_number(x: float, digits: int = 4) -> str:
    """235,146 · 0.1778 · 2.656e-05."""
    if float(x).is_integer() and abs(x) < 1e15:
        return f"{int(x):,}"
    return f"{x:.{digits}g}" if 1e-4 <= abs(x) < 1e6 else f"{x:.{digits - 1}e}"


def _format_numbers(values: Sequence[float], digits: int = 4) -> str:
    if len(values) > 2 and len(set(values)) == 1:
        return f"each {format_number(values[0], digits)}"
    texts = [format_number(v, digits) for v in values[:9]]
    return ", ".join(texts) + (", …" if len(values) > 9 else "")


@dataclass(frozen=True)
class ClaimForm:
    """Base class of the forms. A form that `is_numeric` holds a value that can be replaced by another one."""

    is_numeric = False

    def matches(self, computed: Any) -> bool:
        raise NotImplementedError

    def format(self, computed: Any) -> str:
        return _format_numbers(to_float_array(computed).tolist())

    def near_misses(self, computed: Any) -> Iterator[Any]:
        """Values near the computed one that must all disagree where it agrees."""
        raise NotImplementedError

    def perturbed_forms(self) -> "Iterator[ClaimForm]":
        """The same statement with a wrong number: two percent off, or one for counts."""
        return iter(())

    def restate(self, computed: Any) -> "ClaimForm":
        """The form that the course would have had to state."""
        return self


@dataclass(frozen=True)
class Exactly(ClaimForm):
    """Counts, shapes, words: equal or not."""

    value: Any
    is_numeric = True

    def matches(self, computed: Any) -> bool:
        return bool(to_python(computed) == to_python(self.value))

    def format(self, computed: Any) -> str:
        return format_computed(to_python(computed))

    def near_misses(self, computed: Any) -> Iterator[Any]:
        yield from (form.value for form in self.restate(computed).perturbed_forms() if isinstance(form, Exactly))

    def perturbed_forms(self) -> Iterator[ClaimForm]:
        yield from (Exactly(v) for v in _perturb_value(to_python(self.value)))

    def restate(self, computed: Any) -> "ClaimForm":
        return Exactly(computed)


def to_python(value: Any) -> Any:
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return to_python(value.tolist())
    return tuple(to_python(v) for v in value) if isinstance(value, list | tuple) else value


def format_computed(value: Any) -> str:
    if isinstance(value, tuple):
        inner = [format_computed(v) for v in value]
        return f"({', '.join(inner)})" if all(isinstance(v, int | float | str) for v in value) else "; ".join(inner)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_number(value) if isinstance(value, int | float) else str(value)


def _perturb_value(value: Any) -> Iterator[Any]:
    """Every value that differs in one entry: a count by one, a text by a letter."""
    if isinstance(value, tuple):
        for i, v in enumerate(value):
            yield from ((*value[:i], perturbed, *value[i + 1 :]) for perturbed in _perturb_value(v))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + sign * (0.02 * value if isinstance(value, float) and value else 1) for sign in (1, -1))
    else:
        yield f"{value}?"


@dataclass(frozen=True, init=False)
class Printed(ClaimForm):
    """Numbers as the page prints them: each is right within half a unit of its last digit."""

    digits: tuple[str, ...]
    is_numeric = True

    def __init__(self, *digits: str):
        object.__setattr__(self, "digits", digits)

    def matches(self, computed: Any) -> bool:
        values = to_float_array(computed)
        assert len(values) == len(self.digits), f"{len(self.digits)} numbers are stated, {len(values)} computed"
        return all(
            abs(Decimal(float(x)) - Decimal(d)) <= _half_last_digit(d) for x, d in zip(values, self.digits, strict=True)
        )

    def format(self, computed: Any) -> str:
        """With one more digit than on the page, so that rounding can be followed."""
        return _format_numbers(
            to_float_array(computed).tolist(), max(4, *(1 + len(Decimal(d).as_tuple().digits) for d in self.digits))
        )

    def near_misses(self, computed: Any) -> Iterator[Any]:
        values = to_float_array(computed)
        for i, d in enumerate(self.digits):  # one unit more than rounding allows, at least two percent
            step = max(2 * float(_half_last_digit(d)), 0.02 * abs(float(d)))
            yield from (np.where(np.arange(len(values)) == i, values + sign * step, values) for sign in (1, -1))

    def perturbed_forms(self) -> Iterator[ClaimForm]:
        """In the printed digits; where two percent would not change them, by one unit of the last."""
        for i, d in enumerate(self.digits):
            offset = _last_digit_unit(d) * max(1, ceil(abs(Decimal(d)) * Decimal("0.02") / _last_digit_unit(d)))
            yield from (
                Printed(*self.digits[:i], str(Decimal(d) + sign * offset), *self.digits[i + 1 :]) for sign in (1, -1)
            )

    def restate(self, computed: Any) -> "ClaimForm":
        """With as many decimals as on the page."""
        return Printed(
            *(
                str(round(Decimal(x) / _last_digit_unit(d)) * _last_digit_unit(d))
                for x, d in zip(to_float_array(computed).tolist(), self.digits, strict=True)
            )
        )


def _last_digit_unit(printed: str) -> Decimal:
    """The unit of the last digit: 0.0689 -> 0.0001."""
    return Decimal(1).scaleb(int(Decimal(printed).as_tuple().exponent))


def _half_last_digit(printed: str) -> Decimal:
    """0.0689 -> 0.00005; a little more, since a tie may be rounded either way."""
    return _last_digit_unit(printed) * Decimal("0.5000001")


@dataclass(frozen=True)
class Approximately(ClaimForm):
    """Numbers that the page gives in round figures (≈ 150M, about 1.5B).

    Each is right within `tolerance` of itself; `reason` says why so much.
    """

    value: float | tuple[float, ...]
    tolerance: float
    reason: str
    is_numeric = True

    def matches(self, computed: Any) -> bool:
        values, stated = to_float_array(computed), to_float_array(self.value)
        assert len(values) == len(stated), f"{len(stated)} numbers are stated, {len(values)} computed"
        return bool((np.abs(values - stated) <= self.tolerance * np.abs(stated)).all())

    def near_misses(self, computed: Any) -> Iterator[Any]:
        yield from (form.value for form in self.restate(computed).perturbed_forms() if isinstance(form, Approximately))

    def perturbed_forms(self) -> Iterator[ClaimForm]:
        """Two percent off; where more is allowed, the nearest figure with which no value agrees besides this one."""
        stated, offset = to_float_array(self.value), max(0.02, 2.001 * self.tolerance / (1 - self.tolerance))
        for i, sign in product(range(len(stated)), (1, -1)):
            perturbed = np.where(np.arange(len(stated)) == i, stated * (1 + sign * offset), stated)
            yield Approximately(tuple(perturbed.tolist()), self.tolerance, self.reason)

    def restate(self, computed: Any) -> "ClaimForm":
        return Approximately(tuple(to_float_array(computed).tolist()), self.tolerance, self.reason)


@dataclass(frozen=True)
class Equal(ClaimForm):
    """left = right: the largest difference, relative to the largest number on the right.

    Lists of arrays are compared array by array.
    """

    tolerance: float = 1e-9

    def matches(self, computed: Any) -> bool:
        return self.error(computed) <= self.tolerance

    def error(self, computed: Any) -> float:
        return max(
            float(np.abs(left - right).max() / _largest_magnitude(right)) for left, right in _pair_arrays(computed)
        )

    def format(self, computed: Any) -> str:
        """Both sides where they are few; otherwise the pair furthest apart, relative to its array."""
        array_pairs, error = _pair_arrays(computed), self.error(computed)
        left, right = (np.concatenate(side) for side in zip(*array_pairs, strict=True))
        if error <= self.tolerance:
            distance = f"at most {error:.0e} apart" if error else "equal"
            return (
                f"{_format_numbers(right.tolist())} on both sides"
                if right.size <= _MAX_LISTED_NUMBERS
                else f"{right.size:,} numbers on both sides, {distance}"
            )
        if right.size <= _MAX_LISTED_NUMBERS:
            texts = _format_numbers(left.tolist()), _format_numbers(right.tolist())
            return " against ".join(texts) + f", {error:.1e} apart" * (texts[0] == texts[1])
        worst_index = int(np.argmax(np.concatenate([np.abs(a - b) / _largest_magnitude(b) for a, b in array_pairs])))
        a, b = format_number(float(left[worst_index])), format_number(float(right[worst_index]))
        return f"{a} against {b}{f', {error:.1e} apart' * (a == b)}, the furthest apart of {right.size:,}"

    def near_misses(self, computed: Any) -> Iterator[Any]:
        for left, right in _pair_arrays(computed):
            yield left + 0.02 * _largest_magnitude(right), right
            yield left + 0.02 * _largest_magnitude(right) * (np.arange(left.size) == left.size // 2), right
            if np.abs(left).max() > 0.5 * _largest_magnitude(right):
                yield 1.02 * left, right


def _pair_arrays(computed: Any) -> list[tuple[Any, Any]]:
    """left and right as arrays; several pairs where both are lists of arrays.

    A small array is then not lost next to a large one.
    """
    left, right = computed
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        array_pairs = [(to_float_array(a), to_float_array(b)) for a, b in zip(left, right, strict=True)]
        if all(a.size == b.size for a, b in array_pairs) and any(a.size > 1 for a, _ in array_pairs):
            return array_pairs
    left, right = to_float_array(left), to_float_array(right)
    assert left.shape == right.shape, f"{left.shape} numbers are compared with {right.shape}"
    return [(left, right)]


def _largest_magnitude(values: Any) -> float:
    return float(np.abs(values).max()) or 1.0


@dataclass(frozen=True)
class NotEqual(Equal):
    """left ≠ right, by more than rounding explains."""

    tolerance: float = 1e-3

    def matches(self, computed: Any) -> bool:
        return self.error(computed) > self.tolerance

    def near_misses(self, computed: Any) -> Iterator[Any]:
        _, right = computed
        yield right, right


@dataclass(frozen=True)
class LessOrEqual(ClaimForm):
    """left ≤ right, number by number."""

    tolerance: float = 1e-9

    def matches(self, computed: Any) -> bool:
        left, right = map(to_float_array, computed)
        return bool((left <= right + self.tolerance * _largest_magnitude(right)).all())

    def format(self, computed: Any) -> str:
        """The pair nearest to violating it, or that violates it most, relative to its right side unless that is 0."""
        left, right = map(to_float_array, computed)
        i = int(((left - right) / np.where(right, np.abs(right), 1)).argmax())
        sign, rank = ("≤", "tightest") if self.matches(computed) else (">", "furthest apart")
        return (
            f"{format_number(float(left[i]))} {sign} {format_number(float(right[i]))}"
            + f", the {rank} of {left.size:,}" * (left.size > 1)
        )

    def near_misses(self, computed: Any) -> Iterator[Any]:
        left, right = map(to_float_array, computed)
        for i in (0, left.size // 2):
            yield np.where(np.arange(left.size) == i, right + 0.02 * _largest_magnitude(right), left), right


@dataclass(frozen=True)
class InInterval(ClaimForm):
    """low ≤ x ≤ high for every number, or < where the interval is open."""

    low: float = -inf
    high: float = inf
    is_open: bool = False

    def matches(self, computed: Any) -> bool:
        x = to_float_array(computed)
        return bool(((self.low < x) & (x < self.high) if self.is_open else (self.low <= x) & (x <= self.high)).all())

    def format(self, computed: Any) -> str:
        x = to_float_array(computed)
        end_texts = dict.fromkeys(format_number(float(end)) for end in (x.min(), x.max()))
        return f"{' … '.join(end_texts)} {'in' if self.matches(computed) else 'not in'} {self.interval}"

    @property
    def interval(self) -> str:
        """[0, 1], (0, 1) or [0, ∞)."""
        low = (
            f"{'(' if self.is_open or self.low == -inf else '['}{'−∞' if self.low == -inf else format_number(self.low)}"
        )
        return (
            f"{low}, "
            f"{'∞' if self.high == inf else format_number(self.high)}{')' if self.is_open or self.high == inf else ']'}"
        )

    def near_misses(self, computed: Any) -> Iterator[Any]:
        for end, sign in ((self.low, -1), (self.high, 1)):
            if abs(end) < inf:
                yield np.append(to_float_array(computed), end + sign * 0.02 * (abs(end) or 1))


@dataclass(frozen=True)
class Increasing(ClaimForm):
    """Each number above the one before."""

    def matches(self, computed: Any) -> bool:
        return bool((np.diff(to_float_array(computed)) > 0).all())

    def format(self, computed: Any) -> str:
        """Starts a little before the first decrease, if there is one."""
        x = to_float_array(computed)
        descents = np.flatnonzero(np.diff(x) <= 0)
        start = max(0, int(descents[0]) - 3) if descents.size else 0
        return "…, " * (start > 0) + _format_numbers(x[start:].tolist())

    def near_misses(self, computed: Any) -> Iterator[Any]:
        yield to_float_array(computed)[::-1]


@dataclass(frozen=True)
class WithinStandardErrors(ClaimForm):
    """An estimate, its standard error, and the value that the course says it estimates."""

    max_errors: float = 5.0

    def matches(self, computed: Any) -> bool:
        mean, error, expected = map(to_float_array, computed)
        return bool((np.abs(mean - expected) <= self.max_errors * error).all())

    def format(self, computed: Any) -> str:
        """The estimate furthest off, in its standard errors."""
        mean, error, expected = np.broadcast_arrays(*map(to_float_array, computed))
        i = int((np.abs(mean - expected) / np.maximum(error, 1e-300)).argmax())
        suffix = f", the furthest off of {mean.size:,}" * (mean.size > 1)
        return f"{format_number(float(mean[i]))} ± {error[i]:.1g}, expected {format_number(float(expected[i]))}{suffix}"

    def near_misses(self, computed: Any) -> Iterator[Any]:
        mean, error, expected = map(to_float_array, computed)
        yield from ((mean, error, expected + sign * (0.02 * np.abs(expected) + (expected == 0))) for sign in (1, -1))


@dataclass(frozen=True)
class Conditional:
    """A statement that needs a condition: the result under it, and the result without."""

    under_condition: Any
    otherwise: Any


@dataclass(frozen=True)
class CorrectedClaim:
    """A wrong statement as it stands, and the corrected statement: the second must agree."""

    stated: Any
    corrected: Any


@dataclass(frozen=True)
class Display:
    """A computed value to compare, and the numbers of the computation that a reader sees instead, by name.

    For values that no page has in the compared form: differences, logarithms, a list of booleans.
    """

    value: Any
    numbers: Mapping[str, Any]

    @property
    def text(self) -> str:
        """sigmoid 0.23, ReLU 1; where a name has several numbers, semicolons separate the names."""
        texts = {
            name: _format_numbers(to_float_array(n).tolist())
            if isinstance(n, list | tuple | torch.Tensor | np.ndarray)
            else format_computed(to_python(n))
            for name, n in self.numbers.items()
        }
        return ("; " if any(", " in name_text for name_text in texts.values()) else ", ").join(
            f"{name} {name_text}" for name, name_text in texts.items()
        )


def to_comparable(result: Any) -> Any:
    """The value to compare, without the numbers for the reader."""
    if isinstance(result, Conditional):
        return Conditional(to_comparable(result.under_condition), to_comparable(result.otherwise))
    if isinstance(result, CorrectedClaim):
        return CorrectedClaim(to_comparable(result.stated), to_comparable(result.corrected))
    return result.value if isinstance(result, Display) else result
