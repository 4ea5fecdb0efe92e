"""How cells that are no plain numbers become numbers: amounts, percentages, durations, and the parts of dates.

    Quantity    $1,200   1 200 €   1.200,50 EUR   12 %   (350)   €3.5M   75 kg
    Duration    1:30   1:02:03   2 days 03:00:00
    DatePart    days, year, month, weekday and hour of a date or time
"""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from didact.data.tables.decimal_commas import infer_comma

if TYPE_CHECKING:
    from pandas import Series

_MIN_READ_SHARE = 0.95           # of the cells that are present, for a column of features
_SAMPLE_SIZE = 200               # different cells that are looked at first
_MIN_UNIT_NUMBERS = 10           # different cells from which on a word behind each number is a unit, as in 75 kg
_SPACES = " \u00a0\u202f\u2009'’"
_CURRENCIES = (
    r"(?:R\$|US\$|[$€£¥₹₽₩₺₪฿₫₴₦]|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|zł|Kč|kr\.?|Rs\.?)"
)
_MULTIPLIERS = {"": 1.0, "k": 1e3, "m": 1e6, "mn": 1e6, "mio": 1e6, "b": 1e9, "bn": 1e9}
_QUANTITY_PATTERN = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[-+−–])?\s*(?P<before>{_CURRENCIES})?\s*(?P<sign2>[-+−])?\s*"
    rf"(?P<number>\d[\d.,{_SPACES}]*\d|\d|\.\d+)\s*(?:(?P<multiplier>[kKMB]|[Mm]n|[Mm]io|bn)(?![^\W\d_]))?\s*"
    rf"(?P<after>{_CURRENCIES}|%|[^\W\d_][\w²³/°]*\.?|°[CF]?)?\s*(?P<close>\))?",
)
_GROUPS_PATTERN = re.compile(rf"\d{{1,3}}(?:[{_SPACES}]\d{{3}})+(?:[.,]\d+)?")
_POINT_GROUPS_PATTERN = re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?")
_COMMA_GROUPS_PATTERN = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_DURATION_PATTERN = re.compile(
    r"(?P<sign>-)?(?:(?P<days>\d+) days? ?,? ?)?(?P<first>\d{1,4}):(?P<second>[0-5]\d)"
    r"(?::(?P<third>[0-5]\d(?:\.\d+)?))?"
)
_DATE_PATTERN = re.compile(
    r"\s*(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{8}\b|\d{1,2}[ -.]?[^\W\d_]{3,}|[^\W\d_]{3,9}\.? \d)"
)
_SECONDS_PER_DAY = 86_400


class CellReading(Protocol):
    """How the text of a cell becomes a number."""

    def to_numbers(self, column: "Series") -> "Series":
        """float64, NaN where a cell is missing or cannot be read."""


@dataclass(frozen=True)
class Quantity:
    """An amount, a percentage, or a number with its unit, as the number alone. `comma`: the meaning of commas."""

    comma: str = ""
    point_groups: bool = False           # 1.200 is 1200
    unit: str = ""                       # the word behind every number

    def to_numbers(self, column: "Series") -> "Series":
        return _map_cells(column, self.parse)

    def parse(self, cell: str) -> float:
        match = _QUANTITY_PATTERN.fullmatch(cell.strip())
        if match is None or bool(match["open"]) != bool(match["close"]):
            return np.nan
        after = match["after"] or ""
        is_known = not after or after == "%" or re.fullmatch(_CURRENCIES, after) or after == self.unit
        number = self._parse_digits(match["number"]) if is_known else np.nan
        is_negative = match["open"] or any((match[sign] or "") in ("-", "−", "–") for sign in ("sign", "sign2"))
        is_scaled = match["before"] or after or not match["multiplier"]
        scale = _MULTIPLIERS[(match["multiplier"] or "").lower()] if is_scaled else np.nan
        return -scale * number if is_negative else scale * number

    def _parse_digits(self, digits: str) -> float:
        if _GROUPS_PATTERN.fullmatch(digits):
            digits = re.sub(f"[{_SPACES}]", "", digits)
        if self.point_groups and _POINT_GROUPS_PATTERN.fullmatch(digits):
            digits = digits.replace(".", "")
        if self.comma == "thousands" and _COMMA_GROUPS_PATTERN.fullmatch(digits):
            digits = digits.replace(",", "")
        elif self.comma == "decimal" and digits.count(",") == 1:
            digits = digits.replace(",", ".")
        try:
            return float(digits)
        except ValueError:
            return np.nan


@dataclass(frozen=True)
class Duration:
    """1:30 or 1:02:03 in its smallest unit: hours and minutes in minutes, with `has_seconds` all in seconds."""

    has_seconds: bool = False

    def to_numbers(self, column: "Series") -> "Series":
        return _map_cells(column, self.parse)

    def parse(self, cell: str) -> float:
        match = _DURATION_PATTERN.fullmatch(cell.strip())
        if match is None:
            return np.nan
        value = 60.0 * int(match["first"]) + int(match["second"])
        if match["third"] is not None:
            value = 60 * value + float(match["third"])
        elif match["days"] is not None and self.has_seconds:
            value *= 60
        units_per_day = _SECONDS_PER_DAY if self.has_seconds else _SECONDS_PER_DAY // 60
        value += int(match["days"] or 0) * units_per_day
        return -value if match["sign"] else value


_DATE_PARTS: dict[str, Callable[[Any], Any]] = {
    "days": lambda t: t.dt.as_unit("ms").astype("int64") / (1e3 * _SECONDS_PER_DAY),
    "year": lambda t: t.dt.year,
    "month": lambda t: t.dt.month,
    "month sin": lambda t: np.sin(2 * np.pi * (t.dt.month - 1) / 12),
    "month cos": lambda t: np.cos(2 * np.pi * (t.dt.month - 1) / 12),
    "weekday": lambda t: t.dt.day_of_week,
    "hour": lambda t: t.dt.hour + t.dt.minute / 60,
    "hour sin": lambda t: np.sin(2 * np.pi * (t.dt.hour + t.dt.minute / 60) / 24),
    "hour cos": lambda t: np.cos(2 * np.pi * (t.dt.hour + t.dt.minute / 60) / 24),
}


@dataclass(frozen=True)
class DatePart:
    """One part of a date: days since 1970, year, month, weekday (0 is Monday) or hour; months and hours on a circle."""

    part: str
    format: str = "ISO8601"

    def to_numbers(self, column: "Series") -> "Series":
        import pandas as pd

        times = parse_dates(column, self.format)
        if self.format != "ISO8601":                 # a workbook has dates, not texts
            times = times.fillna(parse_dates(column, "ISO8601"))
        is_present = times.notna()
        numbers = pd.Series(np.nan, index=column.index, dtype="float64")
        numbers[is_present] = _DATE_PARTS[self.part](times[is_present]).to_numpy(np.float64)
        return numbers


_READINGS: dict[str, type[Any]] = {"quantity": Quantity, "duration": Duration, "date": DatePart}


def reading_to_spec(reading: CellReading) -> dict[str, Any]:
    """A reading as JSON."""
    kind = next(kind for kind, cls in _READINGS.items() if isinstance(reading, cls))
    return {"kind": kind, **asdict(reading)}                  # type: ignore[call-overload]


def reading_from_spec(spec: Mapping[str, Any]) -> CellReading:
    """The reading that `reading_to_spec` wrote."""
    reading: CellReading = _READINGS[spec["kind"]](**{name: v for name, v in spec.items() if name != "kind"})
    return reading


def _map_cells(column: "Series", parse: Callable[[str], float]) -> "Series":
    """Each different cell is parsed once."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return column.astype("float64")
    codes, words = pd.factorize(column.astype(object))
    values = np.array([*(parse(str(word)) for word in words), np.nan])
    return pd.Series(values[codes], index=column.index, dtype="float64")


class _Cells:
    """The different texts of a column, the sampled ones first."""

    def __init__(self, column: "Series"):
        self.column = column
        self.present = column.dropna()

    @cached_property
    def sample(self) -> list[str]:
        return [str(word).strip() for word in self.present.iloc[: 5 * _SAMPLE_SIZE].unique()[:_SAMPLE_SIZE]]

    @cached_property
    def words(self) -> list[str]:
        return [str(word).strip() for word in self.present.unique()]

    def matches(self, pattern: re.Pattern[str]) -> bool:
        """Whether most of the sampled texts match."""
        num_matches = sum(pattern.fullmatch(word) is not None for word in self.sample)
        return bool(self.sample) and num_matches >= 0.9 * len(self.sample)

    def is_readable(self, reading: CellReading, min_share: float) -> bool:
        share = float(reading.to_numbers(self.present).notna().mean())
        return share >= min_share


def infer_quantity(column: "Series", min_share: float = _MIN_READ_SHARE) -> Quantity | Duration | None:
    """How a column of amounts, percentages or durations is read; None where it holds none."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        return None
    cells = _Cells(column)
    if cells.matches(_DURATION_PATTERN):
        has_seconds = any(word.count(":") == 2 for word in cells.words)
        duration = Duration(has_seconds)
        return duration if cells.is_readable(duration, min_share) else None
    if not cells.matches(_QUANTITY_PATTERN) or _are_plain_numbers(cells):
        return None
    matches = [match for word in cells.words if (match := _QUANTITY_PATTERN.fullmatch(word))]
    numbers = [re.sub(f"[{_SPACES}]", "", match["number"]) for match in matches]
    units = {match["after"] for match in matches if match["after"] and not _is_currency_or_percent(match["after"])}
    if len(units) > 1 or (units and (len(set(numbers)) < _MIN_UNIT_NUMBERS or not all(m["after"] for m in matches))):
        return None
    point_groups = any(_POINT_GROUPS_PATTERN.fullmatch(n) and ("," in n or n.count(".") > 1) for n in numbers)
    plain = [n.replace(".", "") if point_groups else n for n in numbers]
    comma = "thousands" if _are_thousands(plain) else infer_comma("", plain)[0]
    quantity = Quantity(comma, point_groups, next(iter(units), ""))
    return quantity if cells.is_readable(quantity, min_share) else None


def _are_plain_numbers(cells: _Cells) -> bool:
    """Whether no reading can be better than that of the numbers as they are."""
    import pandas as pd

    return bool(pd.to_numeric(cells.present, errors="coerce").notna().all())


def _is_currency_or_percent(word: str) -> bool:
    return word == "%" or re.fullmatch(_CURRENCIES, word) is not None


def _are_thousands(numbers: Sequence[str]) -> bool:
    """Whether all commas divide thousands: beside a currency or a percent sign 1,200 has no three decimals."""
    with_commas = [number for number in numbers if "," in number]
    return bool(with_commas) and all(_COMMA_GROUPS_PATTERN.fullmatch(number) for number in with_commas)


def describe_quantity(column: "Series", reading: Quantity | Duration) -> str:
    """A note on what is read from the cells, and on those that cannot be."""
    numbers = reading.to_numbers(column)
    is_read = numbers.notna().to_numpy()
    i = int(is_read.argmax())
    kind = "durations" if isinstance(reading, Duration) else "numbers with signs or units"
    note = f"column {column.name!r} holds {kind}: {column.iloc[i]!r} is read as {numbers.iloc[i]:.15g}"
    if isinstance(reading, Duration):
        note += " seconds" if reading.has_seconds else ", in the smaller unit"
    unread = column[~is_read & column.notna().to_numpy()]
    if len(unread):
        note += (
            f"; {len(unread)} not read, first {unread.iloc[0]!r} in line {unread.index[0]}: taken as missing"
        )
    return note


def parse_dates(column: "Series", date_format: str) -> "Series":
    """Times, without a time zone (in UTC where there is one), missing where a cell is no date of that format."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        column = column.map(lambda v: f"{v:.0f}", na_action="ignore")
    strings = column.astype(object).map(lambda cell: str(cell).strip(), na_action="ignore")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pd.to_datetime(strings, format=date_format, utc=True, errors="coerce").dt.tz_localize(None)


def infer_date_format(column: "Series") -> tuple[str, str] | None:
    """The format of a column of dates, and a note where day and month could be meant either way; None: no dates."""
    import pandas as pd
    from pandas.tseries.api import guess_datetime_format

    if pd.api.types.is_numeric_dtype(column):
        return _infer_compact_dates(column)
    cells = _Cells(column)
    num_dates = sum(_DATE_PATTERN.match(word) is not None for word in cells.sample)
    if not cells.sample or num_dates < 0.9 * len(cells.sample):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")              # of a day before the month: both orders are tried
        guessed = [guess_datetime_format(cells.sample[0], dayfirst=first) for first in (False, True)]
    readable = [
        date_format
        for date_format in dict.fromkeys(["ISO8601", *filter(None, guessed)])
        if float(parse_dates(cells.present, date_format).notna().mean()) >= _MIN_READ_SHARE
    ]
    if not readable:
        return None
    if readable[0] == "ISO8601" or len(readable) == 1:
        return readable[0], ""
    # 3.4. is the third of April, 3/4 more often the fourth of March
    chosen = readable[1] if "." in cells.sample[0] else readable[0]
    first = "day" if chosen == readable[1] else "month"
    return chosen, f"; {cells.sample[0]!r} is read with the {first} first: write 2020-01-31 where that is wrong"


def _infer_compact_dates(column: "Series") -> tuple[str, str] | None:
    """Whole numbers such as 20200131, all of them dates."""
    if not (column.min() >= 19_000_101 and column.max() <= 20_991_231):
        return None
    present = column.dropna()
    if not bool((present % 1 == 0).all()):
        return None
    is_date = parse_dates(present, "%Y%m%d").notna().all()
    return ("%Y%m%d", "") if is_date and present.nunique() > 2 else None


def unfold_dates(column: "Series", date_format: str) -> list[DatePart]:
    """The parts of the dates that are not the same everywhere; hours where the dates have times."""
    parts = [DatePart(name, date_format) for name in _DATE_PARTS]
    return [part for part in parts if part.to_numbers(column).nunique() > 1]
