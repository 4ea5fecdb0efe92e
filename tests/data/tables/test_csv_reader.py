import csv
import gzip
import io
import lzma

import numpy as np
import pandas as pd
import pytest

from didact.data.tables.csv_reader import parse_row, sniff_delimiter, to_numeric
from didact.data.tables.imputation import MISSING_VALUES
from didact.data.tables.read_table import read_table
from didact.errors import UsageError

TABLE = pd.DataFrame({
    "age": [31.5, None, 44.0, 27.5] * 10, "job": ["clerk", "cook", None, "smith"] * 10, "ill": ["no", "yes"] * 20,
})


def write_file(folder, text, name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_read_table_reads_delimiters_and_compression(tmp_path, delimiter):
    text = TABLE.to_csv(index=False, sep=delimiter)
    assert sniff_delimiter(text) == delimiter
    plain_frame = read_table(write_file(tmp_path, text))
    assert list(plain_frame.columns) == list(TABLE.columns)
    for name, compress in (("t.csv.gz", gzip.compress), ("t.csv.xz", lzma.compress)):
        pd.testing.assert_frame_equal(read_table(write_file(tmp_path, compress(text.encode()), name)), plain_frame)


def test_read_table_reads_decimal_commas_quotes_and_blank_lines(tmp_path):
    path = write_file(tmp_path, '\ufeffa;b;c\r\n1,5;"x;\ny";0\r\n\r\n-2;z;1\r\n')
    frame = read_table(path)
    assert frame.a.tolist() == ["1.5", "-2"] and frame.b.tolist() == ["x;\ny", "z"]
    assert frame.index.tolist() == [2, 5]  # the lines on which the rows begin
    late_frame = read_table(write_file(tmp_path, "\n" * 30 + "a,b\n1,2\n"))
    assert late_frame.index.tolist() == [32] and late_frame.b.tolist() == ["2"]


def test_read_table_skips_blank_lines_but_not_empty_quotes(tmp_path):
    frame = read_table(write_file(tmp_path, 'v\n1\n2\n \n""\n3\n'), min_columns=1)
    assert frame.v[frame.v.notna()].tolist() == ["1", "2", "3"] and frame.index.tolist() == [2, 3, 5, 6]
    assert read_table(write_file(tmp_path, "a,b\n1,2\n  \n3,4\n")).index.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("cells", "expected", "note_text"),
    [
        (
            ["120,50", "onbekend", "120.50", "-7,5", "3", "", "+1,25 "],
            ["120.50", "onbekend", "120.50", "-7.5", "3", None, "+1.25 "],
            "",
        ),
        (["2,471", "891", "1,027.5", "?"], ["2471", "891", "1027.5", None], "2,471 is read as 2471"),
        (["2,471", "891", "-34"], ["2471", "891", "-34"], "2,471 is read as 2471"),
        (["2,471", "1,234,567"], ["2471", "1234567"], "2,471 is read as 2471"),
        (["2,471", "1,027"], ["2.471", "1.027"], "2,471 is read as 2.471; if they are thousands"),  # either way
        (["2,471", "1027"], ["2.471", "1027"], "2,471 is read as 2.471; if they are thousands"),
        # no thousands begin with a zero
        (["2,471", "0,891", "12"], ["2.471", "0.891", "12"], ""),
        (["30835,488", "2,471"], ["30835.488", "2.471"], ""),
        # most are not numbers
        (["yes, 2", "no, 1", "2,5"], ["yes, 2", "no, 1", "2,5"], ""),
    ],
)
@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_comma_meaning_is_inferred_per_column(tmp_path, delimiter, cells, expected, note_text):
    frame = read_table(
        write_file(tmp_path, "\n".join(["a" + delimiter + "b", *(f"{cell}{delimiter}x" for cell in cells)]))
    )
    assert [None if pd.isna(value) else value for value in frame.a] == expected
    assert len(frame.attrs["notes"]) == bool(note_text) and all(
        note_text in note and "'a'" in note for note in frame.attrs["notes"]
    )


def test_read_table_and_parse_row_agree_on_missing_values(tmp_path):
    missing_words = sorted(MISSING_VALUES)
    frame = read_table(
        write_file(tmp_path, "a,b\n" + "".join(f'"{word}",k\n{word} ,k\n' for word in missing_words) + "none,k\n-,k\n")
    )
    assert frame.a.isna().tolist() == [True] * 2 * len(missing_words) + [False, False]
    pandas_frame = pd.read_csv(tmp_path / "t.csv", na_values="?")
    assert pandas_frame.a[: 2 * len(missing_words) : 2].isna().all()      # what pandas takes for missing is missing
    for word in missing_words:
        assert parse_row(f"a={word},b=k") == parse_row(f'{{"a": "{word}", "b": "k"}}') == {"a": None, "b": "k"}
    assert parse_row("a=none,b=-") == {"a": "none", "b": "-"}


def write_numbers(folder, cells, end="\n"):
    """A column of numbers between one of texts and one of quoted texts."""
    rows = [f'w{i % 3},{cell},"say ""{i}"", x"' for i, cell in enumerate(cells)]
    return write_file(folder, end.join(["a,b,c", *rows, ""]))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("cells", [
    [repr(v) for v in np.random.default_rng(0).normal(size=300) * 10.0 ** np.arange(-150, 150)],
    [str(v) for v in range(-150, 150)],
    ["1.5", "", " 2 ", "+3", ".5", "5.", "NA", "-0.25e3", "?", "nan", str(2**53)] * 20,
    ["1.5"] * 150 + ["n.v.t."] + ["2.5"] * 150,               # a word after the sampled rows
    ["1.5", "NA ", "-inf", "1e999", "2,5", "True", "1_0", str(2**53 + 1), str(2**64 + 1)],
    ["17", str(10**17 + 1), ""] * 40,
])
def test_numeric_columns_equal_their_cells(tmp_path, cells, end):
    path = write_numbers(tmp_path, [f'"{cell}"' if "," in cell else cell for cell in cells], end)
    text_frame, frame = read_table(path), read_table(path, text_columns=())
    assert text_frame.b.tolist() == [None if c.strip() in MISSING_VALUES else c.lstrip() for c in cells]
    assert to_numeric(frame.b).to_numpy().tobytes() == to_numeric(text_frame.b).to_numpy().tobytes()
    pd.testing.assert_frame_equal(frame[["a", "c"]], text_frame[["a", "c"]])
    assert read_table(path, text_columns={"b"}).b.equals(text_frame.b)
    assert read_table(path, text_columns=[1]).b.equals(text_frame.b)


def test_columns_of_numbers_hold_no_python_strings(tmp_path):
    path = write_file(tmp_path, "a,b,y\n" + "".join(f"{i / 7},{i % 5},{i}\n" for i in range(1000)))
    frame = read_table(path, text_columns={-1})
    assert (frame.a.dtype, frame.b.dtype, frame.y.dtype) == (np.float64, np.int64, object)
    assert frame.y.iloc[-1] == "999" and frame.index[-1] == 1001


@pytest.mark.parametrize("rows", [
    'x"y,1\nz"",2\n"a"b,3\n',
    '"a",1\n"b" ,2\n "c",3\n',
    'a,1\n"open,2\n3\n',
    '"a\nb",1\n\n"c\n",2\n',
    'a,1\n\tb,2\n\t\n',
])
def test_quotes_and_line_breaks_are_those_of_the_csv_module(tmp_path, rows):
    path = write_file(tmp_path, "v,n\n" + rows)
    expected = [row for row in csv.reader(io.StringIO(rows, newline=""), skipinitialspace=True) if row]
    if all(len(row) == 2 for row in expected):
        frame = read_table(path, text_columns={"v"})
        assert [[v, str(n)] for v, n in zip(frame.v, frame.n, strict=True)] == expected
    else:
        with pytest.raises(UsageError, match="has 1 fields, but the first line names 2"):
            read_table(path, text_columns={"v"})


BAD_FILES = {
    "empty": ("", "is empty"),
    "spaces": ("  \n\n", "is empty"),
    "header only": ("a,b,y\n", "column names but no rows"),
    "binary": (b"\x89PNG\r\n\0\0\0", "not a text file"),
    "too long a row": ("a,b,y\n1,2,0\n1,2,3,4\n", "line 3 of .* has 4 fields"),
    "too short a row": ("a,b,y\n1,2,0\n\n1,2\n", "line 4 of .* has 2 fields"),
    "one column": ("a b y\n1 2 0\n", "only one column, 'a b y'"),
    "two of a name": ("a,b,a\n1,2,3\n", "two columns named 'a'"),
    "no header": ("5.1,3.5,0\n4.9,3.0,1\n", "must name the columns"),
    "open quote": ('a,y\n"1,0\n' + "2,1\n" * 50000, "quotation mark"),
    "byte order mark alone": (b"\xef\xbb\xbf", "is empty"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_csv_is_refused_in_one_line(tmp_path, case):
    content, message = BAD_FILES[case]
    with pytest.raises(UsageError, match=message) as error:
        read_table(write_file(tmp_path, content))
    assert "\n" not in str(error.value)


def test_unreadable_csv_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        read_table(tmp_path / "none.csv")
    for name, compress in (("t.csv.gz", gzip.compress), ("t.csv.xz", lzma.compress)):
        compressed = compress(b"a,y\n1,2\n" * 1000)
        with pytest.raises(UsageError, match=f"{name} is damaged or cut short"):
            read_table(write_file(tmp_path, compressed[: len(compressed) // 2], name))


@pytest.mark.parametrize("row", ["{", '{"a": ' + 5000 * "1" + "}", '{"a": ' + 50_000 * "["])
def test_parse_row_refuses_invalid_json_in_one_line(row):
    with pytest.raises(UsageError, match="must be JSON") as error:
        parse_row(row)
    assert len(str(error.value)) < 300


def test_cells_of_hundreds_of_thousands_of_characters(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,y\n" + "".join(f'"{"word " * 60_000}",{i}\n' for i in range(3)))
    frame = read_table(path)
    assert frame["text"].str.len().tolist() == [300_000] * 3
    path.write_text('text,y\n"' + "word\n" * 60_000 + ",1\n")
    with pytest.raises(UsageError, match=r"line 2 of .* is a quotation mark not closed\?"):
        read_table(path)
