"""Read a table of any format as a data frame: `read_table`. A format is one entry of `TABLE_READERS`.

    csv             .csv, .tsv; any delimiter and encoding; compressed by gzip, xz, bzip2 or zip
    json, jsonl     records, columns, {"data": […]}; a record on each line
    excel …         .xlsx, .xls, .ods: the first sheet, or FILE:SHEET; needs the extra `tables`
    parquet, arrow  .parquet, .feather, .arrow; needs the extra `tables`
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from didact.data.tables.csv_reader import RawTable, read_csv_cells, to_numeric
from didact.data.tables.decimal_commas import infer_comma, strip_commas
from didact.data.tables.imputation import is_missing
from didact.data.tables.table_file import TableFile
from didact.data.tables.typed_formats import (
    read_arrow_cells,
    read_json_cells,
    read_json_lines_cells,
    read_parquet_cells,
    read_workbook_cells,
)

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TABLE_READERS: dict[str, Callable[..., RawTable]] = {
    "csv": read_csv_cells,
    "json": read_json_cells,
    "jsonl": read_json_lines_cells,
    "excel": read_workbook_cells,
    "old_excel": read_workbook_cells,
    "opendocument": read_workbook_cells,
    "parquet": read_parquet_cells,
    "arrow": read_arrow_cells,
}


def read_table(
    path: Path,
    *,
    min_columns: int = 2,
    comma_meanings: Mapping[str, str] | None = None,
    text_columns: Collection[str | int] | None = None,
) -> "DataFrame":
    """A table as a data frame; of CSV, where its name says nothing else.

    Its index holds the lines of the file, or its rows, so that messages can name them.
    Cells of a CSV file are text, missing values NaN. With `text_columns` (names or positions) only these are: any other
    column whose cells are all numbers or missing is float64 or int64, as columns of numbers are in other formats.
    A CSV file of fewer than `min_columns` columns is probably separated by something else: refused. `comma_meanings`
    are those of a table read before. `attrs` holds, by column, "commas" (their meaning) and "missing" (the first word
    that is read as missing), "notes", and "unit": what the index counts, lines or rows.
    """
    import pandas as pd

    file = TableFile.parse(path)
    table = TABLE_READERS[file.format or "csv"](file, min_columns=min_columns, text_columns=text_columns)
    cells: dict[str, Any] = {}
    meanings, first_missing, notes = dict(comma_meanings or {}), dict[str, str](), [*table.notes]
    for name, column in table.columns.items():
        if pd.api.types.is_numeric_dtype(column):
            cells[name] = column
            continue
        missing_words = {word for word in column.unique() if word is None or is_missing(word)}
        if table.delimiter != "," and name not in meanings:      # there a comma may be a decimal point
            meanings[name], note = infer_comma(name, [word.strip() for word in column if word not in missing_words])
            notes += [note] if note else []
        first_missing[name] = _find_first_word(column, missing_words)
        cells[name] = _clean_text(column, missing_words, meanings.get(name, ""))
    frame = pd.DataFrame(cells, copy=False)
    frame.index = pd.Index(table.lines)
    frame.attrs = {"commas": meanings, "missing": first_missing, "notes": notes, "unit": table.unit}
    if frame.columns[0] == "column 1" and len(frame.columns) > 1 and _counts_from_0(to_numeric(frame["column 1"])):
        return frame.drop(columns="column 1")  # the row numbers that pandas writes
    return frame


def _counts_from_0(numbers: "Series") -> bool:
    """Whether these are 0, 1, 2, … less a constant."""
    return bool(np.array_equal(numbers - numbers.iloc[0], np.arange(len(numbers))))


def _find_first_word(column: "Series", words: Collection[str | None]) -> str:
    """The first cell that is one of these words and not blank."""
    is_word = column.isin([word for word in words if word and word.strip()])
    return column.iloc[int(is_word.argmax())].strip() if is_word.any() else ""


def _clean_text(column: "Series", missing_words: Collection[str | None], comma_meaning: str) -> "Series":
    """Cells of text with None for missing values, and without commas in numbers."""
    import pandas as pd

    if not missing_words and not comma_meaning:
        return column
    is_absent = column.isin(list(missing_words))
    cells = [None if no else strip_commas(word, comma_meaning) for word, no in zip(column, is_absent, strict=True)]
    return pd.Series(cells, index=column.index, dtype=object)
