"""Bounding boxes: a folder of images with COCO's JSON or VOC's XML, and the blood cells of BCCD.

A batch holds "x" (B, C, H, W), "box" (B, M, 4) with x1, y1, x2, y2 as fractions of width and height, and "y" (B, M)
with the class of each box; images with fewer than M boxes are padded with boxes of class −1.
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

from didact.data.build import Examples, build_data, split_indices
from didact.data.checks import summarize_list
from didact.data.core import SPLITS, Batch, Data, Given
from didact.data.datasets.archives import read_decompressed, read_zip_members
from didact.data.datasets.download import RemoteFile, ensure_file, register_dataset, verify_content
from didact.data.folder_tree import FolderTree
from didact.data.images.coco_voc import (
    AnnotatedImage,
    BoxAnnotation,
    find_annotation_files,
    read_annotations,
    read_voc_boxes,
)
from didact.data.images.image_folder import (
    SPLIT_OF_FOLDER,
    ImageEncoder,
    check_size,
    describe_resize,
    infer_channels,
    load_images,
    make_path_locator,
    split_by_folders,
)
from didact.data.images.open_image import ImageHeader, read_header
from didact.data.storage import FileSplit
from didact.errors import UsageError, format_count

_MAX_DEFAULT_SIDE = 256      # side to which images are resized where no size is given
_SIDE_MULTIPLE = 32          # the default side is a multiple of it: detectors halve it five times
# the home page offers the photographs with an XML file for each; these files hold the same boxes as one table
_HOME_URL = "https://github.com/Shenggan/BCCD_Dataset/archive/refs/heads/master.zip"
_BCCD_FILES = (
    RemoteFile("bccd_images.zip", "4fe6cea72e1d1f74e0916ac4562d6357b77b2b09ffe276d94a2b3a5c8fd85183", _HOME_URL),
    RemoteFile("boxes.csv", "eb381d54d3cd315c08ad0a5d85f8ae22fb7c5cf01a3602858f5fe3d72a6ef1b8", _HOME_URL),
)
_CELL_CLASSES = ("RBC", "WBC", "Platelets")
_BCCD_IMAGE_SIZE = (640, 480)  # of each photograph; they are resized to half


@dataclass(frozen=True)
class BoxEncoder(ImageEncoder):
    """Image files -> bytes of one size, and their own sizes: boxes are predicted in pixels of the file."""

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        files, columns = super().read(inputs)
        return files, {**columns, "size": torch.tensor([read_header(file).size for file in files])}

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "kind": "boxes"}


@register_dataset(
    kind="boxes",
    task="detection",
    license="MIT; Shenggan 2017, photographs by cosmicad and akshaylamba",
    files=_BCCD_FILES,
)
def bccd(seed: int = 0) -> Data:
    """364 photographs of blood of 320 x 240 pixels with 4,886 boxes around red cells, white cells and platelets.

    The split is the dataset's own. Two of its boxes have no area and are left out.
    """
    photographs, images = read_bccd_files()
    encoder = BoxEncoder((3, _BCCD_IMAGE_SIZE[1] // 2, _BCCD_IMAGE_SIZE[0] // 2))
    x = torch.stack([encoder.open(io.BytesIO(photographs[image.file])) for image in images])  # type: ignore[arg-type]
    y, box, notes = _pack_boxes(images, [_BCCD_IMAGE_SIZE] * len(images), _CELL_CLASSES)
    indices = {part: torch.tensor([i for i, image in enumerate(images) if image.split == part]) for part in SPLITS}
    return build_data(
        Examples(
            "bccd",
            "boxes",
            {"x": x, "y": y, "box": box},
            task="detection",
            class_names=_CELL_CLASSES,
            target="boxes",
            encoder=encoder,
            notes=notes,
        ),
        indices=indices,
        seed=seed,
    )


def read_bccd_files() -> tuple[dict[str, bytes], list[AnnotatedImage]]:
    """Photographs by name and what is on them, from the two small files or from the home page's own one."""
    paths = [ensure_file("bccd", file) for file in _BCCD_FILES]
    # the home page's file has no known checksum: its pictures are counted instead
    if paths[0].name == _BCCD_FILES[0].download_name:
        contents = read_zip_members(paths[0], (".jpg", ".xml", ".txt"))
        splits = {
            name: SPLIT_OF_FOLDER[p]
            for p in ("train", "val", "test")
            for name in contents.get(f"{p}.txt", b"").decode().split()
        }
        boxes = {
            name: tuple(read_voc_boxes(ET.fromstring(contents[f"{name}.xml"]), paths[0]))
            for name in splits
            if f"{name}.xml" in contents
        }
    else:
        verify_content("bccd", _BCCD_FILES[0], paths[0], read_decompressed(paths[0]))
        contents, splits, boxes = read_zip_members(paths[0], (".jpg",)), {}, {}
        for row in csv.DictReader(
            io.StringIO(verify_content("bccd", _BCCD_FILES[1], paths[1], read_decompressed(paths[1])).decode())
        ):
            x1, y1, x2, y2 = (float(row[side]) for side in ("xmin", "ymin", "xmax", "ymax"))
            splits[row["image"]] = SPLIT_OF_FOLDER[row["split"]]
            boxes[row["image"]] = (*boxes.get(row["image"], ()), BoxAnnotation(row["class"], (x1, y1, x2, y2)))
    complete = [name for name in sorted(splits) if f"{name}.jpg" in contents and name in boxes]
    if len(complete) != 364:
        raise UsageError(f"bccd is 364 photographs with boxes, got {len(complete)}: a file is damaged; replace it")
    return contents, [AnnotatedImage(f"{name}.jpg", boxes[name], split=splits[name]) for name in complete]


def _pack_boxes(
    images: Sequence[AnnotatedImage], sizes: Sequence[tuple[int, int]], labels: Sequence[str]
) -> tuple[Tensor, Tensor, list[str]]:
    """Classes (N, M) and boxes (N, M, 4) as fractions of the image, clipped to it; notes on boxes clipped or left
    out."""
    class_ids = {label: k for k, label in enumerate(labels)}
    rows, clipped, empty = [], [], []
    for image, (width, height) in zip(images, sizes, strict=True):
        image_boxes = []
        for annotation in image.boxes:
            x1, y1, x2, y2 = annotation.box
            clipped_box = (max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height)))
            if clipped_box[0] >= clipped_box[2] or clipped_box[1] >= clipped_box[3]:
                empty.append(os.path.basename(image.file))
                continue
            if clipped_box != annotation.box:
                clipped.append(os.path.basename(image.file))
            image_boxes.append(
                (
                    clipped_box[0] / width,
                    clipped_box[1] / height,
                    clipped_box[2] / width,
                    clipped_box[3] / height,
                    class_ids[annotation.label],
                )
            )
        rows.append(image_boxes)
    M = max(1, *(len(image_boxes) for image_boxes in rows))
    y, box = torch.full((len(rows), M), -1), torch.zeros(len(rows), M, 4)
    for i, image_boxes in enumerate(rows):
        if image_boxes:
            values = torch.tensor(image_boxes)
            box[i, : len(image_boxes)], y[i, : len(image_boxes)] = values[:, :4], values[:, 4].long()
    num_empty = sum(not image_boxes for image_boxes in rows)
    notes = [
        f"{int((y >= 0).sum()):,} boxes of {len(labels)} classes, at most {M} on an image: {summarize_list(labels)}"
    ]
    for reason, files in (
        ("clipped where they reach beyond their image", clipped),
        ("left out for lack of area inside their image", empty),
    ):
        notes += (
            [f"{reason}: {len(files)} box{'es' * (len(files) != 1)} of {summarize_list(sorted(set(files)))}"]
            if files
            else []
        )
    notes += [f"no box on {format_count(num_empty, 'image')}"] if num_empty else []
    return y, box, notes


def is_detection_folder(root: Path | FolderTree) -> bool:
    """Whether a folder holds images with boxes, rather than classes of images."""
    return bool(find_annotation_files(FolderTree.of(root)))


def load_detection_folder(
    root: Path | FolderTree,
    *,
    size: int | None = None,
    seed: int = 0,
    indices: Mapping[str, Tensor] | None = None,
    run_data: Data | None = None,
) -> Data:
    """A folder of images with bounding boxes as Data: in memory where it fits, else read during training.

    `run_data`: the data of a run that is loaded again.
    """
    check_size(size)
    tree = FolderTree.of(root)
    root = tree.root
    images, notes = read_annotations(tree)
    headers = [_read_annotated_header(image) for image in images]
    sizes, modes = [header.size for header in headers], [header.mode for header in headers]
    labels = tuple(sorted({annotation.label for image in images for annotation in image.boxes}))
    if not labels:
        raise UsageError(f"the annotations of {root} hold no box on {len(images)} images: there is nothing to learn")
    side = size or -(-min(_MAX_DEFAULT_SIDE, max(max(sizes))) // _SIDE_MULTIPLE) * _SIDE_MULTIPLE
    files = tuple(image.file for image in images)
    indices = indices or split_by_folders([image.split for image in images], None, seed)
    indices = split_indices(root.name, len(files), None, task="detection", indices=indices, seed=seed)
    encoder, range_notes = BoxEncoder((infer_channels(modes), side, side)).with_value_range(
        files, modes, indices["train"], run_data
    )
    y, box, box_notes = _pack_boxes(images, sizes, labels)
    columns, fingerprint = load_images(files, encoder, {"y": y, "box": box}, torch.cat([y, box.flatten(1)], dim=1))
    notes += [*box_notes, describe_resize(Counter(sizes), encoder), *range_notes]
    if isinstance(columns, FileSplit):
        notes.append("the images are read during training; their boxes fit into memory")
    return build_data(
        Examples(
            root.resolve().name,
            "boxes",
            columns,
            task="detection",
            class_names=labels,
            target="boxes",
            encoder=encoder,
            notes=notes,
            locator=make_path_locator(root, files),
            fingerprint=fingerprint,
        ),
        indices=indices,
        seed=seed,
    )


def _read_annotated_header(image: AnnotatedImage) -> ImageHeader:
    """The header of an image that is as large as its annotations say."""
    header = read_header(image.file)
    width, height = header.size
    if image.size is not None and image.size != (width, height):
        expected = f"{image.size[0]}×{image.size[1]}"
        raise UsageError(
            f"{image.file} is {width}×{height} pixels, but its annotations are for {expected}; its boxes would lie "
            "elsewhere"
        )
    return header
