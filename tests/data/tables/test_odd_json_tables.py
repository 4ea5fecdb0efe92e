"""JSON that other programs write or that is hostile: read, or refused in one line."""

import pytest

from didact.data.folder_tree import FolderTree
from didact.data.images.image_table import find_image_table
from didact.data.load import load
from didact.data.tables.csv_reader import parse_row
from didact.data.tables.read_table import read_table
from didact.data.tables.table_options import TableOptions
from didact.errors import UsageError

DEPTHS = (100, 970, 985, 995, 5_000)      # of lists and objects: what the parser, then what the writer can take


def nest(depth: int, opening: str, closing: str) -> str:
    return opening * depth + "1" + closing * depth


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "name, text",
    [
        ("objects.json", lambda n: "[" + nest(n, '{"a":', "}") + "]"),
        ("lists.json", lambda n: '[{"a":' + nest(n, "[", "]") + ', "b": 1}]'),
        ("wrapped.json", lambda n: nest(n, '{"data":[{"a":1},', "]}")),
        ("objects.jsonl", lambda n: nest(n, '{"a":', "}")),
        ("lists.jsonl", lambda n: '{"a":' + nest(n, "[", "]") + "}"),
    ],
)
def test_deeply_nested_json_is_read_or_refused_in_one_line(tmp_path, name, text, depth):
    (tmp_path / name).write_text(text(depth))
    try:
        assert len(read_table(tmp_path / name, min_columns=1)) == (2 if name == "wrapped.json" else 1)
    except UsageError as error:
        assert ("\n" not in str(error) and depth > 100) or name == "wrapped.json"
    if name.endswith(".jsonl"):
        assert find_image_table(FolderTree(tmp_path)) is None


def test_half_a_surrogate_pair_becomes_a_replacement_character(tmp_path):
    (tmp_path / "t.json").write_text(r'[{"\ud800": "\udc00x", "b": "\ud83d\ude00"}, {"\ud800": "y", "b": NaN}]')
    frame = read_table(tmp_path / "t.json")
    assert list(frame.columns) == ["\ufffd", "b"]
    assert frame["\ufffd"].tolist() == ["\ufffdx", "y"] and frame["b"][1] == "\N{GRINNING FACE}"
    assert parse_row(r'{"a": "\ud800"}') == {"a": "\ufffd"}


def test_columns_of_the_same_name_are_refused_in_split_form(tmp_path):
    (tmp_path / "t.json").write_text('{"columns": ["a", "a", "b"], "data": [[1, 2, 3], [4, 5, 6]]}')
    with pytest.raises(UsageError, match=r"t.json has two columns named 'a'"):
        read_table(tmp_path / "t.json")


def test_a_single_column_without_a_name_is_no_index(tmp_path):
    (tmp_path / "t.json").write_text('{"": [0, 1, 2]}')
    assert read_table(tmp_path / "t.json", min_columns=1)["column 1"].tolist() == [0, 1, 2]


def test_texts_alone_in_two_files_are_refused(tmp_path):
    """Without --target the columns before the last are read as text: here there are none."""
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text('{"words": ["a b", "b c", "c d"]}')
    with pytest.raises(UsageError, match=r"a.json has no target: 'words' is the only column"):
        load(str(tmp_path / "a.json"), text="words", table=TableOptions(validation=str(tmp_path / "b.json")))
