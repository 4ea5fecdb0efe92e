"""Formats whose cells have a type: workbooks, JSON, Parquet and Arrow. Their columns are numbers, or else text."""

import io
import json
import warnings
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

from didact.data.checks import summarize_list
from didact.data.datasets.archives import REPLACE_ADVICE, ZIP_MAGIC, check_unpacked_size
from didact.data.tables.csv_reader import RawTable, check_names, is_exact, read_utf8
from didact.data.tables.table_file import TableFile
from didact.errors import UsageError, suggest_nearest
from didact.schema import parse_foreign_json

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# format -> what it is called, pandas' engine, the library behind it
_WORKBOOKS = {
    "excel": ("an Excel workbook", "openpyxl", "openpyxl"),
    "old_excel": ("an Excel workbook of before 2007", "xlrd", "xlrd"),
    "opendocument": ("an OpenDocument spreadsheet", "odf", "odfpy"),
}
_JSON_FORMS = 'a list of records, a record on each line, columns {"a": […]} or {"data": [records]}'


def read_workbook_cells(
    file: TableFile, *, min_columns: int = 2, text_columns: Collection[str | int] | None = None
) -> RawTable:
    """The first sheet of a workbook that holds cells, or the one that is named: FILE.xlsx:SHEET."""
    import pandas as pd

    description, engine, library = _WORKBOOKS[file.format]
    raw = file.read_bytes()
    with _needs_library(file, description, library), _catch_damage(file, description):
        if raw.startswith(ZIP_MAGIC):
            check_unpacked_size(file.path, zipfile.ZipFile(io.BytesIO(raw)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")           # of styles and extensions that are not read
            silent = {"logfile": io.StringIO()} if engine == "xlrd" else {}      # it prints its warnings
            book = pd.ExcelFile(io.BytesIO(raw), engine=engine, engine_kwargs=silent)
            names = [str(name) for name in book.sheet_names]
            sheet, cells = _choose_sheet(file, book, names)
    others = [repr(name) for name in names if name != sheet]
    is_note_needed = file.sheet is None and others
    notes = (
        (f"read the sheet {sheet!r}; {file.path.name}:SHEET reads another: {summarize_list(others)}",)
        if is_note_needed
        else ()
    )
    header = cells.iloc[0]
    has_cells = cells.notna().any()                       # by column: those without a name and a cell are no columns
    cells = cells.iloc[1:].loc[:, has_cells]
    names = check_names(file.path, ["" if pd.isna(v) else str(v) for v in header[has_cells]], min_columns, "")
    if not len(cells):
        raise UsageError(f"{file.path} has column names but no rows: expected examples below them")
    columns = {name: _to_cells(cells.iloc[:, i]) for i, name in enumerate(names)}
    return RawTable(columns, [int(i) + 1 for i in cells.index], notes=notes, unit="row")


def _choose_sheet(file: TableFile, book: Any, names: Sequence[str]) -> "tuple[str, DataFrame]":
    """The name of the sheet, and its rows that are not blank."""

    def read_sheet(name: str) -> "DataFrame":
        cells: DataFrame = book.parse(name, header=None, dtype=object, keep_default_na=False, na_values=[""])
        return cells.dropna(how="all")

    if file.sheet is not None:
        if file.sheet not in names:
            raise UsageError(f"{file.path} has no sheet {file.sheet!r}; {suggest_nearest(file.sheet, names)}")
        cells = read_sheet(file.sheet)
        if not len(cells):
            raise UsageError(f"the sheet {file.sheet!r} of {file.path} is empty: expected column names and rows")
        return file.sheet, cells
    for name in names:
        if len(cells := read_sheet(name)):
            return name, cells
    raise UsageError(f"{file.path} is empty: expected a row of column names and rows below it")


def read_json_cells(
    file: TableFile, *, min_columns: int = 2, text_columns: Collection[str | int] | None = None
) -> RawTable:
    """JSON: records, columns, or either of them under one key. Records on lines are read too."""
    raw, note = read_utf8(file)
    try:
        value = parse_foreign_json(raw)
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            return read_json_lines_cells(file)
        raise UsageError(f"{file.path} is not JSON ({error}); {REPLACE_ADVICE}") from None
    with _refuse_deep_nesting(file):
        records = _find_records(file, value)
    return _to_raw_table(file, records, range(1, len(records) + 1), [note] if note else [], unit="record")


def read_json_lines_cells(
    file: TableFile, *, min_columns: int = 2, text_columns: Collection[str | int] | None = None
) -> RawTable:
    """JSON Lines: a record on each line."""
    raw, note = read_utf8(file)
    records, lines = [], []
    for number, line in enumerate(raw.split(b"\n"), 1):
        if line.strip():
            records.append(_parse_json_line(file, number, line))
            lines.append(number)
    return _to_raw_table(file, records, lines, [note] if note else [])


def _parse_json_line(file: TableFile, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = parse_foreign_json(line)
    except ValueError as error:
        raise UsageError(f"line {number} of {file.path} is not JSON ({error}); {REPLACE_ADVICE}") from None
    if not isinstance(record, dict):
        raise UsageError(f'line {number} of {file.path} expects a record {{"a": 1, …}}, got {line[:60].decode()!r}')
    return record


def _find_records(file: TableFile, value: Any) -> list[dict[str, Any]]:
    """Records of the forms that pandas and web services write."""
    if isinstance(value, list):
        if value and all(isinstance(record, dict) for record in value):
            return value
    elif isinstance(value, dict) and value:
        parts = list(value.values())
        if all(isinstance(part, list) for part in parts) and len({len(part) for part in parts}) == 1 and not any(
            isinstance(cell, dict | list) for part in parts for cell in part
        ):
            return [dict(zip(value, row, strict=True)) for row in zip(*parts, strict=True)]
        names, rows = value.get("columns"), value.get("data")
        if isinstance(names, list) and isinstance(rows, list) and all(
            isinstance(row, list) and len(row) == len(names) for row in rows
        ):
            names = check_names(file.path, [str(name) for name in names], 1)
            return [dict(zip(names, row, strict=True)) for row in rows]
        lists = [part for part in parts if isinstance(part, list) and part and isinstance(part[0], dict)]
        if len(lists) == 1 and isinstance(value.get("data", lists[0]), list):
            return _find_records(file, lists[0])
        if all(isinstance(part, dict) for part in parts) and not any(
            isinstance(cell, dict | list) for part in parts for cell in part.values()
        ):
            return _join_columns(value)
        if isinstance(rows, dict):
            return _find_records(file, rows)
    found = f"an object with {summarize_list(list(value))}" if isinstance(value, dict) else type(value).__name__
    raise UsageError(f"{file.path} expects {_JSON_FORMS}, got {found}")


def _join_columns(value: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of {"a": {"0": 1, …}}, as pandas writes, or of {"0": {"a": 1}}: row labels are numbers."""
    if all(label.lstrip("-").isdigit() for label in value):
        return list(value.values())
    labels = dict.fromkeys(label for column in value.values() for label in column)
    return [{name: column.get(label) for name, column in value.items()} for label in labels]


def read_parquet_cells(
    file: TableFile, *, min_columns: int = 2, text_columns: Collection[str | int] | None = None
) -> RawTable:
    """Parquet, with pyarrow."""
    raw = file.read_bytes()
    with _needs_library(file, "a Parquet file", "pyarrow"), _catch_damage(file, "a Parquet file"):
        import pyarrow.parquet

        return _from_arrow(file, pyarrow.parquet.ParquetFile(io.BytesIO(raw)).read())


def read_arrow_cells(
    file: TableFile, *, min_columns: int = 2, text_columns: Collection[str | int] | None = None
) -> RawTable:
    """Feather (version 2) and Arrow's file and stream formats, with pyarrow."""
    raw = file.read_bytes()
    with _needs_library(file, "an Arrow file", "pyarrow"), _catch_damage(file, "an Arrow file"):
        import pyarrow

        reader = pyarrow.ipc.open_file(raw) if raw.startswith(b"ARROW1") else pyarrow.ipc.open_stream(raw)
        return _from_arrow(file, reader.read_all())


def _from_arrow(file: TableFile, table: Any) -> RawTable:
    """The columns of an Arrow table; pandas' row labels are none of them, unless they have a name."""
    table.validate(full=True)                  # offsets of a damaged file lead out of its memory
    frame = table.to_pandas()
    if frame.index.names != [None]:
        frame = frame.reset_index()
    if not len(frame):
        raise UsageError(f"{file.path} has column names but no rows: expected examples below them")
    names = check_names(file.path, [str(name) for name in frame.columns], 1)
    columns = {name: _to_cells(frame.iloc[:, i]) for i, name in enumerate(names)}
    return RawTable(columns, range(1, len(frame) + 1), unit="row")


def _to_raw_table(
    file: TableFile, records: Sequence[Mapping[str, Any]], lines: Sequence[int], notes: Sequence[str],
    *, unit: str = "line",
) -> RawTable:
    """Records as columns, in the order in which their keys occur; those of objects inside are joined by a point."""
    import pandas as pd

    with _refuse_deep_nesting(file):
        flat = [_flatten(record) if any(isinstance(v, dict) for v in record.values()) else record for record in records]
        keys = list(dict.fromkeys(key for record in flat for key in record))
        if not records or not keys:
            raise UsageError(f"{file.path} holds no records: expected {_JSON_FORMS}")
        names = check_names(file.path, keys, 1)
        columns = {
            name: _to_cells(pd.Series([record.get(key) for record in flat], dtype=object))
            for name, key in zip(names, keys, strict=True)
        }
    return RawTable(columns, lines, notes=tuple(notes), unit=unit)


def _flatten(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} as {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        flat |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _to_cells(column: "Series") -> "Series":
    """Numbers as they are where none is rounded, all else as text; None where a value is missing."""
    import pandas as pd

    column = column.reset_index(drop=True)
    if pd.api.types.is_timedelta64_dtype(column):
        return column.dt.total_seconds()
    is_number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if not is_number and column.dtype == object:
        kinds = set(map(type, column[column.notna()]))
        is_number = bool(kinds) and kinds <= {int, float} and all(
            abs(v) <= 2**53 for v in column[column.notna()] if isinstance(v, int)
        )
    if is_number:
        numbers = column if column.dtype in ("float64", "int64") else column.astype("float64")
        if is_exact(numbers) or numbers.isna().all() or column.dtype.kind == "f":
            return numbers
    is_absent = column.isna()
    cells = [None if no else _to_text(v) for v, no in zip(column.astype(object), is_absent, strict=True)]
    return pd.Series(cells, dtype=object)


def _to_text(value: Any) -> str:
    """A cell as a CSV file has it: dates as in ISO 8601, without a time where that is midnight."""
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        is_midnight = (value.hour, value.minute, value.second, value.microsecond) == (0, 0, 0, 0)
        return value.date().isoformat() if is_midnight else value.isoformat(sep=" ")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if hasattr(value, "tolist"):                           # lists of Parquet are arrays
        value = value.tolist()
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else str(value)


@contextmanager
def _refuse_deep_nesting(file: TableFile) -> Iterator[None]:
    """What the parser can still read may be too deep to be flattened or written."""
    try:
        yield
    except RecursionError:
        raise UsageError(f"{file.path} is nested too deeply: expected {_JSON_FORMS}") from None


@contextmanager
def _needs_library(file: TableFile, description: str, library: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise UsageError(
            f"{file.path} is {description}, which is read with the library {library}, which is not installed; pip "
            "install 'didact[tables]', or save the table as CSV"
        ) from None


@contextmanager
def _catch_damage(file: TableFile, description: str) -> Iterator[None]:
    """Readers of other people raise anything on a damaged file."""
    try:
        yield
    except (UsageError, ImportError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise UsageError(f"{file.path} is damaged, or not {description} ({reason}); {REPLACE_ADVICE}") from error
