"""Tables: files of numbers and categories.

    read_table       a file of any format as a data frame     table_file       names, sheets, standard input
    csv_reader       cells, delimiters, line numbers          typed_formats    workbooks, JSON, Parquet, Arrow
    encodings        UTF-16, Windows-1252 and others          decimal_commas   1,5 or 2,471
    table            load_table; TableEncoder: rows to features
    columns          numeric and categorical columns, inferred and encoded
    target           the column to predict: classes, a number, several labels
    cell_readings    $1,200, 12 %, 1:30, dates                leakage          columns that alone tell the target
    table_options    splits in files, --drop, weights of rows
    imputation       missing values
    offsets          large numbers near each other, such as Unix times
    row_decoder      encoded rows back as text
"""

from didact.data.tables.columns import CategoricalColumn, NumericColumn
from didact.data.tables.read_table import read_table
from didact.data.tables.row_decoder import decode_rows, rows_to_csv
from didact.data.tables.table import TableEncoder, load_table

__all__ = [
    "CategoricalColumn",
    "NumericColumn",
    "TableEncoder",
    "decode_rows",
    "load_table",
    "read_table",
    "rows_to_csv",
]
