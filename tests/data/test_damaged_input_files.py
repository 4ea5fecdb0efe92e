"""Files that are damaged, hostile or larger than they look are refused in one line; nothing else happens to them."""

import gzip
import io
import lzma
import struct
import tarfile
import tracemalloc
import zipfile
from random import Random

import pytest

from didact.data.datasets.archives import read_decompressed, read_tar_members, read_zip_members
from didact.data.tables.read_table import read_table
from didact.errors import UsageError

COMPRESSORS = {"gz": gzip.compress, "xz": lzma.compress}
TABLE = b"a,b,y\n" + b"".join(b"%d,%.3f,%d\n" % (i, i / 7, i % 2) for i in range(400))


def get_read_error(reader, *args):
    """The message where a file is refused, None where it is read. Any other exception fails the test."""
    try:
        reader(*args)
    except UsageError as error:
        assert "\n" not in str(error)
        return str(error)
    return None


def make_tar(raw, mode="w:gz"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        info = tarfile.TarInfo("box/a.bin")
        info.size = len(raw)
        archive.addfile(info, io.BytesIO(raw))
    return out.getvalue()


def make_zip(raw, compression=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr("box/a.bin", raw)
        archive.writestr("box/ä.bin", raw[:100])
    return out.getvalue()


def make_zip_of_table():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.csv", TABLE)
    return out.getvalue()


def read_all_members(path):
    return read_tar_members(path, lambda name: True)


def read_bin_members(path):
    return read_zip_members(path, (".bin",))


# of each format a sound file and its reader
FORMATS = {
    "csv": ("t.csv", TABLE, read_table),
    "csv.gz": ("t.csv.gz", gzip.compress(TABLE), read_table),
    "csv.xz": ("t.csv.xz", lzma.compress(TABLE), read_table),
    "csv.zip": ("t.csv.zip", make_zip_of_table(), read_table),
    "gz": ("t.gz", gzip.compress(TABLE), read_decompressed),
    "xz": ("t.xz", lzma.compress(TABLE), read_decompressed),
    "tar": ("t.tar", make_tar(TABLE, "w"), read_all_members),
    "tar.gz": ("t.tar.gz", make_tar(TABLE), read_all_members),
    "tar.xz": ("t.tar.xz", make_tar(TABLE, "w:xz"), read_all_members),
    "zip": ("t.zip", make_zip(TABLE), read_bin_members),
    "zip.bz2": ("t.zip", make_zip(TABLE, zipfile.ZIP_BZIP2), read_bin_members),
    "zip.xz": ("t.zip", make_zip(TABLE, zipfile.ZIP_LZMA), read_bin_members),
}


def corrupt_bytes(random, raw, max_changes=4):
    """The same bytes with a few changed, deleted, doubled or replaced by impossible lengths, mostly near the start."""
    result = bytearray(raw)
    for _ in range(random.randint(1, max_changes)):
        position = random.randrange(min(len(result), random.choice((64, len(result))))) if result else 0
        match random.randrange(6):
            case 0:
                result[position : position + 1] = bytes([random.randrange(256)])
            case 1:
                del result[position : position + random.randint(1, 32)]
            case 2:
                result[position:position] = random.randbytes(random.randint(1, 8))
            case 3:
                result[position:position] = result[position : position + random.randint(1, 64)]
            case 4:
                result[position : position + 4] = struct.pack(
                    random.choice("<>") + "I", random.choice((0, 0xFFFF, 2**31 - 1, 2**32 - 1))
                )
            case 5:
                del result[position:]
    return bytes(result)


def count_refusals(folder, seeds):
    """Read every format under many mutations; how many were refused."""
    count = 0
    for format_name, (name, raw, reader) in FORMATS.items():
        for seed in range(seeds):
            path = folder / name
            path.write_bytes(corrupt_bytes(Random(f"{format_name}/{seed}"), raw))
            try:
                count += get_read_error(reader, path) is not None
            except Exception as error:
                pytest.fail(f"{format_name}, seed {seed}: {error!r}")
    return count


def test_damaged_archives_are_refused_in_one_line(tmp_path):
    assert count_refusals(tmp_path, 100) > 400


@pytest.mark.slow
def test_damaged_archives_are_refused_in_one_line_for_many_seeds(tmp_path):
    assert count_refusals(tmp_path, 20_000) > 50_000


@pytest.mark.parametrize("pack", COMPRESSORS)
def test_damaged_compressed_csv_is_named(tmp_path, pack):
    compressed_table = COMPRESSORS[pack](TABLE)
    path = tmp_path / f"t.csv.{pack}"
    path.write_bytes(
        compressed_table[: len(compressed_table) // 2]
        + b"\xff\xff\xff"
        + compressed_table[len(compressed_table) // 2 + 3 :]
    )
    assert f"t.csv.{pack} is damaged or cut short" in get_read_error(read_table, path)


def test_encrypted_zip_is_refused(tmp_path):
    raw = bytearray(make_zip(TABLE))
    for signature, flag_offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):       # the flag that says so, in every head
        start = raw.find(signature)
        while start >= 0:
            raw[start + flag_offset] |= 1
            start = raw.find(signature, start + 1)
    (tmp_path / "t.zip").write_bytes(raw)
    assert "password" in get_read_error(read_bin_members, tmp_path / "t.zip")


@pytest.mark.parametrize("offset, value", [(6, 99), (10, 77)])            # version, method
def test_zip_of_an_unknown_kind_is_refused(tmp_path, offset, value):
    raw = bytearray(make_zip_of_table())
    start = raw.rfind(b"PK\x01\x02")
    raw[start + offset : start + offset + 2] = struct.pack("<H", value)
    (tmp_path / "t.csv.zip").write_bytes(raw)
    assert "t.csv.zip" in get_read_error(read_table, tmp_path / "t.csv.zip")


BOMB_SIZE = 36 * 2**20   # bytes of nothing, which pack into a few thousand


@pytest.mark.parametrize("format_name", sorted(FORMATS.keys() - {"csv", "csv.zip", "tar"}))
def test_decompression_bomb_is_refused_before_it_is_in_memory(tmp_path, monkeypatch, format_name):
    monkeypatch.setenv("DIDACT_UNPACKED_BYTES", str(2**20))
    name, _, reader = FORMATS[format_name]
    bomb_table = b"a,b\n" + b"1,2\n" * (BOMB_SIZE // 4)
    zip_methods = {"zip": zipfile.ZIP_DEFLATED, "zip.bz2": zipfile.ZIP_BZIP2, "zip.xz": zipfile.ZIP_LZMA}
    tar_modes = {"tar.gz": "w:gz", "tar.xz": "w:xz"}
    if format_name in zip_methods:
        raw = make_zip(bytes(BOMB_SIZE), zip_methods[format_name])
    elif format_name in tar_modes:
        raw = make_tar(bomb_table, tar_modes[format_name])
    else:
        raw = COMPRESSORS[format_name.removeprefix("csv.")](bomb_table)
    path = tmp_path / name
    path.write_bytes(raw)
    assert len(raw) < BOMB_SIZE // 100
    tracemalloc.start()
    message = get_read_error(reader, path)
    peak_memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "unpacks to more than 1,048,576 bytes" in message and "DIDACT_UNPACKED_BYTES" in message
    assert peak_memory < BOMB_SIZE // 2     # of .xz, eight million bytes are its dictionary
    monkeypatch.setenv("DIDACT_UNPACKED_BYTES", str(3 * BOMB_SIZE))
    assert get_read_error(read_decompressed if format_name.startswith("csv") else reader, path) is None


def test_unpacked_bytes_limit_must_be_a_number(tmp_path, monkeypatch):
    monkeypatch.setenv("DIDACT_UNPACKED_BYTES", "2 GB")
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(TABLE))
    assert get_read_error(read_table, path) == "DIDACT_UNPACKED_BYTES expects a number of bytes, got '2 GB'"


def test_read_csv_reads_an_uncompressed_file_named_gz(tmp_path):
    (tmp_path / "t.csv").write_bytes(TABLE)
    (tmp_path / "t.csv.gz").write_bytes(TABLE)
    assert read_table(tmp_path / "t.csv.gz").equals(read_table(tmp_path / "t.csv"))
