"""A column of texts out of a Parquet file: pieces worked by hand, and files that pyarrow wrote."""

import pytest

from didact.data.parquet import Compact, read_texts, runs, unsnap
from didact.errors import UsageError


def test_unsnap_by_hand():
    literal = bytes([3 << 2]) + b"abcd"
    back_reference = bytes([(4 - 4) << 2 | 1, 4])                         # four bytes from four back
    # nine bytes from one back: it reaches into itself
    overlapping_copy = bytes([(9 - 1) << 2 | 2, 1, 0])
    assert unsnap(bytes([17]) + literal + back_reference + overlapping_copy) == b"abcdabcd" + 9 * b"d"
    long_literal = bytes(range(256)) * 4                                # a length of its own behind the tag
    assert unsnap(bytes([0x80, 0x08, 61 << 2, 0xFF, 0x03]) + long_literal) == long_literal


def test_runs_decode_the_hybrid_encoding_by_hand():
    packed_bits = sum(value << 3 * i for i, value in enumerate([0, 1, 2, 3, 4, 5, 6, 7])).to_bytes(3, "little")
    assert packed_bits == bytes([0x88, 0xC6, 0xFA])  # the format's own example
    assert runs(bytes([1 << 1 | 1]) + packed_bits + bytes([5 << 1, 6]), 3, 13) == [
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        6,
        6,
        6,
        6,
        6,
    ]


def test_compact_protocol_by_hand():
    # 1: i32 75, 3: "hi", 4: list of two i32
    struct = bytes([0x15, 0x96, 0x01, 0x28, 2]) + b"hi" + bytes([0x19, 0x25, 1, 2, 0x00])
    assert Compact(struct).fields() == {1: 75, 3: b"hi", 4: [-1, 1]}


@pytest.mark.parametrize("words", [
    ["a", "the", "naïve", "漢字", ""],
    [f"word{i}" for i in range(70_000)],
    ["same"] * 9000 + ["other"] * 3 + [str(i % 5) for i in range(999)],
])
@pytest.mark.parametrize("compression", ["snappy", "none"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_read_texts_reads_what_pyarrow_writes(tmp_path, words, compression, dictionary):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "a.parquet"
    parquet.write_table(
        pa.table({"index": words}), path, compression=compression, use_dictionary=dictionary, row_group_size=30_000
    )
    assert read_texts(path) == words


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\3\4 and more", "is no Parquet file"),
        (b"PAR1" + bytes(20) + b"PAR1", "is damaged"),
        (b"PAR1PAR1", "is damaged"),
    ],
)
def test_read_texts_refuses_other_files(tmp_path, content, message):
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_texts(tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="cannot read"):
        read_texts(tmp_path / "b.parquet")
