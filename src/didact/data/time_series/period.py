"""Seasonal period by autocorrelation, as daily in hourly values and yearly in monthly ones.

    r_k = Σ_t x_t x_{t+k} / Σ_t x_t²  of the detrended values, and of their differences

Box, Jenkins & Reinsel, Time Series Analysis, 2.1; Hyndman & Athanasopoulos, Forecasting: Principles and Practice, 2.8.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

# periods that calendars and clocks have: a peak beside one of them is taken for it
CALENDAR_PERIODS = (4, 7, 12, 24, 52, 96, 144, 168, 288, 365, 1440)
_MIN_AUTOCORRELATION = 0.12     # of a period
_MIN_DEVIATIONS = 4.0           # of a period, in deviations of white noise, 1/√T: the largest of many lags is above 3
_MAX_PERIOD = 1500
_SIMILAR = 0.85                 # a shorter period is taken if its autocorrelation is at least this share of the largest


def compute_autocorrelation(x: Tensor, max_lag: int) -> Tensor:
    """The autocorrelation at lags 0 … max_lag, by the Fourier transform: the biased estimate, as statsmodels' acf."""
    x = x.double() - x.double().mean()
    n = 2 * len(x)                                        # zeros behind, so that the end does not meet the beginning
    covariance: Tensor = torch.fft.irfft(torch.fft.rfft(x, n=n).abs().square(), n=n)[: max_lag + 1]
    return covariance / covariance[0].clamp(min=1e-30)


def find_period(values: Tensor | Sequence[float]) -> int:
    """The number of values after which a series repeats; 1 where it does not."""
    x = torch.as_tensor(values, dtype=torch.float64)
    if len(x) < 8 or bool((x == x[0]).all()):
        return 1
    max_lag = min(len(x) // 2 - 1 if len(x) < 200 else len(x) // 3, _MAX_PERIOD)
    # a trend hides the period of one, noise that of the other
    detrended, differences = remove_trend(x), x.diff()
    rounding = 1e-9 * float(x.abs().max())          # what is left of a straight line
    candidates = [
        c for z in (detrended, differences) if float(z.std()) > rounding for c in _find_candidates(z, max_lag)
    ]
    return max(candidates, default=(0.0, 1))[1]


def remove_trend(x: Tensor) -> Tensor:
    """The values less the straight line through them, by least squares."""
    t = torch.linspace(-1, 1, len(x), dtype=x.dtype)
    return x - x.mean() - t * (t * x).sum() / t.square().sum()


def _find_candidates(z: Tensor, max_lag: int) -> Iterator[tuple[float, int]]:
    """The autocorrelation at the period and the period, if there is one."""
    r = compute_autocorrelation(z, max_lag)
    peaks = _find_peaks(r, 2.5 / len(z) ** 0.5)
    if not peaks:
        return
    largest = max(float(r[k]) for k in peaks)
    period = next(k for k in peaks if r[k] >= _SIMILAR * largest)
    for k in CALENDAR_PERIODS:
        if 0 < abs(k - period) <= 0.05 * period and k <= max_lag and r[k] >= 0.9 * r[period]:
            period = k
    if r[period] > max(_MIN_AUTOCORRELATION, _MIN_DEVIATIONS / len(z) ** 0.5):
        yield float(r[period]), period


def _find_peaks(r: Tensor, noise: float) -> list[int]:
    """Lags with the largest autocorrelation within a quarter of them on both sides, above noise, after a valley."""
    peaks = []
    for k in range(2, len(r) - 1):
        radius = max(1, k // 4)
        if k + radius // 2 >= len(r) or r[k] <= noise:
            continue
        around = r[max(1, k - radius) : k + radius + 1]
        if r[k] >= around.max() and r[k] > r[max(1, k - radius) : k + 1].min() + 0.05:
            peaks.append(k)
    return peaks
