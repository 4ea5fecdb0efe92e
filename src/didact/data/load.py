"""Data by the word that a person types: a known name, a table, a table of texts, a folder of images."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact.data import time_series
from didact.data.build import resplit
from didact.data.core import SPLITS, Data
from didact.data.datasets.download import DATASETS, DatasetEntry, DownloadProgress, ensure_dataset
from didact.data.images import boxes, image_folder, masks
from didact.data.images.coco_voc import FORMAT_MARKERS, read_head
from didact.data.images.resize import resize_dataset
from didact.data.tables import table
from didact.data.tables.csv_reader import is_csv_path
from didact.data.text import classification, language_modeling, parallel_texts
from didact.data.text.skipgram import as_word_stream
from didact.data.text.tokenizers import TokenizerKind
from didact.errors import UsageError, look_up, suggest_nearest

DATASET_MODULES = (
    *(f"datasets.{name}" for name in ("sklearn_sets", "char_corpora", "public", "reviews", "full_train")),
    *(f"datasets.synthetic.{name}" for name in (
        "copy_memory", "glyphs", "points", "detection_shapes", "segmentation_shapes", "analogy_text", "token_means",
    )),
    "images.boxes", "images.masks", "text.parallel_texts", "time_series",
)


def list_datasets() -> dict[str, DatasetEntry]:
    """All known names; importing their modules is what registers them."""
    for module in DATASET_MODULES:
        import_module(f"didact.data.{module}")
    return DATASETS


def load(
    name_or_path: str,
    *,
    target: str | None = None,
    task: table.Task | None = None,
    text: str | None = None,
    size: int | None = None,
    seed: int = 0,
    tokens: TokenizerKind | None = None,
    accepts: Sequence[str] = (),
    allow_unlabeled: bool = False,
    progress: DownloadProgress | None = None,
) -> Data:
    """Three splits of a known set or of one's own files; `source` holds what `reload_data` needs.

    `tokens` is for running text and one's own pairs. Of files that can be read in several ways, `accepts` names the
    kinds that are wanted; "words" is a way to read any text. `allow_unlabeled`: nobody asks which class an image is of,
    so that those without one are read too.
    """
    datasets = list_datasets()
    reading_field = {"reading": "words"} if "words" in accepts else {}
    if name_or_path in datasets:
        reject_options(
            f"{name_or_path!r} is a known set",
            target=target,
            task=task,
            text=text,
            size=None if datasets[name_or_path].kind == "images" else size,
        )
        ensure_dataset(datasets[name_or_path], progress)
        size_field = {"size": size} if size else {}
        return _add_source(
            resize_dataset(datasets[name_or_path].load(seed), size),
            {"name": name_or_path, "seed": seed, **size_field, **reading_field},
            tokens,
        )
    options: dict[str, Any] = {"target": target, "task": task, "text": text, "size": size, "seed": seed}
    data = _load_path(
        name_or_path,
        datasets,
        **options,
        accepts=accepts,
        tokens=tokens,
        allow_unlabeled=allow_unlabeled,
        progress=progress,
    )
    source_options = (
        options
        if data.kind in ("images", "masks", "boxes", "pairs") or data.task == "language"
        else {**options, "target": data.target}
    )
    unlabeled_field = {"unlabeled": True} if allow_unlabeled and (data.kind, data.task) == ("images", "none") else {}
    return _add_source(
        data,
        {
            "path": os.path.abspath(os.path.expanduser(name_or_path)),
            **source_options,
            "kind": data.kind,
            **unlabeled_field,
            **reading_field,
        },
        tokens,
    )


def _add_source(data: Data, source: Mapping[str, Any], tokens: TokenizerKind | None = None) -> Data:
    """The data with what loads them again, and what tells whether they are still the same."""
    if tokens is not None:
        # read in these tokens at once
        is_tokenized = "path" in source and (data.kind == "pairs" or data.task == "language")
        data, source = (
            data if is_tokenized else language_modeling.retokenize(data, tokens),
            {**source, "tokens": tokens},
        )
    data = replace(data, source={**source, "fingerprint": data.fingerprint})
    return as_word_stream(data) if source.get("reading") == "words" else data


def _load_path(
    name_or_path: str,
    datasets: Mapping[str, Any],
    *,
    target: str | None,
    text: str | None,
    size: int | None,
    seed: int,
    task: table.Task | None = None,
    indices: Mapping[str, Tensor] | None = None,
    accepts: Sequence[str] = (),
    tokens: TokenizerKind | None = None,
    allow_unlabeled: bool = False,
    run_data: Data | None = None,
    progress: DownloadProgress | None = None,
) -> Data:
    """One's own files, by what they are."""
    expanded_path = os.path.expanduser(name_or_path)
    path = Path(expanded_path)
    if os.path.isdir(expanded_path) and not language_modeling.is_text_path(path):
        _check_folder(name_or_path, path, accepts)
        reject_options(f"{name_or_path} is a folder of images", target=target, task=task, text=text)
        if masks.is_segmentation_folder(path):
            return masks.load_segmentation_folder(path, size=size, seed=seed, indices=indices, run_data=run_data)
        if boxes.is_detection_folder(path):
            return boxes.load_detection_folder(path, size=size, seed=seed, indices=indices, run_data=run_data)
        return image_folder.load_image_folder(
            path, size=size, seed=seed, indices=indices, allow_unlabeled=allow_unlabeled, run_data=run_data
        )
    if not os.path.exists(expanded_path):
        if "://" in name_or_path:
            raise UsageError(f"{name_or_path} is a web address: download it and give the file's path")
        if os.sep in name_or_path or path.suffix:
            raise UsageError(f"no data at {name_or_path}: there is no such file or folder")
        raise UsageError(
            f"no data set, file or folder named {name_or_path!r}; {suggest_nearest(name_or_path, datasets)}"
        )
    if language_modeling.is_text_path(path):
        reject_options(f"{name_or_path} is running text", target=target, task=task, text=text, size=size)
        return language_modeling.load_text_files(path, kind=tokens or "characters", progress=progress)
    if any(mark in read_head(path) for mark in FORMAT_MARKERS.get(path.suffix.lower(), ())):
        raise UsageError(
            f"{name_or_path} says where things are on images: give the folder that holds it and the images, --data "
            f"{path.parent}"
        )
    if not is_csv_path(name_or_path):
        raise UsageError(
            f"{name_or_path} is neither a table (.csv, .tsv, .gz, .xz), a text (.txt) nor a folder of images; save it "
            "as CSV"
        )
    reject_options(f"{name_or_path} is a table", size=size)
    if "series" in accepts and "table" not in accepts:
        reject_options(f"{name_or_path} is a time series", task=task, text=text)
        return time_series.load_series(path, target=target)
    if "pairs" in accepts and "table" not in accepts:
        reject_options(f"{name_or_path} holds pairs of sentences", text=text, task=task, target=target)
        return parallel_texts.load_pairs(path, seed=seed, indices=indices, kind=tokens)
    if text is not None:
        return _load_text_table(
            path, text=text, target=target, task=task, seed=seed, indices=indices, run_data=run_data
        )
    return table.load_table(path, target=target, task=task, seed=seed, indices=indices, run_data=run_data)


def _check_folder(name_or_path: str, path: Path, accepts: Sequence[str]) -> None:
    """Who wants no images is not told of class folders."""
    if accepts and not {"images", "masks", "boxes"} & set(accepts) and not image_folder.list_images(path)[0]:
        raise UsageError(
            f"{name_or_path} is a folder without texts (.txt, .md) or images; put some there, or name a file"
        )


_load_text_table = classification.load_text_table  # `text` names a column above


def reject_options(reason: str, **options: Any) -> None:
    """An option that would be passed over in silence is a mistake."""
    for name, value in options.items():
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} does not apply: {reason}, got {flag} {value}")


def reload_data(run_data: Data, indices: Mapping[str, Tensor]) -> Data:
    """The data of a run again, in the split and on the scale that the run kept; refused where the examples are no
    longer the same."""
    datasets, source = list_datasets(), run_data.source
    required_keys = {"name", "seed"} if "name" in source else {"path", "target", "text", "size", "seed"}
    if not required_keys | {"fingerprint"} <= source.keys():
        raise UsageError(
            "the run does not say where its data can be loaded from: they were handed over in Python, or run.json is "
            "damaged"
        )
    if "name" in source:
        data: Data = look_up("data set", source["name"], datasets).load(source["seed"])
        data = language_modeling.retokenize(data, source["tokens"]) if source.get("tokens") else data
    else:
        options = {name: source[name] for name in ("target", "text", "size", "seed")}
        options |= {
            "task": source.get("task"),
            "allow_unlabeled": source.get("unlabeled", False),
            "tokens": source.get("tokens"),
        }
        data = _load_path(
            source["path"], datasets, **options, indices=indices, accepts=(source.get("kind", ""),), run_data=run_data
        )
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
    """A fingerprint is of the numbers alone: columns or classes under other names would be taken for each other."""
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
