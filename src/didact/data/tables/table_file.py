"""Files that hold tables: their names, sheets and bytes; compressed, in a zip archive, or standard input."""

import functools
import hashlib
import io
import os
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from didact import files
from didact.data.checks import summarize_list
from didact.data.datasets.archives import READ_ERRORS, ZIP_MAGIC, read_decompressed, read_zip_member, wrap_read_errors
from didact.errors import UsageError

STANDARD_INPUT = "-"
COMPRESSIONS = (".gz", ".xz", ".bz2", ".zip")
SHEET_SUFFIXES = (".xlsx", ".xlsm", ".xls", ".ods")
# by suffix; what is not listed here is no table
FORMAT_OF_SUFFIX = {
    ".csv": "csv", ".tsv": "csv",
    ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".xlsx": "excel", ".xlsm": "excel", ".xls": "old_excel", ".ods": "opendocument",
    ".parquet": "parquet", ".pq": "parquet", ".feather": "arrow", ".arrow": "arrow",
}  # fmt: skip
TABLE_SUFFIXES = tuple(
    suffix + compression
    for suffix in FORMAT_OF_SUFFIX
    for compression in ("", *(COMPRESSIONS if suffix not in SHEET_SUFFIXES else ()))
)
_SUFFIX_OF_FORMAT = {name: suffix for suffix, name in reversed(FORMAT_OF_SUFFIX.items())}
_HIDDEN_MEMBERS = ("__MACOSX/", ".")


@dataclass(frozen=True)
class TableFile:
    """A file as it was named: FILE, FILE:SHEET of a workbook, or - for standard input."""

    path: Path
    sheet: str | None = None

    @classmethod
    def parse(cls, location: str | Path) -> "TableFile":
        text = str(location)
        for suffix in SHEET_SUFFIXES:
            at = text.lower().find(f"{suffix}:")
            if at > 0:
                return cls(Path(text[: at + len(suffix)]), text[at + len(suffix) + 1 :])
        return cls(Path(location))

    @property
    def is_standard_input(self) -> bool:
        return str(self.path) == STANDARD_INPUT

    @property
    def format(self) -> str:
        """The key of its format; of standard input by its first bytes; "" where it is no table."""
        if self.is_standard_input:
            return detect_format(read_standard_input())
        return FORMAT_OF_SUFFIX.get(Path(_strip_compression(self.path.name)).suffix.lower(), "")

    def exists(self) -> bool:
        return self.is_standard_input or os.path.exists(self.path)

    def read_bytes(self) -> bytes:
        """Decompressed; of a zip archive its only table."""
        with wrap_read_errors(self.path):
            is_device = self.path.is_char_device()
        if is_device:                              # /dev/zero has no end
            raise UsageError(f"{self.path} is a device: expected the file of a table")
        raw = read_standard_input() if self.is_standard_input else read_decompressed(self.path)
        is_zipped = raw.startswith(ZIP_MAGIC) and self.format in ("csv", "json", "jsonl", "parquet", "arrow")
        return _read_zipped_table(self.path, raw) if is_zipped else raw


def is_table_path(text: str) -> bool:
    """Whether a name is that of a table, existing or not."""
    return text != STANDARD_INPUT and TableFile.parse(text).format != ""


def dataset_name(path: Path) -> str:
    """The name of the data: the file's name up to the first dot."""
    file = TableFile.parse(path)
    if file.is_standard_input:
        return "stdin"
    return file.path.name.split(".")[0] or file.path.name


@functools.cache
def read_standard_input() -> bytes:
    """All bytes of standard input, decompressed: it can be read once, so they are kept."""
    raw = sys.stdin.buffer.read()
    return read_decompressed(Path(STANDARD_INPUT), raw=raw)


def keep_standard_input(name: str | None, root: Path | str, processes: int = 1) -> str | None:
    """In place of "-" a file below `root` with what came by standard input: a resumed run reads it again."""
    if name != STANDARD_INPUT:
        return name
    if processes > 1:
        raise UsageError(f"--data - reads standard input, which {processes} processes cannot share; give a file")
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("--data - reads standard input, which is the terminal: pipe a table into it, or give a file")
    raw = read_standard_input()
    if not raw or raw.isspace():
        raise UsageError("--data - reads standard input, which is empty: expected a table")
    suffix = _SUFFIX_OF_FORMAT[detect_format(raw)]
    path = Path(root, "stdin", f"{hashlib.blake2b(raw, digest_size=6).hexdigest()}{suffix}")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_bytes(path, raw)
    return str(path)


def detect_format(raw: bytes) -> str:
    """The format of bytes without a name."""
    if raw.startswith(b"PAR1"):
        return "parquet"
    if raw.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if raw.startswith(b"\xd0\xcf\x11\xe0"):
        return "old_excel"
    if raw.startswith(ZIP_MAGIC):
        return _detect_zipped_format(raw)
    start = raw[:1000].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith((b"{", b"[")):
        lines = start.split(b"\n", 1)
        return "jsonl" if len(lines) > 1 and lines[0].rstrip().endswith(b"}") else "json"
    return "csv"


def _detect_zipped_format(raw: bytes) -> str:
    try:
        names = zipfile.ZipFile(io.BytesIO(raw)).namelist()
    except (*READ_ERRORS, OSError):             # what is wrong with it is said where it is unpacked
        return "csv"
    if "content.xml" in names:
        return "opendocument"
    return "excel" if any(name.startswith("xl/") for name in names) else "csv"


def _strip_compression(name: str) -> str:
    """The name without .gz and its like."""
    suffix = next((suffix for suffix in COMPRESSIONS if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(suffix)]


def _read_zipped_table(path: Path, raw: bytes) -> bytes:
    """The one table of a zip archive."""
    detected = _detect_zipped_format(raw)
    if detected != "csv":
        suffix = {"excel": ".xlsx", "opendocument": ".ods"}[detected]
        raise UsageError(f"{path} is a workbook, not what its name says: rename it to {path.stem}{suffix}")
    with wrap_read_errors(path), zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = [m for m in archive.infolist() if not m.is_dir() and not m.filename.startswith(_HIDDEN_MEMBERS)]
        tables = [m for m in members if PurePosixPath(m.filename).suffix.lower() in FORMAT_OF_SUFFIX] or members
        if len(tables) != 1:
            names = summarize_list([m.filename for m in tables])
            found = f"{len(tables)} files, {names}" if tables else "no file"
            raise UsageError(f"{path} holds {found}: expected one table; unzip it and name the file")
        return read_zip_member(path, archive, tables[0])
