"""Load data by name or path: known datasets, tables, texts, image folders. A file format is one entry of `READERS`."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact.data.build import resplit
from didact.data.checks import summarize_list
from didact.data.core import SPLITS, Data
from didact.data.datasets.download import DATASETS, DatasetEntry, DownloadProgress, ensure_dataset
from didact.data.folder_tree import FolderTree
from didact.data.images.boxes import is_detection_folder, load_detection_folder
from didact.data.images.coco_voc import FORMAT_MARKERS, read_head
from didact.data.images.image_folder import load_image_folder
from didact.data.images.image_table import find_image_table, load_image_table
from didact.data.images.masks import is_segmentation_folder, load_segmentation_folder
from didact.data.images.resize import resize_dataset
from didact.data.tables.table import load_table
from didact.data.tables.table_file import TableFile, is_table_path
from didact.data.tables.table_options import NO_TABLE_OPTIONS, TableOptions
from didact.data.tables.target import Task
from didact.data.text.classification import BagEncoder, load_text_table, retokenize_texts
from didact.data.text.language_modeling import is_text_path, load_text_files, retokenize
from didact.data.text.parallel_texts import load_pairs
from didact.data.text.skipgram import as_word_stream
from didact.data.text.text_folder import find_class_folders, load_text_folder
from didact.data.text.tokenizers import TokenizerKind
from didact.data.time_series import load_series
from didact.errors import UsageError, look_up, suggest_nearest

_DATASET_MODULES = (
    *(f"datasets.{name}" for name in ("sklearn_sets", "char_corpora", "public", "reviews", "full_train")),
    *(f"datasets.synthetic.{name}" for name in (
        "copy_memory", "glyphs", "points", "detection_shapes", "segmentation_shapes", "analogy_text", "token_means",
    )),
    "images.boxes", "images.masks", "text.parallel_texts", "time_series.datasets",
)
# scheme of a web address -> what downloads it
_DOWNLOAD_COMMANDS = {
    "http": "curl -LO '{url}'", "https": "curl -LO '{url}'", "ftp": "curl -O '{url}'",
    "s3": "aws s3 cp '{url}' .", "s3a": "aws s3 cp '{url}' .",
    "gs": "gcloud storage cp '{url}' .", "gcs": "gcloud storage cp '{url}' .",
    "az": "az storage blob download --blob-url '{url}'", "hf": "hf download, of the package huggingface_hub",
}  # fmt: skip
_IMAGE_KINDS = {"images", "masks", "boxes"}


@dataclass(frozen=True)
class ReadOptions:
    """Options of the user (the first six), of a recipe, and of a run whose data are loaded again."""

    target: str | None = None
    task: Task | None = None
    text: str | None = None
    size: int | None = None
    seed: int = 0
    tokens: TokenizerKind | None = None
    accepts: Sequence[str] = ()               # kinds of data that a recipe accepts
    tasks: Sequence[str] = ()                 # kinds of targets that it learns; empty: any
    allow_unlabeled: bool = False
    table: TableOptions = NO_TABLE_OPTIONS
    indices: Mapping[str, Tensor] | None = None
    run_data: Data | None = None
    progress: DownloadProgress | None = None


@dataclass(frozen=True)
class Reader:
    """One way to read files: whether it reads a path, how, and which options of `_READER_OPTIONS` apply."""

    kind: str                                 # of the data that it makes
    description: str                          # completes "{path} is …" where an option does not apply
    options: tuple[str, ...]
    can_read: Callable[[FolderTree, ReadOptions], bool]
    read: Callable[[FolderTree, ReadOptions], Data]


_READER_OPTIONS = ("target", "task", "text", "size")
_SPLIT_OPTIONS = ("validation", "test", "sample_weight")


def _is_folder(files: FolderTree) -> bool:
    return files.root.is_dir()


def _is_table(files: FolderTree) -> bool:
    """Whether it is the file of a table, and not of annotations of images."""
    return is_table_path(str(files.root)) and not _is_folder(files) and not _is_annotation_file(files.root)


def _is_annotation_file(path: Path) -> bool:
    marks = FORMAT_MARKERS.get(path.suffix.lower(), ())
    return bool(marks) and all(mark in read_head(path) for mark in marks)


def _is_table_for(kind: str) -> Callable[[FolderTree, ReadOptions], bool]:
    """Whether a table is to be read as this kind: the recipe accepts it, and accepts no tables."""
    return lambda files, o: _is_table(files) and kind in o.accepts and "table" not in o.accepts


def _is_image_table(files: FolderTree, options: ReadOptions) -> bool:
    """Whether it is a table that names images, or a folder with one, for a recipe that accepts images."""
    if options.text is not None or (options.accepts and "images" not in options.accepts):
        return False
    return (_is_folder(files) or _is_table(files)) and find_image_table(files, target=options.target) is not None


def _is_text_folder(files: FolderTree, options: ReadOptions) -> bool:
    """Whether it is a folder of texts by class, for a recipe that learns classes of texts."""
    o = options
    tasks = o.tasks if o.run_data is None else (o.run_data.task,)
    if "multiclass" not in tasks and "binary" not in tasks:
        return False
    return _is_folder(files) and "text" in o.accepts and bool(find_class_folders(files))


def _read_running_text(files: FolderTree, options: ReadOptions) -> Data:
    data = load_text_files(files, kind=options.tokens or "characters", progress=options.progress)
    labels = sorted({folder.label for folder in find_class_folders(files)})
    if not labels:
        return data
    names = summarize_list(labels)
    note = f"the folders {names} are read as one running text; to a classifier of texts they are classes"
    return replace(data, notes=(*data.notes, note))


def _read_image_table(files: FolderTree, options: ReadOptions) -> Data:
    o, table = options, find_image_table(files, target=options.target)
    assert table is not None
    return load_image_table(
        files,
        table,
        target=o.target,
        task=o.task,
        size=o.size,
        seed=o.seed,
        options=o.table,
        allow_unlabeled=o.allow_unlabeled,
        indices=o.indices,
        run_data=o.run_data,
    )


# the first that can read a path reads it
READERS = (
    Reader(
        "images",
        "a table of images",
        ("target", "task", "size", *_SPLIT_OPTIONS, "drop"),
        can_read=_is_image_table,
        read=_read_image_table,
    ),
    Reader(
        "text",
        "a folder of texts by class",
        (),
        can_read=_is_text_folder,
        read=lambda files, o: load_text_folder(files, seed=o.seed, tokens=o.tokens, indices=o.indices),
    ),
    Reader(
        "text",
        "running text",
        (),
        can_read=lambda files, o: is_text_path(files),
        read=_read_running_text,
    ),
    Reader(
        "masks",
        "a folder of images",
        ("size",),
        can_read=lambda files, o: _is_folder(files) and is_segmentation_folder(files),
        read=lambda files, o: load_segmentation_folder(
            files, size=o.size, seed=o.seed, indices=o.indices, run_data=o.run_data
        ),
    ),
    Reader(
        "boxes",
        "a folder of images",
        ("size",),
        can_read=lambda files, o: _is_folder(files) and is_detection_folder(files),
        read=lambda files, o: load_detection_folder(
            files, size=o.size, seed=o.seed, indices=o.indices, run_data=o.run_data
        ),
    ),
    Reader(
        "images",
        "a folder of images",
        ("size",),
        can_read=lambda files, o: _is_folder(files),
        read=lambda files, o: load_image_folder(
            files,
            size=o.size,
            seed=o.seed,
            indices=o.indices,
            allow_unlabeled=o.allow_unlabeled,
            run_data=o.run_data,
        ),
    ),
    Reader(
        "series",
        "a time series",
        ("target",),
        can_read=_is_table_for("series"),
        read=lambda files, o: load_series(files.root, target=o.target),
    ),
    Reader(
        "pairs",
        "a file of sentence pairs",
        (),
        can_read=_is_table_for("pairs"),
        read=lambda files, o: load_pairs(files.root, seed=o.seed, indices=o.indices, kind=o.tokens),
    ),
    Reader(
        "text",
        "a table",
        ("target", "task", "text", *_SPLIT_OPTIONS),
        can_read=lambda files, o: _is_table(files) and o.text is not None,
        read=lambda files, o: load_text_table(
            files.root,
            text=str(o.text),
            target=o.target,
            task=o.task,
            seed=o.seed,
            options=o.table,
            tokens="words" if "words" in o.accepts else o.tokens,
            indices=o.indices,
            run_data=o.run_data,
        ),
    ),
    Reader(
        "table",
        "a table",
        ("target", "task", *_SPLIT_OPTIONS, "drop", "features"),
        can_read=lambda files, o: _is_table(files),
        read=lambda files, o: load_table(
            files.root,
            target=o.target,
            task=o.task,
            seed=o.seed,
            options=o.table,
            allow_unlabeled=o.allow_unlabeled,
            indices=o.indices,
            run_data=o.run_data,
        ),
    ),
)


def list_datasets() -> dict[str, DatasetEntry]:
    """All known datasets; importing their modules registers them."""
    for module in _DATASET_MODULES:
        import_module(f"didact.data.{module}")
    return DATASETS


def load(
    name_or_path: str,
    *,
    target: str | None = None,
    task: Task | None = None,
    text: str | None = None,
    size: int | None = None,
    seed: int = 0,
    tokens: TokenizerKind | None = None,
    table: TableOptions = NO_TABLE_OPTIONS,
    accepts: Sequence[str] = (),
    tasks: Sequence[str] = (),
    allow_unlabeled: bool = False,
    indices: Mapping[str, Tensor] | None = None,
    progress: DownloadProgress | None = None,
) -> Data:
    """Three splits of a known dataset or of one's own files; their `source` holds what `reload_data` needs.

    `tokens` is for running text, labeled texts and sentence pairs. Where files can be read in several ways, `accepts`
    names the kinds that a recipe accepts, and `tasks` what it learns: folders of texts are running text to a language
    model, labeled texts to a classifier. "words" reads any text as a stream of words. `allow_unlabeled`: labels are not
    needed, so that images without one are read too. `indices`: the examples of each split, where they are chosen.
    """
    options = ReadOptions(
        target, task, text, size, seed, tokens, accepts, tasks, allow_unlabeled, table, indices, progress=progress
    )
    datasets = list_datasets()
    if name_or_path in datasets:
        data, source = _load_dataset(datasets[name_or_path], options)
    else:
        data, source = _load_path(name_or_path, options)
    if tokens is not None:
        source["tokens"] = tokens
    if "words" in accepts:
        source["reading"] = "words"
    data = replace(data, source={**source, "fingerprint": data.fingerprint})
    return as_word_stream(data) if "words" in accepts else data


def _load_dataset(entry: DatasetEntry, options: ReadOptions) -> tuple[Data, dict[str, Any]]:
    """A known dataset, and what loads it again."""
    o = options
    size = None if entry.kind == "images" else o.size
    reason = f"{entry.name!r} is a known dataset"
    reject_options(reason, target=o.target, task=o.task, text=o.text, size=size, **vars(o.table))
    ensure_dataset(entry, o.progress)
    data = resize_dataset(entry.load(o.seed), o.size)
    data = data if o.indices is None else resplit(data, o.indices)
    if o.tokens is not None:
        data = _change_tokens(data, o.tokens)
    return data, {"name": entry.name, "seed": o.seed, **({"size": o.size} if o.size else {})}


def _load_path(name_or_path: str, options: ReadOptions) -> tuple[Data, dict[str, Any]]:
    """One's own files, and what loads them again."""
    o = options
    data = _read_path(name_or_path, o)
    is_tokenized = data.kind in ("pairs", "text")
    path = os.path.abspath(os.path.expanduser(name_or_path))
    has_target = data.kind not in (*_IMAGE_KINDS, "pairs") and data.task != "language" and not os.path.isdir(path)
    source = {
        "path": path,
        "target": data.target if has_target else o.target,
        "task": o.task,
        "text": o.text,
        "size": o.size,
        "seed": o.seed,
        "kind": data.kind,
        **o.table.to_source(),
    }
    if o.allow_unlabeled and (data.kind, data.task) == ("images", "none"):
        source["unlabeled"] = True
    if o.tokens is not None and not is_tokenized:
        data = _change_tokens(data, o.tokens)
    return data, source


def _change_tokens(data: Data, tokens: TokenizerKind) -> Data:
    """Running text or labeled texts in other tokens."""
    return retokenize_texts(data, tokens) if isinstance(data.encoder, BagEncoder) else retokenize(data, tokens)


def _read_path(name_or_path: str, options: ReadOptions) -> Data:
    """One's own files, by the first reader that can read them."""
    path = os.path.expanduser(name_or_path)
    if not path or not TableFile.parse(path).exists():
        raise UsageError(_explain_missing(name_or_path))
    file = TableFile.parse(path)
    if not (file.is_standard_input or os.path.isdir(path) or os.path.isfile(file.path)):
        raise UsageError(f"{name_or_path} is a pipe or a device: give a file, or pipe a table into --data -")
    files = FolderTree(path)
    reader = next((reader for reader in READERS if reader.can_read(files, options)), None)
    if reader is None:
        raise UsageError(_explain_unreadable(name_or_path, files.root))
    accepts_images = not options.accepts or bool(_IMAGE_KINDS & set(options.accepts))
    if reader.kind in _IMAGE_KINDS and not accepts_images and not files.list_images()[0]:
        raise UsageError(
            f"{name_or_path} is a folder without texts (.txt, .md) or images; put some there, or name a file"
        )
    values = {name: getattr(options, name) for name in _READER_OPTIONS} | vars(options.table)
    ignored = {name: value for name, value in values.items() if name not in reader.options}
    reject_options(f"{name_or_path} is {reader.description}", **ignored)
    return reader.read(files, options)


def _explain_missing(name_or_path: str) -> str:
    """Why there are no data of this name."""
    if "://" in name_or_path:
        scheme, file_name = name_or_path.split("://")[0].lower(), name_or_path.rstrip("/").rsplit("/", 1)[-1]
        command = _DOWNLOAD_COMMANDS.get(scheme, "").format(url=name_or_path)
        advice = f"download it with: {command}" if command else "download it"
        file_name = file_name.split("?")[0] or "FILE"
        return f"{name_or_path} is a web address, and nothing is loaded from there: {advice}; then --data {file_name}"
    if os.sep in name_or_path or Path(name_or_path).suffix:
        return f"no data at {name_or_path}: there is no such file or folder"
    return f"no dataset, file or folder named {name_or_path!r}; {suggest_nearest(name_or_path, list_datasets())}"


def _explain_unreadable(name_or_path: str, path: Path) -> str:
    """Why no reader reads a file."""
    if _is_annotation_file(path):
        return (
            f"{name_or_path} holds annotations of images: give the folder that holds it and the images, --data "
            f"{path.parent}"
        )
    return (
        f"{name_or_path} is neither a table (.csv, .xlsx, .ods, .json, .jsonl, .parquet, .feather), a text (.txt) nor "
        "a folder of images; save it as CSV"
    )


def reject_options(reason: str, **options: Any) -> None:
    """Refuse an option that would have no effect."""
    for name, value in options.items():
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            shown = ",".join(value) if isinstance(value, tuple) else value
            raise UsageError(f"{flag} does not apply: {reason}, got {flag} {shown}")


def reload_data(run_data: Data, indices: Mapping[str, Tensor]) -> Data:
    """The data of a run again, in its split and with its statistics; refused where the examples have changed."""
    source = run_data.source
    required_keys = {"name", "seed"} if "name" in source else {"path", "target", "text", "size", "seed"}
    if not required_keys | {"fingerprint"} <= source.keys():
        raise UsageError(
            "the run does not say where its data can be loaded from: they were given in Python, or run.json is damaged"
        )
    if "name" in source:
        data: Data = look_up("dataset", source["name"], list_datasets()).load(source["seed"])
        data = _change_tokens(data, source["tokens"]) if source.get("tokens") else data
    else:
        options = ReadOptions(
            **{name: source[name] for name in ("target", "text", "size", "seed")},
            task=source.get("task"),
            tokens=source.get("tokens"),
            accepts=(source.get("kind", ""), *filter(None, [source.get("reading")])),
            allow_unlabeled=source.get("unlabeled", False),
            table=TableOptions.from_mapping(source),
            indices=indices,
            run_data=run_data,
        )
        data = _read_path(source["path"], options)
    if data.fingerprint != source["fingerprint"]:
        location = source.get("path", source.get("name"))
        reason = "has changed since the run split it, or an older didact read it in another way"
        raise UsageError(f"{location} {reason}: put the old data back, or train anew")
    if any(not torch.equal(data.indices[part], indices[part]) for part in SPLITS):
        data = resplit(data, indices)
    data = replace(resize_dataset(data, source.get("size")) if "name" in source else data, source=dict(source))
    data = as_word_stream(data) if source.get("reading") == "words" else data
    _check_names(run_data, data)
    return data


def _check_names(run_data: Data, data: Data) -> None:
    """Refuse columns or classes under other names: the fingerprint covers the numbers alone."""
    location = run_data.source.get("path", run_data.source.get("name"))
    old_names, new_names = (
        (*run_data.feature_names, run_data.target, *run_data.class_names),
        (*data.feature_names, data.target, *data.class_names),
    )
    for old, new in zip_longest(old_names, new_names, fillvalue=""):
        if old != new:
            change = f"{old!r} is called {new!r} now"
            raise UsageError(
                f"{location} has changed since the run split it: {change}; put the old data back, or train anew"
            )
