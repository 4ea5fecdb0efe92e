"""Dates of a time series: which columns hold them, the order of the rows, the step, gaps, and the dates to come."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from didact.data.tables.columns import to_numeric_or_none

if TYPE_CHECKING:
    from pandas import DataFrame, DatetimeIndex, Series

DateColumns = Sequence[tuple[str, "Series"]]    # names, each with one reading of its cells as dates


def find_date_columns(frame: "DataFrame") -> list[tuple[str, "Series"]]:
    """Every column of dates, twice where 3/4 may be in March or in April."""
    return [(str(name), times) for name in frame.columns for times in parse_dates(frame[name])]


def sort_by_time(frame: "DataFrame", date_columns: DateColumns) -> tuple["DataFrame", list[str]]:
    """The rows from the oldest to the newest, by a column of dates if there is one, and notes."""
    if not date_columns or any(is_time_index(times) for _, times in date_columns):
        return frame, []
    name, times = min(
        date_columns,
        key=lambda each: (not each[1].is_monotonic_increasing, not each[1].is_monotonic_decreasing, each[1].hasnans),
    )
    num_tied, order_text = int(times.duplicated(keep=False).sum()), "stay in the order of the file"
    tie_notes = (
        [f"{num_tied:,} of {len(times):,} rows share their date in {name!r} with another: those {order_text}"]
        if num_tied
        else []
    )
    if times.is_monotonic_increasing:
        return frame, tie_notes
    if times.hasnans:
        return frame, [f"{int(times.isna().sum()):,} of {len(times):,} rows have no date in {name!r}: all {order_text}"]
    # reversed, rows of one date come into their order as well
    if times.is_monotonic_decreasing:
        return frame[::-1], [f"sorted by {name!r}: the file has the newest first"]
    if sum(other == name for other, _ in date_columns) > 1:
        return frame, [
            f"the dates in {name!r} may have the day or the month first: the rows {order_text}; write them as "
            "2020-01-31"
        ]
    return frame.iloc[times.argsort(kind="stable")], [
        f"sorted by {name!r}: the rows of the file are not in the order of time",
        *tie_notes,
    ]


def is_time_index(times: "Series") -> bool:
    """Whether every row is later than the one before it."""
    return bool(times.is_monotonic_increasing and times.is_unique and not times.hasnans)


def find_time_index(frame: "DataFrame", date_columns: DateColumns) -> "Series | None":
    """The dates of rows that are in the order of time; None where no column rises from row to row."""
    ordered = (times.loc[frame.index] for _, times in date_columns)
    return next((times for times in ordered if is_time_index(times)), None)


def infer_step(times: "Series") -> str | None:
    """The step between dates as pandas writes it (h, D, W-SUN, MS); None where they are uneven."""
    import pandas as pd

    index = pd.DatetimeIndex(times)
    if len(index) < 4:
        return None
    # calendar steps, as months, differ in length; a row that is left out must not hide them
    for start in (0, len(index) // 2, len(index) - 16):
        part = index[max(0, start) : max(0, start) + 16]
        step = _infer_frequency(part)
        if step and index.isin(pd.date_range(index[0], index[-1], freq=step)).mean() > 0.95:
            return step
    steps = index.to_series().diff().dropna().value_counts()
    if steps.iloc[0] < 0.8 * (len(index) - 1):
        return None
    return f"{int(steps.index[0].total_seconds())}s"


def _infer_frequency(index: "DatetimeIndex") -> str | None:
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")         # pandas 4 will return an offset, whose text is the same
        frequency = pd.infer_freq(index) if len(index) > 3 else None
    return frequency and str(getattr(frequency, "freqstr", frequency))


def describe_gaps(times: "Series", step: str | None) -> list[str]:
    """A note on dates that are missing between the first and the last, and on uneven steps."""
    import pandas as pd

    index = pd.DatetimeIndex(times)
    if step is None:
        return [f"the dates in {times.name!r} are not evenly spaced: the values are taken as if they were"]
    expected = pd.date_range(index[0], index[-1], freq=step)
    missing = expected.difference(index)
    if not len(missing):
        return []
    return [
        f"gaps in time: {len(missing):,} of {len(expected):,} dates in {times.name!r} have no row, the first "
        f"{format_dates(missing[:1].to_series())[0]}; the rows before and after a gap are taken as neighbors"
    ]


def continue_dates(times: "Series", horizon: int) -> list[str] | None:
    """The `horizon` dates after the last one; None where the step is not known."""
    import pandas as pd

    step = infer_step(times)
    if step is None:
        return None
    return format_dates(pd.date_range(times.iloc[-1], periods=horizon + 1, freq=step)[1:].to_series())


def format_dates(times: "Series") -> list[str]:
    """2020-01-31, or 2020-01-31 14:00 where there is a time of day."""
    is_whole_days = bool((times == times.dt.normalize()).all())
    return [str(text) for text in times.dt.strftime("%Y-%m-%d" if is_whole_days else "%Y-%m-%d %H:%M")]


def parse_dates(column: "Series") -> list["Series"]:
    """The readings of a column as dates: none, one, or two where 3/4 may be in March or in April."""
    import pandas as pd
    from pandas.tseries.api import guess_datetime_format

    strings = column.dropna().astype(str).str.strip()
    if strings.nunique() < 2 or (
        to_numeric_or_none(column) is not None and not strings.str.fullmatch(r"(19|20)\d{6}").all()
    ):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")         # of a day before the month: both orders are tried
        guessed_formats = [guess_datetime_format(strings.iloc[0], dayfirst=first) for first in (False, True)]
    for formats in ["ISO8601"], dict.fromkeys(filter(None, guessed_formats)):
        parsed = [pd.to_datetime(strings, format=date_format, utc=True, errors="coerce") for date_format in formats]
        if complete := [times.reindex(column.index) for times in parsed if times.notna().all()]:
            return complete
    return []
