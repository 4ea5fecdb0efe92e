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

from didact.data.delimited import read_csv
from didact.data.readers import content, members, unzipped
from didact.errors import UsageError

PACKS = {"gz": gzip.compress, "xz": lzma.compress}
TABLE = b"a,b,y\n" + b"".join(b"%d,%.3f,%d\n" % (i, i / 7, i % 2) for i in range(400))


def refused(read, *given):
    """What is said where a file is refused; None where it is read. A traceback of any other kind fails the test."""
    try:
        read(*given)
    except UsageError as error:
        assert "\n" not in str(error)
        return str(error)
    return None


def tarred(raw, mode="w:gz"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        info = tarfile.TarInfo("box/a.bin")
        info.size = len(raw)
        archive.addfile(info, io.BytesIO(raw))
    return out.getvalue()


def zipped(raw, how=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        archive.writestr("box/a.bin", raw)
        archive.writestr("box/ä.bin", raw[:100])
    return out.getvalue()


def everything(path):
    return members(path, lambda name: True)


def binaries(path):
    return unzipped(path, (".bin",))


# of each form a whole file and what reads it
FORMS = {
    "csv": ("t.csv", TABLE, read_csv),
    "csv.gz": ("t.csv.gz", gzip.compress(TABLE), read_csv),
    "csv.xz": ("t.csv.xz", lzma.compress(TABLE), read_csv),
    "gz": ("t.gz", gzip.compress(TABLE), content),
    "xz": ("t.xz", lzma.compress(TABLE), content),
    "tar": ("t.tar", tarred(TABLE, "w"), everything),
    "tar.gz": ("t.tar.gz", tarred(TABLE), everything),
    "tar.xz": ("t.tar.xz", tarred(TABLE, "w:xz"), everything),
    "zip": ("t.zip", zipped(TABLE), binaries),
    "zip.bz2": ("t.zip", zipped(TABLE, zipfile.ZIP_BZIP2), binaries),
    "zip.xz": ("t.zip", zipped(TABLE, zipfile.ZIP_LZMA), binaries),
}


def damaged(draw, raw, most=4):
    """The same bytes with a few of them changed, lost, doubled or replaced by lengths that cannot be; most of them near the start."""
    spoiled = bytearray(raw)
    for _ in range(draw.randint(1, most)):
        at = draw.randrange(min(len(spoiled), draw.choice((64, len(spoiled))))) if spoiled else 0
        match draw.randrange(6):
            case 0:
                spoiled[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                del spoiled[at : at + draw.randint(1, 32)]
            case 2:
                spoiled[at:at] = draw.randbytes(draw.randint(1, 8))
            case 3:
                spoiled[at:at] = spoiled[at : at + draw.randint(1, 64)]
            case 4:
                spoiled[at : at + 4] = struct.pack(draw.choice("<>") + "I", draw.choice((0, 0xFFFF, 2**31 - 1, 2**32 - 1)))
            case 5:
                del spoiled[at:]
    return bytes(spoiled)


def try_damage(folder, seeds):
    """Read every form under many mutations; how many were refused."""
    count = 0
    for form, (name, raw, read) in FORMS.items():
        for seed in range(seeds):
            path = folder / name
            path.write_bytes(damaged(Random(f"{form}/{seed}"), raw))
            try:
                count += refused(read, path) is not None
            except Exception as error:
                pytest.fail(f"{form}, seed {seed}: {error!r}")
    return count


def test_damaged_files_are_refused_in_one_line(tmp_path):
    assert try_damage(tmp_path, 100) > 400


@pytest.mark.slow
def test_damaged_files_are_refused_in_one_line_however_they_are_damaged(tmp_path):
    assert try_damage(tmp_path, 20_000) > 50_000


@pytest.mark.parametrize("pack", PACKS)
def test_a_packed_table_with_a_damaged_byte_is_named(tmp_path, pack):
    whole = PACKS[pack](TABLE)
    path = tmp_path / f"t.csv.{pack}"
    path.write_bytes(whole[: len(whole) // 2] + b"\xff\xff\xff" + whole[len(whole) // 2 + 3 :])
    assert f"t.csv.{pack} is damaged or cut short" in refused(read_csv, path)


def test_an_archive_with_a_password_is_refused(tmp_path):
    raw = bytearray(zipped(TABLE))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):       # the flag that says so, in every head
        start = raw.find(mark)
        while start >= 0:
            raw[start + at] |= 1
            start = raw.find(mark, start + 1)
    (tmp_path / "t.zip").write_bytes(raw)
    assert "password" in refused(binaries, tmp_path / "t.zip")


BOMB = 36 * 2**20   # bytes of nothing, which pack into a few thousand


@pytest.mark.parametrize("form", sorted(FORMS.keys() - {"csv", "tar"}))
def test_what_unpacks_to_more_than_it_may_is_refused_before_it_is_in_memory(tmp_path, monkeypatch, form):
    monkeypatch.setenv("DIDACT_UNPACKED_BYTES", str(2**20))
    name, _, read = FORMS[form]
    void = b"a,b\n" + b"1,2\n" * (BOMB // 4)
    way = {"zip": zipfile.ZIP_DEFLATED, "zip.bz2": zipfile.ZIP_BZIP2, "zip.xz": zipfile.ZIP_LZMA}
    modes = {"tar.gz": "w:gz", "tar.xz": "w:xz"}
    if form in way:
        raw = zipped(bytes(BOMB), way[form])
    elif form in modes:
        raw = tarred(void, modes[form])
    else:
        raw = PACKS[form.removeprefix("csv.")](void)
    path = tmp_path / name
    path.write_bytes(raw)
    assert len(raw) < BOMB // 100
    tracemalloc.start()
    said = refused(read, path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "unpacks to more than 1,048,576 bytes" in said and "DIDACT_UNPACKED_BYTES" in said
    assert most < BOMB // 2     # of .xz, eight million bytes are its dictionary
    monkeypatch.setenv("DIDACT_UNPACKED_BYTES", str(3 * BOMB))
    assert refused(content if form.startswith("csv") else read, path) is None


def test_the_limit_must_be_a_number(tmp_path, monkeypatch):
    monkeypatch.setenv("DIDACT_UNPACKED_BYTES", "2 GB")
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(TABLE))
    assert refused(read_csv, path) == "DIDACT_UNPACKED_BYTES expects a number of bytes, got '2 GB'"


def test_unpacked_by_a_browser_that_kept_the_name_is_read_all_the_same(tmp_path):
    (tmp_path / "t.csv").write_bytes(TABLE)
    (tmp_path / "t.csv.gz").write_bytes(TABLE)
    assert read_csv(tmp_path / "t.csv.gz").equals(read_csv(tmp_path / "t.csv"))
