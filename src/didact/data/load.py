"""Data by the word that a person types: a known name, a table, a table of texts, a folder of images."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact.data import boxes, folder, masks, pairs, sequences, series, table, text
from didact.data.annotations import MARKS, head
from didact.data.assemble import rearrange
from didact.data.core import SPLITS, Data
from didact.data.delimited import is_table
from didact.data.fetch import SOURCES, Progress, Source, fetch
from didact.data.neighbours import as_words
from didact.data.resized import resized
from didact.data.tokens import Kind
from didact.errors import UsageError, nearest, pick


def sources() -> dict[str, Source]:
    """All known names; importing their modules is what registers them."""
    from didact.data import (  # noqa: F401
        boxes,
        builtin,
        characters,
        copying,
        letters,
        made,
        masks,
        pairs,
        public,
        reviews,
        scatter,
        series,
        shapes,
        tales,
        token_means,
        whole,
    )

    return SOURCES


def load(
    what: str, *, target: str | None = None, task: table.Task | None = None, text: str | None = None, size: int | None = None,
    seed: int = 0, tokens: Kind | None = None, accepts: Sequence[str] = (), unlabelled: bool = False, progress: Progress | None = None,
) -> Data:
    """Three splits of a known set or of one's own files; `source` holds what `reload` needs.

    `tokens` is for running text and one's own pairs. Of files that can be read in several ways, `accepts` names the kinds that are
    wanted; "words" is a way to read any text. `unlabelled`: nobody asks which class an image is of, so that those without one are read too.
    """
    known = sources()
    reading = {"reading": "words"} if "words" in accepts else {}
    if what in known:
        forbid(f"{what!r} is a known set", target=target, task=task, text=text, size=None if known[what].kind == "images" else size)
        fetch(known[what], progress)
        sized = {"size": size} if size else {}
        return remember(resized(known[what].load(seed), size), {"name": what, "seed": seed, **sized, **reading}, tokens)
    options: dict[str, Any] = {"target": target, "task": task, "text": text, "size": size, "seed": seed}
    data = from_path(what, known, **options, accepts=accepts, tokens=tokens, unlabelled=unlabelled, progress=progress)
    kept = options if data.kind in ("images", "masks", "boxes", "pairs") or data.task == "language" else {**options, "target": data.target}
    without = {"unlabelled": True} if unlabelled and (data.kind, data.task) == ("images", "none") else {}
    return remember(data, {"path": os.path.abspath(os.path.expanduser(what)), **kept, "kind": data.kind, **without, **reading}, tokens)


def remember(data: Data, source: Mapping[str, Any], tokens: Kind | None = None) -> Data:
    """The data with what loads them again, and what tells whether they are still the same."""
    if tokens is not None:
        own = "path" in source and (data.kind == "pairs" or data.task == "language")       # read in these tokens at once
        data, source = data if own else sequences.retold(data, tokens), {**source, "tokens": tokens}
    data = replace(data, source={**source, "fingerprint": data.fingerprint})
    return as_words(data) if source.get("reading") == "words" else data


def from_path(
    what: str,
    known: Mapping[str, Any],
    *,
    target: str | None,
    text: str | None,
    size: int | None,
    seed: int,
    task: table.Task | None = None,
    indices: Mapping[str, Tensor] | None = None,
    accepts: Sequence[str] = (),
    tokens: Kind | None = None,
    unlabelled: bool = False,
    before: Data | None = None,
    progress: Progress | None = None,
) -> Data:
    """One's own files, by what they are."""
    where = os.path.expanduser(what)
    path = Path(where)
    if os.path.isdir(where) and not sequences.is_text(path):
        refuse_folder(what, path, accepts)
        forbid(f"{what} is a folder of images", target=target, task=task, text=text)
        if masks.is_masks(path):
            return masks.load(path, size=size, seed=seed, indices=indices, before=before)
        if boxes.is_boxes(path):
            return boxes.load(path, size=size, seed=seed, indices=indices, before=before)
        return folder.load(path, size=size, seed=seed, indices=indices, unlabelled=unlabelled, before=before)
    if not os.path.exists(where):
        if "://" in what:
            raise UsageError(f"{what} is a web address: download it and give the file's path")
        if os.sep in what or path.suffix:
            raise UsageError(f"no data at {what}: there is no such file or folder")
        raise UsageError(f"no data set, file or folder named {what!r}; {nearest(what, known)}")
    if sequences.is_text(path):
        forbid(f"{what} is running text", target=target, task=task, text=text, size=size)
        return sequences.load(path, kind=tokens or "characters", progress=progress)
    if any(mark in head(path) for mark in MARKS.get(path.suffix.lower(), ())):
        raise UsageError(f"{what} says where things are on images: give the folder that holds it and the images, --data {path.parent}")
    if not is_table(what):
        raise UsageError(f"{what} is neither a table (.csv, .tsv, .gz, .xz), a text (.txt) nor a folder of images; save it as CSV")
    forbid(f"{what} is a table", size=size)
    if "series" in accepts and "table" not in accepts:
        forbid(f"{what} is a time series", task=task, text=text)
        return series.load(path, target=target)
    if "pairs" in accepts and "table" not in accepts:
        forbid(f"{what} holds pairs of sentences", text=text, task=task, target=target)
        return pairs.load(path, seed=seed, indices=indices, kind=tokens)
    if text is not None:
        return text_load(path, text=text, target=target, task=task, seed=seed, indices=indices, before=before)
    return table.load(path, target=target, task=task, seed=seed, indices=indices, before=before)


def refuse_folder(what: str, path: Path, accepts: Sequence[str]) -> None:
    """Who wants no images is not told of class folders."""
    if accepts and not {"images", "masks", "boxes"} & set(accepts) and not folder.images(path)[0]:
        raise UsageError(f"{what} is a folder without texts (.txt, .md) or images; put some there, or name a file")


text_load = text.load  # `text` names a column above


def forbid(why: str, **options: Any) -> None:
    """An option that would be passed over in silence is a mistake."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"--{name} does not apply: {why}, got --{name} {value}")


def reload(before: Data, indices: Mapping[str, Tensor]) -> Data:
    """The data of a run again, in the split and on the scale that the run kept; refused where the examples are no longer the same."""
    known, source = sources(), before.source
    needed = {"name", "seed"} if "name" in source else {"path", "target", "text", "size", "seed"}
    if not needed | {"fingerprint"} <= source.keys():
        raise UsageError("the run does not say where its data can be loaded from: they were handed over in Python, or run.json is damaged")
    if "name" in source:
        data: Data = pick("data set", source["name"], known).load(source["seed"])
        data = sequences.retold(data, source["tokens"]) if source.get("tokens") else data
    else:
        options = {name: source[name] for name in ("target", "text", "size", "seed")}
        options |= {"task": source.get("task"), "unlabelled": source.get("unlabelled", False), "tokens": source.get("tokens")}
        data = from_path(source["path"], known, **options, indices=indices, accepts=(source.get("kind", ""),), before=before)
    if data.fingerprint != source["fingerprint"]:
        where = source.get("path", source.get("name"))
        why = "has changed since the run split it, or an older didact read it in another way"
        raise UsageError(f"{where} {why}: put the old data back, or train anew")
    if any(not torch.equal(data.indices[part], indices[part]) for part in SPLITS):
        data = rearrange(data, indices)
    data = replace(resized(data, source.get("size")) if "name" in source else data, source=dict(source))
    data = as_words(data) if source.get("reading") == "words" else data
    refuse_renamed(before, data)
    return data


def refuse_renamed(before: Data, now: Data) -> None:
    """A fingerprint is of the numbers alone: columns or classes under other names would be taken for each other."""
    where = before.source.get("path", before.source.get("name"))
    was, found = (*before.names, before.target, *before.labels), (*now.names, now.target, *now.labels)
    for old, new in zip_longest(was, found, fillvalue=""):
        if old != new:
            what = f"{old!r} is called {new!r} now"
            raise UsageError(f"{where} has changed since the run split it: {what}; put the old data back, or train anew")
