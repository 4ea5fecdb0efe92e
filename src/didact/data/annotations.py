"""Files that say where things are on images: COCO's JSON and Pascal VOC's XML.

A box is x1, y1, x2, y2 in pixels, the edges as they are written. VOC counts its pixels from 1, but the tools that write its format
today do so only at the border; what is taken as it stands is at most one pixel off.
"""

import json
import math
import os
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from didact.data.folder import PARTS
from didact.data.health import listed
from didact.data.image_files import SUFFIXES
from didact.data.readers import inside
from didact.errors import UsageError, counted

MARKS = {".json": (b'"images"', b'"annotations"'), ".xml": (b"<annotation",)}
BESIDE = ("", "images", "JPEGImages")  # where images lie, seen from an annotation file or the folder above it


@dataclass(frozen=True)
class Thing:
    """One object of an image: its class by name, its box."""

    label: str
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class Annotated:
    """An image file and what is on it; `size` is what the annotations say of it, where they do."""

    file: str
    things: tuple[Thing, ...]
    size: tuple[int, int] | None = None
    part: str = ""                     # train, validation or test, where the folder is divided so


def annotation_files(root: Path) -> list[Path]:
    """COCO's or VOC's files below a folder, sorted, by how they begin; hidden ones and other .json or .xml files do not count."""
    found = []
    for where, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        found += [Path(where) / f for f in sorted(files) if not f.startswith(".") and f.lower().endswith(tuple(MARKS))]
    found = [path for path in found if not path.is_symlink() or path.exists()]     # one that leads nowhere is no annotation
    return [path for path in found if (any if path.parent == root else all)(mark in head(path) for mark in MARKS[path.suffix.lower()])]


def head(path: Path, size: int = 1 << 20) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def read(root: Path) -> tuple[list[Annotated], list[str]]:
    """All annotated images of a folder, and what a person should know of them."""
    files = annotation_files(root)
    for path in files:
        inside(str(path), root)
    kinds = {p.suffix.lower() for p in files}
    if len(kinds) > 1:
        raise UsageError(f"{root} holds COCO's .json and VOC's .xml: keep one kind of annotations")
    crowds: Counter[str] = Counter()
    found = [a for path in files for a in (coco(path, root, crowds) if path.suffix.lower() == ".json" else [voc(path, root)])]
    if not found:
        raise UsageError(f"the annotations of {root} list no image: expected a COCO .json with images, or VOC .xml beside images")
    names = Counter(a.file for a in found)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise UsageError(f"annotated twice: {listed(twice)}; keep one annotation of each")
    if "train" not in {a.part for a in found}:          # COCO's instances_val2017.json alone: a set without splits
        found = [Annotated(a.file, a.things, a.size) for a in found]
    said = f"{len(files)} VOC .xml files" if ".xml" in kinds else f"COCO annotations {listed([p.name for p in files])}"
    return found, [said, *(f"passed over: {counted(n, 'crowd')} of {label!r}" for label, n in sorted(crowds.items()))]


def part_of(path: Path, root: Path) -> str:
    """The split that an annotation file belongs to: by a folder or a name such as train/, valid.json, instances_val2017.json."""
    relative = path.relative_to(root)
    words = [*relative.parts[:-1], *relative.stem.lower().strip("0123456789").split("_")]
    return next((PARTS[w] for word in words if (w := word.lower().strip("0123456789")) in PARTS), "")


def image_beside(name: str, path: Path, root: Path) -> str:
    """Where the image that an annotation file names lies."""
    tops = (path.parent, path.parent.parent, root) if path.parent != root else (root,)
    for top in dict.fromkeys(tops):
        for folder in BESIDE:
            if os.path.isfile(top / folder / name):
                return inside(str(top / folder / name), root)
    raise UsageError(f"{path} lists the image {name}, which is not there: put it beside, or into {root / 'images'}")


def coco(path: Path, root: Path, crowds: Counter[str]) -> Iterator[Annotated]:
    """{"images": [{id, file_name}], "annotations": [{image_id, category_id, bbox: [x, y, w, h]}], "categories": [{id, name}]}."""
    try:
        content = json.loads(path.read_bytes())
        labels = {c["id"]: str(c["name"]) for c in content["categories"]}
        images = {i["id"]: i for i in content["images"]}
        names = {key: str(i["file_name"]) for key, i in images.items()}
        marked = [(a["image_id"], a["category_id"], a["bbox"], a.get("iscrowd", 0)) for a in content["annotations"]]
        hash(tuple(key for image, category, _, _ in marked for key in (image, category)))  # a list or dict is no identity
    except (ValueError, RecursionError) as error:       # ValueError alone: an integer of thousands of digits
        raise UsageError(f"{path} is not JSON ({str(error).splitlines()[0]}); export the annotations again") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is not in COCO's format ({error!r}): expected images, annotations and categories, each a list") from None
    things: dict[Any, list[Thing]] = {key: [] for key in images}
    for image, category, bbox, crowd in marked:
        if image not in images:
            raise UsageError(f"{path} has a box on image {image!r}, which its images do not list; remove it or list the image")
        if category not in labels:
            raise UsageError(f"{path} has a box of category {category!r} on {names[image]}, but its categories are {listed(told(labels))}")
        if crowd:
            crowds[labels[category]] += 1
            continue
        x, y, w, h = four(bbox, path, names[image])
        things[image].append(Thing(labels[category], (x, y, x + w, y + h)))
    for key, image in images.items():
        yield Annotated(image_beside(names[key], path, root), tuple(things[key]), whole(image, "width", "height"), part_of(path, root))


def voc(path: Path, root: Path) -> Annotated:
    """<annotation><filename>, <size>, and for each <object> its <name> and <bndbox> of xmin, ymin, xmax, ymax."""
    try:
        tree = ET.fromstring(path.read_bytes())
    except (ET.ParseError, LookupError, ValueError) as error:
        raise UsageError(f"{path} is not XML ({error}); export the annotations again") from None
    if tree.tag != "annotation":
        raise UsageError(f"{path} is not in VOC's format: expected <annotation>, got <{tree.tag}>")
    name = voc_image(path, tree, root)
    size = tree.find("size")
    written = {} if size is None else {child.tag: child.text for child in size}
    return Annotated(name, tuple(voc_things(tree, path)), whole(written, "width", "height"), part_of(path, root))


def voc_things(tree: ET.Element, path: Path) -> Iterator[Thing]:
    for thing in tree.iter("object"):
        label, box = thing.findtext("name"), thing.find("bndbox")
        if not label or box is None:
            raise UsageError(f"{path} has an <object> without <name> or <bndbox>; complete or remove it")
        x1, y1, x2, y2 = four([box.findtext(side) for side in ("xmin", "ymin", "xmax", "ymax")], path, label)
        yield Thing(label.strip(), (x1, y1, x2, y2))


def voc_image(path: Path, tree: ET.Element, root: Path) -> str:
    """The image of the file's own name, whatever its ending, or else the one that it names: names inside are often of another day."""
    for suffix in SUFFIXES:
        for spelled in (suffix, suffix.upper()):
            if path.with_suffix(spelled).is_file():
                return inside(str(path.with_suffix(spelled)), root)
    return image_beside((tree.findtext("filename") or f"{path.stem}.jpg").strip(), path, root)


def four(values: Any, path: Path, where: str) -> Sequence[float]:
    """The four numbers of a box."""
    try:
        x = [float(v) for v in values]
    except (TypeError, ValueError, OverflowError):
        x = []
    if len(x) != 4 or not all(map(math.isfinite, x)):
        raise UsageError(f"{path}: a box is four numbers, got {shortened(values)} of {where}")
    return x


def shortened(value: Any) -> str:
    """A value as it came, or its beginning."""
    word = repr(value)
    return word if len(word) <= 80 else word[:79] + "…"


def whole(image: Mapping[str, Any], *names: str) -> tuple[int, int] | None:
    """Width and height where both are written; some tools write 0 for not known."""
    try:
        width, height = (int(image[name]) for name in names)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return (width, height) if width > 0 and height > 0 else None


def told(labels: Mapping[Any, str]) -> list[str]:
    return [f"{key} ({label})" for key, label in labels.items()]
