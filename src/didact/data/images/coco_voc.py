"""Annotation files: COCO's JSON and Pascal VOC's XML.

A box is x1, y1, x2, y2 in pixels, as written. VOC counts pixels from 1, but the tools that write its format today do so
only at the border; a box is at most one pixel off.
"""

import math
import os
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from didact.data.checks import summarize_list
from didact.data.datasets.archives import inside
from didact.data.folder_tree import FolderTree
from didact.data.images.image_folder import SPLIT_OF_FOLDER
from didact.data.images.open_image import IMAGE_SUFFIXES
from didact.errors import UsageError, format_count
from didact.schema import parse_foreign_json

FORMAT_MARKERS = {".json": (b'"images"', b'"annotations"'), ".xml": (b"<annotation",)}
_IMAGE_FOLDERS = ("", "images", "JPEGImages")  # where images are, from an annotation file's folder or the one above


@dataclass(frozen=True)
class BoxAnnotation:
    """One object of an image: its class by name, its box."""

    label: str
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class AnnotatedImage:
    """An image file and its boxes; `size` is the one in the annotations, where they have it."""

    file: str
    boxes: tuple[BoxAnnotation, ...]
    size: tuple[int, int] | None = None
    split: str = ""                     # train, validation or test, where folders name it


def find_annotation_files(tree: FolderTree) -> list[Path]:
    """COCO's or VOC's files below a folder, sorted, by how they begin; other .json or .xml files do not count."""
    return [
        path
        for path in tree.list_files(tuple(FORMAT_MARKERS))
        if (any if path.parent == tree.root else all)(
            mark in read_head(path) for mark in FORMAT_MARKERS[path.suffix.lower()]
        )
    ]


def read_head(path: Path, size: int = 1 << 20) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def read_annotations(tree: FolderTree) -> tuple[list[AnnotatedImage], list[str]]:
    """All annotated images of a folder, and notes on them."""
    root, files = tree.root, find_annotation_files(tree)
    for path in files:
        inside(str(path), root)
    suffixes = {p.suffix.lower() for p in files}
    if len(suffixes) > 1:
        raise UsageError(f"{root} holds COCO's .json and VOC's .xml: keep one kind of annotations")
    crowd_counts: Counter[str] = Counter()
    images = [
        a
        for path in files
        for a in (_read_coco(path, root, crowd_counts) if path.suffix.lower() == ".json" else [_read_voc(path, root)])
    ]
    if not images:
        raise UsageError(
            f"the annotations of {root} list no image: expected a COCO .json with images, or VOC .xml beside images"
        )
    names = Counter(a.file for a in images)
    duplicates = sorted(name for name, count in names.items() if count > 1)
    if duplicates:
        raise UsageError(f"annotated twice: {summarize_list(duplicates)}; keep one annotation of each")
    if "train" not in {a.split for a in images}:          # COCO's instances_val2017.json alone: no splits
        images = [AnnotatedImage(a.file, a.boxes, a.size) for a in images]
    summary = (
        f"{len(files)} VOC .xml files"
        if ".xml" in suffixes
        else f"COCO annotations {summarize_list([p.name for p in files])}"
    )
    return images, [
        summary,
        *(f"ignored: {format_count(n, 'crowd')} of {label!r}" for label, n in sorted(crowd_counts.items())),
    ]


def _infer_split(path: Path, root: Path) -> str:
    """The split that an annotation file belongs to: by a folder or a name such as train/, valid.json,
    instances_val2017.json."""
    relative = path.relative_to(root)
    words = [*relative.parts[:-1], *relative.stem.lower().strip("0123456789").split("_")]
    return next(
        (SPLIT_OF_FOLDER[w] for word in words if (w := word.lower().strip("0123456789")) in SPLIT_OF_FOLDER), ""
    )


def _find_image(name: str, path: Path, root: Path) -> str:
    """The path of the image that an annotation file names."""
    search_roots = (path.parent, path.parent.parent, root) if path.parent != root else (root,)
    for search_root in dict.fromkeys(search_roots):
        for folder in _IMAGE_FOLDERS:
            if os.path.isfile(search_root / folder / name):
                return inside(str(search_root / folder / name), root)
    raise UsageError(f"{path} lists the image {name}, which is not there: put it beside, or into {root / 'images'}")


def _read_coco(path: Path, root: Path, crowd_counts: Counter[str]) -> Iterator[AnnotatedImage]:
    """{"images": [{id, file_name}], "annotations": [{image_id, category_id, bbox: [x, y, w, h]}], "categories":
    [{id, name}]}."""
    try:
        content = parse_foreign_json(path.read_bytes())
        labels = {c["id"]: str(c["name"]) for c in content["categories"]}
        images = {i["id"]: i for i in content["images"]}
        names = {key: str(i["file_name"]) for key, i in images.items()}
        annotations = [
            (a["image_id"], a["category_id"], a["bbox"], a.get("iscrowd", 0)) for a in content["annotations"]
        ]
        # a list or dict is no id
        hash(tuple(key for image, category, _, _ in annotations for key in (image, category)))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({str(error).splitlines()[0]}); export the annotations again") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is not in COCO's format ({error!r}): expected images, annotations and categories, each a list"
        ) from None
    boxes: dict[Any, list[BoxAnnotation]] = {key: [] for key in images}
    for image, category, bbox, crowd in annotations:
        if image not in images:
            raise UsageError(
                f"{path} has a box on image {image!r}, which its images do not list; remove it or list the image"
            )
        if category not in labels:
            raise UsageError(
                f"{path} has a box of category {category!r} on {names[image]}, but its categories are "
                f"{summarize_list(_describe_labels(labels))}"
            )
        if crowd:
            crowd_counts[labels[category]] += 1
            continue
        x, y, w, h = _parse_box(bbox, path, names[image])
        boxes[image].append(BoxAnnotation(labels[category], (x, y, x + w, y + h)))
    for key, image in images.items():
        yield AnnotatedImage(
            _find_image(names[key], path, root),
            tuple(boxes[key]),
            _parse_image_size(image, "width", "height"),
            _infer_split(path, root),
        )


def _read_voc(path: Path, root: Path) -> AnnotatedImage:
    """<annotation><filename>, <size>, and for each <object> its <name> and <bndbox> of xmin, ymin, xmax, ymax."""
    try:
        tree = ET.fromstring(path.read_bytes())
    except (ET.ParseError, LookupError, ValueError) as error:
        raise UsageError(f"{path} is not XML ({error}); export the annotations again") from None
    if tree.tag != "annotation":
        raise UsageError(f"{path} is not in VOC's format: expected <annotation>, got <{tree.tag}>")
    name = _find_voc_image(path, tree, root)
    size = tree.find("size")
    size_fields = {} if size is None else {child.tag: child.text for child in size}
    return AnnotatedImage(
        name,
        tuple(read_voc_boxes(tree, path)),
        _parse_image_size(size_fields, "width", "height"),
        _infer_split(path, root),
    )


def read_voc_boxes(tree: ET.Element, path: Path) -> Iterator[BoxAnnotation]:
    for element in tree.iter("object"):
        label, box = element.findtext("name"), element.find("bndbox")
        if not label or box is None:
            raise UsageError(f"{path} has an <object> without <name> or <bndbox>; complete or remove it")
        x1, y1, x2, y2 = _parse_box([box.findtext(side) for side in ("xmin", "ymin", "xmax", "ymax")], path, label)
        yield BoxAnnotation(label.strip(), (x1, y1, x2, y2))


def _find_voc_image(path: Path, tree: ET.Element, root: Path) -> str:
    """The image with the file's own name, or else the one that it names: names inside are often outdated."""
    for suffix in IMAGE_SUFFIXES:
        for cased_suffix in (suffix, suffix.upper()):
            if path.with_suffix(cased_suffix).is_file():
                return inside(str(path.with_suffix(cased_suffix)), root)
    return _find_image((tree.findtext("filename") or f"{path.stem}.jpg").strip(), path, root)


def _parse_box(values: Any, path: Path, subject: str) -> Sequence[float]:
    """The four numbers of a box."""
    try:
        x = [float(v) for v in values]
    except (TypeError, ValueError, OverflowError):
        x = []
    if len(x) != 4 or not all(map(math.isfinite, x)):
        raise UsageError(f"{path}: a box is four numbers, got {_shorten(values)} of {subject}")
    return x


def _shorten(value: Any) -> str:
    """A value as given, or its beginning."""
    word = repr(value)
    return word if len(word) <= 80 else word[:79] + "…"


def _parse_image_size(fields: Mapping[str, Any], *keys: str) -> tuple[int, int] | None:
    """Width and height where both are written; some tools write 0 for unknown."""
    try:
        width, height = (int(fields[key]) for key in keys)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return (width, height) if width > 0 and height > 0 else None


def _describe_labels(labels: Mapping[Any, str]) -> list[str]:
    return [f"{key} ({label})" for key, label in labels.items()]
