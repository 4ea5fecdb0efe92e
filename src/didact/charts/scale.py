"""Scales from numbers to pixels, and round ticks."""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from didact.charts.html import SUPERSCRIPT


def make_ticks(low: float, high: float, max_ticks: int = 6) -> list[float]:
    """At most `max_ticks` multiples of 1, 2, 2.5 or 5 times a power of ten between low and high, at least two."""
    rough_step = (high - low) / (max_ticks - 1)
    power = 10.0 ** math.floor(math.log10(rough_step))
    for step in (f * power for f in (1, 2, 2.5, 5, 10, 20)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < max_ticks:
            break
    return [k * step for k in range(first, last + 1)]


def make_log_ticks(low: float, high: float, max_ticks: int = 6) -> list[float]:
    """Powers of ten between low and high, thinned to `max_ticks`; within two decades also 2 and 5 times them."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    powers = range(first, last + 1)
    if len(powers) > 2:
        return [10.0**k for k in powers[:: math.ceil(len(powers) / max_ticks)]]
    marks = [m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5)]
    inside = [m for m in marks if low * (1 - 1e-9) <= m <= high * (1 + 1e-9)]
    return inside if len(inside) > 1 else make_ticks(low, high, max_ticks)


def format_tick(value: float, step: float) -> str:
    """A tick's text, with as many decimals as the step between ticks needs."""
    if not value:
        return "0"
    if (step < 1e-4 and abs(value) < 1e-2) or abs(value) >= 1e7:
        mantissa, _, power = f"{value:.1e}".partition("e")
        factor = "" if mantissa in ("1.0", "-1.0") else f"{float(mantissa):g}·"
        return f"{'−' if value < 0 and not factor else ''}{factor}10{str(int(power)).translate(SUPERSCRIPT)}".replace(
            "-", "−"
        )
    if step >= 1000 and abs(value) >= 1000:
        return f"{value / 1000:,g}k".replace("-", "−")
    decimals = next((d for d in range(6) if abs(step * 10**d - round(step * 10**d)) < 1e-6), 6)
    return f"{value:,.{decimals}f}".replace("-", "−")


@dataclass(frozen=True)
class Scale:
    """low … high -> start … end; linear or logarithmic. `start` may be the larger: y grows upwards."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def fit(
        cls,
        values: Iterable[float],
        start: float,
        end: float,
        *,
        log: bool = False,
        limits: tuple[float, float] | None = None,
        pad: float = 0.0,
    ) -> "Scale":
        """A scale for all finite values; a margin around a single value, 0 … 1 for none."""
        finite = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
        low, high = limits or ((min(finite), max(finite)) if finite else (1.0, 10.0) if log else (0.0, 1.0))
        if log:
            if high < 1.5 * low:
                low, high = low / 2, high * 2
            # logarithms, since high / low may overflow
            margin = math.exp(pad * (math.log(high) - math.log(low)))
            return cls(max(low / margin, sys.float_info.min), min(high * margin, sys.float_info.max), start, end, True)
        if high - low <= 1e-9 * max(abs(low), abs(high)):  # equal up to rounding
            margin = abs(low) / 10 or 0.5
            low, high = low - margin, high + margin
        margin = 0.0 if limits else pad * (high - low)
        return cls(low - margin, high + margin, start, end)

    def __call__(self, value: float) -> float:
        """Pixels of a value; NaN if the scale cannot show it."""
        if not math.isfinite(value) or (self.log and value <= 0):
            return math.nan
        if self.log:
            fraction = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        else:
            fraction = (value - self.low) / (self.high - self.low)
        return self.start + fraction * (self.end - self.start)

    def get_ticks(self, max_ticks: int = 6) -> list[tuple[float, str]]:
        """Positions of the ticks in pixels, and their texts."""
        values = (make_log_ticks if self.log else make_ticks)(self.low, self.high, max_ticks)
        step = min(abs(b - a) for a, b in pairwise(values)) if len(values) > 1 else 1.0
        return [(self(v), format_tick(v, v if self.log else step)) for v in values]
