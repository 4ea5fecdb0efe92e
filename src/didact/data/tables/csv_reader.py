"""CSV files with any delimiter, compressed or not, and rows of the command line."""

import csv
import io
import json
import re
import warnings
from array import array
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from didact.data.checks import summarize_list
from didact.data.core import SourceLocator
from didact.data.datasets.archives import read_decompressed
from didact.data.tables.decimal_commas import infer_comma, strip_commas
from didact.data.tables.imputation import MISSING_VALUES, is_missing
from didact.errors import UsageError

if TYPE_CHECKING:
    from pandas import DataFrame, Index, Series

_CSV_SUFFIXES = (".csv", ".tsv")
TABLE_SUFFIXES = tuple(suffix + compression for suffix in _CSV_SUFFIXES for compression in ("", ".gz", ".xz"))
_DELIMITERS = ",;\t|"
_SNIFFED_CHARS = 100_000     # characters in which the delimiter is looked for
_SAMPLED_ROWS = 100          # rows that decide whether a column is tried as numbers
_MAX_EXACT = 2**53           # whole numbers up to this one are exact in double precision


def is_csv_path(text: str) -> bool:
    """Whether a name is that of a CSV file, existing or not."""
    return Path(text.lower().removesuffix(".gz").removesuffix(".xz")).suffix in _CSV_SUFFIXES


def dataset_name(path: Path) -> str:
    """The name of the data: the file's name up to the first dot."""
    return path.name.split(".")[0] or path.name


def read_csv(
    path: Path,
    *,
    min_columns: int = 2,
    comma_meanings: Mapping[str, str] | None = None,
    text_columns: Collection[str | int] | None = None,
) -> "DataFrame":
    """A CSV file as a data frame. Its index holds the lines of the file, so that messages can name them.

    Cells are text, missing values NaN. With `text_columns` (names or positions) only these are: any other column whose
    cells are all numbers or missing is float64, parsed without a Python string for each cell.
    Fewer than `min_columns` columns are probably separated by something else: refused. `comma_meanings` are those of a
    table read before. `attrs` holds, by column, "commas" (their meaning) and "missing" (the first word that is read as
    missing), and "notes".
    """
    import pandas as pd

    raw = _read_utf8(path)
    delimiter = sniff_delimiter(raw.lstrip(b"\r\n")[: 4 * _SNIFFED_CHARS].decode(errors="ignore"))
    layout = _scan_rows(path, raw, delimiter, min_columns, text_columns)
    columns, numeric = _parse_columns(path, raw, delimiter, layout)
    cells: dict[str, Any] = {}
    meanings, first_missing, notes = dict(comma_meanings or {}), dict[str, str](), list[str]()
    for i, name in enumerate(layout.names):
        column = columns[i]
        if i in numeric:
            cells[name] = column
            continue
        missing_words = {word for word in column.unique() if is_missing(word)}
        if delimiter != "," and name not in meanings:      # there a comma may be a decimal point
            meanings[name], note = infer_comma(name, [word.strip() for word in column if word not in missing_words])
            notes += [note] if note else []
        first_missing[name] = _find_first_word(column, missing_words)
        cells[name] = _clean_text(column, missing_words, meanings.get(name, ""))
    frame = pd.DataFrame(cells, copy=False)
    frame.index = pd.Index(layout.lines)
    frame.attrs = {"commas": meanings, "missing": first_missing, "notes": notes}
    if layout.names[0] == "column 1" and _counts_from_0(to_numeric(frame["column 1"])):
        return frame.drop(columns="column 1")  # the row numbers that pandas writes
    return frame


def _counts_from_0(numbers: "Series") -> bool:
    """Whether these are 0, 1, 2, … less a constant."""
    return bool(np.array_equal(numbers - numbers.iloc[0], np.arange(len(numbers))))


def _find_first_word(column: "Series", words: Collection[str]) -> str:
    """The first cell that is one of these words and not blank."""
    is_word = column.isin([word for word in words if word.strip()])
    return column.iloc[int(is_word.argmax())].strip() if is_word.any() else ""


def _clean_text(column: "Series", missing_words: Collection[str], comma_meaning: str) -> "Series":
    """Cells of text with None for missing values, and without commas in numbers."""
    import pandas as pd

    if not missing_words and not comma_meaning:
        return column
    is_absent = column.isin(list(missing_words))
    cells = [None if no else strip_commas(word, comma_meaning) for word, no in zip(column, is_absent, strict=True)]
    return pd.Series(cells, index=column.index, dtype=object)


def make_line_locator(path: Path, lines: "Sequence[int] | Index") -> SourceLocator:
    """Locate a row by the line of the file on which it begins. Only the lines are held: the cells may be freed."""
    return lambda row: f"{path.name}, line {lines[row]}"


def read_text(path: Path) -> str:
    """The file as UTF-8 text, decompressed where it is compressed."""
    return _read_utf8(path).decode()


def _read_utf8(path: Path) -> bytes:
    """The bytes of a file of UTF-8 text, decompressed, without a byte order mark."""
    raw = read_decompressed(path).removeprefix(BOM_UTF8)
    if not raw or raw.isspace():
        raise UsageError(f"{path} is empty: expected a line of column names and rows below it")
    if b"\0" in raw:
        raise UsageError(f"{path} is not a text file: expected a CSV table, saved as UTF-8")
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError(f"{path} is not UTF-8 text (line {line}): save the table as CSV in UTF-8") from None
    return raw


def sniff_delimiter(text: str) -> str:
    """The delimiter that divides the first lines most evenly."""

    def score(delimiter: str) -> tuple[bool, int, int]:
        try:
            lines = io.StringIO(text.lstrip("\r\n")[:_SNIFFED_CHARS], newline="")
            rows = [len(row) for row in islice(csv.reader(lines, delimiter=delimiter), 20) if row]
        except csv.Error:
            return False, 0, 0
        return rows[0] > 1, rows.count(rows[0]), rows[0]

    return max(_DELIMITERS, key=score)


@dataclass(frozen=True)
class _Layout:
    """What the csv module finds in a file: its columns, the line on which each row begins, and the columns whose first
    rows are numbers."""

    names: list[str]
    lines: NDArray[np.int64]
    numeric: tuple[int, ...]


def _scan_rows(
    path: Path, raw: bytes, delimiter: str, min_columns: int, text_columns: Collection[str | int] | None
) -> _Layout:
    """Check that every row has a cell for each column. One row at a time: nothing but its line is held."""
    numbered_rows = _iter_rows(path, raw, delimiter)
    _, header = next(numbered_rows)
    names = [name.strip() or f"column {i}" for i, name in enumerate(header, 1)]
    if len(names) < min_columns:
        raise UsageError(f"{path} has only one column, {names[0]!r}: expected columns separated by , ; tab or |")
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate:
        raise UsageError(f"{path} has two columns named {duplicate!r}: give each its own name")
    if all(is_number(name) for name in names) and names != [str(i) for i in range(len(names))]:
        raise UsageError(f"the first line of {path} must name the columns, got numbers: {summarize_list(names)}")
    lines, sample = array("q"), list[list[str]]()
    for line, row in numbered_rows:
        if len(row) != len(names):
            quote_hint = "; is a quotation mark not closed?" if any("\n" in field for field in row) else ""
            hint = f"; a value with {delimiter!r} in it needs quotation marks" if len(row) > len(names) else quote_hint
            raise UsageError(
                f"line {line} of {path} has {len(row)} fields, but the first line names {len(names)} columns{hint}"
            )
        lines.append(line)
        if len(sample) < _SAMPLED_ROWS:
            sample.append(row)
    if not lines:
        raise UsageError(f"{path} has column names but no rows: expected examples below them")
    texts = set(names) if text_columns is None else {c if isinstance(c, str) else names[c] for c in text_columns}
    numeric = (
        i for i, name in enumerate(names) if name not in texts and all(_is_number_or_missing(row[i]) for row in sample)
    )
    return _Layout(names, np.array(lines), tuple(numeric))


def _iter_rows(path: Path, raw: bytes, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows with the lines on which they begin; blank lines are skipped."""
    current_line = ""

    def remember_line() -> Iterator[str]:
        nonlocal current_line
        for current_line in _open_text(raw):  # noqa: UP028 - the line is remembered
            yield current_line

    reader = csv.reader(remember_line(), delimiter=delimiter, skipinitialspace=True)
    line = 1
    try:
        for row in reader:
            if len(row) > 1 or (row and (row[0] or current_line.strip())):   # "" is a missing value, no blank line
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(f"line {line} of {path} cannot be read: {error}; is a quotation mark not closed?") from None


def _open_text(raw: bytes) -> io.TextIOWrapper:
    """The text as a stream of lines: decoded piece by piece, never as a whole."""
    return io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8", newline="")


def _parse_columns(
    path: Path, raw: bytes, delimiter: str, layout: _Layout
) -> tuple[dict[int, "Series"], set[int]]:
    """The columns by position, and which of them are numbers; the others are text.

    pandas parses the cells. Where it finds other rows than the csv module (stray quotation marks), the latter counts.
    """
    import pandas as pd

    positions = range(len(layout.names))
    parsed = _parse_cells(raw, delimiter, layout, positions, layout.numeric)
    if parsed is None:
        rows = [row for _, row in _iter_rows(path, raw, delimiter)][1:]
        return dict(pd.DataFrame(rows, columns=positions, dtype=object).items()), set()
    numeric = {i for i in layout.numeric if _is_exact(parsed[i])}
    columns = dict(parsed.items())
    if others := [i for i in layout.numeric if i not in numeric]:
        texts = _parse_cells(raw, delimiter, layout, others, ())
        assert texts is not None               # the same rows as before
        columns.update(texts.items())
    return columns, numeric


def _parse_cells(
    raw: bytes, delimiter: str, layout: _Layout, columns: Sequence[int], numeric: Collection[int]
) -> "DataFrame | None":
    """These columns by pandas' parser: those in `numeric` as it infers them, the others as text; None where it finds
    other rows."""
    import pandas as pd

    if raw.count(b"\r") != raw.count(b"\r\n"):
        return None                             # lines that end with \r alone: pandas loses an empty first cell
    text = _open_text(raw)
    for _ in range(int(layout.lines[0]) - 1):       # the header, and blank lines
        next(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)     # a column of mixed types is read again as text
            cells = pd.read_csv(
                text,
                sep=delimiter,
                header=None,
                names=range(len(layout.names)),
                usecols=list(columns),
                index_col=False,
                skipinitialspace=True,
                keep_default_na=False,
                na_values={i: list(MISSING_VALUES) for i in numeric},
                dtype={i: object for i in columns if i not in numeric},
                engine="c",
            )
    except pd.errors.ParserError:
        return None
    return cells if len(cells) == len(layout.lines) else None


def _is_exact(column: "Series") -> bool:
    """Whether these are numbers that no reading rounds in another way and no message has to quote: of at most 2⁵³."""
    import pandas as pd

    is_numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    return is_numeric and bool(column.min() >= -_MAX_EXACT and column.max() <= _MAX_EXACT)


def _is_number_or_missing(cell: str) -> bool:
    return is_number(cell) or is_missing(cell)


def to_numeric(column: "Series") -> "Series":
    """The cells as float64, NaN where they are no numbers."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return column if column.dtype == "float64" else column.astype("float64")
    values = column.astype(str) if pd.api.types.is_bool_dtype(column) else column.astype(object)
    return pd.to_numeric(values, errors="coerce").astype("float64")


def is_number(word: str) -> bool:
    """Whether a text is a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def parse_row(text: str) -> dict[str, Any]:
    """A row of the command line: `a=1,b=2` or {"a": 1, "b": 2}; an empty value is a missing one."""
    if text.lstrip().startswith("{"):
        try:
            row: dict[str, Any] = json.loads(text)
        except (ValueError, RecursionError) as error:       # ValueError alone: an integer of thousands of digits
            raise UsageError(f"a row in braces must be JSON, got {text[:80]!r}: {error}") from None
        for name, value in row.items():
            if isinstance(value, list | dict):
                raise UsageError(f"column {name!r} expects one value, got {value!r}")
        return {
            name: None if isinstance(value, str) and is_missing(value) else value
            for name, value in row.items()
        }
    pairs = [part.split("=", 1) for part in re.split(r",(?=[^,=]+=)", text)]
    if any(len(pair) != 2 for pair in pairs):
        raise UsageError(f"expected a CSV file, a row as 'column=value,…' or a JSON object, got {text!r}")
    return {name.strip(): None if is_missing(value) else value.strip() for name, value in pairs}
