"""Images with boxes around the things on them: a folder of one's own, and the blood cells of BCCD.

A batch holds "x" (B, C, H, W), "box" (B, M, 4) with x1, y1, x2, y2 as shares of width and height, and "y" (B, M) with the class of
each box; rows that fill up an image with fewer things have class −1. One's own folder holds images with COCO's JSON or VOC's XML.
"""

import csv
import io
import os
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact.data.annotations import Annotated, Thing, annotation_files, read, voc_things
from didact.data.assemble import assemble, divide
from didact.data.core import SPLITS, Batch, Data, Given
from didact.data.fetch import File, check, locate, source
from didact.data.folder import PARTS, Found, ImageEncoder, below, channels_of, decoded, divided, in_size, of_files
from didact.data.health import listed
from didact.data.image_files import dimensions
from didact.data.readers import content, unzipped
from didact.data.stream import Streamed, resident_limit
from didact.errors import UsageError, counted

LARGEST = 256       # side to which images are brought when none is asked for
MULTIPLE = 32       # of which that side is one: networks halve it five times
# the home page offers the photographs with an XML file for each; the same boxes are kept here as one table
HOME = "https://github.com/Shenggan/BCCD_Dataset/archive/refs/heads/master.zip"
BCCD = (
    File("bccd_images.zip", "4fe6cea72e1d1f74e0916ac4562d6357b77b2b09ffe276d94a2b3a5c8fd85183", HOME),
    File("boxes.csv", "eb381d54d3cd315c08ad0a5d85f8ae22fb7c5cf01a3602858f5fe3d72a6ef1b8", HOME),
)
CELLS = ("RBC", "WBC", "Platelets")
BLOOD = (640, 480)  # pixels of each photograph; half of them are enough


@dataclass(frozen=True)
class BoxEncoder(ImageEncoder):
    """Image files -> bytes of one size, and how large they were: boxes are told in the pixels of the file."""

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        files, columns = super().read(inputs)
        return files, {**columns, "size": torch.tensor([dimensions(file)[0] for file in files])}

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "kind": "boxes"}


@source(kind="boxes", task="detection", licence="MIT; Shenggan 2017, photographs by cosmicad and akshaylamba", files=BCCD)
def bccd(seed: int = 0) -> Data:
    """364 photographs of blood of 320 x 240 pixels with 4,886 boxes around red cells, white cells and platelets.

    The split is the set's own. Two of its boxes have no area and are left out.
    """
    photographs, found = blood()
    encoder = BoxEncoder((3, BLOOD[1] // 2, BLOOD[0] // 2))
    x = torch.stack([encoder.open(io.BytesIO(photographs[image.file])) for image in found])  # type: ignore[arg-type]
    y, box, notes = packed(found, [BLOOD] * len(found), CELLS)
    indices = {part: torch.tensor([i for i, image in enumerate(found) if image.part == part]) for part in SPLITS}
    return assemble(
        "bccd", "boxes", {"x": x, "y": y, "box": box}, task="detection", labels=CELLS, target="boxes", encoder=encoder,
        indices=indices, seed=seed, notes=notes,
    )


def blood() -> tuple[dict[str, bytes], list[Annotated]]:
    """Photographs by name and what is on them, from the two small files or from the home page's own one."""
    paths = [locate("bccd", file) for file in BCCD]
    if paths[0].name == BCCD[0].offered:      # of the home page's file we know no sum: its number of pictures is looked at instead
        found = unzipped(paths[0], (".jpg", ".xml", ".txt"))
        part = {name: PARTS[p] for p in ("train", "val", "test") for name in found.get(f"{p}.txt", b"").decode().split()}
        things = {name: tuple(voc_things(ET.fromstring(found[f"{name}.xml"]), paths[0])) for name in part if f"{name}.xml" in found}
    else:
        check("bccd", BCCD[0], paths[0], content(paths[0]))
        found, part, things = unzipped(paths[0], (".jpg",)), {}, {}
        for row in csv.DictReader(io.StringIO(check("bccd", BCCD[1], paths[1], content(paths[1])).decode())):
            x1, y1, x2, y2 = (float(row[side]) for side in ("xmin", "ymin", "xmax", "ymax"))
            part[row["image"]] = PARTS[row["split"]]
            things[row["image"]] = (*things.get(row["image"], ()), Thing(row["class"], (x1, y1, x2, y2)))
    whole = [name for name in sorted(part) if f"{name}.jpg" in found and name in things]
    if len(whole) != 364:
        raise UsageError(f"bccd is 364 photographs with boxes, got {len(whole)}: a file is damaged; replace it")
    return found, [Annotated(f"{name}.jpg", things[name], part=part[name]) for name in whole]


def packed(images: Sequence[Annotated], sizes: Sequence[tuple[int, int]], labels: Sequence[str]) -> tuple[Tensor, Tensor, list[str]]:
    """Classes (N, M) and boxes (N, M, 4) as shares of the image, clipped to it; what was clipped or left out is said."""
    number = {label: k for k, label in enumerate(labels)}
    rows, clipped, empty = [], [], []
    for image, (width, height) in zip(images, sizes, strict=True):
        kept = []
        for thing in image.things:
            x1, y1, x2, y2 = thing.box
            inside = (max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height)))
            if inside[0] >= inside[2] or inside[1] >= inside[3]:
                empty.append(os.path.basename(image.file))
                continue
            if inside != thing.box:
                clipped.append(os.path.basename(image.file))
            kept.append((inside[0] / width, inside[1] / height, inside[2] / width, inside[3] / height, number[thing.label]))
        rows.append(kept)
    M = max(1, *(len(kept) for kept in rows))
    y, box = torch.full((len(rows), M), -1), torch.zeros(len(rows), M, 4)
    for i, kept in enumerate(rows):
        if kept:
            filled = torch.tensor(kept)
            box[i, : len(kept)], y[i, : len(kept)] = filled[:, :4], filled[:, 4].long()
    bare = sum(not kept for kept in rows)
    notes = [f"{int((y >= 0).sum()):,} boxes of {len(labels)} classes, at most {M} on an image: {listed(labels)}"]
    for what, files in (("clipped where they reach beyond their image", clipped), ("left out for lack of area inside their image", empty)):
        notes += [f"{what}: {len(files)} box{'es' * (len(files) != 1)} of {listed(sorted(set(files)))}"] if files else []
    notes += [f"nothing is shown on {counted(bare, 'image')}"] if bare else []
    return y, box, notes


def is_boxes(root: Path) -> bool:
    """Whether a folder holds images with boxes, rather than classes of images."""
    return bool(annotation_files(root))


def load(
    root: Path, *, size: int | None = None, seed: int = 0, indices: Mapping[str, Tensor] | None = None, before: Data | None = None
) -> Data:
    """A folder of images with boxes as Data: in memory where it fits, else read while learning. `before`: what a run kept of them."""
    if size is not None and size < 1:
        raise UsageError(f"--size expects a side of at least 1 pixel, got {size}")
    images, notes = read(root)
    measured = [fitting(image) for image in images]
    sizes, modes = [size for size, _ in measured], [mode for _, mode in measured]
    labels = tuple(sorted({thing.label for image in images for thing in image.things}))
    if not labels:
        raise UsageError(f"the annotations of {root} hold no box on {len(images)} images: there is nothing to learn")
    side = size or -(-min(LARGEST, max(max(sizes))) // MULTIPLE) * MULTIPLE
    files = tuple(image.file for image in images)
    parts = Found(files, torch.zeros(len(files), dtype=torch.long), tuple(image.part for image in images), labels, 0)
    indices = divide(root.name, len(files), None, task="detection", indices=indices or divided(parts, seed), seed=seed)
    encoder, deep = BoxEncoder((channels_of(modes), side, side)).spanning(files, modes, indices["train"], before)
    y, box, told = packed(images, sizes, labels)
    notes += [*told, in_size(Counter(sizes), encoder), *deep]
    if len(files) * encoder.shape[0] * side * side > resident_limit():
        workers = min(8, os.cpu_count() or 1)
        columns: Batch | Streamed = Streamed(files, encoder.open, {"y": y, "box": box}, encoder.decoders, workers)
        notes.append("the images are read while learning; their boxes fit")
    else:
        columns = {"x": decoded(files, encoder), "y": y, "box": box}
    return assemble(
        root.resolve().name, "boxes", columns, task="detection", labels=labels, target="boxes", encoder=encoder,
        indices=indices, seed=seed, notes=notes,
        whence=below(root, files), fingerprint=of_files(files, encoder, torch.cat([y, box.flatten(1)], dim=1)),
    )


def fitting(image: Annotated) -> tuple[tuple[int, int], str]:
    """The size of an image that is as large as its annotations say, and its mode."""
    (width, height), mode = dimensions(image.file)
    if image.size is not None and image.size != (width, height):
        said = f"{image.size[0]}×{image.size[1]}"
        raise UsageError(f"{image.file} is {width}×{height} pixels, but its annotations are for {said}; its boxes would lie elsewhere")
    return (width, height), mode
