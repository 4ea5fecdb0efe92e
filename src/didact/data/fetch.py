"""The sets that are known by name, where their files lie, and how a missing one is fetched.

A file is looked for in $DIDACT_DATA/<set>/, in $DIDACT_DATA itself, then in the cache ($DIDACT_CACHE/<set>/, or else
~/.cache/didact/<set>/): as it is, as .gz or .xz, or in the archive that its home page offers. What is nowhere is
downloaded into the cache.
"""

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
from didact.data.readers import content, is_archive, members, reading
from didact.errors import UsageError

Load = Callable[..., Data]                   # (seed: int = 0) -> Data
Progress = Callable[[str, int, int], None]   # (file name, bytes so far, bytes in all or 0 where not told)

SECONDS = 20  # of silence after which a server counts as absent


@dataclass(frozen=True)
class File:
    """A file of a public set, by the name that it has on its home page."""

    name: str           # without .gz or .xz; with its folder, where it comes in an archive
    sha256: str         # of the content, decompressed: the same for plain, .gz and .xz
    url: str
    archive: str = ""   # sha256 of the archive at the url, where the file comes in one

    @property
    def offered(self) -> str:
        """What the url's file is called: what a person would download."""
        return PurePosixPath(self.url).name

    @property
    def spellings(self) -> tuple[str, ...]:
        plain = dict.fromkeys((self.name, PurePosixPath(self.name).name))
        return (*(name + suffix for name in plain for suffix in ("", ".gz", ".xz")), self.offered)


@dataclass(frozen=True)
class Source:
    """A set known by name; what is said of it here costs no loading."""

    name: str
    kind: str
    task: str
    summary: str
    licence: str
    load: Load
    files: tuple[File, ...] = ()


SOURCES: dict[str, Source] = {}


def source(*, kind: str, task: str, licence: str, files: Sequence[File] = ()) -> Callable[[Load], Load]:
    """Register a loader by its own name; the first line of its docstring is the summary."""

    def give(load: Load) -> Load:
        name = load.__name__
        if name in SOURCES:
            raise ValueError(f"two data sets are named {name!r}")
        SOURCES[name] = Source(name, kind, task, (load.__doc__ or "").split("\n")[0], licence, load, tuple(files))
        return load

    return give


def cache(dataset: str) -> Path:
    """Where the files of a set are kept once downloaded."""
    root = os.environ.get("DIDACT_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "didact") / dataset


def folders(dataset: str) -> list[Path]:
    """Where files are looked for, first to last."""
    own = os.environ.get("DIDACT_DATA")
    return [*([Path(own) / dataset, Path(own)] if own else []), cache(dataset)]


def find(dataset: str, file: File) -> Path | None:
    """Where a file lies on this machine, if it does."""
    places = (folder / spelling for folder in folders(dataset) for spelling in file.spellings)
    return next((place for place in places if place.is_file()), None)


def missing(source: Source) -> tuple[File, ...]:
    """The files of a set that would have to be downloaded."""
    return tuple(file for file in source.files if find(source.name, file) is None)


def locate(dataset: str, file: File, progress: Progress | None = None) -> Path:
    """Where a file lies, downloaded into the cache where it was nowhere."""
    return find(dataset, file) or download(dataset, file, progress)


def fetch(source: Source, progress: Progress | None = None) -> None:
    """Have every file of a set on this machine, so that loading it needs no network."""
    for file in source.files:
        locate(source.name, file, progress)


def download(dataset: str, file: File, progress: Progress | None = None) -> Path:
    """Fetch a file into the cache: written beside, checked, renamed, so that no half file is ever found."""
    path = cache(dataset) / file.offered
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        copy(file, part, progress)
        check_download(part, file)
        part.replace(path)
    except (OSError, HTTPException, UsageError) as error:
        if isinstance(error, HTTPError):
            error.close()  # it is the server's answer too, and holds its socket
        raise UsageError(needs(dataset, file, f"{getattr(error, 'reason', error)}")) from error
    finally:
        with suppress(OSError):
            part.unlink()
    return path


def needs(dataset: str, file: File, why: str) -> str:
    """Which file goes where, when it could not be fetched."""
    looked = folders(dataset)
    or_else = "" if os.environ.get("DIDACT_DATA") else f", or set DIDACT_DATA to a folder that holds {dataset}/"
    return (
        f"{dataset} needs {file.offered}, which is not in {' or '.join(map(str, looked))}, "
        f"and fetching it from {file.url} failed ({why}); put it into {looked[0]}{or_else}"
    )


def copy(file: File, to: Path, progress: Progress | None, chunk: int = 1 << 18) -> None:
    """What the server sends, onto the disk."""
    with urllib.request.urlopen(file.url, timeout=SECONDS) as answer, to.open("wb") as out:
        total, done = int(answer.headers.get("Content-Length") or 0), 0
        while block := answer.read(chunk):
            out.write(block)
            done += len(block)
            if progress:
                progress(file.offered, done, total)
        if done < total:
            raise UsageError(f"{done:,} of {total:,} bytes came")


def check_download(path: Path, file: File) -> None:
    """Of an archive its own sum is known, of the rest that of the content."""
    try:
        found = digest(path) if file.archive else sha256(content(path)).hexdigest()
    except UsageError as error:
        raise UsageError("what came is damaged") from error
    if found != (file.archive or file.sha256):
        raise UsageError(f"what came has sha256 {found[:12]}…, expected {(file.archive or file.sha256)[:12]}…")


def digest(path: Path) -> str:
    """sha256 of a file as it lies there."""
    with reading(path), path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def read(dataset: str, files: Iterable[File]) -> list[bytes]:
    """The content of each file, decompressed and checked, wherever and in whichever form it lies."""
    where = [(file, locate(dataset, file)) for file in files]
    names = {file.name for file, _ in where}
    archives = {path: members(path, names.__contains__) for path in {path for _, path in where} if is_archive(path)}
    raw = [archives[path].get(file.name, b"") if path in archives else content(path) for file, path in where]
    return [check(dataset, file, path, found) for (file, path), found in zip(where, raw, strict=True)]


def check(dataset: str, file: File, path: Path, raw: bytes) -> bytes:
    """Refuse content that is not what the home page publishes: cut short, edited, or of another set."""
    found = sha256(raw).hexdigest()
    if found != file.sha256:
        raise UsageError(
            f"{path} is not {dataset}'s {PurePosixPath(file.name).name} (expected sha256 {file.sha256[:12]}…, "
            f"got {found[:12]}… of {len(raw):,} bytes): damaged, or another set's; "
            f"replace it, or put the right one into {folders(dataset)[0]}"
        )
    return raw


def cached(dataset: str, path: Path, version: str, make: Callable[[], Batch]) -> Batch:
    """What takes long to make of a file, kept beside the downloads until the file or the version changes.

    A damaged entry is made anew, and where nothing can be written nothing is kept.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save_file

    stat = path.stat()
    key = sha256(f"{version} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:16]
    kept = cache(dataset) / f"{key}.safetensors"
    with suppress(OSError, SafetensorError):
        return load_file(kept)
    made = make()
    with suppress(OSError, SafetensorError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as beside:
            save_file(made, Path(beside) / kept.name)
            (Path(beside) / kept.name).replace(kept)
    return made
