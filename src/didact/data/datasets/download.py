"""The registry of datasets, where their files are, and how missing ones are downloaded.

A file is looked for in $DIDACT_DATA/<dataset>/, in $DIDACT_DATA itself, then in the cache ($DIDACT_CACHE/<dataset>/, or
else ~/.cache/didact/<dataset>/): plain, as .gz or .xz, or in the archive that its home page offers. A missing one is
downloaded into the cache.
"""

import inspect
import os
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import file_digest, sha256
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from urllib.error import HTTPError

from didact.data.core import Batch, Data
from didact.data.datasets.archives import is_archive, read_decompressed, read_tar_members, wrap_read_errors
from didact.errors import UsageError

DatasetLoader = Callable[..., Data]                   # (seed: int = 0) -> Data
DownloadProgress = Callable[[str, int, int], None]   # (file name, bytes so far, total bytes or 0 where unknown)

_DOWNLOAD_TIMEOUT_S = 20  # of silence


@dataclass(frozen=True)
class RemoteFile:
    """A file of a public dataset, by its name on the home page."""

    name: str           # without .gz or .xz; with its folder, where it comes in an archive
    sha256: str         # of the content, decompressed: the same for plain, .gz and .xz
    url: str
    archive_sha256: str = ""   # of the archive at the url, where the file comes in one

    @property
    def download_name(self) -> str:
        """The name of the file at the url."""
        return PurePosixPath(self.url).name

    @property
    def candidate_names(self) -> tuple[str, ...]:
        names = dict.fromkeys((self.name, PurePosixPath(self.name).name))
        return (*(name + suffix for name in names for suffix in ("", ".gz", ".xz")), self.download_name)


@dataclass(frozen=True)
class DatasetEntry:
    """A dataset known by name; described here without loading it."""

    name: str
    kind: str
    task: str
    summary: str
    license: str
    load: DatasetLoader
    files: tuple[RemoteFile, ...] = ()


DATASETS: dict[str, DatasetEntry] = {}


def register_dataset(
    *, kind: str, task: str, license: str, files: Sequence[RemoteFile] = ()
) -> Callable[[DatasetLoader], DatasetLoader]:
    """Register a loader by its own name; the first paragraph of its docstring is the summary."""

    def decorate(load: DatasetLoader) -> DatasetLoader:
        name = load.__name__
        if name in DATASETS:
            raise ValueError(f"two datasets are named {name!r}")
        summary = inspect.cleandoc(load.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        DATASETS[name] = DatasetEntry(name, kind, task, summary, license, load, tuple(files))
        return load

    return decorate


def cache_folder(dataset: str) -> Path:
    """Where the files of a dataset are downloaded to."""
    root = os.environ.get("DIDACT_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "didact") / dataset


def search_folders(dataset: str) -> list[Path]:
    """Where files are looked for, in order."""
    data_folder = os.environ.get("DIDACT_DATA")
    return [*([Path(data_folder) / dataset, Path(data_folder)] if data_folder else []), cache_folder(dataset)]


def find_local_file(dataset: str, file: RemoteFile) -> Path | None:
    """The path of a file on this machine, None where it is missing."""
    paths = (folder / spelling for folder in search_folders(dataset) for spelling in file.candidate_names)
    return next((path for path in paths if path.is_file()), None)


def find_missing_files(source: DatasetEntry) -> tuple[RemoteFile, ...]:
    """The files of a dataset that would have to be downloaded."""
    return tuple(file for file in source.files if find_local_file(source.name, file) is None)


def ensure_file(dataset: str, file: RemoteFile, progress: DownloadProgress | None = None) -> Path:
    """The path of a file, downloaded into the cache where it is missing."""
    return find_local_file(dataset, file) or _download(dataset, file, progress)


def ensure_dataset(source: DatasetEntry, progress: DownloadProgress | None = None) -> None:
    """Download the missing files of a dataset, so that loading it needs no network."""
    for file in source.files:
        ensure_file(source.name, file, progress)


def _download(dataset: str, file: RemoteFile, progress: DownloadProgress | None = None) -> Path:
    """Download a file into the cache: written beside, checked, then renamed, so that no partial file is found."""
    path = cache_folder(dataset) / file.download_name
    part_path = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _stream_to_disk(file, part_path, progress)
        _check_download(part_path, file)
        part_path.replace(path)
    except (OSError, HTTPException, UsageError) as error:
        if isinstance(error, HTTPError):
            error.close()  # it is the server's response too, and holds its socket
        raise UsageError(_missing_file_error(dataset, file, f"{getattr(error, 'reason', error)}")) from error
    finally:
        with suppress(OSError):
            part_path.unlink()
    return path


def _missing_file_error(dataset: str, file: RemoteFile, reason: str) -> str:
    """Which file goes where, when it could not be downloaded."""
    searched = search_folders(dataset)
    alternative = "" if os.environ.get("DIDACT_DATA") else f", or set DIDACT_DATA to a folder that holds {dataset}/"
    return (
        f"{dataset} needs {file.download_name}, which is not in {' or '.join(map(str, searched))}, "
        f"and downloading it from {file.url} failed ({reason}); put it into {searched[0]}{alternative}"
    )


def _stream_to_disk(file: RemoteFile, path: Path, progress: DownloadProgress | None, chunk_size: int = 1 << 18) -> None:
    """Write the server's response to the disk."""
    with urllib.request.urlopen(file.url, timeout=_DOWNLOAD_TIMEOUT_S) as response, path.open("wb") as output:
        total, num_done = int(response.headers.get("Content-Length") or 0), 0
        while block := response.read(chunk_size):
            output.write(block)
            num_done += len(block)
            if progress:
                progress(file.download_name, num_done, total)
        if num_done < total:
            raise UsageError(f"{num_done:,} of {total:,} bytes received")


def _check_download(path: Path, file: RemoteFile) -> None:
    """Compare checksums: of an archive its own, else that of the decompressed content."""
    try:
        actual = compute_sha256(path) if file.archive_sha256 else sha256(read_decompressed(path)).hexdigest()
    except UsageError as error:
        raise UsageError("the download is damaged") from error
    if actual != (file.archive_sha256 or file.sha256):
        expected = file.archive_sha256 or file.sha256
        raise UsageError(f"the download has sha256 {actual[:12]}…, expected {expected[:12]}…")


def compute_sha256(path: Path) -> str:
    """sha256 of a file as stored."""
    with wrap_read_errors(path), path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def read_files(dataset: str, files: Iterable[RemoteFile]) -> list[bytes]:
    """The content of each file, decompressed and checked, wherever and in whichever form it is stored."""
    located = [(file, ensure_file(dataset, file)) for file in files]
    names = {file.name for file, _ in located}
    archives = {
        path: read_tar_members(path, names.__contains__) for path in {path for _, path in located} if is_archive(path)
    }
    raw = [
        archives[path].get(file.name, b"") if path in archives else read_decompressed(path) for file, path in located
    ]
    return [
        verify_content(dataset, file, path, raw_bytes) for (file, path), raw_bytes in zip(located, raw, strict=True)
    ]


def verify_content(dataset: str, file: RemoteFile, path: Path, raw: bytes) -> bytes:
    """Refuse content with another checksum: cut short, edited, or of another dataset."""
    actual = sha256(raw).hexdigest()
    if actual != file.sha256:
        raise UsageError(
            f"{path} is not {dataset}'s {PurePosixPath(file.name).name} (expected sha256 {file.sha256[:12]}…, "
            f"got {actual[:12]}… of {len(raw):,} bytes): damaged, or of another dataset; "
            f"replace it, or put the right one into {search_folders(dataset)[0]}"
        )
    return raw


def load_cached(dataset: str, path: Path, version: str, make: Callable[[], Batch]) -> Batch:
    """Tensors that take long to compute from a file, cached until the file or the version changes.

    A damaged entry is computed anew; where nothing can be written, nothing is cached.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save_file

    stat = path.stat()
    key = sha256(f"{version} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:16]
    cached_path = cache_folder(dataset) / f"{key}.safetensors"
    with suppress(OSError, SafetensorError):
        return load_file(cached_path)
    tensors = make()
    with suppress(OSError, SafetensorError):
        cached_path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cached_path.parent) as folder:
            save_file(tensors, Path(folder) / cached_path.name)
            (Path(folder) / cached_path.name).replace(cached_path)
    return tensors
