"""Files as their home pages publish them: plain, .gz or .xz alike; idx, CIFAR's binary records, tar and zip
archives."""

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

GZIP_MAGIC, XZ_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\x00"
REPLACE_ADVICE = "delete it or put a whole one in its place"
ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz")
UNPACKED = 2 * 2**30    # bytes that a file may hold unpacked, where DIDACT_UNPACKED_BYTES does not say
PIECE = 2**20           # bytes that are unpacked at once
# what unpackers raise on damaged bytes; RuntimeError is a zip archive's password, or a packing that Python does not
# know
DAMAGE = (
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
    """Whatever goes wrong with a file is told with its name and what to do about it."""
    try:
        yield
    except UsageError:
        raise
    except DAMAGE as error:
        why = (str(error) or type(error).__name__).split("\n")[0]
        raise UsageError(f"{path} is damaged or cut short ({why}); {REPLACE_ADVICE}") from error
    except OSError as error:
        hint = "" if isinstance(error, FileNotFoundError | IsADirectoryError) else "; check its permissions"
        raise UsageError(f"cannot read {path} ({error.strerror or error}){hint}") from error


def inside(path: str, root: Path) -> str:
    """A file of a data set, refused where it lies outside the set's folder: by .., an absolute path or a link.

    Who was handed a data set would otherwise show in reports what else lies on the machine.
    """
    real, top = os.path.realpath(path), os.path.realpath(root)
    if os.path.commonpath((real, top)) != top:
        raise UsageError(
            f"{path} lies outside of {root}, at {real}: a data set holds its own files; copy it into the folder"
        )
    return path


def find_possible_files(inputs: Sequence[Given], endings: tuple[str, ...]) -> list[str]:
    """A line for each text that may be meant as a file: texts are never looked up among files."""
    words = [text for text in inputs if isinstance(text, str) and not re.search(r"\s", text)]
    found = [text for text in words if text.lower().endswith(endings) or os.path.isfile(text)]
    return [f"{text!r} is taken as a text; --from {text} reads the file of that name" for text in found]


def unpacked_limit() -> int:
    """Bytes that a file may hold unpacked: DIDACT_UNPACKED_BYTES, or else 2 GiB. A few bytes can unpack to more
    than a disk holds."""
    given = os.environ.get("DIDACT_UNPACKED_BYTES")
    if given is None:
        return UNPACKED
    if not (given.isascii() and given.isdigit()):
        raise UsageError(f"DIDACT_UNPACKED_BYTES expects a number of bytes, got {given!r}")
    return int(given)


def refuse_large(path: Path, size: int) -> None:
    """Stop where a file holds more than a file may."""
    if size > (limit := unpacked_limit()):
        raise UsageError(
            f"{path} unpacks to more than {limit:,} bytes: unpack it yourself, or set DIDACT_UNPACKED_BYTES to more"
        )


class Unpacked(io.RawIOBase):
    """The bytes of a packed file as they come out, counted."""

    def __init__(self, path: Path, source: Any):
        self.path, self.source, self.size = path, source, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with wrap_read_errors(self.path):
            n: int = self.source.readinto(buffer)
        self.size += n
        refuse_large(self.path, self.size)
        return n

    def close(self) -> None:
        self.source.close()
        super().close()


@contextmanager
def unpacked(path: Path) -> Iterator[BinaryIO]:
    """A file's bytes as a stream, decompressed. Its first bytes decide, not its name: browsers unpack .gz and keep
    that name."""
    with wrap_read_errors(path):
        with path.open("rb") as file:
            start = file.read(len(XZ_MAGIC))
        opens: Any = gzip.open if start.startswith(GZIP_MAGIC) else lzma.open if start.startswith(XZ_MAGIC) else None
        source = path.open("rb") if opens is None else io.BufferedReader(Unpacked(path, opens(path)), PIECE)
    with source as found:
        yield found


def read_decompressed(path: Path, most: int | None = None) -> bytes:
    """A file's bytes, or the first of them, decompressed."""
    whole = io.BytesIO()
    with wrap_read_errors(path), unpacked(path) as file:
        while (most is None or whole.tell() < most) and (piece := file.read(PIECE)):
            whole.write(piece)
    return whole.getvalue()


def is_archive(path: Path) -> bool:
    """Whether the name is that of a tar archive."""
    return path.name.endswith(ARCHIVE_SUFFIXES)


def read_tar_members(path: Path, is_wanted: Callable[[str], object]) -> dict[str, bytes]:
    """The wanted files of a tar archive, read in one pass; nothing is written to disk."""
    contents, size = {}, 0
    # "|": a stream; to seek in .gz is to start over. What is passed over is counted as well, since it must be unpacked
    with wrap_read_errors(path), unpacked(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isfile() and is_wanted(member.name):
                size += member.size                     # of a sparse member more than its archive holds
                refuse_large(path, size)
                file = archive.extractfile(member)
                assert file is not None
                contents[member.name] = file.read()
    return contents


def read_zip_members(path: Path, suffixes: tuple[str, ...]) -> dict[str, bytes]:
    """The files of a zip archive that end so, by their names without folders."""
    with wrap_read_errors(path), zipfile.ZipFile(path) as archive:
        wanted = [member for member in archive.infolist() if member.filename.endswith(suffixes)]
        refuse_large(path, sum(member.file_size for member in wanted))     # more than that is never unpacked of any
        return {PurePosixPath(member.filename).name: archive.read(member) for member in wanted}


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
