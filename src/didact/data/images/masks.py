"""Segmentation masks: a folder of images with a mask for each, and the Penn-Fudan pedestrians.

The folder holds images/ and masks/ with files of equal names (street.jpg, street.png). Folders train, val and test
inside both, or around both, are the split. A mask is gray or has a palette: its values are the classes. In classes.txt
beside them, line k, counted from 0, names class k. As in VOC, 255 beside classes 0, 1, 2 … is no class: those pixels do
not count.
"""

import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didact.data.build import Examples, build_data, split_indices
from didact.data.checks import summarize_list
from didact.data.core import IGNORE_LABEL, Data
from didact.data.datasets.archives import inside, read_decompressed, read_zip_members
from didact.data.datasets.download import RemoteFile, ensure_file, register_dataset, verify_content
from didact.data.folder_tree import FolderTree
from didact.data.images.image_folder import (
    SPLIT_OF_FOLDER,
    ImageEncoder,
    check_size,
    describe_resize,
    describe_splits,
    infer_channels,
    load_images,
    make_path_locator,
    split_by_folders,
)
from didact.data.images.open_image import ImageHeader, open_image, read_header
from didact.data.storage import FileSplit
from didact.errors import UsageError

_MAX_DEFAULT_SIDE = 128      # side to which images are resized where no size is given
_SIDE_MULTIPLE = 16          # the default side is a multiple of it: segmentation networks halve it a few times
_MAX_UNNAMED_CLASSES = 64     # values of masks without classes.txt, above which they are shades of gray
_MAX_JPEG_VALUES = 2         # values of a JPEG mask, above which some are compression artifacts
PENNFUDAN_SIDE = 192
# the home page offers the photographs as 54 MB of PNG; this file holds 9 MB of JPEG, and the same masks
_HOME_URL = "https://www.cis.upenn.edu/~jshi/ped_html/PennFudanPed.zip"
_PENNFUDAN_FILES = (
    RemoteFile("pennfudan_jpeg90.zip", "36840989652349ee80ee7e32542f48da95d999eaafd091692c3ac9e6594f6936", _HOME_URL),
    RemoteFile("pennfudan_masks.zip", "c7eb73a53b2a7bbeae10b69f0e265fb63b8de96e63f067a740dbf1d8ffeede33", _HOME_URL),
)


@register_dataset(
    kind="masks",
    task="segmentation",
    license="no license stated, research use; Wang, Shi, Song and Shen 2007",
    files=_PENNFUDAN_FILES,
)
def pennfudan(seed: int = 0) -> Data:
    """170 street photographs of 192 x 192 pixels with masks of their pedestrians.

    The test split is the last fifth of each place's pictures (Fudan 60-74, Penn 78-96): neighbors show the same street,
    and a random split would test on what was trained on.
    """
    photographs, masks = _read_pennfudan()
    names = sorted(photographs)
    encoder = ImageEncoder((3, PENNFUDAN_SIDE, PENNFUDAN_SIDE))
    x = torch.stack([encoder.open(io.BytesIO(photographs[name])) for name in names])  # type: ignore[arg-type]
    y = torch.stack(
        [resize_mask_to_side(_open_mask(io.BytesIO(masks[name])), PENNFUDAN_SIDE) > 0 for name in names]
    ).to(torch.uint8)
    test_indices = [i for i, name in enumerate(names) if int(name[-5:]) >= (60 if name.startswith("Fudan") else 78)]
    return build_data(
        Examples(
            "pennfudan",
            "masks",
            {"x": x, "y": y},
            task="segmentation",
            class_names=("street", "pedestrian"),
            target="mask",
            encoder=encoder,
        ),
        test_indices=torch.tensor(test_indices),
        fractions=(0.12, 0.0),
        seed=seed,
    )


def _read_pennfudan() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Photographs and masks by name, from the two small files or from the home page's own one."""
    contents: dict[str, bytes] = {}
    for file in _PENNFUDAN_FILES:
        path = ensure_file("pennfudan", file)
        # the home page's file has no known checksum: its pictures are counted instead
        if path.name != file.download_name:
            verify_content("pennfudan", file, path, read_decompressed(path))
        contents |= read_zip_members(path, (".png", ".jpg"))
    masks = {name.removesuffix("_mask.png"): raw for name, raw in contents.items() if name.endswith("_mask.png")}
    photographs = {name[:-4]: raw for name, raw in contents.items() if name[:-4] in masks}
    if len(masks) != 170 or len(photographs) != 170:
        raise UsageError(
            f"pennfudan is 170 photographs with masks, got {len(photographs)}: a file is damaged; replace it"
        )
    return photographs, masks


def _open_mask(file: Any) -> Tensor:
    """(H, W) class indices as stored: palette indices, not colors."""
    with open_image(file) as mask:
        if mask.mode not in ("1", "L", "P", "I", "I;16"):
            problem = "is in color" if mask.mode not in ("LA", "La", "F") else "has no whole numbers in one channel"
            raise UsageError(
                f"the mask {file} {problem} ({mask.mode}): expected gray or a palette, whose values are the classes; "
                "save it so"
            )
        values = np.asarray(mask).astype(np.int64)
        if mask.format in ("JPEG", "MPO") or mask.info.get("compression") == "jpeg":
            distinct = np.unique(values)
            if len(distinct) > _MAX_JPEG_VALUES:
                raise UsageError(
                    f"the mask {file} is a JPEG and holds {len(distinct)} values: JPEG blurs class numbers; save masks "
                    "as PNG"
                )
        return torch.from_numpy(values)


def resize_mask_to_side(mask: Tensor, side: int) -> Tensor:
    """The mask resized by nearest neighbor: between class 1 and class 3 there is no class 2."""
    height, width = mask.shape
    rows, columns = (((torch.arange(side) + 0.5) * n / side).long() for n in (height, width))
    return mask[rows][:, columns]


def is_segmentation_folder(root: Path | FolderTree) -> bool:
    """Whether a folder holds images with masks, rather than classes of images."""
    tree = FolderTree.of(root)
    return any(
        (top / "images").is_dir() and (top / "masks").is_dir()
        for top in [tree.root, *_list_split_folders(tree, "train")]
    )


def _list_split_folders(tree: FolderTree, *splits: str) -> list[Path]:
    """The folders inside that are named as a split is, or as one of these."""
    return [
        folder
        for folder in tree.list_subfolders()
        if SPLIT_OF_FOLDER.get(folder.name.lower(), "") in (splits or SPLIT_OF_FOLDER.values())
    ]


def load_segmentation_folder(
    root: Path | FolderTree,
    *,
    size: int | None = None,
    seed: int = 0,
    indices: Mapping[str, Tensor] | None = None,
    run_data: Data | None = None,
) -> Data:
    """A folder of images with masks as Data: in memory where it fits, else read during training.

    `run_data`: the data of a run that is loaded again.
    """
    check_size(size)
    tree = FolderTree.of(root)
    root = tree.root
    files, masks, splits, num_outside = _pair_images_with_masks(tree)
    headers = [read_header(file) for file in files]
    sizes, modes = Counter(header.stored_size for header in headers), [header.mode for header in headers]
    max_side = min(_MAX_DEFAULT_SIDE, max(sizes.most_common(1)[0][0]))
    side = size or -(-max_side // _SIDE_MULTIPLE) * _SIDE_MULTIPLE
    y, labels, class_notes = _read_mask_classes(root, files, headers, masks, side)
    indices = indices or split_by_folders(splits, None, seed)
    indices = split_indices(root.name, len(files), None, task="segmentation", indices=indices, seed=seed)
    encoder, range_notes = ImageEncoder((infer_channels(modes), side, side)).with_value_range(
        files, modes, indices["train"], run_data
    )
    columns, fingerprint = load_images(files, encoder, {"y": y}, y)
    notes = [
        f"{len(files):,} images with masks of {len(labels)} classes: {summarize_list(labels)}",
        *class_notes,
        describe_resize(sizes, encoder),
        *range_notes,
        *describe_splits(splits, num_outside),
    ]
    if bool((y == IGNORE_LABEL).any()):
        notes.append(
            f"{100 * float((y == IGNORE_LABEL).double().mean()):.2g} % of the pixels are {IGNORE_LABEL}, of no class: "
            "they do not count"
        )
    if isinstance(columns, FileSplit):
        notes.append("the images are read during training; their masks fit into memory")
    return build_data(
        Examples(
            root.resolve().name,
            "masks",
            columns,
            task="segmentation",
            class_names=labels,
            target="mask",
            encoder=encoder,
            notes=notes,
            locator=make_path_locator(root, files),
            fingerprint=fingerprint,
        ),
        indices=indices,
        seed=seed,
    )


def _pair_images_with_masks(tree: FolderTree) -> tuple[list[str], list[str], list[str], int]:
    """Image and mask files of equal names, whatever their suffixes; the split of each, if folders name it; how many
    images lie in none of those."""
    root = tree.root
    split_roots = [root] if (root / "images").is_dir() else _list_split_folders(tree)
    files_by_half = [
        {
            name: file
            for split_root in split_roots
            for name, file in _list_files_by_name(tree, split_root, subfolder).items()
        }
        for subfolder in ("images", "masks")
    ]
    for one, other, (a, b) in (
        (files_by_half[0], files_by_half[1], ("image", "masks")),
        (files_by_half[1], files_by_half[0], ("mask", "images")),
    ):
        unpaired = sorted(one.keys() - other.keys())
        if unpaired:
            raise UsageError(
                f"{len(unpaired)} {a}s of {root} have no file of that name in {b}/: {summarize_list(unpaired)}; add or "
                "delete"
            )
    names = sorted(files_by_half[0])
    if not names:
        raise UsageError(f"{split_roots[0]}/images holds no image: expected images/<name>.jpg with masks/<name>.png")
    splits = {name: SPLIT_OF_FOLDER.get(name.split(os.sep)[0].lower(), "") if os.sep in name else "" for name in names}
    if "train" not in splits.values():
        splits = dict.fromkeys(names, "")                             # then val or test is a folder like any other
    used_names = [name for name in names if splits[name]] or names
    return (
        [files_by_half[0][name] for name in used_names],
        [files_by_half[1][name] for name in used_names],
        [splits[name] for name in used_names],
        len(names) - len(used_names),
    )


def _list_files_by_name(tree: FolderTree, split_root: Path, subfolder: str) -> dict[str, str]:
    """The files of split_root/images or split_root/masks by name, the split first and no suffix: train/street."""
    split, folder = os.path.relpath(split_root, tree.root), split_root / subfolder
    return {
        os.path.normpath(os.path.join(split, os.path.splitext(os.path.relpath(file, folder))[0])): file
        for file in tree.list_images(folder)[0]
    }


def _read_mask_classes(
    root: Path, files: Sequence[str], headers: Sequence[ImageHeader], masks: Sequence[str], side: int
) -> tuple[Tensor, tuple[str, ...], list[str]]:
    """(N, side, side) bytes, the class names (of classes.txt, or else the values of the masks), and notes."""
    listing_path = root / "classes.txt"
    inside(str(listing_path), root)
    try:
        lines = listing_path.read_text(encoding="utf-8").rstrip().splitlines() if listing_path.is_file() else []
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{listing_path} cannot be read ({error}): expected a class name on each line, in UTF-8"
        ) from None
    class_names = tuple(word.strip() for word in lines)
    # skipped, it would shift the names of all values behind it
    if "" in class_names:
        line_index = class_names.index("")
        raise UsageError(
            f"line {line_index + 1} of {listing_path} is empty, but names the value {line_index} of the masks; write "
            "its name, or delete the line"
        )
    if len(class_names) > IGNORE_LABEL:
        raise UsageError(
            f"{listing_path} names {len(class_names)} classes: a mask's bytes hold at most {IGNORE_LABEL}"
        )
    values: set[int] = set(range(len(class_names)))
    raw_masks = torch.empty(len(files), side, side, dtype=torch.int32)
    images_with_value: Counter[int] = Counter()                       # images on which a value occurs

    def read_mask(row: int) -> tuple[Tensor, list[int]]:
        mask = _open_matching_mask(masks[row], files[row], headers[row].size)
        # decoders release Python's lock, so threads help
        return resize_mask_to_side(mask, side), mask.unique().tolist()

    with ThreadPoolExecutor() as pool:
        for i, (mask, present_values) in enumerate(pool.map(read_mask, range(len(files)))):
            unknown = [v for v in present_values if v not in values and not (class_names and v == IGNORE_LABEL)]
            if class_names and unknown:
                raise UsageError(
                    f"the mask {masks[i]} holds class {unknown[0]}, but {listing_path} names {len(class_names)}: 0 to "
                    f"{len(class_names) - 1}"
                )
            values.update(unknown)
            images_with_value.update(present_values)
            raw_masks[i] = mask
    if len(values) > _MAX_UNNAMED_CLASSES and not class_names:
        raise UsageError(
            f"the masks of {root} hold {len(values)} values: shades? if they are classes, name them in {listing_path}"
        )
    if len(values) < 2:
        raise UsageError(
            f"the masks of {root} hold only the value {min(values)}: segmentation needs at least two classes"
        )
    regular_values = values - {IGNORE_LABEL}
    # 255 beside 0 alone, or beside shades, is a class
    if class_names or (len(regular_values) > 1 and regular_values == set(range(len(regular_values)))):
        values = regular_values
    class_values = torch.tensor(sorted(values))
    labels = class_names or (
        ("background", "foreground") if values in ({0, 255}, {0, 1}) else tuple(map(str, class_values.tolist()))
    )
    class_frequencies = sorted(
        (images_with_value[value], label) for value, label in zip(class_values.tolist(), labels, strict=True)
    )
    frequencies_text = summarize_list([f"{label} on {n:,}" for n, label in class_frequencies])
    notes = (
        []
        if class_names
        else [
            "no classes.txt: the values of masks are the classes; images that show each, the rarest first: "
            f"{frequencies_text}"
        ]
    )
    return (
        torch.where(torch.isin(raw_masks, class_values), torch.searchsorted(class_values, raw_masks), IGNORE_LABEL).to(
            torch.uint8
        ),
        labels,
        notes,
    )


def _open_matching_mask(path: str, image: str, size: tuple[int, int]) -> Tensor:
    """A mask that covers its image, pixel for pixel."""
    mask = _open_mask(path)
    width, height = size
    if mask.shape != (height, width):
        mask_size = f"{mask.shape[1]}×{mask.shape[0]}"
        raise UsageError(
            f"the mask {path} is {mask_size} pixels, but its image {image} is {width}×{height}; make them equal"
        )
    return mask
