"""Published files: plain, .gz, .xz or .bz2 alike; idx, CIFAR's binary records, tar and zip archives."""

import bz2
import gzip
import io
import lzma
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import torch
from torch import Tensor

from didact.data.core import Given
from didact.errors import UsageError

_GZIP_MAGIC, _XZ_MAGIC, _BZIP2_MAGIC, ZIP_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\x00", b"BZh", b"PK\x03\x04"
REPLACE_ADVICE = "delete it or put a whole one in its place"
_ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz")
_MAX_UNPACKED_BYTES = 2 * 2**30    # of a file, where DIDACT_UNPACKED_BYTES does not say
_CHUNK_BYTES = 2**20               # decompressed at once
# what decompressors raise on damaged bytes; RuntimeError is a zip archive's password, or an unknown compression
READ_ERRORS = (
    EOFError,
    lzma.LZMAError,
    zlib.error,
    gzip.BadGzipFile,
    tarfile.TarError,
    zipfile.BadZipFile,
    RuntimeError,
    ValueError,
    OverflowError,
    LookupError,
    struct.error,
    MemoryError,
)


@contextmanager
def wrap_read_errors(path: Path) -> Iterator[None]:
    """Errors of reading a file become UsageErrors with its name and what to do."""
    try:
        yield
    except UsageError:
        raise
    except READ_ERRORS as error:
        why = (str(error) or type(error).__name__).split("\n")[0]
        raise UsageError(f"{path} is damaged or cut short ({why}); {REPLACE_ADVICE}") from error
    except OSError as error:
        if error.errno is None:                 # bz2, of damaged bytes
            raise UsageError(f"{path} is damaged or cut short ({error}); {REPLACE_ADVICE}") from error
        hint = "" if isinstance(error, FileNotFoundError | IsADirectoryError) else "; check its permissions"
        raise UsageError(f"cannot read {path} ({error.strerror or error}){hint}") from error


def inside(path: str, root: Path) -> str:
    """The path of a dataset's file, refused where it is outside of the dataset's folder: by .., an absolute path or a
    link.

    Else reports on a dataset from someone else could show other files of the machine.
    """
    real, top = os.path.realpath(path), os.path.realpath(root)
    if os.path.commonpath((real, top)) != top:
        raise UsageError(
            f"{path} lies outside of {root}, at {real}: a dataset holds its own files; copy it into the folder"
        )
    return path


def find_possible_files(inputs: Sequence[Given], suffixes: tuple[str, ...]) -> list[str]:
    """A line for each text that may be a file name: texts are never opened as files."""
    words = [text for text in inputs if isinstance(text, str) and not re.search(r"\s", text)]
    found = [text for text in words if text.lower().endswith(suffixes) or os.path.isfile(text)]
    return [f"{text!r} is taken as a text; --from {text} reads the file of that name" for text in found]


def _max_unpacked_bytes() -> int:
    """DIDACT_UNPACKED_BYTES, or else 2 GiB: a few bytes can decompress to more than a disk holds."""
    given = os.environ.get("DIDACT_UNPACKED_BYTES")
    if given is None:
        return _MAX_UNPACKED_BYTES
    if not (given.isascii() and given.isdigit()):
        raise UsageError(f"DIDACT_UNPACKED_BYTES expects a number of bytes, got {given!r}")
    return int(given)


def _refuse_large(path: Path, size: int) -> None:
    """Refuse a file that decompresses to more than the limit."""
    if size > (limit := _max_unpacked_bytes()):
        raise UsageError(
            f"{path} unpacks to more than {limit:,} bytes: unpack it yourself, or set DIDACT_UNPACKED_BYTES to more"
        )


class _Decompressed(io.RawIOBase):
    """The decompressed bytes of a file, counted."""

    def __init__(self, path: Path, source: Any):
        self.path, self.source, self.size = path, source, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with wrap_read_errors(self.path):
            n: int = self.source.readinto(buffer)
        self.size += n
        _refuse_large(self.path, self.size)
        return n

    def close(self) -> None:
        self.source.close()
        super().close()


@contextmanager
def _open_decompressed(path: Path, raw: bytes | None = None) -> Iterator[BinaryIO]:
    """A file's decompressed bytes as a stream. Its first bytes decide, not its name: browsers decompress .gz and keep
    the name. `raw`: its bytes, where it is no file."""
    with wrap_read_errors(path):
        with path.open("rb") if raw is None else io.BytesIO(raw) as file:
            start = file.read(len(_XZ_MAGIC))
        openers: dict[bytes, Any] = {_GZIP_MAGIC: gzip.open, _XZ_MAGIC: lzma.open, _BZIP2_MAGIC: bz2.open}
        opens = next((opens for magic, opens in openers.items() if start.startswith(magic)), None)
        source: Any = io.BytesIO(raw) if raw is not None else path if opens else path.open("rb")
        if opens:
            source = io.BufferedReader(_Decompressed(path, opens(source)), _CHUNK_BYTES)
    with source as stream:
        yield stream


def read_decompressed(path: Path, max_bytes: int | None = None, *, raw: bytes | None = None) -> bytes:
    """A file's bytes, or about the first `max_bytes` of them, decompressed. `raw`: its bytes, where it is no file."""
    content = io.BytesIO()
    with wrap_read_errors(path), _open_decompressed(path, raw) as file:
        while (max_bytes is None or content.tell() < max_bytes) and (chunk := file.read(_CHUNK_BYTES)):
            content.write(chunk)
    return content.getvalue()


def is_archive(path: Path) -> bool:
    """Whether the name is that of a tar archive."""
    return path.name.endswith(_ARCHIVE_SUFFIXES)


def read_tar_members(path: Path, is_wanted: Callable[[str], object]) -> dict[str, bytes]:
    """The wanted files of a tar archive, read in one pass; nothing is written to disk."""
    contents, size = {}, 0
    # "|": a stream; to seek in .gz is to start over. Skipped members count too, since they are decompressed
    with wrap_read_errors(path), _open_decompressed(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isfile() and is_wanted(member.name):
                size += member.size                     # of a sparse member more than its archive holds
                _refuse_large(path, size)
                file = archive.extractfile(member)
                assert file is not None
                contents[member.name] = file.read()
    return contents


def read_zip_members(path: Path, suffixes: tuple[str, ...]) -> dict[str, bytes]:
    """The files of a zip archive with these suffixes, by their names without folders."""
    with wrap_read_errors(path), zipfile.ZipFile(path) as archive:
        wanted = [member for member in archive.infolist() if member.filename.endswith(suffixes)]
        _refuse_large(path, sum(member.file_size for member in wanted))     # members never decompress to more
        return {PurePosixPath(member.filename).name: archive.read(member) for member in wanted}


def read_zip_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """One file of an open zip archive."""
    _refuse_large(path, member.file_size)               # a member never decompresses to more
    with wrap_read_errors(path):
        return archive.read(member)


def check_unpacked_size(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse an archive whose files together decompress to more than the limit."""
    _refuse_large(path, sum(member.file_size for member in archive.infolist()))


def parse_idx(raw: bytes, name: str = "this") -> Tensor:
    """The idx format of MNIST: 0 0 8 n, n big-endian sizes, then bytes.  -> uint8 of those sizes"""
    start = 4 + 4 * raw[3] if raw[:3] == b"\0\0\x08" and len(raw) > 3 else 0
    shape = [int.from_bytes(raw[at:at + 4], "big") for at in range(4, start, 4)]
    if not shape or len(raw) != start + prod(shape):
        raise UsageError(f"{name} is not an idx file (0 0 8 n, n sizes, that many bytes), or damaged; {REPLACE_ADVICE}")
    return torch.frombuffer(bytearray(memoryview(raw)[start:]), dtype=torch.uint8).reshape(shape)


def parse_cifar(raw: bytes, name: str = "this") -> tuple[Tensor, Tensor]:
    """Records of 1 label and 3 x 32 x 32 pixels, plane by plane.  -> (N, 3, 32, 32) uint8, (N,) int64"""
    if not raw or len(raw) % 3073:
        raise UsageError(
            f"{name} is not a CIFAR-10 batch: {len(raw):,} bytes are no multiple of 3073; {REPLACE_ADVICE}"
        )
    records = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()
