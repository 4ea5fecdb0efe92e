"""Folders of texts by class: one subfolder per class, or train/ and test/ (and val/) that each hold such, as IMDB is.

    reviews/pos/01.txt   reviews/neg/07.txt          reviews/train/pos/01.txt   reviews/test/pos/09.txt
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from didact.data.build import CLASSIFICATION_TASKS, Examples, build_data, split_indices
from didact.data.checks import summarize_list
from didact.data.core import Data
from didact.data.datasets.archives import inside
from didact.data.folder_tree import FolderTree
from didact.data.images.image_folder import SPLIT_OF_FOLDER, describe_splits, split_by_folders
from didact.data.tables.encodings import decode_to_utf8
from didact.data.text.classification import describe_vocabulary, fit_encoder
from didact.data.text.language_modeling import TEXT_SUFFIXES
from didact.errors import UsageError, format_count

UNLABELED_FOLDERS = ("unsup", "unlabeled", "unlabelled")      # beside class folders: texts without a class


class ClassFolder(NamedTuple):
    """A folder of texts: its split, empty where folders name none, its class, and its files."""

    split: str
    label: str
    files: tuple[str, ...]


def find_class_folders(tree: FolderTree) -> list[ClassFolder]:
    """The folders of texts by class; empty where there are not two classes with texts of their own."""
    if not tree.root.is_dir():
        return []
    split_roots = [
        (SPLIT_OF_FOLDER[folder.name.lower()], folder)
        for folder in tree.list_subfolders()
        if folder.name.lower() in SPLIT_OF_FOLDER
    ]
    if "train" not in {split for split, _ in split_roots}:
        split_roots = [("", tree.root)]
    folders = [
        ClassFolder(split, folder.name, tuple(_list_texts(tree, folder)))
        for split, root in split_roots
        for folder in tree.list_subfolders(root)
    ]
    folders = [folder for folder in folders if folder.files]
    labels = {folder.label for folder in folders if folder.label.lower() not in UNLABELED_FOLDERS}
    return folders if len(labels) > 1 else []


def _list_texts(tree: FolderTree, folder: Path) -> list[str]:
    """The texts below a folder, sorted."""
    return sorted(
        os.path.join(current, name)
        for current, listing in tree.walk(folder)
        for name in listing.files
        if name.lower().endswith(TEXT_SUFFIXES) and not name.startswith(".")
    )


def load_text_folder(
    tree: FolderTree,
    *,
    seed: int = 0,
    tokens: str | None = None,
    indices: Mapping[str, Tensor] | None = None,
) -> Data:
    """Texts in class folders as Data. The vocabulary is that of the training texts."""
    folders = find_class_folders(tree)
    labeled = [folder for folder in folders if folder.label.lower() not in UNLABELED_FOLDERS]
    labels = sorted({folder.label for folder in labeled})
    files = [file for folder in labeled for file in folder.files]
    y = torch.tensor([labels.index(folder.label) for folder in labeled for _ in folder.files])
    splits = [folder.split for folder in labeled for _ in folder.files]
    name, task = tree.root.resolve().name, CLASSIFICATION_TASKS[len(labels) > 2]
    texts, encoding_notes = _read_texts([inside(file, tree.root) for file in files])
    indices = indices or split_by_folders(splits, y, seed)
    indices = split_indices(name, len(files), y, task=task, indices=indices, seed=seed)
    encoder, token_notes = fit_encoder([texts[i] for i in indices["train"].tolist()], tokens)
    x = encoder.encode(texts)
    num_unlabeled = sum(len(folder.files) for folder in folders) - len(files)
    notes = [
        f"{len(files):,} texts of {len(labels)} classes, by their folders: {summarize_list(labels)}",
        *describe_splits(splits, 0),
        *([f"left out: {format_count(num_unlabeled, 'text')} without a class"] if num_unlabeled else []),
        *encoding_notes,
        *token_notes,
        describe_vocabulary(encoder, x),
    ]
    return build_data(
        Examples(
            name,
            "text",
            {"x": x, "y": y},
            task=task,
            class_names=labels,
            feature_names=encoder.vocab,
            target="class",
            encoder=encoder,
            locator=lambda row: os.path.relpath(files[row], tree.root),
            text_reader=lambda: texts,
            standardize=False,
            notes=notes,
        ),
        indices=indices,
    )


def _read_texts(files: list[str]) -> tuple[list[str], list[str]]:
    """The texts of the files, and a note on encodings other than UTF-8."""
    texts: list[str] = []
    encodings: dict[str, int] = {}
    for file in files:
        try:
            decoded = decode_to_utf8(Path(file).read_bytes())
        except OSError as error:
            raise UsageError(f"cannot read the text {file}: {error.strerror}") from None
        if decoded is None:
            raise UsageError(f"{file} is not a text, or in no common encoding: save it as UTF-8, or leave it out")
        texts.append(decoded[0].decode().replace("\r\n", "\n"))
        if decoded[1]:
            encodings[decoded[1]] = encodings.get(decoded[1], 0) + 1
    return texts, [f"{format_count(count, 'text')} read as {encoding}" for encoding, count in encodings.items()]
