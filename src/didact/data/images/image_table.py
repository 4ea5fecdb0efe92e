"""Images named in a table: a column of file names and a target, as labels.csv beside or above the images.

    photos/labels.csv                photos/a.jpg  photos/b.jpg            file,label,split
                                     photos/images/c.jpg                   a.jpg,cat,train

The target is a class, a number, or several labels. File names are paths from the table or from the folder, or the names
alone, also without their suffix. A column named split holds the split, where each of its words is one.
"""

import csv
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from didact.data.build import CLASSIFICATION_TASKS, Examples
from didact.data.checks import summarize_list
from didact.data.core import Data
from didact.data.datasets.archives import inside
from didact.data.folder_tree import FolderTree
from didact.data.images.image_folder import SPLIT_OF_FOLDER, build_image_data, split_by_folders
from didact.data.images.open_image import IMAGE_SUFFIXES
from didact.data.tables.columns import to_strings
from didact.data.tables.csv_reader import make_line_locator, sniff_delimiter
from didact.data.tables.table_options import (
    NO_TABLE_OPTIONS,
    TableOptions,
    check_target_stays,
    drop_columns,
    normalize_weights,
    read_split_files,
    read_weights,
    split_rows,
)
from didact.data.tables.target import Task, choose_target, read_labeled_rows
from didact.errors import UsageError, format_count
from didact.schema import parse_foreign_json

if TYPE_CHECKING:
    from pandas import DataFrame

_PROBED_ROWS = 20                    # rows whose cells say whether a column holds names of images
_PROBED_BYTES = 2**16
_PROBED_SUFFIXES = (".csv", ".tsv", ".jsonl")
_SPLIT_COLUMNS = ("split", "set", "subset", "partition", "usage")


@dataclass(frozen=True)
class ImageTable:
    """A table that names images, and its column of file names."""

    path: Path
    column: str


def find_image_table(tree: FolderTree, *, target: str | None = None) -> ImageTable | None:
    """The table that names images: the file itself, or the one inside a folder.

    Class folders come before a table, unless a target is named: one of its columns.
    """
    if not tree.root.is_dir():
        return _probe_table(tree.root, FolderTree(tree.root.parent))
    if target is None and _has_class_folders(tree):
        return None
    folders = [tree.root, *tree.list_subfolders()]
    paths = [
        folder / name
        for folder in folders
        for name in tree.list_folder(folder).files
        if name.lower().endswith(_PROBED_SUFFIXES) and not name.startswith(".")
    ]
    tables = [table for path in paths if (table := _probe_table(path, tree)) is not None]
    if len(tables) > 1:
        names = summarize_list([os.path.relpath(table.path, tree.root) for table in tables])
        raise UsageError(
            f"{tree.root} holds {len(tables)} tables that name images, {names}: give the one to learn from, --data "
            f"{tables[0].path}"
        )
    return tables[0] if tables else None


def _has_class_folders(tree: FolderTree) -> bool:
    """Whether two folders side by side hold images, apart from those that are splits."""
    children = tree.list_subfolders()
    train = [folder for folder in children if SPLIT_OF_FOLDER.get(folder.name.lower()) == "train"]
    classes = tree.list_subfolders(train[0]) if train else children
    return sum(bool(tree.list_images(folder)[0]) for folder in classes) > 1


def _probe_table(path: Path, tree: FolderTree) -> ImageTable | None:
    """The first column that holds names of images, judged by its first cells."""
    rows = _read_first_rows(path)
    for name in rows[0] if rows else ():
        cells = [str(row[name]).strip() for row in rows if row.get(name)]
        if cells and all(cell.lower().endswith(IMAGE_SUFFIXES) for cell in cells):
            return ImageTable(path, name)
    if len(rows) < 2:
        return None
    stems = _list_stems(path.parent, tree)
    for name in rows[0] if stems else ():
        cells = [str(row[name]).strip() for row in rows if row.get(name)]
        if cells and len(set(cells)) == len(cells) and all(cell in stems for cell in cells):
            return ImageTable(path, name)
    return None


def _read_first_rows(path: Path) -> list[dict[str, str]]:
    """The first rows of a CSV or JSON Lines file, from its first bytes: the rest need not be read to know what it is.
    """
    suffix = path.suffix.lower()
    if suffix not in _PROBED_SUFFIXES or not path.is_file():
        return []
    head = b""
    with suppress(OSError), path.open("rb") as file:      # what is wrong with it is said where it is read as a table
        head = file.read(_PROBED_BYTES)
    lines = head.decode(errors="replace").lstrip("\ufeff").splitlines()
    if len(head) == _PROBED_BYTES:
        lines = lines[:-1]                   # it may be cut
    if suffix == ".jsonl":
        rows = []
        for line in lines[:_PROBED_ROWS]:
            with suppress(ValueError):
                rows.append(parse_foreign_json(line))
        return [{str(k): str(v) for k, v in row.items()} for row in rows if isinstance(row, dict)]
    if not any(lines):
        return []
    try:
        reader = csv.DictReader(lines, delimiter=sniff_delimiter("\n".join(lines)), skipinitialspace=True)
        rows = list(islice(reader, _PROBED_ROWS))
    except csv.Error:
        return []
    names = {name: name.strip() or f"column {i}" for i, name in enumerate(reader.fieldnames or (), 1)}
    return [{names[k]: v for k, v in row.items() if k in names and isinstance(v, str)} for row in rows]


def _list_stems(folder: Path, tree: FolderTree) -> set[str]:
    """The names without suffix of the images in the table's folder, and in the folders beside the table."""
    folders = [folder, *tree.list_subfolders(folder)]
    names = (name for f in folders for name in tree.list_folder(f).files)
    return {os.path.splitext(name)[0] for name in names if name.lower().endswith(IMAGE_SUFFIXES)}


def load_image_table(
    tree: FolderTree,
    table: ImageTable,
    *,
    target: str | None = None,
    task: Task | None = None,
    size: int | None = None,
    seed: int = 0,
    options: TableOptions = NO_TABLE_OPTIONS,
    allow_unlabeled: bool = False,
    indices: Mapping[str, Tensor] | None = None,
    run_data: Data | None = None,
) -> Data:
    """The images that a table names as Data. Rows whose target is missing are left out.

    `allow_unlabeled`: labels are not needed; without --target the images alone are read. `run_data`: the data of a run
    that is loaded again.
    """
    root = tree.root if tree.root.is_dir() else tree.root.parent
    all_columns, origins = read_split_files(table.path, options, target=target, min_columns=1)
    check_target_stays(options, target)
    weights = read_weights(all_columns, options, origins, table.path)
    frame = drop_columns(all_columns, options, table.path)
    if table.column not in frame:
        raise UsageError(f"{table.path} names its images in {table.column!r}: it can neither be dropped nor weigh rows")
    splits = None if origins is not None else _find_split_column(frame, target)
    others = frame.drop(columns=[splits]) if splits is not None else frame
    notes = [f"images named in {os.path.relpath(table.path, root)}, column {table.column!r}"]
    if target is None and (allow_unlabeled or len(others.columns) == 1):
        if not allow_unlabeled:
            raise UsageError(f"{table.path} names images, and holds no other column to be predicted; add one")
        values, target_name = None, ""
        is_labeled = np.ones(len(frame), dtype=bool)
        notes.append("no --target given: the images are read without labels, since none are needed")
    else:
        name = table.path.stem
        target_name, target_notes = choose_target(others, target, table.path, excluded=table.column)
        offsets = None if run_data is None else {run_data.target: run_data.target_offset}
        is_labeled, values = read_labeled_rows(others, target_name, name, task, offsets)
        notes += [*target_notes, values.note]
    frame = frame[is_labeled]
    notes += frame.attrs.get("notes", ())
    files = _locate_images(frame, table, tree, root)
    num_repeated = len(files) - len(set(files))
    if num_repeated:
        notes.append(f"{format_count(num_repeated, 'row')} name an image that another row names, too")
    columns = {} if values is None else {"y": values.y}
    task_name = "none" if values is None else values.task
    if indices is None and splits is not None:
        words = [SPLIT_OF_FOLDER[str(word).strip().lower()] for word in frame[splits]]
        indices = split_by_folders(words, columns.get("y") if task_name in CLASSIFICATION_TASKS else None, seed)
        notes.append(f"split by column {splits!r}; what it does not name is taken from train")
    y = columns.get("y", torch.zeros(len(files)))
    part_origins = None if origins is None else origins[is_labeled]
    indices = split_rows(root.name, y, part_origins, task=task_name, options=options, indices=indices, seed=seed)
    if weights is not None:
        columns["weight"] = normalize_weights(weights[is_labeled], indices, str(options.sample_weight))
    return build_image_data(
        Examples(
            root.resolve().name,
            "images",
            columns,
            task=task_name,
            class_names=() if values is None else values.class_names,
            target=target_name,
            target_offset=0.0 if values is None else values.offset,
            notes=notes,
            locator=make_line_locator(table.path, frame.index, frame.attrs.get("unit", "line")),
        ),
        files,
        size=size,
        seed=seed,
        indices=indices,
        run_data=run_data,
    )


def _find_split_column(frame: "DataFrame", target: str | None) -> str | None:
    """The column that names the split of each row."""
    for name in map(str, frame.columns):
        if name.lower() in _SPLIT_COLUMNS and name != target:
            words = {str(word).strip().lower() for word in frame[name].unique()}
            if words <= SPLIT_OF_FOLDER.keys() and any(SPLIT_OF_FOLDER[word] == "train" for word in words):
                return name
    return None


def _locate_images(frame: "DataFrame", table: ImageTable, tree: FolderTree, root: Path) -> list[str]:
    """The file of each row, inside the folder; those that are not there in one line."""
    names = [_normalize_name(name) for name in to_strings(frame[table.column])]
    files = [_find_in_folders(name, table.path.parent, root) for name in names]
    if not all(files):
        by_name = _index_images(FolderTree.of(tree if tree.root.is_dir() else root))
        files = [file or _find_by_name(name, by_name) for file, name in zip(files, names, strict=True)]
    missing = [(name, line) for file, name, line in zip(files, names, frame.index, strict=True) if not file]
    if missing:
        raise UsageError(
            f"{table.path} names {len(missing):,} of {len(files):,} images that are not in {root}: "
            f"{summarize_list([name for name, _ in missing])}, first in line {missing[0][1]}; put them there, or leave "
            "those rows out"
        )
    found = [file for file in files if file]
    for folder in {os.path.dirname(file) for file in found}:
        inside(folder, root)
    return [inside(file, root) if os.path.islink(file) else file for file in found]


def _normalize_name(name: str) -> str:
    return name.strip().replace("\\", "/").removeprefix("./")


def _find_in_folders(name: str, *folders: Path) -> str:
    """The file of this name below one of the folders; empty where there is none."""
    for folder in folders:
        path = os.path.join(folder, name)
        if name and os.path.isfile(path):
            return path
    return ""


def _index_images(tree: FolderTree) -> dict[str, list[str]]:
    """The images of a folder by name, and by name without suffix."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for file in tree.list_images()[0]:
        base = os.path.basename(file)
        for key in {base, os.path.splitext(base)[0]}:
            by_name[key].append(file)
    return by_name


def _find_by_name(name: str, by_name: Mapping[str, Sequence[str]]) -> str:
    """The only file of this name, or the only one whose path ends so."""
    files = by_name.get(name.rpartition("/")[2], ())
    if len(files) > 1:
        files = [file for file in files if file.replace(os.sep, "/").endswith(f"/{name}")]
    return files[0] if len(files) == 1 else ""
