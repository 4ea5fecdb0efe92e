"""Tables as text: CSV files under any delimiter, packed or not, and rows that were typed."""

import csv
import io
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from didact.data.checks import summarize_list
from didact.data.core import SourceLocator
from didact.data.datasets.archives import read_decompressed
from didact.data.tables.decimal_commas import infer_comma, strip_commas
from didact.errors import UsageError

if TYPE_CHECKING:
    from pandas import DataFrame, Index, Series

CSV_SUFFIXES = (".csv", ".tsv")
ENDINGS = tuple(suffix + packed for suffix in CSV_SUFFIXES for packed in ("", ".gz", ".xz"))
# in files and in rows that were typed: what pandas takes for missing, and ?
MISSING_VALUES = frozenset(
    (
        "",
        "?",
        "NA",
        "N/A",
        "n/a",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "<NA>",
        "NaN",
        "nan",
        "-NaN",
        "-nan",
        "NULL",
        "null",
        "None",
        "1.#IND",
        "-1.#IND",
        "1.#QNAN",
        "-1.#QNAN",
    )
)
DELIMITERS = ",;\t|"


def is_csv_path(text: str) -> bool:
    """Whether a person's word means a CSV file, there or not."""
    return Path(text.lower().removesuffix(".gz").removesuffix(".xz")).suffix in CSV_SUFFIXES


def dataset_name(path: Path) -> str:
    """What the data is called: the file's name up to the first dot."""
    return path.name.split(".")[0] or path.name


def read_csv(path: Path, *, min_columns: int = 2, comma_meanings: Mapping[str, str] | None = None) -> "DataFrame":
    """All values as text, missing ones NaN; the index holds the lines of the file, so that messages can name them.

    Of fewer columns than these, it is more likely that they are separated by something else. `commas` says what
    they mean in columns
    that were read before. What was found out lies in `attrs`: "commas" and "missing" (the first word that is read
    so) by column, "notes".
    """
    import pandas as pd

    text = read_text(path)
    delimiter = sniff_delimiter(text)
    names, lines, rows = _parse_rows(path, text, delimiter, min_columns)
    cells: dict[str, Sequence[str | None]] = {}
    meanings, first_missing, notes = dict(comma_meanings or {}), dict[str, str](), list[str]()
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        missing_words = {word for word in set(column) if word.strip() in MISSING_VALUES}
        if delimiter != "," and name not in meanings:      # there a comma may be a decimal point
            meanings[name], note = infer_comma(name, [word.strip() for word in column if word not in missing_words])
            notes += [note] if note else []
        comma = meanings.get(name, "")
        first_missing[name] = (
            next((word.strip() for word in column if word in missing_words and word.strip()), "")
            if missing_words
            else ""
        )
        cells[name] = (
            [None if word in missing_words else strip_commas(word, comma) for word in column]
            if missing_words or comma
            else column
        )
    frame = pd.DataFrame(cells, index=pd.Index(lines), dtype=object)
    frame.attrs = {"commas": meanings, "missing": first_missing, "notes": notes}
    first_column = frame[names[0]]
    if names[0] == "column 1" and list(to_numeric(first_column) - to_numeric(first_column).iloc[0]) == list(
        range(len(frame))
    ):
        return frame.drop(columns="column 1")  # the row numbers that pandas writes
    return frame


def make_line_locator(path: Path, lines: "Sequence[int] | Index") -> SourceLocator:
    """Each row by the line of the file on which it begins. Lines alone are held: what was read from them may go."""
    return lambda row: f"{path.name}, line {lines[row]}"


def read_text(path: Path) -> str:
    """The file, unpacked where it is packed, as UTF-8."""
    raw = read_decompressed(path)
    if not raw.removeprefix(BOM_UTF8).strip():
        raise UsageError(f"{path} is empty: expected a line of column names and rows below it")
    if b"\0" in raw:
        raise UsageError(f"{path} is not a text file: expected a CSV table, saved as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError(f"{path} is not UTF-8 text (line {line}): save the table as CSV in UTF-8") from None


def sniff_delimiter(text: str) -> str:
    """The delimiter that divides the first lines most evenly."""

    def score(delimiter: str) -> tuple[bool, int, int]:
        try:
            reader = csv.reader(io.StringIO(text.lstrip("\r\n")[:100_000], newline=""), delimiter=delimiter)
            rows = [len(row) for row in islice(reader, 20) if row]
        except csv.Error:
            return False, 0, 0
        return rows[0] > 1, rows.count(rows[0]), rows[0]

    return max(DELIMITERS, key=score)


def _parse_rows(
    path: Path, text: str, delimiter: str, min_columns: int = 2
) -> tuple[list[str], list[int], list[tuple[str, ...]]]:
    """Column names, the line on which each row begins, and the rows; refuses a table that is none."""
    numbered_rows = _iter_rows(path, text, delimiter)
    _, header = next(numbered_rows)
    names = [name.strip() or f"column {i}" for i, name in enumerate(header, 1)]
    if len(names) < min_columns:
        raise UsageError(f"{path} has only one column, {names[0]!r}: expected columns separated by , ; tab or |")
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate:
        raise UsageError(f"{path} has two columns named {duplicate!r}: give each its own name")
    if all(is_number(name) for name in names) and names != [str(i) for i in range(len(names))]:
        raise UsageError(f"the first line of {path} must name the columns, got numbers: {summarize_list(names)}")
    lines, rows = [], []
    for line, row in numbered_rows:
        if len(row) != len(names):
            quote_hint = "; is a quotation mark not closed?" if any("\n" in field for field in row) else ""
            hint = f"; a value with {delimiter!r} in it needs quotation marks" if len(row) > len(names) else quote_hint
            raise UsageError(
                f"line {line} of {path} has {len(row)} fields, but the first line names {len(names)} columns{hint}"
            )
        lines.append(line)
        rows.append(tuple(row))
    if not lines:
        raise UsageError(f"{path} has column names but no rows: expected examples below them")
    return names, lines, rows


def _iter_rows(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows with the lines on which they begin; empty lines are passed over, and those of spaces."""
    lines = list(io.StringIO(text, newline=""))
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    line = 1
    try:
        for row in reader:
            if row and (row != [""] or lines[line - 1].strip()):   # "" is a missing value
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(f"line {line} of {path} cannot be read: {error}; is a quotation mark not closed?") from None


def to_numeric(column: "Series") -> "Series":
    """The values as numbers, NaN where they are none."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return column.astype("float64")
    values = column.astype(str) if pd.api.types.is_bool_dtype(column) else column.astype(object)
    return pd.to_numeric(values, errors="coerce").astype("float64")


def is_number(word: str) -> bool:
    """Whether a word reads as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def parse_row(text: str) -> dict[str, Any]:
    """One row, typed: `a=1,b=2` or {"a": 1, "b": 2}; an empty value is a missing one."""
    if text.lstrip().startswith("{"):
        try:
            row: dict[str, Any] = json.loads(text)
        except (ValueError, RecursionError) as error:       # ValueError alone: an integer of thousands of digits
            raise UsageError(f"a row in braces must be JSON, got {text[:80]!r}: {error}") from None
        for name, value in row.items():
            if isinstance(value, list | dict):
                raise UsageError(f"column {name!r} expects one value, got {value!r}")
        return {
            name: None if isinstance(value, str) and value.strip() in MISSING_VALUES else value
            for name, value in row.items()
        }
    pairs = [part.split("=", 1) for part in re.split(r",(?=[^,=]+=)", text)]
    if any(len(pair) != 2 for pair in pairs):
        raise UsageError(f"expected a CSV file, a row as 'column=value,…' or a JSON object, got {text!r}")
    return {name.strip(): None if value.strip() in MISSING_VALUES else value.strip() for name, value in pairs}
