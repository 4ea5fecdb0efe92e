"""Time series: windows of past values and the next ones, from tables and from datasets known by name.

    windows        splits in the order of time, windows of any length and horizon
    read_series    tables with one series, several side by side (wide) or below each other (long)
    dates          columns of dates, the order of the rows, gaps, the dates of a forecast
    period         the seasonal period, by autocorrelation
    encoder        the last window of a file, for `predict`
    datasets       temperatures, waves

    from didact.data.time_series import build_series, find_period, with_horizon
"""

from didact.data.time_series.encoder import DEFAULT_WINDOW, SeriesEncoder, SeriesStatistics
from didact.data.time_series.period import compute_autocorrelation, find_period
from didact.data.time_series.read_series import SeriesLayout, SeriesTable, read_series
from didact.data.time_series.windows import build_series, load_series, with_horizon

__all__ = [
    "DEFAULT_WINDOW", "SeriesEncoder", "SeriesLayout", "SeriesStatistics", "SeriesTable", "build_series",
    "compute_autocorrelation", "find_period", "load_series", "read_series", "with_horizon",
]  # fmt: skip
