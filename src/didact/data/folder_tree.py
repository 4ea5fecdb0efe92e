"""The files below a folder: each directory is listed once, however often it is asked for.

Whether a folder holds texts, segmentation masks, annotations or images, and which, is answered by one walk.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from didact.data.datasets.archives import inside
from didact.data.images.open_image import IMAGE_SUFFIXES
from didact.errors import UsageError


@dataclass(frozen=True)
class Listing:
    """Names in one directory, sorted: its subfolders and its files, and which of either are links.

    Pipes, sockets and devices do not count: reading one may never end.
    """

    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    links: frozenset[str] = frozenset()
    error: str = ""                     # why it could not be listed

    @classmethod
    def of(cls, folder: str) -> "Listing":
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            return cls(error=error.strerror or str(error))
        folders = {entry.name for entry in entries if _is_folder(entry)}
        entries = [entry for entry in entries if entry.name in folders or entry.is_symlink() or entry.is_file()]
        return cls(
            tuple(entry.name for entry in entries if entry.name in folders),
            tuple(entry.name for entry in entries if entry.name not in folders),
            frozenset(entry.name for entry in entries if entry.is_symlink()),
        )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _join(folder: Path | str, name: str) -> str:
    """As pathlib joins, so that a file has one name: a below . is a, not ./a."""
    return name if str(folder) == "." else os.path.join(folder, name)


class FolderTree:
    """A dataset's folder. Hidden files and folders (.name) do not count; links to folders are not followed."""

    def __init__(self, root: Path | str):
        self.root = Path(root)
        self._listings: dict[str, Listing] = {}

    @staticmethod
    def of(root: "Path | str | FolderTree") -> "FolderTree":
        return root if isinstance(root, FolderTree) else FolderTree(root)

    def list_folder(self, folder: Path | str) -> Listing:
        key = str(folder)
        if key not in self._listings:
            self._listings[key] = Listing.of(key)
        return self._listings[key]

    def walk(self, folder: Path | str, *, hidden: bool = False) -> Iterator[tuple[str, Listing]]:
        """Every folder below this one, itself first; with `hidden`, hidden ones too."""
        remaining = [str(folder)]               # a stack: folders may be nested deeper than Python can call
        while remaining:
            current = remaining.pop()
            listing = self.list_folder(current)
            yield current, listing
            remaining += [
                _join(current, name)
                for name in reversed(listing.folders)
                if name not in listing.links and (hidden or not name.startswith("."))
            ]

    def list_subfolders(self, folder: Path | None = None) -> list[Path]:
        """The folders inside, sorted."""
        folder = folder or self.root
        listing = self.list_folder(folder)
        if listing.error:
            raise UsageError(f"cannot read the folder {folder}: {listing.error}")
        return [folder / name for name in listing.folders if not name.startswith(".")]

    def list_images(self, folder: Path | None = None) -> tuple[list[str], int]:
        """The image files below a folder, sorted, and how many other files lie there.

        A link must not lead out of the dataset's folder.
        """
        inside(str(folder or self.root), self.root)
        images, num_others = [], 0
        for current, listing in self.walk(folder or self.root):
            for name in listing.files:
                if name.startswith("."):
                    continue
                if name.lower().endswith(IMAGE_SUFFIXES):
                    images.append(self._check_link(current, name, listing))
                else:
                    num_others += 1
        return images, num_others

    def list_images_flat(self, folder: Path) -> list[str]:
        """The image files in a folder itself, sorted."""
        listing = self.list_folder(folder)
        names = (name for name in listing.files if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith("."))
        return [
            self._check_link(str(folder), name, listing)
            for name in names
            if os.path.isfile(_join(folder, name))
        ]

    def list_files(self, suffixes: tuple[str, ...], *, hidden_folders: bool = False) -> list[Path]:
        """The files below the root that end so, folder by folder; links that lead nowhere do not count."""
        return [
            Path(current, name)
            for current, listing in self.walk(self.root, hidden=hidden_folders)
            for name in listing.files
            if name.lower().endswith(suffixes) and not name.startswith(".")
            if name not in listing.links or os.path.exists(_join(current, name))
        ]

    def _check_link(self, folder: str, name: str, listing: Listing) -> str:
        """The path of a file: only as a link can it lie outside of the root, which is refused."""
        path = _join(folder, name)
        return inside(path, self.root) if name in listing.links else path
