"""Files as their home pages publish them: plain, .gz or .xz alike; idx, CIFAR's binary records, tar and zip archives."""

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from didact.errors import UsageError

GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
REPLACE = "delete it or put a whole one in its place"
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever goes wrong with a file is told with its name and what to do about it."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is damaged or cut short ({error}); {REPLACE}") from error
    except OSError as error:
        raise UsageError(f"cannot read {path} ({error.strerror or error}); check its permissions") from error


def content(path: Path) -> bytes:
    """A file's bytes, decompressed. Its first bytes decide, not its name: browsers unpack .gz and keep that name."""
    with reading(path):
        raw = path.read_bytes()
        if raw.startswith(GZIP):
            return gzip.decompress(raw)
        return lzma.decompress(raw) if raw.startswith(XZ) else raw


def is_archive(path: Path) -> bool:
    """Whether the name is that of a tar archive."""
    return path.name.endswith(ARCHIVES)


def members(path: Path, wanted: Callable[[str], object]) -> dict[str, bytes]:
    """The wanted files of a tar archive, read in one pass; nothing is written to disk."""
    found = {}
    with reading(path), tarfile.open(path, "r|*") as archive:  # "|": a stream; to seek in .gz is to start over
        for member in archive:
            if member.isfile() and wanted(member.name):
                file = archive.extractfile(member)
                assert file is not None
                found[member.name] = file.read()
    return found


def unzipped(path: Path, endings: tuple[str, ...]) -> dict[str, bytes]:
    """The files of a zip archive that end so, by their names without folders."""
    with reading(path), zipfile.ZipFile(path) as archive:
        return {PurePosixPath(n).name: archive.read(n) for n in archive.namelist() if n.endswith(endings)}


def idx(raw: bytes, name: str = "this") -> Tensor:
    """The idx format of MNIST: 0 0 8 n, n big-endian sizes, then bytes.  -> uint8 of those sizes"""
    start = 4 + 4 * raw[3] if raw[:3] == b"\0\0\x08" and len(raw) > 3 else 0
    shape = [int.from_bytes(raw[at:at + 4], "big") for at in range(4, start, 4)]
    if not shape or len(raw) != start + prod(shape):
        raise UsageError(f"{name} is not an idx file (0 0 8 n, n sizes, that many bytes), or damaged; {REPLACE}")
    return torch.frombuffer(bytearray(memoryview(raw)[start:]), dtype=torch.uint8).reshape(shape)


def cifar(raw: bytes, name: str = "this") -> tuple[Tensor, Tensor]:
    """Records of 1 label and 3 x 32 x 32 pixels, plane by plane.  -> (N, 3, 32, 32) uint8, (N,) int64"""
    if not raw or len(raw) % 3073:
        raise UsageError(f"{name} is not a CIFAR-10 batch: {len(raw):,} bytes are no multiple of 3073; {REPLACE}")
    records = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()
