"""CSV files with any delimiter, compressed or not, and rows of the command line."""

import csv
import io
import re
import warnings
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from didact.data.checks import summarize_list
from didact.data.core import SourceLocator
from didact.data.tables.encodings import decode_to_utf8
from didact.data.tables.imputation import MISSING_VALUES, is_missing
from didact.data.tables.table_file import TableFile
from didact.errors import UsageError
from didact.schema import parse_foreign_json

if TYPE_CHECKING:
    from pandas import DataFrame, Index, Series

_DELIMITERS = ",;\t|"
_SNIFFED_CHARS = 100_000     # characters in which the delimiter is looked for
_SAMPLED_ROWS = 100          # rows that decide whether a column is tried as numbers
csv.field_size_limit(2**31 - 1)     # of characters in a cell: a document may have more than the module's 131,072
_MAX_EXACT = 2**53           # whole numbers up to this one are exact in double precision


@dataclass(frozen=True)
class RawTable:
    """A table as its file has it: cells of text, or numbers, by column; the line or row of each."""

    columns: "dict[str, Series]"
    lines: "Sequence[int] | NDArray[np.int64]"
    delimiter: str = ""
    notes: tuple[str, ...] = ()
    unit: str = "line"                   # what `lines` counts


def read_csv_cells(
    file: TableFile, *, min_columns: int = 2, text_columns: Collection[str | int] | None = None
) -> RawTable:
    """The cells of a CSV file. With `text_columns` (names or positions) any other column whose cells are all numbers
    or missing is float64 or int64, parsed without a Python string for each cell."""
    raw, note = read_utf8(file)
    delimiter = sniff_delimiter(raw.lstrip(b"\r\n")[: 4 * _SNIFFED_CHARS].decode(errors="ignore"))
    layout = _scan_rows(file.path, raw, delimiter, min_columns, text_columns)
    columns = _parse_columns(file.path, raw, delimiter, layout)
    named_columns = {name: columns[i] for i, name in enumerate(layout.names)}
    return RawTable(named_columns, layout.lines, delimiter, (note,) if note else ())


def make_line_locator(path: Path, lines: "Sequence[int] | Index", unit: str = "line") -> SourceLocator:
    """Locate a row by the line of the file on which it begins. Only the lines are held: the cells may be freed."""

    def locate(row: int) -> str:
        line, _, other_name = str(lines[row]).partition(" of ")        # "5 of test.csv": of another file
        return f"{other_name or path.name}, {unit} {line}"

    return locate


def read_text(path: Path) -> str:
    """The file as text, decompressed where it is compressed."""
    return read_utf8(TableFile.parse(path))[0].decode()


def read_utf8(file: TableFile) -> tuple[bytes, str]:
    """The bytes of a text file as UTF-8, decompressed, without a byte order mark; a note on another encoding."""
    raw = file.read_bytes()
    decoded = decode_to_utf8(raw)
    if decoded is None:
        raise UsageError(
            f"{file.path} is not a text file, or in no common encoding: expected a table; save it as CSV in UTF-8"
        )
    text, encoding = decoded
    if not text or text.isspace():
        raise UsageError(f"{file.path} is empty: expected a line of column names and rows below it")
    return text, f"the file is in {encoding}, not in UTF-8: read as such" if encoding else ""


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
    names = check_names(path, header, min_columns)
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
    texts = set(names) if text_columns is None else resolve_columns(names, text_columns)
    numeric = (
        i for i, name in enumerate(names) if name not in texts and all(_is_number_or_missing(row[i]) for row in sample)
    )
    return _Layout(names, np.array(lines), tuple(numeric))


def resolve_columns(names: Sequence[str], columns: Collection[str | int]) -> set[str]:
    """The names of columns that are given by name or position; a position that the table lacks is none."""
    positions = range(-len(names), len(names))
    return {c if isinstance(c, str) else names[c] for c in columns if isinstance(c, str) or c in positions}


def check_names(path: Path, header: Sequence[str], min_columns: int, separators: str = ", ; tab or |") -> list[str]:
    """The names of columns without spaces around them; refused where one occurs twice, or where they are numbers."""
    names = [name.strip() or f"column {i}" for i, name in enumerate(header, 1)]
    if len(names) < min_columns:
        hint = f": expected columns separated by {separators}" if separators else ": expected at least two"
        raise UsageError(f"{path} has only one column, {names[0]!r}{hint}")
    duplicate = next((name for name, count in Counter(names).items() if count > 1), None)
    if duplicate:
        raise UsageError(f"{path} has two columns named {duplicate!r}: give each its own name")
    if all(is_number(name) for name in names) and names != [str(i) for i in range(len(names))]:
        raise UsageError(f"the first line of {path} must name the columns, got numbers: {summarize_list(names)}")
    return names


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
) -> dict[int, "Series"]:
    """The columns by position: numbers, or else text.

    pandas parses the cells. Where it finds other rows than the csv module (stray quotation marks), the latter counts.
    """
    import pandas as pd

    positions = range(len(layout.names))
    parsed = _parse_cells(raw, delimiter, layout, positions, layout.numeric)
    if parsed is None:
        rows = [row for _, row in _iter_rows(path, raw, delimiter)][1:]
        return dict(pd.DataFrame(rows, columns=positions, dtype=object).items())
    numeric = {i for i in layout.numeric if is_exact(parsed[i])}
    columns = dict(parsed.items())
    if others := [i for i in layout.numeric if i not in numeric]:
        texts = _parse_cells(raw, delimiter, layout, others, ())
        assert texts is not None               # the same rows as before
        columns.update(texts.items())
    return columns


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


def is_exact(column: "Series") -> bool:
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
            row: dict[str, Any] = parse_foreign_json(text)
        except ValueError as error:
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
